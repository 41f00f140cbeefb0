import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createRandom } from '../sys/random.ts';
import { RangeAllocator } from './range-allocator.ts';

/** The same rules by brute force, with one byte per unit. */
class BitmapOracle {
  readonly owner: Int32Array;
  readonly reserved: Uint8Array;
  readonly live = new Map<number, number>();

  constructor(size: number) {
    this.owner = new Int32Array(size).fill(-1);
    this.reserved = new Uint8Array(size);
  }

  #open(unit: number): boolean {
    return this.owner[unit] === -1 && this.reserved[unit] === 0;
  }

  blocks(): { start: number; length: number }[] {
    const found: { start: number; length: number }[] = [];
    for (let unit = 0; unit < this.owner.length; unit++) {
      if (!this.#open(unit)) continue;
      const last = found.at(-1);
      if (last !== undefined && last.start + last.length === unit) last.length++;
      else found.push({ start: unit, length: 1 });
    }
    return found;
  }

  allocate(length: number, alignment: number, at?: number): number {
    if (at !== undefined && at % alignment === 0 && this.allocateAt(at, length)) return at;
    let best = -1;
    let bestLength = Infinity;
    for (const block of this.blocks()) {
      const aligned = Math.ceil(block.start / alignment) * alignment;
      if (aligned + length <= block.start + block.length && block.length < bestLength) {
        best = aligned;
        bestLength = block.length;
      }
    }
    if (best >= 0) this.#take(best, length);
    return best;
  }

  allocateAt(offset: number, length: number): boolean {
    if (offset + length > this.owner.length) return false;
    for (let unit = offset; unit < offset + length; unit++) if (this.owner[unit] !== -1) return false;
    this.#take(offset, length);
    return true;
  }

  free(offset: number): number {
    const length = this.live.get(offset);
    if (length === undefined) return -1;
    this.live.delete(offset);
    this.owner.fill(-1, offset, offset + length);
    return length;
  }

  reserve(offset: number, length: number): void {
    this.reserved.fill(1, offset, offset + length);
  }

  #take(offset: number, length: number): void {
    this.live.set(offset, length);
    this.owner.fill(offset, offset, offset + length);
  }
}

type Operation =
  | { readonly kind: 'allocate'; readonly length: number; readonly alignment: number; readonly at?: number }
  | { readonly kind: 'at' | 'reserve'; readonly offset: number; readonly length: number }
  | { readonly kind: 'free'; readonly offset: number };

function apply(target: RangeAllocator | BitmapOracle, size: number, operation: Operation): number | boolean {
  switch (operation.kind) {
    case 'allocate': {
      const { length, alignment, at } = operation;
      if (target instanceof BitmapOracle) return target.allocate(length, alignment, at);
      return target.allocate(length, alignment, at === undefined ? undefined : { at });
    }
    case 'at':
      return target.allocateAt(operation.offset, operation.length);
    case 'reserve':
      if (operation.offset + operation.length <= size) target.reserve(operation.offset, operation.length);
      return true;
    case 'free':
      return target.free(operation.offset);
  }
}

function compare(allocator: RangeAllocator, oracle: BitmapOracle): boolean {
  const blocks = oracle.blocks();
  const used = oracle.owner.reduce((sum, owner) => sum + (owner === -1 ? 0 : 1), 0);
  if (allocator.usedBytes !== used || allocator.freeBytes !== oracle.owner.length - used) return false;
  if (allocator.allocations !== oracle.live.size || allocator.freeBlocks !== blocks.length) return false;
  return allocator.largestFree === blocks.reduce((most, block) => Math.max(most, block.length), 0);
}

function compareDeeply(allocator: RangeAllocator, oracle: BitmapOracle): void {
  expect(compare(allocator, oracle)).toBe(true);
  expect([...allocator].map(({ offset, length }) => [offset, length])).toEqual(
    [...oracle.live].sort(([a], [b]) => a - b),
  );
  for (let unit = 0; unit < oracle.owner.length; unit++) {
    expect(allocator.find(unit)?.offset ?? -1).toBe(oracle.owner[unit]);
  }
  expect([...allocator.usedShares(oracle.owner.length)]).toEqual([...oracle.owner].map((owner) => (owner < 0 ? 0 : 1)));
  for (const parts of [1, 3, 7]) {
    const shares = allocator.usedShares(parts);
    const used = shares.reduce((sum, share) => sum + share, 0) * (oracle.owner.length / parts);
    expect(used).toBeCloseTo(allocator.usedBytes, 6);
  }
}

