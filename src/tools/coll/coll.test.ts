/** The options, contents and tables of `gaudi-ucx coll`, without processes. */

import { describe, expect, it } from 'vitest';
import type { Collective } from '../../coll/choice/problem.ts';
import type { CollRow } from './measure.ts';
import {
  expectedAt,
  fillSegment,
  findDifference,
  type KnownOperation,
  recvCount,
  sendCount,
  sentBy,
} from './oracle.ts';
import { headOf, rowOf, tailOf } from './report.ts';
import { type CollOptions, readRanks, readSpec } from './spec.ts';

const OPTIONS: CollOptions = {
  test: 'all_reduce',
  size: '1K..4K',
  stepfactor: '2',
  iters: '7',
  warmup_iters: '0',
  check: '1',
  op: 'sum',
  datatype: 'float',
  root: '0',
  memory: 'host',
  ranks: '4',
};

describe('options', () => {
  it('have the names of hccl_demo and nccl-tests', () => {
    expect(readSpec({ ...OPTIONS, op: 'prod', datatype: 'bf16', root: '3', memory: 'gaudi' }, 4)).toEqual({
      test: 'all_reduce',
      collective: 'allReduce',
      dtype: 'bfloat16',
      op: 'product',
      root: 3,
      memory: 'gaudi',
      sizes: [1024, 2048, 4096],
      iterations: 7,
      warmup: 0,
      checks: true,
      algorithm: undefined,
      explains: false,
    });
    expect(readSpec({ ...OPTIONS, check: '0', explain: true }, 4)).toMatchObject({ checks: false, explains: true });
  });

  it.each([
    [{ size: '1K..5K' }, [1024, 2048, 4096]],
    [{ size: '3000' }, [3000]],
    [{ size: '1..9', stepfactor: '3' }, [4]],
    [{ size: undefined, minbytes: '8K' }, [8192]],
    [{ size: undefined, minbytes: '1K', maxbytes: '16KiB', stepfactor: '4' }, [1024, 4096, 16_384]],
    [{ test: 'barrier', size: '1K..4K' }, [0]],
  ])('%j have the sizes %j', (options, sizes) => {
    const { size, ...rest } = { ...OPTIONS, ...options };
    expect(readSpec(size === undefined ? rest : { ...rest, size }, 4).sizes).toEqual(sizes);
  });

  it.each([
    [{ test: 'all_shuffle' }, /--test/],
    [{ datatype: 'float3' }, /-d/],
    [{ op: 'xor' }, /-o/],
    [{ memory: 'disk' }, /--memory/],
    [{ check: '2' }, /-c/],
    [{ root: '4' }, /-r/],
    [{ iters: '0' }, /-n/],
    [{ iters: '1e3' }, /-n/],
    [{ warmup_iters: '-1' }, /-w/],
    [{ stepfactor: '1' }, /-f/],
    [{ size: '4K..1K' }, /--size/],
    [{ size: '2' }, /at least one element of 4 bytes/],
    [{ size: 'much' }, /--size/],
  ])('%j are refused by name', (options, message) => {
    expect(() => readSpec({ ...OPTIONS, ...options }, 4)).toThrow(message);
  });

  it('have 1 to 256 ranks', () => {
    expect([readRanks('1'), readRanks('256')]).toEqual([1, 256]);
    for (const text of ['0', '257', '']) expect(() => readRanks(text)).toThrow(/--ranks/);
  });
});

