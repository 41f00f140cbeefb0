/** Worker addresses: packing and unpacking gives the same address; each rule of the format is checked separately. */

import { crc32 } from 'node:zlib';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import { packWorkerAddress, unpackWorkerAddress, WORKER_ADDRESS_BYTES_MAX, WORKER_ID_BYTES } from './worker-address.ts';

const ID = Uint8Array.from({ length: WORKER_ID_BYTES }, (_, i) => i + 1);
const ENTRIES = [
  { transport: 'posix', device: 'memory', address: Uint8Array.of(1, 2, 3) },
  { transport: 'gaudi_ipc', device: 'gaudi0', address: new Uint8Array(0) },
];

const name = fc.string({ unit: fc.constantFrom(...'abcz_019'), maxLength: 255 });
const address = fc.record({
  id: fc.uint8Array({ minLength: WORKER_ID_BYTES, maxLength: WORKER_ID_BYTES }),
  isManual: fc.boolean(),
  entries: fc.array(fc.record({ transport: name, device: name, address: fc.uint8Array({ maxLength: 255 }) }), {
    maxLength: 10,
  }),
});
/** Some with a name. */
const addresses = fc.oneof(
  address,
  fc.tuple(address, name).map(([fields, ofWorker]) => ({ ...fields, name: ofWorker })),
);

/** Writes the checksum of changed bytes. */
function sealed(bytes: Uint8Array): Uint8Array {
  new DataView(bytes.buffer, bytes.byteOffset).setUint32(bytes.byteLength - 4, crc32(bytes.subarray(0, -4)), true);
  return bytes;
}

function changed(change: (bytes: Uint8Array) => void): Uint8Array {
  const bytes = packWorkerAddress({ id: ID, isManual: false, entries: ENTRIES });
  change(bytes);
  return sealed(bytes);
}

describe('a worker address', () => {
  it('comes back as it was written', async () => {
    await fc.assert(
      fc.asyncProperty(addresses, async (fields) => {
        const packed = packWorkerAddress(fields);
        expect(unpackWorkerAddress(packed)).toEqual(fields);
        // Anywhere in memory.
        const shifted = new Uint8Array(packed.byteLength + 3);
        shifted.set(packed, 3);
        expect(unpackWorkerAddress(shifted.subarray(3))).toEqual(fields);
        await Promise.resolve();
      }),
    );
  });

  it('has the documented layout', () => {
    const packed = packWorkerAddress({ id: ID, isManual: false, entries: ENTRIES });
    const text = Buffer.from(packed.subarray(0, -4)).toString('latin1');
    expect(text.slice(0, 8)).toBe('UCPA\x03\x02\0\0');
    const manual = packWorkerAddress({ id: ID, isManual: true, entries: ENTRIES });
    expect(Buffer.from(manual.subarray(0, 8)).toString('latin1')).toBe('UCPA\x03\x02\x02\0');
    expect(packed.subarray(8, 24)).toEqual(ID);
    expect(text.slice(24)).toBe('\x05posix\x06memory\x03\x01\x02\x03\x09gaudi_ipc\x06gaudi0\0');
  });

  it.each([
    ['begin', changed((bytes) => bytes.fill(0, 0, 1)), /magic/],
    ['version', changed((bytes) => bytes.fill(9, 4, 5)), /version 9/],
    ['one entry too many', changed((bytes) => bytes.fill(3, 5, 6)), /truncated/],
    ['one entry too few', changed((bytes) => bytes.fill(1, 5, 6)), /trailing/],
    ['a length beyond the end', changed((bytes) => bytes.fill(255, 24, 25)), /truncated/],
    ['checksum', packWorkerAddress({ id: ID, isManual: false, entries: [] }).fill(9, 24), /checksum/],
    ['27 bytes', new Uint8Array(27), /27 bytes/],
    ['too many bytes', new Uint8Array(WORKER_ADDRESS_BYTES_MAX + 1), /8193 bytes/],
    ['an array', [1, 2, 3] as unknown as Uint8Array, /not a Uint8Array/],
  ])('is refused: %s', (_what, bytes, message) => {
    expect(() => unpackWorkerAddress(bytes)).toThrow(
      expect.objectContaining({
        code: 'ERR_ADDRESS_MALFORMED',
        status: Status.INVALID_PARAM,
        message: expect.stringMatching(message),
      }),
    );
  });

  it('is not written when it would be too long', () => {
    const entry = { transport: 'a'.repeat(255), device: 'b'.repeat(255), address: new Uint8Array(255) };
    expect(packWorkerAddress({ id: ID, isManual: false, entries: new Array(10).fill(entry) }).byteLength).toBe(
      28 + 10 * 768,
    );
    for (const entries of [
      new Array(11).fill(entry),
      new Array(256).fill({ ...ENTRIES[1]!, transport: '', device: '' }),
    ]) {
      expect(() => packWorkerAddress({ id: ID, isManual: false, entries })).toThrow(
        expect.objectContaining({ code: 'ERR_ADDRESS_TOO_LONG', status: Status.EXCEEDS_LIMIT }),
      );
    }
  });
});
