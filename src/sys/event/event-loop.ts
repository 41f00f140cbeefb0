/**
 * The libuv event loop of this thread: polled descriptors and their callbacks. Internal to sys/.
 *
 * koffi creates the handles, and closes them when the thread is torn down, but this module registers their callback. libuv calls it even after the thread was
 * terminated from outside, when JavaScript cannot run: it then does nothing, whereas the callback of koffi 3.3.4 would end the process.
 */

import { inNextTurn } from '../../ucs/sys/next-turn.ts';
import { Errno } from '../base/errno.ts';
import { koffi } from '../base/libc.ts';
import { SyscallError } from '../base/syscall-error.ts';

const POINTER = 'uint64_t';
/** `UV_POLL` of `uv_handle_type`. */
const UV_POLL = 8;
const UV_READABLE = 1;

/** The program itself: Node.js exports libuv and Node-API for addons. */
const program = koffi.load(null);

const eventLoopOf: (env: typeof koffi.node.env, loop: (number | bigint)[]) => number = program.func(
  'napi_get_uv_event_loop',
  'int',
  [POINTER, '_Out_ uint64_t *'],
);
const walk: (loop: number | bigint, visit: bigint, argument: number) => void = program.func('uv_walk', 'void', [
  POINTER,
  POINTER,
  POINTER,
]);
const typeOf: (handle: number) => number = program.func('uv_handle_get_type', 'int', [POINTER]);
const descriptorOf: (handle: number, fd: number[]) => number = program.func('uv_fileno', 'int', [
  POINTER,
  '_Out_ int *',
]);
const restart: (handle: number, events: number, callback: bigint) => number = program.func('uv_poll_start', 'int', [
  POINTER,
  'int',
  POINTER,
]);

/** A handle of koffi. */
type KoffiPoll = ReturnType<typeof koffi.node.poll>;

/** Callbacks by the address of the handle. The map also keeps koffi's handles alive, which garbage collection would close. */
const polls = new Map<number, { readonly handle: KoffiPoll; readonly callback: () => void }>();

/** A polled descriptor. `close()` removes its callback, so that none runs afterwards, and closes the handle. */
export class PollHandle {
  readonly #address: number;
  readonly #handle: KoffiPoll;

  constructor(address: number, handle: KoffiPoll) {
    this.#address = address;
    this.#handle = handle;
  }

  ref(): void {
    this.#handle.ref();
  }

  unref(): void {
    this.#handle.unref();
  }

  close(): void {
    polls.delete(this.#address);
    this.#handle.close();
  }
}

const loop: (number | bigint)[] = [0];
eventLoopOf(koffi.node.env, loop);

const continuePromises = (): void => {};

/** `uv_poll_cb` */
const onReadable = koffi.register(
  (handle: number) => {
    polls.get(handle)?.callback();
    // From Node.js 26 on, the continuations of promises settled in a native callback do not run when it returns: this runs them before the loop sleeps.
    inNextTurn(continuePromises);
  },
  koffi.pointer(koffi.proto('void', [POINTER, 'int', 'int'])),
);

let wanted = -1;
let found = 0;
/** `uv_walk_cb` */
const onHandle = koffi.register(
  (handle: number) => {
    const fd = [-1];
    if (typeOf(handle) === UV_POLL && descriptorOf(handle, fd) === 0 && fd[0] === wanted) found = handle;
  },
  koffi.pointer(koffi.proto('void', [POINTER, POINTER])),
);

/**
 * Starts a `uv_poll` for readability in the event loop of this thread. The caller (poll.ts) must avoid two cases that koffi 3.3.4 does not handle: a descriptor
 * that epoll rejects or that this loop polls already aborts the process, and an exception in `callback` is lost.
 * @throws SyscallError ENOENT if the handle is not in the loop, which did not occur with any tested version of koffi
 */
export function startPoll(fd: number, callback: () => void): PollHandle {
  const handle = koffi.node.poll(fd, { readable: true }, () => undefined);
  wanted = fd;
  found = 0;
  walk(loop[0]!, onHandle, 0);
  const address = found;
  if (address === 0) {
    handle.close();
    throw new SyscallError('uv_walk', Errno.ENOENT, `no handle of descriptor ${fd}`);
  }
  polls.set(address, { handle, callback });
  restart(address, UV_READABLE, onReadable);
  return new PollHandle(address, handle);
}
