/**
 * Starts worker threads from modules of this package, both from TypeScript source (tests, development) and from the compiled package.
 * What the worker does, and its messages, are the caller's.
 */

import { Worker, type WorkerOptions } from 'node:worker_threads';

/**
 * Starts `name` of the folder of `moduleUrl` in a worker thread: as JavaScript when the caller is JavaScript itself (the published package),
 * otherwise as TypeScript through tsx, a development dependency (130 ms to start, against 33). A module that cannot be loaded
 * is an `error` event of the worker.
 * @param moduleUrl `import.meta.url` of the caller
 * @param name the module relative to it without extension, such as `./engine-thread`
 * @param options of node:worker_threads; `workerData` reaches the worker
 */
export function startWorker(moduleUrl: string, name: string, options: WorkerOptions = {}): Worker {
  if (new URL(moduleUrl).pathname.endsWith('.js')) return new Worker(new URL(`${name}.js`, moduleUrl), options);
  // The worker starts from a module without a file, as tsx has no effect in a worker that gets it by --import (tsx 4.23, Node 20).
  const loader = JSON.stringify(import.meta.resolve('tsx/esm/api'));
  const target = JSON.stringify(new URL(`${name}.ts`, moduleUrl).href);
  const bootstrap = `import { register } from ${loader}; register(); await import(${target});`;
  return new Worker(new URL(`data:text/javascript,${encodeURIComponent(bootstrap)}`), options);
}
