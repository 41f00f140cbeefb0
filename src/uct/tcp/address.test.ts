/** Packing and unpacking of addresses of tcp interfaces; malformed bytes are rejected. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packTcpAddress, TCP_ADDRESS_BYTES_MAX, unpackTcpAddress } from './address.ts';

const ID = Uint8Array.from({ length: 16 }, (_, i) => i + 1);
const V4 = { address: '10.1.2.3', family: 4, prefixBits: 24 } as const;
const V6 = { address: 'fd00::1', family: 6, prefixBits: 64 } as const;
const LOCAL = { address: 'fe80::1%eth0', family: 6, prefixBits: 64 } as const;

describe('an address', () => {
  it.each([
    ['of two families', [V4, V6], [V4, V6]],
    ['without addresses', [], []],
    ['with a link-local one beside others', [V4, LOCAL], [V4]],
    ['with a link-local one alone', [LOCAL], [{ ...LOCAL, address: 'fe80::1' }]],
    ['with more than fit', Array.from({ length: 20 }, () => V6), Array.from({ length: 8 }, () => V6)],
  ])('%s is unpacked as it was packed', (_name, addresses, published) => {
    for (const isLoopback of [true, false]) {
      const packed = packTcpAddress(ID, 65_535, isLoopback, addresses);
      expect(packed.byteLength).toBeLessThanOrEqual(TCP_ADDRESS_BYTES_MAX);
      expect(unpackTcpAddress(packed)).toEqual({
        id: ID,
        port: 65_535,
        isLoopback,
        isOwnNode: true,
        addresses: published,
      });
    }
  });

  it('with another boot id or network namespace belongs to another node', () => {
    for (const at of [8, 23, 24]) {
      const packed = packTcpAddress(ID, 1, false, [V4]);
      packed[at]! ^= 1;
      expect(unpackTcpAddress(packed)?.isOwnNode).toBe(false);
    }
  });

  it('that was truncated, extended or changed never throws and never gives an invalid address', async () => {
    const packed = packTcpAddress(ID, 7, false, [V4, V6]);
    for (let length = 0; length < packed.byteLength; length++) {
      expect(unpackTcpAddress(packed.subarray(0, length))).toBeUndefined();
    }
    expect(unpackTcpAddress(Uint8Array.of(...packed, 0))).toBeUndefined();
    expect(unpackTcpAddress('x' as unknown as Uint8Array)).toBeUndefined();
    await fc.assert(
      fc.property(fc.nat(packed.byteLength - 1), fc.nat(255), (at, value) => {
        const bytes = packed.slice();
        bytes[at] = value;
        const address = unpackTcpAddress(bytes);
        for (const { family, prefixBits } of address?.addresses ?? []) {
          expect(prefixBits).toBeLessThanOrEqual(family === 4 ? 32 : 128);
        }
      }),
    );
    await fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => void unpackTcpAddress(bytes)));
  });
});
