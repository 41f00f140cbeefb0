import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as ctl from './packet-ctl.ts';
import * as packets from './packets.ts';

const u32 = fc.integer({ min: 0, max: 0xffffffff });
const FILL = 0x5a5a5a5a;

/** The words that an encoder writes into a filled buffer. Checks that it changes nothing before or behind the packet. */
function written(encode: (words: Uint32Array, index: number) => number, index: number): number[] {
  const words = new Uint32Array(index + 10).fill(FILL);
  const end = encode(words, index);
  expect(words.subarray(0, index).every((word) => word === FILL)).toBe(true);
  expect(words.subarray(end).every((word) => word === FILL)).toBe(true);
  return [...words.subarray(index, end)];
}

describe('encoders', () => {
  it('put value first, control word second, addresses after them', () => {
    fc.assert(
      fc.property(fc.nat(7), u32, u32, u32, u32, u32, u32, (at, c, a, b, d, e, f) => {
        expect(written((w, i) => packets.writeLinDma(w, i, c, a, b, d, e, f), at)).toEqual([a, c, b, d, e, f]);
        expect(written((w, i) => packets.writeMsgLong(w, i, c, a, b, d), at)).toEqual([a, c, b, d]);
        expect(written((w, i) => packets.writeCpDma(w, i, c, a, b, d), at)).toEqual([a, c, b, d]);
        expect(written((w, i) => packets.writeLoadAndExe(w, i, c, a, b, d), at)).toEqual([a, c, b, d]);
        expect(written((w, i) => packets.writeMsgShort(w, i, c, a), at)).toEqual([a, c]);
        expect(written((w, i) => packets.writeWreg32(w, i, c, a), at)).toEqual([a, c]);
        expect(written((w, i) => packets.writeFence(w, i, c, a), at)).toEqual([a, c]);
        expect(written((w, i) => packets.writeArbPoint(w, i, c, a), at)).toEqual([a, c]);
        expect(written((w, i) => packets.writeNop(w, i, c), at)).toEqual([0, c]);
      }),
    );
  });

  it('advance by the size of the packet', () => {
    const words = new Uint32Array(8);
    const { PacketOpcode } = ctl;
    expect(packets.writeLinDma(words, 0, 0, 0, 0, 0, 0, 0) * 4).toBe(packets.packetBytes(PacketOpcode.LIN_DMA));
    expect(packets.writeMsgLong(words, 0, 0, 0, 0, 0) * 4).toBe(packets.packetBytes(PacketOpcode.MSG_LONG));
    expect(packets.writeCpDma(words, 0, 0, 0, 0, 0) * 4).toBe(packets.packetBytes(PacketOpcode.CP_DMA));
    expect(packets.writeNop(words, 0, 0) * 4).toBe(packets.packetBytes(PacketOpcode.NOP));
  });
});

describe('sizes', () => {
  it('are those of the packet structs, and 0 for an opcode without a packet', () => {
    const sizes = Array.from({ length: 32 }, (_, opcode) => packets.packetBytes(opcode));
    const named = [0, 8, 8, 16, 8, 16, 8, 16, 8, 24, 8, 8, 8, 8, 24, 16, 8, 0, 8, 16];
    expect(sizes).toEqual([...named, ...new Array<number>(32 - named.length).fill(0)]);
    expect(packets.packetBytes(-1)).toBe(0);
    expect(packets.packetBytes(32)).toBe(0);
  });

  it('of WREG_BULK counts 64-bit values', () => {
    expect(packets.wregBulkBytes(0xffff0003)).toBe(8 + 24);
  });
});

