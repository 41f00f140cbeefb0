/** Starts worker threads from compiled modules of this package. What the worker does, and its messages, are the caller's. */

import { Worker, type WorkerOptions } from 'node:worker_threads';

/**
 * Starts `name` of the folder of `moduleUrl` in a worker thread. Where the caller is TypeScript, which not every version of Node.js runs,
 * the thread runs the build of that module: `dist/src` for `src`. A module that cannot be loaded is an `error` event of the worker.
 * @param moduleUrl `import.meta.url` of the caller
 * @param name the module relative to it without extension, such as `./engine-thread`
 * @param options of node:worker_threads; `workerData` reaches the worker
 */
export function startWorker(moduleUrl: string, name: string, options: WorkerOptions = {}): Worker {
  const caller = moduleUrl.endsWith('.ts') ? moduleUrl.replace(/^(.*)\/src\//, '$1/dist/src/') : moduleUrl;
  // Options of the process are for its own program: a worker that inherits --input-type from `node -e` refuses to load a file.
  return new Worker(new URL(`${name}.js`, caller), { ...options, execArgv: [] });
}
