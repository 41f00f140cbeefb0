import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  HandleType,
  HandleTypeHi,
  handleHi,
  handleId,
  handleLo,
  handleType,
  packHandle,
  unpackHandle,
} from './handles.ts';

describe('handles', () => {
  it.each([
    ['CB', 1, 0x1000000000001000n],
    ['HW_BLOCK', 5, 0x2000000000005000n],
    ['TS', 2, 0x8000000000002000n],
  ] as const)('of type %s and id %d', (type, id, expected) => {
    expect(packHandle(HandleType[type], id)).toBe(expected);
    expect(handleLo(id)).toBe(Number(expected & 0xffffffffn));
    expect(handleHi(HandleType[type], id)).toBe(HandleTypeHi[type]);
  });

  it('are the same as words and as a 64-bit value, and come apart', () => {
    const types = fc.constantFrom(...Object.values(HandleType));
    fc.assert(
      fc.property(types, fc.integer({ min: 0, max: 0xffffffff }), (type, id) => {
        const lo = handleLo(id);
        const hi = handleHi(type, id);
        expect((BigInt(hi) << 32n) | BigInt(lo)).toBe(packHandle(type, id));
        expect(handleType(hi)).toBe(type);
        expect(handleId(lo, hi)).toBe(id);
        expect(unpackHandle(packHandle(type, id))).toEqual({ type, id: BigInt(id) });
      }),
    );
  });

  it('are read as unsigned when they come as a signed offset', () => {
    expect(unpackHandle(BigInt.asIntN(64, packHandle(HandleType.TS, 3)))).toEqual({ type: HandleType.TS, id: 3n });
  });

  it('are refused with bits below the page or above the largest id', () => {
    expect(handleId(0x1001, HandleTypeHi.CB)).toBe(-1);
    expect(handleId(0x1000, HandleTypeHi.CB | 0x1000)).toBe(-1);
    expect(handleId(0x1000, HandleTypeHi.CB | 0x4000000)).toBe(-1);
  });
});
