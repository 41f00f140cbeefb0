/** The stack of an error from the program's call on: the frames of this package above it are cut off. */

import { fileURLToPath } from 'node:url';

/** Frames of the package between a call of the program and the place where an error is made: V8 keeps so many more. */
const OWN_FRAMES_MAX = 20;

/** How V8 begins the line of a frame. */
const FRAME = '\n    at ';

const OWN_FOLDERS = ownFolders(import.meta.url);

/**
 * Lets the stack of an error begin at the frame of the program. One that was made without a frame of the program, as by background progress, keeps all its
 * frames. Frames are recorded now, and printed when the stack is read.
 * @param above the running function whose frame, and those of the functions that it has called, are left out anyway
 */
export function startAtCaller(error: Error, above: CallableFunction | NewableFunction = startAtCaller): void {
  if (OWN_FOLDERS.length === 0) return;
  const limit = Error.stackTraceLimit;
  // A program may have set 0, or frozen it (--frozen-intrinsics).
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
 * A stack without the frames before the first one that is neither of `folders` nor of Node.js; all frames, if every frame is.
 * @param title what the stack begins with
 * @param limit the number of frames that are left at most
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
 * Folders of the package's files and, as source maps name them, of its sources: as URLs and as paths. None if the module is not a file of the package's build: a
 * bundle of a program has both in one file, and the tests of the package are in its folders.
 */
export function ownFolders(url: string | undefined): string[] {
  const root = /^(file:.*\/)dist\/lib\/[^/]+$/.exec(url ?? '')?.[1];
  if (root === undefined) return [];
  return [root, fileURLToPath(root)].flatMap((prefix) => [`${prefix}dist/lib/`, `${prefix}src/`]);
}
