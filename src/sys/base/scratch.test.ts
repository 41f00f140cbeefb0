import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { property } from '../../../test/fixtures/property.ts';
import { addressOf } from '../memory/memory.ts';
import { mappedMemoryStatistics } from './mapped-memory.ts';
import { allocateScratch, type ScratchBlock, scratchStatistics } from './scratch.ts';

describe('allocateScratch', () => {
  it('has the address of its views', () => {
    using block = allocateScratch(24);
    expect(block.address % 8).toBe(0);
    expect([addressOf(block.u8), addressOf(block.words), addressOf(block.view)]).toEqual(Array(3).fill(block.address));
    block.words[5] = 0x01020304;
    expect(block.view.getUint8(20)).toBe(4);
  });

  it('covers a length that is not a multiple of a word', () => {
    using block = allocateScratch(13);
    expect([block.byteLength, block.u8.length, block.view.byteLength, block.words.length]).toEqual([13, 13, 13, 4]);
  });

  it('is zeroed again after use', () => {
    const first = allocateScratch(100);
    first.u8.fill(0xff);
    first.free();
    using second = allocateScratch(100);
    expect(second.address).toBe(first.address);
    expect(second.u8.every((byte) => byte === 0)).toBe(true);
  });

  it('frees once, for any number of calls', () => {
    const before = scratchStatistics();
    const block = allocateScratch(64);
    block.free();
    block.free();
    expect(block.freed).toBe(true);
    using first = allocateScratch(64);
    using second = allocateScratch(64);
    expect(first.address).not.toBe(second.address);
    expect(scratchStatistics().liveBlocks).toBe(before.liveBlocks + 2);
  });

  it('maps large blocks separately and closes them', () => {
    const before = mappedMemoryStatistics().liveMappings;
    const block = allocateScratch(70001);
    expect(block.words.length).toBe(17501);
    block.u8[70000] = 1;
    expect(block.words[17500]).toBe(1);
    block.free();
    expect(mappedMemoryStatistics().liveMappings).toBe(before);
  });

  it('has whole words, also in a large block, and up to 1 GiB', () => {
    for (const byteLength of [65_537, 65_538, 2 ** 30 - 1, 2 ** 30]) {
      using block = allocateScratch(byteLength);
      expect([block.byteLength, block.words.length]).toEqual([byteLength, Math.ceil(byteLength / 4)]);
    }
  });

  it.each([64, 128, 16_384, 65_536])('gives each slot of a chunk once: blocks of %d bytes', (byteLength) => {
    // More than two chunks have.
    const blocks = Array.from({ length: 131_072 / byteLength + 3 }, () => allocateScratch(byteLength));
    const starts = blocks.map(({ address }) => address).sort((left, right) => left - right);
    for (const [i, start] of starts.slice(1).entries()) expect(start).toBeGreaterThanOrEqual(starts[i]! + byteLength);
    for (const block of blocks) block.free();
  });

  it.each([0, -8, 1.5, Number.NaN, 2 ** 30 + 1, 2 ** 31])('rejects the length %d', (byteLength) => {
    expect(() => allocateScratch(byteLength)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  });

  property(
    'never hands out memory twice',
    [fc.array(fc.record({ byteLength: fc.integer({ min: 1, max: 9000 }), free: fc.boolean() }), { maxLength: 60 })],
    (steps) => {
      const before = scratchStatistics();
      const live: ScratchBlock[] = [];
      for (const { byteLength, free } of steps) {
        const block = allocateScratch(byteLength);
        expect(block.u8.every((byte) => byte === 0)).toBe(true);
        block.u8.fill(live.length + 1);
        if (free) block.free();
        else live.push(block);
      }
      for (const [index, block] of live.entries()) {
        expect(block.u8.every((byte) => byte === index + 1)).toBe(true);
      }
      for (const block of live) block.free();
      const { liveBlocks, liveBytes } = scratchStatistics();
      expect([liveBlocks, liveBytes]).toEqual([before.liveBlocks, before.liveBytes]);
    },
  );
});
