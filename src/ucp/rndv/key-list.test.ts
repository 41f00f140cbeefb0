import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KEY_LIST, KEY_LIST_MAX, packKeyList, unpackKeyList } from './own-key.ts';

const range = fc.record({
  packed: fc.uint8Array({ minLength: 1, maxLength: 40 }),
  offset: fc.nat(2 ** 52),
  byteLength: fc.integer({ min: 1, max: 2 ** 45 }),
});
const ranges = fc.array(range, { minLength: 1, maxLength: KEY_LIST_MAX });

const bytesOf = (list: readonly { readonly byteLength: number }[]): number =>
  list.reduce((sum, { byteLength }) => sum + byteLength, 0);

describe('a key list', () => {
  it('is read as it was packed', async () => {
    await fc.assert(
      fc.property(ranges, (list) => {
        expect(unpackKeyList(packKeyList(list), bytesOf(list))).toEqual(list);
      }),
    );
  });

  it('has the key of adjacent ranges of one memory once', () => {
    const packed = new Uint8Array(500).fill(3);
    const list = [0, 1, 2].map((i) => ({ packed, offset: i * 100, byteLength: 10 }));
    expect(packKeyList(list)).toHaveLength(4 + 3 * 20 + 500);
    expect(unpackKeyList(packKeyList(list), 30)).toEqual(list);
  });

  it('of any bytes is rejected, or has ranges of the given length', async () => {
    await fc.assert(
      fc.property(ranges, fc.nat(), fc.nat(255), (list, at, byte) => {
        const bytes = packKeyList(list);
        bytes[at % bytes.byteLength] = byte;
        const total = bytesOf(list);
        const read = unpackKeyList(bytes, total) ?? [];
        if (read.length > 0) expect(bytesOf(read)).toBe(total);
        for (let end = 0; end < bytes.byteLength; end += 7) unpackKeyList(bytes.subarray(0, end), total);
      }),
    );
    expect(unpackKeyList(new Uint8Array(0), 0)).toBeUndefined();
    expect(unpackKeyList(packKeyList([{ packed: Uint8Array.of(1), offset: 0, byteLength: 5 }]), 6)).toBeUndefined();
    expect(unpackKeyList(new Uint8Array(4 + 20).fill(255), KEY_LIST)).toBeUndefined();
  });
});
