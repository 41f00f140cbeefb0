/** Messages and hellos of teams: reading returns the written fields, and invalid bytes of a peer are refused. */

import { describe, expect, it } from 'vitest';
import { createRandom } from '../../../ucs/sys/random.ts';
import {
  describeSignature,
  HEADER_BYTES,
  type Header,
  isSame,
  Kind,
  readHeader,
  restOf,
  writeHeader,
} from './header.ts';
import { type Hello, packHello, readHellos } from './hello.ts';

const HEADER: Header = {
  kind: Kind.READY,
  team: 2 ** 51 + 3,
  sequence: 2 ** 40,
  from: 7,
  slice: 3,
  round: 2 ** 20 + 1,
  signature: { collective: 'reduce', dtype: 'bfloat16', op: 'max', root: 2, count: 2 ** 35, algorithm: 4 },
  status: -25,
  byteLength: 2 ** 33,
  offset: 2 ** 34,
};

describe('a message', () => {
  it('is read as it was written', () => {
    const bytes = writeHeader(new Uint8Array(200), HEADER, Uint8Array.of(1, 2, 3));
    expect(bytes.byteLength).toBe(HEADER_BYTES + 3);
    expect(readHeader(bytes)).toEqual(HEADER);
    expect([...restOf(bytes)]).toEqual([1, 2, 3]);
  });

  it('that is too short, of another version, or names nothing, is not one', () => {
    const bytes = writeHeader(new Uint8Array(HEADER_BYTES), HEADER);
    expect(readHeader(bytes.subarray(0, HEADER_BYTES - 1))).toBeUndefined();
    for (const [at, value] of [
      [0, 2],
      [1, 9],
      [2, 9],
      [3, 7],
      [4, 4],
    ] as const) {
      expect(readHeader(Uint8Array.from(bytes, (byte, index) => (index === at ? value : byte)))).toBeUndefined();
    }
    const random = createRandom(1);
    for (let i = 0; i < 1000; i++) readHeader(random.bytes(random.below(100)));
  });

  it('means the same operation only if every field is equal', () => {
    const { signature } = HEADER;
    expect(isSame(signature, { ...signature })).toBe(true);
    for (const other of [{ root: 0 }, { count: 1 }, { dtype: 'int32' }, { op: 'sum' }, { algorithm: 0 }] as const) {
      expect(isSame(signature, { ...signature, ...other })).toBe(false);
    }
    expect(describeSignature(signature)).toMatch(/^reduce of 34359738368 bfloat16, max, root 2, by/);
  });
});

describe('hellos', () => {
  const of = (rank: number, size = 2): Hello => ({
    rank,
    size,
    team: rank + 1,
    node: 'here',
    address: Uint8Array.of(1, rank),
    key: new Uint8Array(3),
  });
  const read = (...answers: Uint8Array[]): unknown => readHellos(answers, of(0));

  it('are sorted by rank', () => {
    expect(readHellos([packHello(of(1)), packHello(of(0))], of(0))).toEqual([of(0), of(1)]);
  });

  it.each<readonly [RegExp, () => unknown]>([
    [/2 ranks/, () => read(packHello(of(0)))],
    [/rank must be unique/, () => read(packHello(of(1)), packHello(of(1)))],
    [/size must be equal/, () => read(packHello(of(0)), packHello(of(1, 3)))],
    [/another version/, () => read(packHello(of(0)), Uint8Array.of(1, 2))],
    [/another version/, () => read(packHello(of(0)), packHello(of(2)))],
    [/another version/, () => read(packHello(of(0)), new TextEncoder().encode('null'))],
    [
      /bytes of all ranks, also those that rank 0 has passed/,
      () => read(packHello({ ...of(0), team: 9 }), packHello(of(1))),
    ],
  ])('are refused: %s', (message, run) => {
    expect(run).toThrow(message);
  });
});
