import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MemoryType } from './memory-type.ts';
import { type MemoryRange, MemoryTypeCache } from './memory-type-cache.ts';

/** Start of the DRAM virtual addresses of Gaudi2. */
const DRAM_VA = 0x1001_0000_0000_0000n;

describe('MemoryTypeCache', () => {
  it('finds the allocation that covers the range', () => {
    const cache = new MemoryTypeCache();
    cache.insert(0, DRAM_VA, 4096, MemoryType.GAUDI);
    const entry = { memoryType: MemoryType.GAUDI, device: 0, base: DRAM_VA, length: 4096 };
    expect(cache.lookup(0, DRAM_VA, 4096)).toEqual(entry);
    expect(cache.lookup(0, DRAM_VA + 4095n, 1)).toEqual(entry);
    expect(cache.lookup(undefined, DRAM_VA + 5n, 0)).toEqual(entry);
    expect(cache.lookup(0, DRAM_VA + 4096n, 1)).toBeUndefined();
    expect(cache.lookup(0, DRAM_VA - 1n, 1)).toBeUndefined();
    expect(cache.lookup(0, DRAM_VA - 1n, 2)).toBe('partial');
    expect(cache.lookup(0, DRAM_VA + 4095n, 2)).toBe('partial');
    expect(cache.lookup(1, DRAM_VA, 1)).toBeUndefined();
  });

  it('distinguishes two cards with the same address', () => {
    const cache = new MemoryTypeCache();
    cache.insert(0, DRAM_VA, 4096, MemoryType.GAUDI);
    cache.insert(1, DRAM_VA, 8192, MemoryType.GAUDI);
    expect(cache.size).toBe(2);
    expect(cache.lookup(0, DRAM_VA, 8192)).toBe('partial');
    expect(cache.lookup(1, DRAM_VA, 8192)).toMatchObject({ device: 1, length: 8192 });
    expect(cache.lookup(undefined, DRAM_VA, 1)).toBe('partial');
    expect(cache.lookup(undefined, DRAM_VA + 5000n, 1)).toMatchObject({ device: 1 });
    cache.remove(0, DRAM_VA, 4096);
    expect(cache.lookup(undefined, DRAM_VA, 8192)).toMatchObject({ device: 1 });
  });

  it('does not merge neighbours', () => {
    const cache = new MemoryTypeCache();
    cache.insert(0, 0x1000n, 0x1000, MemoryType.GAUDI);
    cache.insert(0, 0x2000n, 0x1000, MemoryType.GAUDI);
    expect(cache.lookup(0, 0x1800n, 0x1000)).toBe('partial');
    expect(cache.lookup(0, 0x2800n, 1)).toMatchObject({ base: 0x2000n });
  });

  it('does not merge neighbours of different devices, and frees them one by one', () => {
    const cache = new MemoryTypeCache();
    cache.insert(0, 0x1000n, 0x1000, MemoryType.GAUDI);
    cache.insert(1, 0x2000n, 0x1000, MemoryType.GAUDI);
    expect(cache.size).toBe(2);
    expect(cache.lookup(undefined, 0x1800n, 0x1000)).toBe('partial');
    expect(cache.lookup(undefined, 0x1fffn, 1)).toMatchObject({ device: 0 });
    expect(cache.lookup(undefined, 0x2000n, 1)).toMatchObject({ device: 1 });
    cache.remove(0, 0x1000n, 0x2000);
    expect(cache.lookup(undefined, 0x1fffn, 1)).toBeUndefined();
    expect(cache.lookup(undefined, 0x2000n, 0x1000)).toMatchObject({ device: 1, length: 0x1000 });
  });

  it('takes addresses as words, signed or not', () => {
    const cache = new MemoryTypeCache();
    const base = 0xfff0_0001_f000_0000n;
    cache.insert(3, base, 4096, MemoryType.GAUDI);
    const entry = cache.lookup(3, base + 9n, 1);
    expect(entry).toMatchObject({ base });
    expect(cache.lookupWords(3, 0xf000_0009, 0xfff0_0001, 1)).toBe(entry);
    expect(cache.lookupWords(3, 0xf000_0009 | 0, 0xfff0_0001 | 0, 1)).toBe(entry);
    expect(cache.lookupWords(undefined, 0xf000_0000 | 0, 0xfff0_0001 | 0, 4097)).toBe('partial');
    expect(cache.lookupWords(2, 0xf000_0000, 0xfff0_0001, 1)).toBeUndefined();
  });

  it('finds ranges in a large table', () => {
    const cache = new MemoryTypeCache();
    const COUNT = 5000;
    for (let i = 0; i < COUNT; i++) cache.insert(i % 3, DRAM_VA + BigInt(i) * 8192n, 4096, MemoryType.GAUDI);
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < COUNT; i += 7) {
        const address = DRAM_VA + BigInt(i) * 8192n;
        const freed = round === 1 && i % 2 === 0;
        expect(cache.lookup(i % 3, address + 4095n, 1)).toEqual(
          freed ? undefined : expect.objectContaining({ base: address }),
        );
        expect(cache.lookup(i % 3, address + 4095n, 2)).toBe(freed ? undefined : 'partial');
        expect(cache.lookup((i + 1) % 3, address, 4096)).toBeUndefined();
        if (round === 0 && i % 2 === 0) cache.remove(i % 3, address, 4096);
      }
    }
  });

  it('cuts ranges that a newer range or a removal overlaps', () => {
    const cache = new MemoryTypeCache();
    cache.insert(0, 100n, 100, MemoryType.GAUDI);
    cache.insert(0, 140n, 20, MemoryType.RDMA);
    cache.remove(0, 110n, 10);
    expect([...cache].map(({ memoryType, base, length }) => [memoryType, base, length])).toEqual([
      [MemoryType.GAUDI, 100n, 10],
      [MemoryType.GAUDI, 120n, 20],
      [MemoryType.RDMA, 140n, 20],
      [MemoryType.GAUDI, 160n, 40],
    ]);
  });

  it('does not report host memory after a range was dropped', () => {
    const cache = new MemoryTypeCache({ maxRanges: 1 });
    expect(cache.insert(0, 0n, 1, MemoryType.GAUDI)).toBe(true);
    expect(cache.lookup(0, 5n, 1)).toBeUndefined();
    expect(cache.insert(0, 5n, 1, MemoryType.GAUDI)).toBe(false);
    expect(cache.isComplete).toBe(false);
    expect(cache.lookup(0, 5n, 1)).toBe('partial');
    expect(cache.lookup(undefined, 9n, 1)).toBe('partial');
    expect(cache.lookup(0, 0n, 1)).toMatchObject({ base: 0n });
    cache.clear();
    expect(cache.isComplete).toBe(true);
    expect(cache.lookup(0, 0n, 1)).toBeUndefined();
    expect([...cache]).toEqual([]);
  });

  it('rejects invalid ranges', () => {
    const cache = new MemoryTypeCache();
    expect(() => cache.insert(-1, 0n, 1, MemoryType.GAUDI)).toThrow(/device/);
    expect(() => cache.insert(0, 0n, 0, MemoryType.GAUDI)).toThrow(/length/);
    expect(() => cache.insert(0, -1n, 1, MemoryType.GAUDI)).toThrow(/address/);
    expect(() => cache.insert(0, 2n ** 64n - 1n, 2, MemoryType.GAUDI)).toThrow(/address/);
    expect(() => cache.remove(0, 0n, -1)).toThrow(/length/);
    expect(() => new MemoryTypeCache({ maxRanges: 0 })).toThrow(/maxRanges/);
    expect(cache.insert(0, 2n ** 64n - 1n, 1, MemoryType.GAUDI)).toBe(true);
    expect(cache.lookup(0, 2n ** 64n - 1n, 1)).toMatchObject({ length: 1 });
  });

  it('agrees with one cell per byte, also across the segments of the address space', () => {
    const span = 40;
    const types = [MemoryType.GAUDI, MemoryType.RDMA] as const;
    const operation = fc.record({
      insert: fc.boolean(),
      device: fc.nat(1),
      offset: fc.nat(span - 1),
      length: fc.integer({ min: 1, max: 12 }),
      type: fc.constantFrom(...types),
    });
    const origin = fc.constantFrom(0x1000n, DRAM_VA, (1n << 52n) - 20n, 0xfff0_0000_0000_0000n - 20n);
    fc.assert(
      fc.property(origin, fc.array(operation, { maxLength: 30 }), (base, operations) => {
        const cache = new MemoryTypeCache();
        /** The owner of every byte: an identity shared by the remaining adjacent bytes of one insertion. */
        const cells = [0, 1].map(() => new Array<{ type: MemoryType } | undefined>(span + 12).fill(undefined));
        for (const { insert, device, offset, length, type } of operations) {
          const owner = insert ? { type } : undefined;
          if (insert) cache.insert(device, base + BigInt(offset), length, type);
          else cache.remove(device, base + BigInt(offset), length);
          cells[device]!.fill(owner, offset, offset + length);
        }
        for (const device of [0, 1]) {
          const row = cells[device]!;
          for (let offset = 0; offset < span; offset++) {
            for (const length of [1, 2, 7]) {
              const owners = row.slice(offset, offset + length);
              const found = cache.lookup(device, base + BigInt(offset), length);
              expect(describeAnswer(found)).toBe(expected(owners, row, offset));
              if (typeof found === 'object') expect(found.device).toBe(device);
            }
          }
        }
        const ranges = [...cache];
        expect(ranges).toHaveLength(cache.size);
        const known = cells.flat().filter((owner) => owner !== undefined).length;
        expect(ranges.reduce((sum, range) => sum + range.length, 0)).toBe(known);
      }),
      { numRuns: 100 },
    );
  });
});

function describeAnswer(answer: MemoryRange | 'partial' | undefined): string {
  return typeof answer === 'object' ? `type ${answer.memoryType}` : String(answer);
}

function expected(
  owners: readonly ({ type: MemoryType } | undefined)[],
  row: readonly unknown[],
  offset: number,
): string {
  const first = owners[0];
  if (owners.every((owner) => owner === undefined)) return 'undefined';
  // All bytes between must have the same owner: an entry that was cut in two has bytes of another owner in the gap.
  const whole = first !== undefined && owners.every((owner, index) => owner === first && row[offset + index] === first);
  return whole ? `type ${first.type}` : 'partial';
}
