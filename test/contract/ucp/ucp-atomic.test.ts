/** Runs the contract of atomic operations over every kind of connection; where atomic operations are executed. */

import { describe, expect, it } from 'vitest';
import type { AtomicName } from '../../../src/index.ts';
import { CONNECTION_KINDS, connectionKind, keyFor, mappedOf, usePairs } from '../../fixtures/pair.ts';
import { atomicContract } from './ucp-atomic.ts';

for (const kind of CONNECTION_KINDS) atomicContract(kind);

describe('atomic operations', () => {
  const fixture = usePairs();

  it('are refused by the names of properties of every object', async () => {
    const { one, ab } = await fixture.pair(connectionKind('loopback over self alone'));
    const rkey = keyFor(ab, one, mappedOf(one, 'allocated', 8));
    try {
      expect(() => ab.atomicNbx('toString' as AtomicName, 1, rkey, 0)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
      );
    } finally {
      rkey.release();
    }
  });

  it("accept negative numbers as two's complement", async () => {
    const { one, ab } = await fixture.pair(connectionKind('loopback over self alone'));
    const memory = mappedOf(one, 'allocated', 16);
    const rkey = keyFor(ab, one, memory);
    await ab.atomic('swap', -1, rkey, { bits: 32 });
    await ab.atomic('add', -2n, rkey, { remoteOffset: 8 });
    expect(await ab.atomic('cswap', 5, rkey, { bits: 32, compare: -1 })).toBe(0xffff_ffffn);
    expect(await ab.atomic('or', 0, rkey, { remoteOffset: 8 })).toBe(0xffff_ffff_ffff_fffen);
    expect(memory.bytes!.subarray(0, 4)).toEqual(Uint8Array.of(5, 0, 0, 0));
    rkey.release();
  });
});
