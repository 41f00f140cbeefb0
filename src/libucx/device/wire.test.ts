/** Headers of messages about memory of cards: what is packed is read again, and nothing that arrives is believed or throws. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { packWireHeader, parseWireHeader, WIRE_HEADER_BYTES, type WireHeader, WireKind } from './wire.ts';

const integer = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const word = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const HEADERS: fc.Arbitrary<WireHeader> = fc.record({
  kind: fc.constantFrom(...Object.values(WireKind)),
  id: integer,
  status: fc.integer({ min: -128, max: 127 }),
  exportId: integer,
  offset: integer,
  byteLength: integer,
  operation: fc.constantFrom(...Object.values(AtomicOperation)),
  value: word,
  compare: word,
});

describe('headers', () => {
  it('are read as they were packed', async () => {
    await fc.assert(
      fc.asyncProperty(HEADERS, async (header) => {
        expect(parseWireHeader(packWireHeader(header))).toEqual(header);
      }),
    );
  });

  it('of any bytes are integers in their bounds, or none', async () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 2 * WIRE_HEADER_BYTES }),
      fc.tuple(HEADERS, fc.nat({ max: WIRE_HEADER_BYTES - 1 }), fc.nat({ max: 255 })).map(([header, at, byte]) => {
        const packed = packWireHeader(header);
        packed[at] = byte;
        return packed;
      }),
    );
    await fc.assert(
      fc.asyncProperty(bytes, async (given) => {
        const header = parseWireHeader(given);
        if (header === undefined) return;
        expect(Object.values(WireKind)).toContain(header.kind);
        expect(Object.values(AtomicOperation)).toContain(header.operation);
        for (const value of [header.id, header.exportId, header.offset, header.byteLength]) {
          expect(Number.isSafeInteger(value) && value >= 0).toBe(true);
        }
      }),
    );
  });
});
