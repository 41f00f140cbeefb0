/** Starts worker threads from compiled modules of this package. The callers define the work and the messages. */

import { closeSync, constants, existsSync, openSync } from 'node:fs';
import { Worker, type WorkerOptions } from 'node:worker_threads';

/**
 * Starts `name` in the folder of `moduleUrl` in a worker thread. If the caller is TypeScript, which some versions of Node.js cannot run, the thread runs the
 * bundle of that module: `dist/lib/<name>.js`, an entry of rolldown.config.ts. If the module cannot be loaded, the worker emits `error`.
 * @param moduleUrl `import.meta.url` of the caller
 * @param name the module relative to it without extension, such as `./engine-thread`
 * @param options of node:worker_threads; the worker receives `workerData`
 */
export function startWorker(moduleUrl: string, name: string, options: WorkerOptions = {}): Worker {
  const restore = leaveDeletedFolder();
  const worker = makeWorker(moduleUrl, name, options);
  if (restore !== undefined) {
    // Either event may come first; `exit` always comes.
    worker.once('online', restore);
    worker.once('exit', restore);
  }
  return worker;
}

/** Descriptor of the deleted working directory that the process has left, and the number of threads that are starting. */
let deleted = -1;
let starting = 0;

/**
 * Moves the process to the root directory if its working directory was deleted: Node.js reads the working directory while a thread starts, and the thread fails
 * if it does not exist.
 * @returns a function that restores the directory, once; undefined if the directory exists
 */
function leaveDeletedFolder(): (() => void) | undefined {
  if (deleted < 0) {
    try {
      process.cwd();
      return undefined;
    } catch {
      deleted = openSync('.', constants.O_RDONLY | constants.O_DIRECTORY);
      process.chdir('/');
    }
  }
  starting += 1;
  let isBack = false;
  return () => {
    if (isBack) return;
    isBack = true;
    starting -= 1;
    if (starting > 0) return;
    process.chdir(`/proc/self/fd/${deleted}`);
    closeSync(deleted);
    deleted = -1;
  };
}

/**
 * Whether the module that {@link startWorker} would run exists. It does not exist next to a program's bundle that includes this package.
 * @param moduleUrl `import.meta.url` of the caller; undefined in CommonJS bundles
 */
export function hasWorker(moduleUrl: string | undefined, name: string): boolean {
  return moduleUrl !== undefined && existsSync(workerUrl(moduleUrl, name));
}

function makeWorker(moduleUrl: string, name: string, options: WorkerOptions): Worker {
  // execArgv is empty, because process options are for the main program: a worker that inherits --input-type from `node -e` cannot load a file.
  return new Worker(workerUrl(moduleUrl, name), { ...options, execArgv: [] });
}

function workerUrl(moduleUrl: string, name: string): URL {
  const caller = moduleUrl.endsWith('.ts') ? moduleUrl.replace(/^(.*)\/src\/.*$/, '$1/dist/lib/caller.js') : moduleUrl;
  return new URL(`${name}.js`, caller);
}
