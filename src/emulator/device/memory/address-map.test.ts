/** Decoding device addresses: the bounds of regions and of stretches, registers at their offset, regions inside others. */

import { describe, expect, it } from 'vitest';
import { AddressMap, AddressRegion, Target } from './address-map.ts';
import { PageTable } from './mmu.ts';
import { PhysicalMemory } from './physical-memory.ts';

const HBM = new PhysicalMemory('hbm', { address: 4096, byteLength: 0x1000 });
const HOST = new PhysicalMemory('host', { address: 8192, byteLength: 0x1_0000 });
const BASE = 0x10_0000_0000n;

function open() {
  const pageTable = new PageTable();
  const map = new AddressMap([
    new AddressRegion('hbm', 0x2000n, 0x1000, { memory: HBM }),
    new AddressRegion('host', BASE, 0x1_0000, { pageTable }),
    new AddressRegion('registers', BASE + 0x8000n, 0x100, { registerOffset: 0x700 }),
  ]);
  const at = (address: bigint): unknown[] => {
    const target = map.decode(Number(address >> 32n), Number(address & 0xffff_ffffn));
    if (target === Target.UNMAPPED) return [];
    return [target === Target.MEMORY ? map.memory : 'register', map.offset, map.available];
  };
  return { pageTable, at };
}

describe('an address', () => {
  it('is of its region from the first byte to the last', () => {
    const { at } = open();
    expect([0x1fffn, 0x2000n, 0x2fffn, 0x3000n].map(at)).toEqual([[], [HBM, 0, 0x1000], [HBM, 0xfff, 1], []]);
  });

  it('is translated as far as its stretch goes', () => {
    const { pageTable, at } = open();
    expect(pageTable.map(0x1000, 0x1000, HOST, 0x300)).toBe(true);
    expect(pageTable.map(0x2000, 0x1000, HBM, 0)).toBe(true);
    expect([0xfffn, 0x1000n, 0x1fffn, 0x2000n, 0x3000n].map((offset) => at(BASE + offset))).toEqual([
      [],
      [HOST, 0x300, 0x1000],
      [HOST, 0x12ff, 1],
      [HBM, 0, 0x1000],
      [],
    ]);
    expect(pageTable.map(0x1fff, 1, HOST, 0)).toBe(false);
    expect(pageTable.map(0x0, 0x1001, HOST, 0)).toBe(false);
    expect(at(BASE + 0x1800n)).toEqual([HOST, 0xb00, 0x800]);
    pageTable.unmap(0x1000, 0x1000);
    expect([at(BASE + 0x1800n), at(BASE + 0x2000n), pageTable.size]).toEqual([[], [HBM, 0, 0x1000], 1]);
  });

  it('of registers inside another region is that of the registers, unless it is mapped', () => {
    const { pageTable, at } = open();
    expect(at(BASE + 0x8010n)).toEqual(['register', 0x710, 0xf0]);
    pageTable.map(0x8000, 0x1000, HOST, 0);
    expect(at(BASE + 0x8010n)).toEqual([HOST, 0x10, 0xff0]);
  });
});
