/** Removes the frames of this package from the top of an error's stack, so that it begins at the program's call. */

import { fileURLToPath } from 'node:url';

/** Maximum number of frames of the package between a call of the program and the creation of an error: V8 records that many more. */
const OWN_FRAMES_MAX = 20;

/** Prefix of a frame's line in V8. */
const FRAME = '\n    at ';

const OWN_FOLDERS = ownFolders(import.meta.url);

/**
 * Makes the stack of an error begin at the frame of the program. A stack without a frame of the program, as in background progress, keeps all its frames.
 * Frames are recorded now, and printed when the stack is read.
 * @param above the running function; its frame and those of functions that it has called are omitted in any case
 */
export function startAtCaller(error: Error, above: CallableFunction | NewableFunction = startAtCaller): void {
  if (OWN_FOLDERS.length === 0) return;
  const limit = Error.stackTraceLimit;
  // A program may have set the limit to 0, or frozen it (--frozen-intrinsics).
  if (!(limit > 0) || !Reflect.set(Error, 'stackTraceLimit', limit + OWN_FRAMES_MAX)) return;
  const trace: { readonly stack?: unknown } = {};
  Error.captureStackTrace(trace, above);
  Error.stackTraceLimit = limit;
  Object.defineProperty(error, 'stack', {
    configurable: true,
    get: () => {
      const { stack } = trace;
      const shown = typeof stack === 'string' ? cutOwnFrames(stack, String(error), limit, OWN_FOLDERS) : stack;
      setStack(error, shown);
      return shown;
    },
    set: (stack: unknown) => setStack(error, stack),
  });
}

function setStack(error: Error, value: unknown): void {
  Object.defineProperty(error, 'stack', { configurable: true, writable: true, value });
}

/**
 * Removes the frames before the first one that belongs neither to `folders` nor to Node.js; keeps all frames if there is no such frame.
 * @param title first line of the stack
 * @param limit the most frames that are kept
 */
export function cutOwnFrames(stack: string, title: string, limit: number, folders: readonly string[]): string {
  const frames = stack.split(FRAME).slice(1);
  const first = frames.findIndex((frame) => !isNodes(frame) && !folders.some((folder) => frame.includes(folder)));
  return [title, ...frames.slice(Math.max(0, first)).slice(0, limit)].join(FRAME);
}

function isNodes(frame: string): boolean {
  return frame.includes('node:') || frame.includes('<anonymous>') || /^async Promise\.|^new Promise \(/.test(frame);
}

/**
 * Folders of the package's files and, as source maps name them, of its sources: as URLs and as paths. Empty if the module is not a file of the package's build:
 * a program's bundle contains both in one file, and the tests of the package are in its folders.
 */
export function ownFolders(url: string | undefined): string[] {
  const root = /^(file:.*\/)dist\/lib\/[^/]+$/.exec(url ?? '')?.[1];
  if (root === undefined) return [];
  return [root, fileURLToPath(root)].flatMap((prefix) => [`${prefix}dist/lib/`, `${prefix}src/`]);
}