describe('contents', () => {
  const SIZE = 3;
  const operation = (collective: Collective, changes: Partial<KnownOperation> = {}): KnownOperation => {
    return { collective, size: SIZE, dtype: 'int32', op: 'sum', root: 1, count: 5, seed: 2, ...changes };
  };
  const values = (segments: readonly { count: number; valueAt: (index: number) => number }[]): number[] =>
    segments.flatMap(({ count, valueAt }) => Array.from({ length: count }, (_, i) => valueAt(i)));
  /** What a rank sends: every element. */
  const sent = (of: KnownOperation, rank: number, count = 5 * SIZE): number[] => values([sentBy(of, rank, count)]);
  const ranks = [0, 1, 2];

  it('differ by rank, place and operation', () => {
    const of = operation('allReduce');
    expect(ranks.map((rank) => sent(of, rank, 3))).toEqual([
      [2, 3, 4],
      [5, 6, 7],
      [0, 1, 2],
    ]);
    expect(sent({ ...of, seed: 3 }, 0, 3)).toEqual([3, 4, 5]);
    expect(new Set(sent({ ...of, op: 'product' }, 0))).toEqual(new Set([1, 2]));
  });

  it.each([
    ['allReduce', [5, 5, 5], [5, 5, 5]],
    ['allGather', [5, 5, 5], [15, 15, 15]],
    ['allToAll', [15, 15, 15], [15, 15, 15]],
    ['reduceScatter', [15, 15, 15], [5, 5, 5]],
    ['broadcast', [0, 0, 0], [5, 5, 5]],
    ['reduce', [5, 5, 5], [0, 5, 0]],
    ['gather', [5, 5, 5], [0, 15, 0]],
    ['scatter', [0, 15, 0], [5, 5, 5]],
    ['barrier', [0, 0, 0], [0, 0, 0]],
  ] as const)('of %s are of %j elements before and %j after', (collective, before, after) => {
    const of = operation(collective);
    expect(ranks.map((rank) => sendCount(of, rank))).toEqual(before);
    expect(ranks.map((rank) => recvCount(of, rank))).toEqual(after);
    expect(ranks.map((rank) => values(expectedAt(of, rank)).length)).toEqual(after);
  });

  it('of every rank come from the blocks that are for it', () => {
    const block = (of: KnownOperation, rank: number, at: number) => sent(of, rank).slice(5 * at, 5 * at + 5);
    const at = (of: KnownOperation) => ranks.map((rank) => values(expectedAt(of, rank)));
    const all = operation('allToAll');
    expect(at(all)).toEqual(ranks.map((rank) => ranks.flatMap((sender) => block(all, sender, rank))));
    const scatter = operation('scatter');
    expect(at(scatter)).toEqual(ranks.map((rank) => block(scatter, 1, rank)));
    const broadcast = operation('broadcast');
    expect(at(broadcast)).toEqual(ranks.map(() => block(broadcast, 1, 0)));
    const gathered = operation('allGather', { recvCounts: [1, 2, 3] });
    const parts = ranks.flatMap((sender) => sent(gathered, sender, sender + 1));
    expect(at(gathered)).toEqual([parts, parts, parts]);
    expect(ranks.map((rank) => [sendCount(gathered, rank), recvCount(gathered, rank)])).toEqual([
      [1, 6],
      [2, 6],
      [3, 6],
    ]);
  });

  it.each([
    ['sum', (a: number, b: number) => a + b],
    ['product', (a: number, b: number) => a * b],
    ['min', Math.min],
    ['max', Math.max],
  ] as const)('are reduced over all ranks by %s', (op, reduce) => {
    const of = operation('reduceScatter', { op });
    const whole = sent(of, 0).map((first, i) =>
      [sent(of, 1)[i]!, sent(of, 2)[i]!].reduce((a, b) => reduce(a, b), first),
    );
    expect(ranks.map((rank) => values(expectedAt(of, rank)))).toEqual([0, 5, 10].map((at) => whole.slice(at, at + 5)));
    const reduced = operation('reduce', { op });
    const first = ranks
      .map((rank) => sent(reduced, rank, 5))
      .reduce((a, b) => a.map((value, i) => reduce(value, b[i]!)));
    expect(ranks.map((rank) => values(expectedAt(reduced, rank)))).toEqual([[], first, []]);
  });

  it.each([1, 7, 8, 9, 23, 40_000])('of %s elements are filled and compared in each place', (count) => {
    const segments = [
      { count, valueAt: (i: number) => i % 8 },
      { count, valueAt: (i: number) => (i + 3) % 8 },
    ];
    const bytes = new Uint8Array(8 * count + 4).fill(0xee);
    for (const [at, segment] of segments.entries()) fillSegment(bytes.subarray(4 * count * at), 'int32', segment);
    const words = new Int32Array(bytes.buffer);
    expect([...words.subarray(0, count)].every((value, i) => value === i % 8)).toBe(true);
    expect([...words.subarray(count, 2 * count)].every((value, i) => value === (i + 3) % 8)).toBe(true);
    expect(words[2 * count]).toBe(0xeeee_eeee | 0);
    expect(findDifference(bytes, 'int32', segments)).toBeUndefined();
    for (const index of new Set([0, count - 1, count, 2 * count - 1])) {
      const expected = words[index]!;
      words[index] = 99;
      expect(findDifference(bytes, 'int32', segments)).toEqual({ index, expected, found: 99 });
      words[index] = expected;
    }
  });
});

describe('the table', () => {
  const row = {
    bytes: 4096,
    count: 1024,
    timeNs: 12_345,
    algorithmBandwidth: 1.25,
    busBandwidth: 2.5,
    wrong: undefined,
    protocol: 'ring',
  } as unknown as CollRow;
  const run = (test: string, emulated = false) => {
    return { spec: readSpec({ ...OPTIONS, test, root: '2' }, 4), ranks: 4, emulated };
  };

  it('has microseconds, and operation and root where there are any', () => {
    const line = (test: string, changes: Partial<CollRow> = {}) => rowOf('csv', run(test), { ...row, ...changes });
    expect(line('all_reduce')).toBe('4096,1024,float32,sum,-1,12.3,1.250,2.500,N/A,ring');
    expect(line('reduce', { wrong: 0 })).toBe('4096,1024,float32,sum,2,12.3,1.250,2.500,0,ring');
    expect(line('gather', { wrong: 3 })).toBe('4096,1024,float32,none,2,12.3,1.250,2.500,3,ring');
    expect(line('all_gather')).toBe('4096,1024,float32,none,-1,12.3,1.250,2.500,N/A,ring');
    expect(headOf('csv', run('all_reduce'))!.split(',')).toHaveLength(10);
  });

  it('is text under its columns, or JSON, with the mean of the bandwidths', () => {
    const text = rowOf('text', run('all_reduce'), row)!;
    const [first, names] = headOf('text', run('all_reduce'))!.split('\n');
    expect(first).toBe('# all_reduce, 4 ranks, host memory');
    expect(names!.indexOf('size') + 4).toBe(text.indexOf('4096') + 4);
    expect(names!.indexOf('busbw') + 5).toBe(text.indexOf('2.500') + 5);
    expect(headOf('text', run('all_reduce', true))).toMatch(/\n# .*emulated/);
    const rows = [row, { ...row, busBandwidth: 3.5 }];
    expect(tailOf('text', run('all_reduce'), rows)).toBe('# average bus bandwidth: 3.000 GB/s');
    expect([
      headOf('json', run('reduce')),
      rowOf('json', run('reduce'), row),
      tailOf('csv', run('reduce'), rows),
    ]).toEqual([undefined, undefined, undefined]);
    expect(JSON.parse(tailOf('json', run('reduce', true), rows)!)).toMatchObject({
      test: 'reduce',
      root: 2,
      ranks: 4,
      emulated: true,
      results: [{ busBandwidth: 2.5 }, { busBandwidth: 3.5 }],
    });
  });
});
