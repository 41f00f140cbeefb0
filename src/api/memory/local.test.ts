import { describe, expect, it } from 'vitest';
import { checkedList } from './local.ts';

const OWNER = {};
const BYTES = new Uint8Array(16);

describe('a list of pieces', () => {
  it('has offsets in the message', () => {
    expect(
      checkedList(
        OWNER,
        [
          { memory: BYTES, offset: 4 },
          { memory: BYTES, byteLength: 3 },
        ],
        0,
      ),
    ).toEqual([
      { memory: BYTES, offset: 4, byteLength: 12, start: 0 },
      { memory: BYTES, offset: 0, byteLength: 3, start: 12 },
    ]);
  });

  it.each([
    [{ memory: BYTES, ofset: 8, byteLength: 8 }, /did you mean offset\?/],
    [{ memory: BYTES, length: 8 }, /has no field/],
    [{ buffer: BYTES }, /has no field/],
    [null, /element 0 must be/],
  ])('is refused with %j: other bytes would be moved', (piece, message) => {
    expect(() => checkedList(OWNER, [piece as never], 0)).toThrow(message);
  });
});