function smallOperations(size: number): Operation[] {
  const operations: Operation[] = [];
  for (let offset = 0; offset < size; offset++) operations.push({ kind: 'free', offset });
  for (let length = 1; length <= size; length++) {
    for (const alignment of [1, 2, 3]) operations.push({ kind: 'allocate', length, alignment });
  }
  for (let offset = 0; offset < size; offset += 2) operations.push({ kind: 'at', offset, length: 2 });
  operations.push({ kind: 'reserve', offset: 1, length: 2 });
  return operations;
}

/** A selection for longer sequences in a space of 8. */
function fewOperations(): Operation[] {
  const operations: Operation[] = [
    { kind: 'reserve', offset: 3, length: 2 },
    { kind: 'at', offset: 2, length: 4 },
  ];
  for (const offset of [0, 1, 2, 3, 4, 6]) operations.push({ kind: 'free', offset });
  for (const length of [1, 2, 3]) operations.push({ kind: 'allocate', length, alignment: 1 });
  for (const alignment of [2, 3, 4]) operations.push({ kind: 'allocate', length: 1, alignment });
  return operations;
}

/**
 * Runs every sequence of `depth` operations; returns the first one on which allocator and oracle differ. Only the last
 * operation is compared, because the sequences of smaller depth have compared the earlier ones.
 */
function firstDifference(size: number, operations: readonly Operation[], depth: number): Operation[] | undefined {
  const sequence: number[] = new Array<number>(depth).fill(0);
  for (;;) {
    const allocator = new RangeAllocator(size);
    const oracle = new BitmapOracle(size);
    let same = true;
    for (const index of sequence) {
      same = apply(allocator, size, operations[index]!) === apply(oracle, size, operations[index]!);
    }
    if (!same || !compare(allocator, oracle)) return sequence.map((each) => operations[each]!);
    let digit = depth - 1;
    while (digit >= 0 && ++sequence[digit]! === operations.length) sequence[digit--] = 0;
    if (digit < 0) return undefined;
  }
}

