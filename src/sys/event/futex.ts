/**
 * Sleeping and waking on a 32-bit word in shared memory, between threads and between processes.
 *
 * A wait blocks the thread and its event loop: use it in workers, or for very short times. Waking a thread that sleeps on another CPU takes about 20 us: spin
 * first.
 */

import { errno, futex } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';

const SYS_FUTEX = 202;
// Without FUTEX_PRIVATE_FLAG: the word may be in shared memory of several processes.
const FUTEX_WAIT = 0;
const FUTEX_WAKE = 1;
const TIMESPEC_BYTES = 16;

/** Maximum sleep of one call, 100 ms: neither process.exit() nor worker.terminate() can interrupt it. */
export const FUTEX_TIMEOUT_NS_MAX = 100_000_000;

let timeout: ScratchBlock | undefined;

/**
 * Sleeps while the word at `address` is `expected`, until it is woken. Wake-ups may be spurious: check the word again and loop.
 * @param address 4-byte aligned
 * @param expected unsigned 32 bits
 * @param timeoutNs at least 0; limited to {@link FUTEX_TIMEOUT_NS_MAX}
 * @returns 0 after a wake-up; -EAGAIN if the word has another value; -ETIMEDOUT; -EINTR; -EFAULT or -EINVAL for an invalid address
 */
export function futexWait(address: number, expected: number, timeoutNs: number): number {
  timeout ??= allocateScratch(TIMESPEC_BYTES);
  timeout.words[2] = Math.min(timeoutNs, FUTEX_TIMEOUT_NS_MAX);
  return futex(SYS_FUTEX, address, FUTEX_WAIT, expected, timeout.address, 0, 0) === 0 ? 0 : -errno();
}

/**
 * Wakes up to `count` sleepers.
 * @returns the number of woken sleepers, or -errno: -EFAULT or -EINVAL for an invalid address
 */
export function futexWake(address: number, count: number): number {
  const woken = futex(SYS_FUTEX, address, FUTEX_WAKE, count, 0, 0, 0);
  return woken >= 0 ? woken : -errno();
}
