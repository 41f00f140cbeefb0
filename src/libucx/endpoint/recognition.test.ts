import { describe, expect, it } from 'vitest';
import { isMarked, markedClientId } from './unproven-peers.ts';

describe('client ids', () => {
  it('that the program has not chosen are marked, and differ', () => {
    const ids = Array.from({ length: 1000 }, markedClientId);
    expect(ids.every(isMarked)).toBe(true);
    expect(ids.every((id) => id >= 0n && id < 2n ** 64n)).toBe(true);
    expect(new Set(ids).size).toBeGreaterThan(995);
  });

  it('of programs are not: small numbers, the largest, changed ones', () => {
    for (const id of [0n, 1n, 4711n, 2n ** 32n, 2n ** 64n - 1n]) expect(isMarked(id), String(id)).toBe(false);
    const id = markedClientId();
    for (let bit = 0n; bit < 64n; bit++) expect(isMarked(id ^ (1n << bit))).toBe(false);
  });
});
