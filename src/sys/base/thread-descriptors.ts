/**
 * Closes the descriptors of worker threads that end without closing them: one that is terminated from outside (`worker.terminate()`) runs no code any
 * more, and its descriptors belong to the process.
 *
 * Node.js runs the cleanup hooks of a thread's environment however the thread ends, after its event loop and calls of other threads in its name. Each
 * descriptor that this folder has made in a worker thread has such a hook, which is close(2). The main thread ends with the process, and needs none.
 */

import { isMainThread } from 'node:worker_threads';
import { koffi } from './koffi.ts';
import { dlsym } from './libc.ts';

const POINTER = 'uint64_t';
const program = koffi.load(null);
const addHook: (env: typeof koffi.node.env, call: number, argument: number) => number = program.func(
  'napi_add_env_cleanup_hook',
  'int',
  [POINTER, POINTER, POINTER],
);
const removeHook: typeof addHook = program.func('napi_remove_env_cleanup_hook', 'int', [POINTER, POINTER, POINTER]);

/** The address of close(2). */
const closeAddress: number = isMainThread ? 0 : dlsym(0, 'close');
/** The descriptors with a hook. Node.js aborts when the same hook is added twice. */
const noted = new Set<number>();

/** Records a descriptor that this thread has made or received; negative values are ignored. Returns it. */
export function noteDescriptor(fd: number): number {
  if (isMainThread || fd < 0 || noted.has(fd)) return fd;
  noted.add(fd);
  addHook(koffi.node.env, closeAddress, fd);
  return fd;
}

/** Removes a descriptor before it is closed, and one that becomes the program's: it is no longer closed behind a terminated thread. */
export function forgetDescriptor(fd: number): void {
  if (noted.delete(fd)) removeHook(koffi.node.env, closeAddress, fd);
}
