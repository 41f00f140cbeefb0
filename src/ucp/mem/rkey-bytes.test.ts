import { crc32 } from 'node:zlib';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { REMOTE_ACCESS } from '../../api/contract/memory.ts';
import { MEMORY_TYPE_COUNT, MemoryType } from '../../ucs/memory/memory-type.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { packRkey, type RkeyFields, unpackRkey } from './remote-key.ts';

const FIELDS: RkeyFields = {
  memoryType: MemoryType.GAUDI,
  sysDevice: 3,
  address: 0xffff_ffff_ffff_f000n,
  byteLength: 2 ** 53 - 1,
  access: REMOTE_ACCESS,
  parts: [
    { name: 'self', key: new Uint8Array([1, 2, 3]) },
    { name: 'gaudi_copy', key: new Uint8Array(255).fill(7) },
  ],
};

/** The code of the error that unpacking throws, or 'ok'. */
function codeOf(packed: unknown): string {
  try {
    unpackRkey(packed as Uint8Array);
    return 'ok';
  } catch (error) {
    if (!isUcxError(error)) return `not ours: ${String(error)}`;
    return error.status === Status.INVALID_PARAM ? error.code : `status ${error.status}`;
  }
}

/** The same key with a corrected checksum, as an attacker would send it. */
function sealed(packed: Uint8Array): Uint8Array {
  const copy = packed.slice();
  const end = copy.byteLength - 4;
  new DataView(copy.buffer).setUint32(end, crc32(copy.subarray(0, end)), true);
  return copy;
}

const arbitraryFields: fc.Arbitrary<RkeyFields> = fc.record({
  memoryType: fc.nat(MEMORY_TYPE_COUNT - 1).map((type) => type as MemoryType),
  sysDevice: fc.option(fc.nat(254), { nil: undefined }),
  address: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  byteLength: fc.maxSafeNat(),
  access: fc.constantFrom(0, MemAccess.REMOTE_PUT, MemAccess.REMOTE_GET, REMOTE_ACCESS),
  parts: fc.array(
    fc.record({
      name: fc.stringMatching(/^[a-z_]{1,20}$/),
      key: fc.uint8Array({ maxLength: 255 }),
    }),
    { maxLength: 16 },
  ),
});

describe('remote key bytes', () => {
  it('come back as they went', () => {
    expect(unpackRkey(packRkey(FIELDS))).toEqual(FIELDS);
    expect(unpackRkey(packRkey({ ...FIELDS, sysDevice: undefined, parts: [] }))).toEqual({
      ...FIELDS,
      sysDevice: undefined,
      parts: [],
    });
  });

  it('come back as they went, whatever they hold', async () => {
    await fc.assert(
      fc.property(arbitraryFields, (fields) => {
        expect(unpackRkey(packRkey(fields))).toEqual(fields);
      }),
    );
  });

  it('are read inside a larger buffer, and copied out of it', () => {
    const packed = packRkey(FIELDS);
    const wire = new Uint8Array(packed.byteLength + 10);
    wire.set(packed, 7);
    const fields = unpackRkey(wire.subarray(7, 7 + packed.byteLength));
    wire.fill(0);
    expect(fields).toEqual(FIELDS);
  });

  it('have a fixed beginning', () => {
    const packed = packRkey(FIELDS);
    expect([...packed.subarray(0, 8)]).toEqual([0x52, 0x4b, 0x45, 0x59, 1, MemoryType.GAUDI, 2, 0]);
  });

  it.each([undefined, null, 'key', 42, {}, [], new ArrayBuffer(100)])('are not %s', (nothing) => {
    expect(codeOf(nothing)).toBe('ERR_RKEY_MALFORMED');
  });

  it('are refused when any bit differs', () => {
    const packed = packRkey(FIELDS);
    for (let bit = 0; bit < packed.byteLength * 8; bit++) {
      const changed = packed.slice();
      changed[bit >> 3]! ^= 1 << (bit & 7);
      expect(codeOf(changed), `bit ${bit}`).toBe('ERR_RKEY_MALFORMED');
    }
  });

  it('are refused when they are cut off or have a tail', () => {
    const packed = packRkey(FIELDS);
    for (let length = 0; length < packed.byteLength; length++) {
      expect(codeOf(packed.subarray(0, length)), `${length} bytes`).toBe('ERR_RKEY_MALFORMED');
    }
    expect(codeOf(Buffer.concat([packed, new Uint8Array(1)]))).toBe('ERR_RKEY_MALFORMED');
    expect(codeOf(sealed(Buffer.concat([packed, new Uint8Array(1)])))).toBe('ERR_RKEY_MALFORMED');
  });

  it('never crash: random bytes', async () => {
    await fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
        expect(codeOf(bytes)).toBe('ERR_RKEY_MALFORMED');
      }),
      { numRuns: 1000 },
    );
  });

  it('never crash: random bytes behind a good beginning and before a good checksum', async () => {
    const header = packRkey(FIELDS).subarray(0, 7);
    const random = fc.uint8Array({ minLength: 29, maxLength: 400 });
    await fc.assert(
      fc.property(random, fc.nat(255), (bytes, parts) => {
        const packed = Buffer.concat([header, bytes]);
        packed[6] = parts;
        expect(['ok', 'ERR_RKEY_MALFORMED']).toContain(codeOf(sealed(packed)));
      }),
      { numRuns: 1000 },
    );
  });

  it('are refused for a memory type that is none', () => {
    const strange = packRkey(FIELDS);
    strange[5] = MEMORY_TYPE_COUNT;
    expect(codeOf(sealed(strange))).toBe('ERR_RKEY_MALFORMED');
  });

  it('say in one byte what peers may not do, which is 0 for memory for every access', () => {
    const bytes = [REMOTE_ACCESS, MemAccess.REMOTE_GET, MemAccess.REMOTE_PUT, 0].map(
      (access) => packRkey({ ...FIELDS, access })[7],
    );
    expect(bytes).toEqual([0, 1, 2, 3]);
    // The access of peers does not depend on local access.
    expect(packRkey({ ...FIELDS, access: MemAccess.ALL })).toEqual(packRkey(FIELDS));
  });

  it('are refused when they deny an access that is unknown', () => {
    const strange = packRkey(FIELDS);
    strange[7] = 4;
    expect(codeOf(sealed(strange))).toBe('ERR_RKEY_MALFORMED');
  });

  it('are refused for a length that no Number holds', () => {
    const long = packRkey(FIELDS);
    new DataView(long.buffer).setBigUint64(24, 2n ** 63n, true);
    expect(codeOf(sealed(long))).toBe('ERR_RKEY_MALFORMED');
  });
});