describe('RangeAllocator', () => {
  it('takes the smallest block that fits, the lowest among equals', () => {
    const allocator = new RangeAllocator(100);
    for (const [offset, length] of [
      [10, 1],
      [14, 1],
      [18, 1],
      [25, 1],
    ] as const) {
      expect(allocator.allocateAt(offset, length)).toBe(true);
    }
    expect(allocator.allocate(3)).toBe(11);
    expect(allocator.allocate(3)).toBe(15);
    expect(allocator.allocate(3)).toBe(19);
    expect(allocator.allocate(11)).toBe(26);
    expect(allocator.allocate(80)).toBe(-1);
  });

  it('aligns to any positive integer', () => {
    const page = 768 * 2 ** 20;
    const allocator = new RangeAllocator(128 * page);
    expect(allocator.allocate(1, 1)).toBe(0);
    expect(allocator.allocate(page, page)).toBe(page);
    expect(allocator.allocate(1, 3)).toBe(3);
    expect(allocator.allocate(128 * page, page)).toBe(-1);
  });

  it('works at the top of the range of Numbers', () => {
    const size = Number.MAX_SAFE_INTEGER;
    const allocator = new RangeAllocator(size);
    expect(allocator.allocate(size - 4096)).toBe(0);
    expect(allocator.allocate(1, 2 ** 52 + 1)).toBe(-1);
    expect(allocator.allocateAt(size - 1, 1)).toBe(true);
    expect(allocator.allocateAt(size, 1)).toBe(false);
    expect(allocator.allocate(4095)).toBe(size - 4096);
    expect(allocator.freeBytes).toBe(0);
    expect(allocator.largestFree).toBe(0);
  });

  it('uses `at` if the range is free', () => {
    const allocator = new RangeAllocator(64);
    expect(allocator.allocate(8, 8, { at: 32 })).toBe(32);
    expect(allocator.allocate(8, 8, { at: 32 })).toBe(40);
    expect(allocator.allocate(8, 8, { at: 3 })).toBe(48);
    expect(allocator.allocate(8, 8, { at: 4096 })).toBe(56);
    expect(allocator.allocate(8, 8, { at: -8 })).toBe(0);
  });

  it('keeps plain allocations out of reserved ranges', () => {
    const allocator = new RangeAllocator(30);
    allocator.reserve(10, 10);
    allocator.reserve(15, 10);
    expect(allocator.allocate(11)).toBe(-1);
    expect(allocator.allocateAt(8, 20)).toBe(true);
    expect(allocator.allocate(2)).toBe(28);
    expect(allocator.free(8)).toBe(20);
    expect(allocator.freeBlocks).toBe(2);
    expect(allocator.largestFree).toBe(10);
    expect(allocator.freeBytes).toBe(28);
    expect(allocator.allocate(5, 1, { at: 12 })).toBe(12);
  });

  it('refuses unknown allocations and invalid arguments', () => {
    const allocator = new RangeAllocator(16);
    expect(allocator.free(0)).toBe(-1);
    expect(allocator.allocate(4)).toBe(0);
    expect(allocator.free(1)).toBe(-1);
    expect(allocator.free(0)).toBe(4);
    expect(allocator.free(0)).toBe(-1);
    expect(allocator.find(-1)).toBeUndefined();
    expect(allocator.allocateAt(0.5, 1)).toBe(false);
    for (const bad of [0, -1, 1.5, Number.NaN, 2 ** 53]) {
      expect(() => allocator.allocate(bad)).toThrow(/length/);
      expect(() => allocator.allocate(1, bad)).toThrow(/alignment/);
      expect(() => allocator.allocateAt(0, bad)).toThrow(/length/);
      expect(() => new RangeAllocator(bad)).toThrow(/size/);
    }
    expect(() => allocator.reserve(8, 9)).toThrow(/offset/);
    expect(() => allocator.reserve(-1, 2)).toThrow(/offset/);
  });

  it.each([
    [2, 5],
    [3, 4],
    [5, 3],
    [8, 3],
  ])('agrees with a bitmap in a space of %i on every sequence up to length %i', (size, longest) => {
    const operations = smallOperations(size);
    for (let depth = 1; depth <= longest; depth++) {
      expect(firstDifference(size, operations, depth)).toBeUndefined();
    }
  });

  it('agrees with a bitmap in a space of 8 on every sequence up to 4 selected operations', () => {
    for (let depth = 1; depth <= 4; depth++) expect(firstDifference(8, fewOperations(), depth)).toBeUndefined();
  });

  it('agrees with a bitmap on long random sequences', () => {
    const size = 96;
    const unit = fc.nat(size - 1);
    const length = fc.integer({ min: 1, max: 24 });
    const operation: fc.Arbitrary<Operation> = fc.oneof(
      fc.record({ kind: fc.constant('allocate' as const), length, alignment: fc.integer({ min: 1, max: 20 }) }),
      fc.record({
        kind: fc.constant('allocate' as const),
        length,
        alignment: fc.constantFrom(1, 4, 6),
        at: unit,
      }),
      fc.record({ kind: fc.constantFrom('at' as const, 'at' as const, 'reserve' as const), offset: unit, length }),
      fc.record({ kind: fc.constant('free' as const), offset: unit }),
      fc.nat().map((pick) => ({ kind: 'free' as const, offset: -1 - pick })),
    );
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 120 }), (operations) => {
        const allocator = new RangeAllocator(size);
        const oracle = new BitmapOracle(size);
        for (const each of operations) {
          let step = each;
          // A negative offset selects a live allocation, so that long runs free as often as they allocate.
          if (step.kind === 'free' && step.offset < 0 && oracle.live.size > 0) {
            const starts = [...oracle.live.keys()];
            step = { kind: 'free', offset: starts[-(step.offset + 1) % starts.length]! };
          }
          expect(apply(allocator, size, step)).toBe(apply(oracle, size, step));
          compareDeeply(allocator, oracle);
        }
      }),
      { numRuns: 60 },
    );
  });

  it('coalesces 10,000 blocks freed in random order into one', () => {
    const random = createRandom(7);
    const blockBytes = 64 * 1024;
    const allocator = new RangeAllocator(768 * 2 ** 20);
    const offsets: number[] = [];
    for (let i = 0; i < 10_000; i++) {
      const offset = allocator.allocate(blockBytes, blockBytes);
      expect(offset).toBe(i * blockBytes);
      offsets.push(offset);
    }
    for (let i = offsets.length - 1; i > 0; i--) {
      const other = random.below(i + 1);
      [offsets[i], offsets[other]] = [offsets[other]!, offsets[i]!];
    }
    for (const offset of offsets) expect(allocator.free(offset)).toBe(blockBytes);
    expect(allocator.freeBlocks).toBe(1);
    expect(allocator.largestFree).toBe(allocator.size);
    expect(allocator.allocations).toBe(0);
    expect(allocator.usedBytes).toBe(0);
  });
});
