import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KEY_BYTES, newSecret, packKey, SECRET_BYTES, sameSecret, unpackKey } from './keys.ts';

describe('keys of memory domains', () => {
  it('are unpacked as they were packed, at any offset', async () => {
    const fields = fc.record({
      device: fc.nat(0xffff_ffff),
      id: fc.maxSafeNat(),
      generation: fc.maxSafeNat(),
      byteLength: fc.maxSafeNat(),
      secret: fc.uint8Array({ minLength: SECRET_BYTES, maxLength: SECRET_BYTES }),
    });
    await fc.assert(
      fc.property(fields, fc.nat(20), (key, offset) => {
        const target = new Uint8Array(KEY_BYTES + 40).fill(0xee);
        packKey(key, target, offset);
        expect(unpackKey(target.subarray(offset, offset + KEY_BYTES))).toEqual(key);
        expect(target.subarray(0, offset).every((byte) => byte === 0xee)).toBe(true);
        expect(target.subarray(offset + KEY_BYTES).every((byte) => byte === 0xee)).toBe(true);
      }),
    );
  });

  it('are undefined for another length or version', () => {
    const packed = new Uint8Array(KEY_BYTES);
    expect(unpackKey(packed)).toBeUndefined();
    expect(unpackKey(packed.subarray(1))).toBeUndefined();
    expect(unpackKey(new Uint8Array(0))).toBeUndefined();
  });

  it('have secrets that differ', () => {
    const [one, two] = [newSecret(), newSecret()];
    expect(sameSecret(one, one.slice())).toBe(true);
    expect(sameSecret(one, two)).toBe(false);
    expect(sameSecret(one, one.subarray(1))).toBe(false);
  });
});
