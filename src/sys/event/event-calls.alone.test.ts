/** Events over scripted calls: units of time-outs, signals, full counters, and what is left when a call fails. */

import { expect, it, vi } from 'vitest';
import { failure, useScript } from '../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../test/fixtures/processes/scripted-libc.ts';
import { Errno } from '../base/errno.ts';
import { viewAt } from '../base/mapped-memory.ts';
import { isCloexec } from '../file/file.ts';
import { EventFd } from './event-fd.ts';
import { EventSet, ReadyFor } from './event-set.ts';
import { futexWait, futexWake } from './futex.ts';
import { EventAlarm, pollReadable } from './poll.ts';

vi.mock('../base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();

it.each([
  [0, 0],
  [1234, 1234],
  [100_000_000, 100_000_000],
  [100_000_001, 100_000_000],
  [Number.POSITIVE_INFINITY, 100_000_000],
])('a futex wait of %s ns waits %s ns, for a word that other processes share', (timeoutNs, expected) => {
  const seen: unknown[] = [];
  script('futex', (number, address, operation, value, timeout) => {
    seen.push([number, address, operation, value, ...new BigUint64Array(viewAt(timeout!, 16))]);
    return -Errno.EINTR;
  });
  expect(futexWait(0x7000, 0xffff_fff0, timeoutNs)).toBe(-Errno.EINTR);
  expect(seen).toEqual([[202, 0x7000, 0, 0xffff_fff0, 0n, BigInt(expected)]]);
});

it('a futex wake-up is for as many sleepers as the caller says, and has the errno', () => {
  const seen: unknown[] = [];
  const note = (...args: number[]): number => seen.push(args.slice(0, 4)) + 4;
  script('futex', note, -Errno.EFAULT, 0);
  expect([futexWake(0x7000, 9), futexWake(1, 1), futexWait(0x7000, 0, 1)]).toEqual([5, -Errno.EFAULT, 0]);
  expect(seen).toEqual([[202, 0x7000, 1, 9]]);
});

it('a counter ignores signals of the process, and is full without an error', () => {
  using event = new EventFd();
  expect(isCloexec(event.fd)).toBe(true);
  script('write', -Errno.EINTR, -Errno.EINTR);
  event.signal(3);
  script('read', -Errno.EINTR);
  expect(event.tryRead()).toBe(3);
  script('write', -Errno.EAGAIN);
  event.signal();
  expect(event.tryRead()).toBe(0);
  script('write', -Errno.EIO);
  expect(() => event.signal()).toThrow(failure(Errno.EIO));
  script('read', -Errno.EIO);
  expect(() => event.tryRead()).toThrow(failure(Errno.EIO));
  // 2^64 - 2 are the most: the second word is written too.
  for (let i = 0; i < 3; i++) event.signal(0xffff_ffff);
  expect(event.tryRead()).toBe(3 * 0xffff_ffff);
  event.signal(5);
  expect(event.tryRead()).toBe(5);
});

it('a counter that cannot be made is an error', () => {
  script('eventfd', -Errno.EMFILE);
  expect(() => new EventFd()).toThrow(failure(Errno.EMFILE));
});

it('a set reports descriptors with their own tokens and events, without waiting, and frees what it had', () => {
  using first = new EventFd();
  using second = new EventFd();
  const set = new EventSet();
  set.add(first.fd, ReadyFor.READ, 0xffff_fffe);
  set.add(second.fd, ReadyFor.READ | ReadyFor.WRITE, 7);
  const ready = (): number[][] =>
    Array.from({ length: set.poll() }, (_, i) => [set.token(i), set.events(i)]).sort(([a], [b]) => a! - b!);
  expect(ready()).toEqual([[7, ReadyFor.WRITE]]);
  first.signal();
  second.signal();
  expect(ready()).toEqual([
    [7, ReadyFor.READ | ReadyFor.WRITE],
    [0xffff_fffe, ReadyFor.READ],
  ]);
  set.modify(second.fd, ReadyFor.READ, 8);
  expect(ready().map(([token]) => token)).toEqual([8, 0xffff_fffe]);
  set.remove(first.fd);
  expect(ready()).toEqual([[8, ReadyFor.READ]]);
  expect(() => set.remove(first.fd)).toThrow(failure(Errno.ENOENT));
  expect(() => set.add(second.fd, 0, 1)).toThrow(failure(Errno.EEXIST));
  const waits: unknown[] = [];
  script('epollWait', -Errno.EINTR, (_set, _events, count, timeout) => waits.push([count, timeout]) - 1, -Errno.EBADF);
  expect([set.poll(), set.poll()]).toEqual([0, 0]);
  expect(waits).toEqual([[64, 0]]);
  set.close();
  set.close();
});

it('a set that cannot be made leaves nothing', () => {
  script('epollCreate', -Errno.EMFILE);
  expect(() => new EventSet()).toThrow(failure(Errno.EMFILE));
});

it('a subscription that cannot be made leaves nothing', () => {
  using event = new EventFd();
  script('epollCreate', -Errno.EMFILE);
  expect(() => pollReadable(event.fd, () => {})).toThrow(failure(Errno.EMFILE));
  script('epollControl', -Errno.EPERM);
  expect(() => pollReadable(event.fd, () => {})).toThrow(failure(Errno.EPERM));
});

/** Several turns of the event loop, in which a descriptor that is polled would call back. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
}

it('an alarm rings once each time it is armed, also for a descriptor that stays readable, until it is closed', async () => {
  using event = new EventFd();
  let rings = 0;
  const alarm = new EventAlarm(event.fd, () => {
    rings += 1;
  });
  event.signal();
  await turns();
  expect(rings).toBe(0);
  for (const expected of [1, 2]) {
    alarm.arm();
    for (let turn = 0; turn < 1000 && rings < expected; turn++) await new Promise(setImmediate);
    await turns();
    expect(rings).toBe(expected);
  }
  alarm.arm();
  alarm.close();
  alarm.close();
  await turns();
  expect(rings).toBe(2);
});

it('an alarm that finds no report does not ring', async () => {
  using event = new EventFd();
  let rings = 0;
  const alarm = new EventAlarm(event.fd, () => {
    rings += 1;
  });
  let polled = false;
  script('epollWait', () => {
    polled = true;
    return 0;
  });
  event.signal();
  alarm.arm();
  for (let turn = 0; turn < 1000 && !polled; turn++) await new Promise(setImmediate);
  expect([polled, rings]).toEqual([true, 0]);
  alarm.close();
});

it('an alarm that cannot be made leaves nothing', () => {
  using event = new EventFd();
  script('epollControl', -Errno.EPERM);
  expect(() => new EventAlarm(event.fd, () => {})).toThrow(failure(Errno.EPERM));
  script('epollControl', 0, -Errno.EMFILE);
  expect(() => new EventAlarm(event.fd, () => {})).toThrow(failure(Errno.EMFILE));
});

it('a subscription that another callback closes does not call back any more', async () => {
  using first = new EventFd();
  using second = new EventFd();
  const called: number[] = [];
  const subscriptions = [first, second].map(({ fd }, index) =>
    pollReadable(fd, () => {
      called.push(index);
      for (const each of subscriptions) each.close();
    }),
  );
  first.signal();
  second.signal();
  for (let turn = 0; turn < 1000 && called.length === 0; turn++) await new Promise(setImmediate);
  await turns();
  expect(called).toHaveLength(1);
});
