/** The registers of one PDMA channel. */

import { describe, expect, it } from 'vitest';
import { PDMA_FENCE_MAX, PdmaChannelA, RING_IN_MEMORY } from '../../../uapi/index.ts';
import { PdmaChannel } from './pdma-channel.ts';

const RING = [PdmaChannelA.MSQ_BASE_H, PdmaChannelA.MSQ_BASE_L, PdmaChannelA.MSQ_SIZE, PdmaChannelA.MSQ_PI];

/** The word of a FENCE. */
function fenceWord(id: number, target: number, decrement: number): number {
  return (id << 30) | (target << 16) | decrement;
}

describe('a fence', () => {
  it('waits for its target, subtracts, and never becomes negative', () => {
    const channel = new PdmaChannel(0, 120);
    expect(channel.writeA(PdmaChannelA.FENCE_INC + 8, 3)).toBe(true);
    expect(channel.fence(fenceWord(2, 4, 1))).toBe('blocked');
    expect(channel.fence(fenceWord(2, 3, 2))).toBe('passed');
    expect(channel.fence(fenceWord(2, 1, 2))).toBe('underflow');
    expect(channel.readA(PdmaChannelA.FENCE_CNT + 8)).toBe(1);
    expect(channel.fence(fenceWord(1, 1, 0))).toBe('blocked');
  });

  it('adds four bits, and reports an overflow', () => {
    const channel = new PdmaChannel(0, 120);
    channel.writeA(PdmaChannelA.FENCE_CNT, PDMA_FENCE_MAX - 15);
    expect(channel.writeA(PdmaChannelA.FENCE_INC, 0x1f)).toBe(true);
    expect(channel.readA(PdmaChannelA.FENCE_CNT)).toBe(PDMA_FENCE_MAX);
    expect(channel.writeA(PdmaChannelA.FENCE_INC, 1)).toBe(false);
    expect(channel.readA(PdmaChannelA.FENCE_CNT)).toBe(PDMA_FENCE_MAX);
  });
});

describe('the ring', () => {
  it('is cleared by a write of the mode, with the transfer at its head', () => {
    const channel = new PdmaChannel(0, 120);
    for (const register of [...RING, PdmaChannelA.MSQ_CI]) channel.writeA(register, 8);
    channel.movedBytes = 100;
    channel.bulkLeft = 1;
    channel.writeA(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    expect([...RING, PdmaChannelA.MSQ_CI].map((register) => channel.readA(register))).toEqual([0, 0, 0, 0, 0]);
    expect([channel.hasRing, channel.movedBytes, channel.bulkLeft]).toEqual([true, 0, 0]);
  });

  it('is busy while bytes are submitted, also over the wrap of the indices', () => {
    const channel = new PdmaChannel(0, 120);
    channel.writeA(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    expect(channel.idle).toBe(true);
    channel.writeA(PdmaChannelA.MSQ_CI, -8);
    channel.writeA(PdmaChannelA.MSQ_PI, 16);
    expect([channel.idle, channel.pendingBytes]).toEqual([false, 24]);
    channel.consume(24);
    expect([channel.idle, channel.consumer]).toEqual([true, 16]);
  });
});

describe('a halt', () => {
  it('stops the channel and drops submitted packets; a reset ends it', () => {
    const channel = new PdmaChannel(0, 120);
    channel.writeA(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    channel.writeA(PdmaChannelA.MSQ_PI, 48);
    channel.hold.hung = true;
    channel.halt();
    expect([channel.stopped, channel.pendingBytes, channel.hold.hung]).toEqual([true, 0, false]);
    channel.writeB(0x33c, 1);
    channel.reset();
    expect([channel.stopped, channel.hasRing, channel.readB(0x33c)]).toEqual([false, false, 0]);
  });

  it('leaves the reset values of predicates and of the high word of write completions', () => {
    const channel = new PdmaChannel(0, 120);
    channel.writeA(PdmaChannelA.WR_COMP0_ADDR_HI, 7);
    channel.writeA(PdmaChannelA.CP_PRED, 0);
    expect([channel.holds(0), channel.holds(1)]).toEqual([true, false]);
    channel.reset();
    expect([channel.completionHigh, channel.readA(PdmaChannelA.CP_PRED)]).toEqual([0x0300_007f, 1]);
  });
});
