/** Which arena a block comes from, and when arenas are made and returned, over a source that a test limits. */

import { describe, expect, it } from 'vitest';
import { GaudiErrorCode } from '../index.ts';
import type { ArenaMemory, ArenaSource } from './arena-source.ts';
import { DeviceArenas } from './device-arenas.ts';

const PAGE = 4096;
/** Pages of an ordinary arena. */
const ARENA = 4 * PAGE;

/** A source of some pages, at addresses one after the other. */
class LimitedSource implements ArenaSource {
  readonly pageBytes = PAGE;
  left: number;
  readonly asked: number[] = [];
  /** Memory that the driver keeps, because a dma-buf of it is open. */
  readonly kept: Set<bigint> = new Set();
  #next = 0x1000_0000n;

  constructor(left: number) {
    this.left = left;
  }

  acquire(byteLength: number): ArenaMemory | undefined {
    this.asked.push(byteLength);
    if (byteLength > this.left) return undefined;
    this.left -= byteLength;
    const address = this.#next;
    this.#next += BigInt(2 * byteLength);
    return { address, byteLength, handle: 1n };
  }

  release({ address, byteLength }: ArenaMemory): boolean {
    if (this.kept.has(address)) return false;
    this.left += byteLength;
    return true;
  }

  freeBytes(): number {
    return this.left;
  }
}

function open(pages: number) {
  const source = new LimitedSource(pages * PAGE);
  const card = { name: 'card', addressOwners: [], checkUsable: () => undefined, closed: false };
  return { source, memory: new DeviceArenas(card as never, source, ARENA) };
}

describe('a block', () => {
  it('comes from the fullest arena with room, and never from a dedicated one', () => {
    const { source, memory } = open(100);
    const dedicated = memory.allocate(256, { dedicated: true });
    const first = memory.allocate(3 * PAGE);
    const second = memory.allocate(2 * PAGE);
    expect(new Set([dedicated, first, second].map(({ arena }) => arena)).size).toBe(3);
    expect(source.asked).toEqual([PAGE, ARENA, ARENA]);
    expect(memory.allocate(PAGE).arena).toBe(first.arena);
    expect(memory.allocate(PAGE).arena).toBe(second.arena);
    expect(memory.statistics).toMatchObject({ arenas: 3, blocks: 5, largestFreeBytes: PAGE });
    expect(memory.statistics.arenaBytes).toBe(2 * ARENA + PAGE);
  });

  it('that is dedicated has an arena without other blocks, however small they are', () => {
    const { source, memory } = open(100);
    const dedicated = memory.allocate(256, { dedicated: true });
    const other = memory.allocate(256);
    expect([dedicated, other].map(({ arena }) => arena.blockCount)).toEqual([1, 1]);
    expect(source.asked).toEqual([PAGE, ARENA]);
  });

  it('has the largest free range of all arenas beside it in the statistics', () => {
    const { memory } = open(100);
    memory.allocate(PAGE);
    memory.allocate(ARENA - 256, { dedicated: false });
    expect(memory.statistics.largestFreeBytes).toBe(3 * PAGE);
  });

  it('tells those who watch, and those who wait for its end, in the order of its life', () => {
    const { memory } = open(100);
    const events: string[] = [];
    const end = memory.watch({ onAllocated: () => events.push('allocated'), onFreed: () => events.push('freed') });
    const block = memory.allocate(PAGE);
    block.onFree(() => events.push(`before, live ${block.live}`));
    block.free();
    end();
    memory.allocate(PAGE).free();
    expect(events).toEqual(['allocated', 'before, live true', 'freed']);
  });
});

describe('when memory is short', () => {
  it('a block gets an arena with the length of the block', () => {
    const { source, memory } = open(6);
    memory.allocate(ARENA);
    expect(memory.allocate(PAGE + 1).arena.byteLength).toBe(2 * PAGE);
    expect(source.asked).toEqual([ARENA, ARENA, 2 * PAGE]);
  });

  it('empty arenas are returned', () => {
    const { memory } = open(6);
    memory.allocate(PAGE).free();
    expect(memory.statistics.arenas).toBe(1);
    expect(memory.allocate(6 * PAGE, { dedicated: true }).byteLength).toBe(6 * PAGE);
    expect(memory.statistics.arenas).toBe(1);
  });

  it('the error says how much is left', () => {
    const { memory } = open(6);
    memory.allocate(ARENA - 512);
    expect(() => memory.allocate(ARENA)).toThrow(
      expect.objectContaining({
        code: GaudiErrorCode.OUT_OF_MEMORY,
        details: expect.objectContaining({ byteLength: ARENA, freeBytes: 2 * PAGE + 512, largestFree: 2 * PAGE }),
      }),
    );
  });
});

describe('an empty arena', () => {
  it('stays as the one spare, and others are returned', () => {
    const { source, memory } = open(100);
    const blocks = [1, 2].map(() => memory.allocate(ARENA));
    blocks[0]!.free();
    expect([memory.statistics.arenas, source.left]).toEqual([2, 100 * PAGE - 2 * ARENA]);
    blocks[1]!.free();
    expect([memory.statistics.arenas, source.left]).toEqual([1, 100 * PAGE - ARENA]);
  });

  it('that the driver keeps is returned later, and does not hide that another one was', () => {
    const { source, memory } = open(100);
    const kept = [1, 2].map(() => memory.allocate(ARENA, { dedicated: true }));
    for (const { arena } of kept) source.kept.add(arena.memory.address);
    for (const block of kept) block.free();
    expect([memory.statistics.arenas, memory.reclaim()]).toEqual([2, false]);
    source.kept.delete(kept[0]!.arena.memory.address);
    expect([memory.reclaim(), memory.statistics.arenas]).toEqual([true, 1]);
    source.kept.clear();
    expect([memory.reclaim(), memory.statistics.arenas]).toEqual([true, 0]);
  });
});
