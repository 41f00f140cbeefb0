import { describe, expect, it } from 'vitest';
import { keysOf } from './keys.ts';

describe('keysOf', () => {
  it('returns the own keys in their order', () => {
    const sizes = { small: 1, large: 2 };
    expect(keysOf(sizes).map((name) => sizes[name])).toEqual([1, 2]);
    expect(keysOf(sizes)).toEqual(['small', 'large']);
  });
});
