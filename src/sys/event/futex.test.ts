import { describe, expect, it } from 'vitest';
import { Errno } from '../base/errno.ts';
import { mapAnonymous } from '../base/mapped-memory.ts';
import { FUTEX_TIMEOUT_NS_MAX, futexWait, futexWake } from './futex.ts';

describe('futexWait', () => {
  it('does not sleep if the word is different', () => {
    using memory = mapAnonymous(4096);
    memory.words[0] = 0xffffffff;
    expect(futexWait(memory.address, 1, FUTEX_TIMEOUT_NS_MAX)).toBe(-Errno.EAGAIN);
    expect(futexWait(memory.address, 0xffffffff, 1000)).toBe(-Errno.ETIMEDOUT);
  });

  it('returns within its limit, for any time-out', () => {
    using memory = mapAnonymous(4096);
    expect(futexWait(memory.address, 0, Number.POSITIVE_INFINITY)).toBe(-Errno.ETIMEDOUT);
  });

  it('reports bad addresses', () => {
    expect(futexWait(4096, 0, 1000)).toBe(-Errno.EFAULT);
    expect(futexWait(4097, 0, 1000)).toBe(-Errno.EINVAL);
    expect(futexWake(4097, 1)).toBe(-Errno.EINVAL);
  });
});
