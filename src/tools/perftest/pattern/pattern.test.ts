/** Patterns of perftest: flows and caches against their closed formulas, and what the options refuse. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { property } from '../../../../test/fixtures/property.ts';
import {
  formulaBytes,
  formulaText,
  isPattern,
  kvBlocks,
  kvBytes,
  PATTERN_NAMES,
  PATTERNS,
  type PatternOptions,
  readKvCache,
  readPattern,
  transferBytes,
} from './pattern-spec.ts';

const read = (options: PatternOptions, ranks?: number): ReturnType<typeof readPattern> =>
  readPattern(
    options,
    Object.keys(options).filter((name) => name.length === 1),
    ranks,
  );

describe.each(PATTERN_NAMES)('%s', (name) => {
  it.each([2, 4, 6, 16])('has as many flows as its formula says, each once (%i ranks)', (ranks) => {
    const flows = PATTERNS[name].flows(ranks);
    expect(flows).toHaveLength(PATTERNS[name].count(ranks));
    expect(new Set(flows.map(({ from, to }) => `${from} ${to}`)).size).toBe(flows.length);
    for (const { from, to } of flows) {
      expect(from).not.toBe(to);
      for (const rank of [from, to]) expect(rank >= 0 && rank < ranks).toBe(true);
    }
  });
});

describe('flows', () => {
  it('go where the names say', () => {
    const text = (name: keyof typeof PATTERNS, ranks: number): string =>
      PATTERNS[name]
        .flows(ranks)
        .map(({ from, to }) => `${from}>${to}`)
        .join(' ');
    expect(text('pairwise', 4)).toBe('0>2 1>3');
    expect(text('one-to-many', 3)).toBe('0>1 0>2');
    expect(text('many-to-one', 3)).toBe('1>0 2>0');
    expect(text('all-to-all', 3)).toBe('0>1 0>2 1>2 1>0 2>0 2>1');
  });
});

describe('--kv', () => {
  it('has the size that model cards state', () => {
    const cache = readKvCache('layers=32,heads=8,head-dim=128,page=16,tokens=4096,dtype=bf16');
    expect(cache).toEqual({ layers: 32, heads: 8, headDim: 128, page: 16, tokens: 4096, dtype: 'bf16' });
    // 128 KiB for each token.
    expect(kvBytes(cache)).toBe(4096 * 128 * 1024);
    expect(kvBlocks(cache)).toEqual({ blockBytes: 32_768, blocksPerLayer: 512, blocks: 16_384 });
    expect(readKvCache('tokens=4096')).toEqual(cache);
  });

  it('rounds tokens up to pages', () => {
    expect(kvBytes(readKvCache('layers=1,heads=1,head-dim=1,page=16,tokens=17,dtype=int8'))).toBe(2 * 32);
  });

  property(
    'has blocks that are the bytes of the formula',
    [fc.tuple(...[8, 8, 8, 8, 100].map((max) => fc.integer({ min: 1, max }))), fc.constantFrom('fp32', 'bf16', 'fp8')],
    ([layers, heads, headDim, page, tokens], dtype) => {
      const cache = readKvCache(
        `layers=${layers},heads=${heads},head-dim=${headDim},page=${page},tokens=${tokens},dtype=${dtype}`,
      );
      const { blocks, blockBytes } = kvBlocks(cache);
      expect(blocks * blockBytes).toBe(kvBytes(cache));
    },
  );

  it.each([
    ['', /--kv must have each of layers/],
    ['depth=3', /--kv must have each of/],
    ['layers=3,layers=3', /at most once, got "layers=3"/],
    ['layers=3=4', /--kv must have each of/],
    ['layers=0', /--kv layers must be an integer from 1/],
    ['tokens=1e3', /--kv tokens must be an integer/],
    ['dtype=fp5', /--kv dtype must be one of fp32, bf16/],
    ['constructor=1', /--kv must have each of/],
    ['dtype=constructor', /--kv dtype must be one of/],
  ])('refuses %j', (text, message) => {
    expect(() => readKvCache(text)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) }),
    );
  });
});

describe('options of patterns', () => {
  it('are asked for by any of their options', () => {
    expect([{}, { s: '8' }, { pattern: 'x' }, { kv: '' }, { batch: '1' }, { ranks: '2' }].map(isPattern)).toEqual([
      false,
      false,
      true,
      true,
      true,
      true,
    ]);
  });

  it('are a list of each size', () => {
    const spec = read({
      pattern: 'all-to-all',
      ranks: '4',
      batch: '16',
      s: '1k..4k',
      n: '7',
      m: 'gaudi,host',
      V: true,
    });
    expect(spec).toMatchObject({
      pattern: 'all-to-all',
      operation: 'put',
      ranks: 4,
      sendMemory: 'gaudi',
      recvMemory: 'host',
      iterations: 7,
      verify: true,
      shapes: [1024, 2048, 4096].map((blockBytes) => ({ blockBytes, blocks: 16, batch: 16 })),
    });
    expect(formulaBytes(spec, spec.shapes[1]!)).toBe(4 * 3 * 16 * 2048 * 7);
    expect(formulaText(spec)).toBe('bytes = ranks * (ranks - 1) * batch * size * iterations');
  });

  it('are a list for each layer of a cache, or of so many pages', () => {
    const spec = read({ kv: 'layers=2,tokens=100', n: '3', t: 'ucp_get' });
    expect(spec).toMatchObject({ pattern: 'pairwise', ranks: 2, operation: 'get' });
    expect(spec.shapes).toEqual([{ blockBytes: 32_768, blocks: 28, batch: 14 }]);
    expect(formulaBytes(spec, spec.shapes[0]!)).toBe(transferBytes(spec.shapes[0]!) * 3);
    expect(read({ kv: 'layers=2,tokens=100', batch: '5' }).shapes[0]!.batch).toBe(5);
    expect(read({ kv: 'layers=2,tokens=100', batch: '500' }).shapes[0]!.batch).toBe(28);
  });

  it('take the number of ranks from a launcher', () => {
    expect(read({ pattern: 'one-to-many', ranks: '9' }, 3).ranks).toBe(3);
  });

  it.each([
    [{ pattern: 'ring' }, /--pattern must be one of pairwise, one-to-many/],
    [{ ranks: '1' }, /--ranks must be an integer from 2 to 256/],
    [{ pattern: 'pairwise', ranks: '3' }, /--ranks must be even for pairwise/],
    [{ batch: '0' }, /--batch must be an integer from 1/],
    [{ batch: '1048577' }, /--batch must be an integer from 1 to 1048576/],
    [{ batch: '1048576', s: '64k' }, /-s must be at most 4294967296 bytes per peer/],
    [{ kv: 'tokens=4000000' }, /--kv must be at most 4294967296 bytes/],
    [{ kv: 'layers=1', s: '8' }, /-s must not be used with --kv/],
    [{ pattern: 'pairwise', t: 'tag_bw' }, /-t must be ucp_put_bw or ucp_get with --pattern/],
    [{ pattern: 'pairwise', n: '0' }, /-n must be an integer from 1/],
    [{ pattern: 'pairwise', m: 'disk' }, /-m must be one of host, gaudi/],
    [{ pattern: 'pairwise', O: '3' }, /-O with --pattern is not supported/],
  ])('refuses %j', (options, message) => {
    expect(() => read(options)).toThrow(expect.objectContaining({ message: expect.stringMatching(message) }));
  });
});
