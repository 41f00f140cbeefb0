/**
 * Sleeping and waking on a 32-bit word in shared memory, between threads and between processes. Not a lock.
 *
 * A wait blocks the thread with its event loop: only in workers, or for the shortest times. Waking a thread that sleeps on another
 * CPU takes about 20 us: spin first.
 */

import { errno, futex } from './libc.ts';
import { allocateScratch, type ScratchBlock } from './scratch.ts';

const SYS_FUTEX = 202;
// Without FUTEX_PRIVATE_FLAG: the word may be in memory of several processes.
const FUTEX_WAIT = 0;
const FUTEX_WAKE = 1;
const TIMESPEC_BYTES = 16;

/** The longest sleep of one call, 100 ms: neither process.exit() nor worker.terminate() can interrupt one. */
export const FUTEX_TIMEOUT_NS_MAX = 100_000_000;

let timeout: ScratchBlock | undefined;

/**
 * Sleeps while the word at `address` is `expected`, until a wake-up. May return early for no reason: re-check the word and loop.
 * @param address 4-byte aligned
 * @param expected unsigned 32 bits
 * @param timeoutNs at least 0; more than {@link FUTEX_TIMEOUT_NS_MAX} is shortened to it
 * @returns 0 after a wake-up; -EAGAIN when the word was different; -ETIMEDOUT; -EINTR; -EFAULT or -EINVAL for a bad address
 */
export function futexWait(address: number, expected: number, timeoutNs: number): number {
  timeout ??= allocateScratch(TIMESPEC_BYTES);
  timeout.words[2] = Math.min(timeoutNs, FUTEX_TIMEOUT_NS_MAX);
  return futex(SYS_FUTEX, address, FUTEX_WAIT, expected, timeout.address, 0, 0) === 0 ? 0 : -errno();
}

/**
 * Wakes up to `count` sleepers.
 * @returns how many were woken, or -errno: -EFAULT or -EINVAL for a bad address
 */
export function futexWake(address: number, count: number): number {
  const woken = futex(SYS_FUTEX, address, FUTEX_WAKE, count, 0, 0, 0);
  return woken >= 0 ? woken : -errno();
}
