import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RKEY_TABLE_PAYLOAD_WORDS } from '../../base/key/rkey-table.ts';
import { packPayload, SERVICE_TAG_BYTES, unpackPayload } from './layout.ts';

describe('the payload of a key', () => {
  it('is unpacked as it was packed, and fits into a slot', async () => {
    const fields = fc.record({
      arenaGeneration: fc.maxSafeNat(),
      arenaOffset: fc.nat(2 ** 31 - 1),
      arenaBytes: fc.integer({ min: 2 ** 32, max: 2 ** 52 }),
      busNumber: fc.nat(0xffff_ffff),
      serviceTag: fc.uint8Array({ minLength: SERVICE_TAG_BYTES, maxLength: SERVICE_TAG_BYTES }),
    });
    await fc.assert(
      fc.property(fields, (payload) => {
        const words = packPayload(payload);
        expect(words.length).toBeLessThanOrEqual(RKEY_TABLE_PAYLOAD_WORDS);
        expect(unpackPayload(words, 4096)).toEqual(payload);
      }),
    );
  });

  it('is inside its arena or undefined, for any words', async () => {
    const words = fc.array(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), { maxLength: RKEY_TABLE_PAYLOAD_WORDS });
    await fc.assert(
      fc.property(words, fc.maxSafeNat(), fc.boolean(), (random, byteLength, versioned) => {
        const payload = unpackPayload(Int32Array.from(versioned ? [1, ...random] : random), byteLength);
        if (payload === undefined) return;
        expect(payload.arenaOffset + byteLength).toBeLessThanOrEqual(payload.arenaBytes);
        expect(Number.isSafeInteger(payload.arenaBytes)).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });
});