describe('control words', () => {
  it.each([
    ['LIN_DMA of gaudi', ctl.linDmaCtl('gaudi'), 0x09000008],
    ['LIN_DMA of gaudi2', ctl.linDmaCtl('gaudi2'), 0x09000000],
    [
      'LIN_DMA with everything',
      ctl.linDmaCtl('gaudi2', { engBarrier: true, msgBarrier: true, memset: true, wrComp: true }),
      0xa9000011,
    ],
    ['LIN_DMA memset of gaudi', ctl.linDmaCtl('gaudi', { memset: true }), 0x09000018],
    ['MSG_LONG behind the barriers', ctl.msgLongCtl({ engBarrier: true, msgBarrier: true }), 0xa3000000],
    ['MSG_LONG of a timestamp', ctl.msgLongCtl({ timestamp: true }), 0x03100000],
    ['MSG_SHORT', ctl.msgShortCtl(3, 0x1234), 0x04c01234],
    ['WREG_32', ctl.wreg32Ctl(0x8a0, { regBarrier: true }), 0x4108a000],
    ['WREG_BULK', ctl.wregBulkCtl(0xffff), 0x02ffff00],
    ['LIN_DMA that swaps 32 bits', ctl.linDmaCtl('gaudi2', { swapBytes: 4 }), 0x09000004],
    ['NOP', ctl.packetCtl(ctl.PacketOpcode.NOP, { msgBarrier: true }), 0x8a000000],
    ['FENCE configuration', ctl.fenceCfg(2, 5, 1), 0x80050001],
  ])('%s', (_name, actual, expected) => {
    expect(actual).toBe(expected);
  });

  it('come apart', () => {
    const barriers = fc.record({ engBarrier: fc.boolean(), regBarrier: fc.boolean(), msgBarrier: fc.boolean() });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 0x1f }), barriers, (opcode, options) => {
        const word = ctl.packetCtl(opcode, options);
        expect(ctl.packetOpcode(word)).toBe(opcode);
        expect(ctl.packetEngBarrier(word)).toBe(options.engBarrier);
        expect(ctl.packetMsgBarrier(word)).toBe(options.msgBarrier);
        expect(ctl.packetPredicate(word)).toBe(0);
      }),
    );
  });

  it('of LIN_DMA come apart', () => {
    const asic = fc.constantFrom('gaudi' as const, 'gaudi2' as const);
    fc.assert(
      fc.property(asic, fc.boolean(), fc.boolean(), (name, memset, wrComp) => {
        const word = ctl.linDmaCtl(name, { memset, wrComp });
        expect([ctl.linDmaMemset(word), ctl.linDmaWrComp(word)]).toEqual([memset, wrComp]);
        expect(ctl.packetOpcode(word)).toBe(ctl.PacketOpcode.LIN_DMA);
      }),
    );
  });

  it('of swaps come apart', () => {
    expect(ctl.linDmaSwapBytes(ctl.linDmaCtl('gaudi2'))).toBe(1);
    for (const swapBytes of [2, 4, 8] as const) {
      expect(ctl.linDmaSwapBytes(ctl.linDmaCtl('gaudi2', { swapBytes }))).toBe(swapBytes);
    }
  });

  it('have predicates where no other field is', () => {
    const without = [ctl.PacketOpcode.MSG_SHORT, ctl.PacketOpcode.LIN_DMA, ctl.PacketOpcode.NOP, ctl.PacketOpcode.WAIT];
    expect(without.filter(ctl.hasPredicate)).toEqual([]);
    expect(ctl.hasPredicate(ctl.PacketOpcode.LOAD_AND_EXE)).toBe(true);
  });

  it('of messages, registers, fences and arbitration come apart', () => {
    fc.assert(
      fc.property(
        fc.nat(3),
        fc.nat(0xffff),
        fc.boolean(),
        fc.nat(0xff),
        fc.nat(0xf),
        (id, offset, timestamp, target, dec) => {
          const short = ctl.msgShortCtl(id, offset, { timestamp });
          expect([ctl.msgShortBase(short), ctl.msgShortOffset(short)]).toEqual([id, offset]);
          expect(ctl.msgOperation(short)).toBe(timestamp ? 1 : 0);
          expect(ctl.wregOffset(ctl.wreg32Ctl(offset))).toBe(offset);
          const cfg = ctl.fenceCfg(id, target, dec);
          expect([ctl.fenceId(cfg), ctl.fenceTarget(cfg), ctl.fenceDecrement(cfg)]).toEqual([id, target, dec]);
        },
      ),
    );
    expect(ctl.arbPointPriority('gaudi', 0x123456)).toBe(0x56);
    expect(ctl.arbPointPriority('gaudi2', 0x123456)).toBe(0x123456);
    expect(ctl.arbPointRelease(ctl.ARB_POINT_RELEASE)).toBe(true);
    expect(ctl.arbPointRelease(7)).toBe(false);
  });
});
