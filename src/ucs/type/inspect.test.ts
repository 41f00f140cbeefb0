/** The representation of objects, and texts cut to their columns. */

import { describe, expect, it } from 'vitest';
import { clip } from './inspect.ts';

describe('a string', () => {
  it('that fits is not cut', () => {
    expect([clip('abc', 3), clip('abc', 4), clip('', 1)]).toEqual(['abc', 'abc', '']);
  });

  it('that does not fit ends with an ellipsis in its last column', () => {
    expect([clip('abcd', 3), clip('abcd', 1)]).toEqual(['ab\u2026', '\u2026']);
  });
});
