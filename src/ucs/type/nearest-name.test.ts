import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { editDistance, nearestName } from './nearest-name.ts';

describe('editDistance', () => {
  it.each([
    ['', '', 0],
    ['', 'abc', 3],
    ['kitten', 'sitting', 3],
    ['flaw', 'lawn', 2],
  ])('of %j and %j is %i', (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
  });

  it('is a metric', () => {
    const word = fc.string({ maxLength: 8 });
    fc.assert(
      fc.property(word, word, word, (a, b, c) => {
        expect(editDistance(a, b)).toBe(editDistance(b, a));
        expect(editDistance(a, b) === 0).toBe(a === b);
        expect(editDistance(a, c)).toBeLessThanOrEqual(editDistance(a, b) + editDistance(b, c));
      }),
    );
  });
});

describe('nearestName', () => {
  it('finds the closest candidate, the first among equals', () => {
    expect(nearestName('UCX_TLSS', ['UCX_TLS', 'UCX_LOG_LEVEL'])).toBe('UCX_TLS');
    expect(nearestName('UCX_TL', ['UCX_TLZ', 'UCX_TLA'])).toBe('UCX_TLA');
    expect(nearestName('UCX_TLA', ['UCX_TLZ', 'UCX_TLA'])).toBe('UCX_TLA');
  });

  it('finds the one with the same words among equals', () => {
    expect(nearestName('UCX_MN_FIFO_SIZE', ['UCX_LOG_FILE_SIZE', 'UCX_POSIX_FIFO_SIZE'])).toBe('UCX_POSIX_FIFO_SIZE');
  });

  it('finds a name in other case', () => {
    expect(nearestName('ucx_net_devices', ['UCX_ACC_DEVICES', 'UCX_NET_DEVICES'])).toBe('UCX_NET_DEVICES');
  });

  it('returns undefined if no candidate is close', () => {
    expect(nearestName('UCX_TLS', ['UCX_LOG_LEVEL'])).toBeUndefined();
    expect(nearestName('UCX_TLS', [])).toBeUndefined();
    expect(nearestName('ABCDEF', ['UVWXYZ'])).toBeUndefined();
  });

  it('replaces a third of the characters at most', () => {
    expect(nearestName('ABCDEF', ['ABCDXY'])).toBe('ABCDXY');
    expect(nearestName('ABCDEF', ['ABCXYZ'])).toBeUndefined();
  });
});
