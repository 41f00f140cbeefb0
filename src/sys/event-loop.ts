/**
 * The event loop of this thread as libuv has it: descriptors that it polls, and the function that it calls. Internal to sys/, like libc.ts; what a subscription
 * is, poll.ts says.
 *
 * The handles are those of koffi, which closes them when the thread is torn down. Its callback is not used: libuv calls it also after the thread was
 * ended from outside, when no JavaScript can run, and koffi 3.3.4 then ends the process. A callback that is registered with koffi does nothing then.
 */

import './platform.ts';
import koffi from 'koffi';
import { Errno } from './errno.ts';
import { SyscallError } from './syscall-error.ts';

const POINTER = 'uint64_t';
/** `UV_POLL` of `uv_handle_type`. */
const UV_POLL = 8;
const UV_READABLE = 1;

/** The program itself: Node.js exports libuv and Node-API for addons. */
const program = koffi.load(null);

const eventLoopOf = program.func('napi_get_uv_event_loop', 'int', [POINTER, '_Out_ uint64_t *']) as unknown as (
  env: bigint,
  loop: (number | bigint)[],
) => number;
const walk = program.func('uv_walk', 'void', [POINTER, POINTER, POINTER]) as unknown as (
  loop: number | bigint,
  visit: bigint,
  argument: number,
) => void;
const typeOf = program.func('uv_handle_get_type', 'int', [POINTER]) as unknown as (handle: number) => number;
const descriptorOf = program.func('uv_fileno', 'int', [POINTER, '_Out_ int *']) as unknown as (
  handle: number,
  fd: number[],
) => number;
const restart = program.func('uv_poll_start', 'int', [POINTER, 'int', POINTER]) as unknown as (
  handle: number,
  events: number,
  callback: bigint,
) => number;

/** A descriptor that the loop polls. Nothing of it is called after `close()`, which frees what the others touch. */
export interface PollHandle {
  ref(): void;
  unref(): void;
  close(): void;
}

/** What is called, by the address of the handle. It keeps koffi's handles, too, which end with their garbage collection. */
const polls = new Map<number, { readonly handle: PollHandle; readonly callback: () => void }>();
const loop: (number | bigint)[] = [0];
eventLoopOf(koffi.node.env as unknown as bigint, loop);

/** `uv_poll_cb` */
const onReadable = koffi.register(
  (handle: number) => polls.get(handle)?.callback(),
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
 * Starts a `uv_poll` for readability in the event loop of this thread. What koffi 3.3.4 leaves to poll.ts: a descriptor that epoll refuses, or that this
 * loop polls already, aborts the process; an exception in `callback` vanishes.
 * @throws SyscallError ENOENT where the handle is not in the loop, which no version of koffi that was tried does
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
  return {
    ref: () => handle.ref(),
    unref: () => handle.unref(),
    close: () => {
      polls.delete(address);
      handle.close();
    },
  };
}
