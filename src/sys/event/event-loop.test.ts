/** Polled descriptors in the event loop: which of them keep the process alive. */

import { describe, expect, it, vi } from 'vitest';
import { koffi } from '../base/libc.ts';
import { EventFd } from './event-fd.ts';
import { startPoll } from './event-loop.ts';
import { EventAlarm, pollReadable } from './poll.ts';

const POINTER = 'uint64_t';
const UV_POLL = 8;

const program = koffi.load(null);
const typeOf: (handle: number) => number = program.func('uv_handle_get_type', 'int', [POINTER]);
const hasReference: (handle: number) => number = program.func('uv_has_ref', 'int', [POINTER]);
const walk: (loop: number | bigint, visit: bigint, argument: number) => void = program.func('uv_walk', 'void', [
  POINTER,
  POINTER,
  POINTER,
]);
const loop: (number | bigint)[] = [0];
program.func('napi_get_uv_event_loop', 'int', [POINTER, '_Out_ uint64_t *'])(koffi.node.env, loop);

/** Number of polled descriptors that keep this process alive. */
function keepers(): number {
  let count = 0;
  const visit = koffi.register(
    (handle: number) => {
      if (typeOf(handle) === UV_POLL && hasReference(handle) !== 0) count += 1;
    },
    koffi.pointer(koffi.proto('void', [POINTER, POINTER])),
  );
  walk(loop[0]!, visit, 0);
  koffi.unregister(visit);
  return count;
}

describe('a polled descriptor', () => {
  it('keeps the process alive unless its subscription is unreferenced, and again when it is referenced', () => {
    using event = new EventFd();
    const before = keepers();
    using subscription = pollReadable(event.fd, () => {});
    const after = [keepers()];
    for (const change of ['unref', 'unref', 'ref', 'unref'] as const) {
      subscription[change]();
      after.push(keepers());
    }
    expect(after).toEqual([before + 1, before, before, before + 1, before]);
  });

  it('has no callback after its handle was closed, even if libuv still reports the descriptor', async () => {
    const poll = vi.spyOn(koffi.node, 'poll');
    using event = new EventFd();
    using next = new EventFd();
    let calls = 0;
    const closed = startPoll(event.fd, () => {
      calls += 1;
    });
    const handle = poll.mock.results[0]!.value as { close(): void };
    poll.mockRestore();
    const close = vi.spyOn(handle, 'close').mockReturnValue(undefined);
    closed.close();
    expect(close).toHaveBeenCalledTimes(1);
    close.mockRestore();
    event.signal();
    next.signal();
    // The loop reports both descriptors in the same turn.
    await new Promise<void>((resolve) => {
      const later = startPoll(next.fd, () => {
        later.close();
        resolve();
      });
    });
    await new Promise(setImmediate);
    handle.close();
    expect(calls).toBe(0);
  });

  it('of an alarm does not keep the process alive, also when it is armed', () => {
    using event = new EventFd();
    const before = keepers();
    const alarm = new EventAlarm(event.fd, () => {});
    expect(keepers()).toBe(before);
    alarm.arm();
    expect(keepers()).toBe(before);
    alarm.close();
  });
});
