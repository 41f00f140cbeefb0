/** The pieces of strided transfers against a list of all addresses. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { joinBig } from '../../../ucs/type/int64.ts';
import { type RowShape, STRIDE_DIMENSIONS, StridedTransfer } from './strided-transfer.ts';

const SHAPE = fc.record({
  base: fc.bigInt({ min: 0n, max: 2n ** 64n - 2n ** 40n }),
  rowBytes: fc.nat(9),
  counts: fc.array(fc.nat(4), { minLength: STRIDE_DIMENSIONS, maxLength: STRIDE_DIMENSIONS }),
  strides: fc.array(fc.nat(2 ** 32 - 1), { minLength: STRIDE_DIMENSIONS, maxLength: STRIDE_DIMENSIONS }),
});

/** The address of each byte, with one loop for each dimension; the rows of the first one are consecutive. */
function addresses({ base, rowBytes, counts, strides }: RowShape): bigint[] {
  const all: bigint[] = [];
  const [first, second, third, fourth] = counts;
  for (let l = 0; l < fourth!; l++) {
    for (let k = 0; k < third!; k++) {
      for (let j = 0; j < second!; j++) {
        for (let i = 0; i < first!; i++) {
          const row = [i, j, k, l].reduce((sum, index, at) => sum + BigInt(index) * BigInt(strides[at]!), base);
          for (let byte = 0; byte < rowBytes; byte++) all.push(row + BigInt(byte));
        }
      }
    }
  }
  return all;
}

/** The addresses of the bytes of all pieces: of the source, or undefined for a fill, and of the destination. */
function pieces(transfer: StridedTransfer): [bigint[], bigint[]] {
  const seen: [bigint[], bigint[]] = [[], []];
  const words = new Int32Array(6);
  for (; !transfer.ended; transfer.advance()) {
    transfer.write(words);
    expect(words[0]).toBeGreaterThan(0);
    const [source, destination] = [joinBig(words[2]!, words[3]!), joinBig(words[4]!, words[5]!)];
    for (let byte = 0n; byte < words[0]!; byte++) {
      seen[0].push(source + byte);
      seen[1].push(destination + byte);
    }
  }
  return seen;
}

it('the bytes of the source go to those of the destination in the same order, up to the shorter side', () => {
  fc.assert(
    fc.property(SHAPE, SHAPE, (source, destination) => {
      const [from, to] = [addresses(source), addresses(destination)];
      const bytes = Math.min(from.length, to.length);
      expect(pieces(new StridedTransfer(source, destination, 0, false))).toEqual([
        from.slice(0, bytes),
        to.slice(0, bytes),
      ]);
    }),
  );
});

it('a fill writes every byte of the destination', () => {
  fc.assert(
    fc.property(SHAPE, (destination) => {
      expect(pieces(new StridedTransfer(7n, destination, 0, false))[1]).toEqual(addresses(destination));
    }),
  );
});
