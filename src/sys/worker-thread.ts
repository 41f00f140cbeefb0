/**
 * Starts worker threads from modules of this package, both from TypeScript source (tests, development) and from the compiled package.
 * What the worker does, and its messages, are the caller's.
 */

import { Worker, type WorkerOptions } from 'node:worker_threads';

/**
 * Starts `name` of the folder of `moduleUrl` in a worker thread: as JavaScript when the caller is JavaScript itself (the published package),
 * otherwise as TypeScript through tsx, a development dependency.
 * @param moduleUrl `import.meta.url` of the caller
 * @param name the module relative to it without extension, such as `./engine-thread`
 * @param options of node:worker_threads; `workerData` reaches the worker
 */
export function startWorker(moduleUrl: string, name: string, options: WorkerOptions = {}): Worker {
  if (new URL(moduleUrl).pathname.endsWith('.js')) return new Worker(new URL(`${name}.js`, moduleUrl), options);
  // Resolved here and not from the working directory, which may be anywhere.
  const loader = import.meta.resolve('tsx');
  return new Worker(new URL(`${name}.ts`, moduleUrl), { ...options, execArgv: ['--import', loader] });
}
