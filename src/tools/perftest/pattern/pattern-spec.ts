/**
 * Specification of a run of `perftest --pattern`, shared by its ranks: flows of data between ranks, block sizes of a KV cache (`--kv
 * layers=32,heads=8,head-dim=128,page=16,tokens=4096,dtype=bf16`), and the closed formula of the bytes.
 */

import { LIST_BLOCKS_MAX } from '../../../api/contract/request.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { keysOf } from '../../../ucs/type/keys.ts';
import { sizesOfRange, specOf, type TestOptions } from '../options.ts';
import { type MemoryName, type TestSpec, unsupported } from '../spec.ts';

/** A transfer: the data that moves along every flow in one iteration. */
export interface Shape {
  readonly blockBytes: number;
  /** Blocks of a transfer. */
  readonly blocks: number;
  /** Blocks of each list of a transfer; the last one may have fewer. */
  readonly batch: number;
}

/** A run. */
export interface PatternSpec {
  readonly pattern: PatternName;
  readonly ranks: number;
  readonly operation: 'put' | 'get';
  readonly sendMemory: MemoryName;
  readonly recvMemory: MemoryName;
  /** One for each size. */
  readonly shapes: readonly Shape[];
  readonly kv: KvCache | undefined;
  readonly iterations: number;
  readonly warmUp: number;
  readonly verify: boolean;
}

/** Options as text. */
export interface PatternOptions extends TestOptions {
  readonly pattern?: string;
  readonly ranks?: string;
  readonly batch?: string;
  readonly kv?: string;
}

const RANKS_MAX = 256;
const BLOCK_BYTES_DEFAULT = '64k';
/** Fewer than for tests between two processes, because a transfer has many blocks and many ranks. */
const ITERATIONS_DEFAULT = '100';
const WARM_UP_DEFAULT = '10';
/** Byte limit of a transfer: that of a memory handle for host memory, of which a rank has one per peer. */
const TRANSFER_BYTES_MAX = 2 ** 32;
const TESTS: Readonly<Record<string, PatternSpec['operation']>> = { ucp_put_bw: 'put', ucp_get: 'get' };
/** Options of tests that are valid for patterns. */
const TAKEN: ReadonlySet<string> = new Set(['t', 's', 'm', 'n', 'w', 'V']);

/** Whether the options request a pattern. */
export function isPattern({ pattern, ranks, batch, kv }: PatternOptions): boolean {
  return pattern !== undefined || ranks !== undefined || batch !== undefined || kv !== undefined;
}

/**
 * Reads the options.
 * @param names of all options of a test that were given
 * @param launchedRanks number of ranks that a launcher has started; undefined for none
 * @throws UcxError ERR_INVALID_PARAM that names the option; ERR_UNSUPPORTED for options that patterns do not have
 */
export function readPattern(
  options: PatternOptions,
  names: readonly string[],
  launchedRanks: number | undefined,
): PatternSpec {
  const foreign = names.find((name) => !TAKEN.has(name));
  if (foreign !== undefined)
    throw unsupported(`-${foreign} with --pattern`, 'patterns move lists of blocks; use -t, -s, -m, -n, -w or -V');
  const pattern = PATTERN_NAMES.find((name) => name === (options.pattern ?? 'pairwise'));
  if (pattern === undefined)
    throw invalidParam('--pattern', `must be one of ${PATTERN_NAMES.join(', ')}`, options.pattern);
  const { t: test = 'ucp_put_bw' } = options;
  const operation = TESTS[test];
  if (operation === undefined) {
    throw invalidParam('-t', `must be ${Object.keys(TESTS).join(' or ')} with --pattern`, test);
  }
  const { iterations, warmUp, sendMemory, recvMemory, verify } = commonOf(options, test);
  const ranks = launchedRanks ?? integerOf('--ranks', options.ranks ?? '2', 2, RANKS_MAX);
  if (PATTERNS[pattern].isPaired && ranks % 2 !== 0)
    throw invalidParam('--ranks', `must be even for ${pattern}`, ranks);
  const kv = options.kv === undefined ? undefined : readKvCache(options.kv);
  const shapes = kv === undefined ? shapesOf(options) : [shapeOfKv(kv, options)];
  return { pattern, ranks, operation, sendMemory, recvMemory, shapes, kv, iterations, warmUp, verify };
}

/** Bytes of one transfer. */
export function transferBytes({ blocks, blockBytes }: Shape): number {
  return blocks * blockBytes;
}

/** Bytes of all measured iterations, by the closed formula of {@link formulaText}. */
export function formulaBytes({ pattern, ranks, kv, iterations }: PatternSpec, { batch, blockBytes }: Shape): number {
  return PATTERNS[pattern].count(ranks) * (kv === undefined ? batch * blockBytes : kvBytes(kv)) * iterations;
}

/** The closed formula in words. */
export function formulaText({ pattern, kv }: PatternSpec): string {
  return `bytes = ${PATTERNS[pattern].formula} * ${kv === undefined ? 'batch * size' : KV_FORMULA} * iterations`;
}

/** The parameters that all tests have, read by the rules of all tests. */
function commonOf(options: PatternOptions, test: string): TestSpec {
  const { m, V, n = ITERATIONS_DEFAULT, w = WARM_UP_DEFAULT } = options;
  return specOf({ t: test, n, w, ...(m === undefined ? {} : { m }), ...(V === undefined ? {} : { V }) });
}

function shapesOf({ s = BLOCK_BYTES_DEFAULT, batch = '1' }: PatternOptions): Shape[] {
  const blocks = integerOf('--batch', batch, 1, LIST_BLOCKS_MAX);
  return sizesOfRange(s).map((blockBytes) => checkShape('-s', { blockBytes, blocks, batch: blocks }));
}

/** One list per layer by default, as inference servers send them. */
function shapeOfKv(kv: KvCache, { s, batch }: PatternOptions): Shape {
  if (s !== undefined) throw invalidParam('-s', 'must not be used with --kv, which determines the sizes', s);
  const { blockBytes, blocks, blocksPerLayer } = kvBlocks(kv);
  const count = batch === undefined ? blocksPerLayer : integerOf('--batch', batch, 1, LIST_BLOCKS_MAX);
  return checkShape('--kv', { blockBytes, blocks, batch: Math.min(count, blocks) });
}

function checkShape(option: string, shape: Shape): Shape {
  const bytes = transferBytes(shape);
  if (bytes <= TRANSFER_BYTES_MAX && shape.batch <= LIST_BLOCKS_MAX) return shape;
  throw invalidParam(
    option,
    `must be at most ${TRANSFER_BYTES_MAX} bytes per peer, in lists of at most ${LIST_BLOCKS_MAX} blocks`,
    bytes,
  );
}

function integerOf(option: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw invalidParam(option, `must be an integer from ${min} to ${max}`, text);
}

/** Data from one rank to another. */
export interface Flow {
  readonly from: number;
  readonly to: number;
}

/** Names of the patterns: those of nixlbench. */
export const PATTERN_NAMES = ['pairwise', 'one-to-many', 'many-to-one', 'all-to-all'] as const;
/** Name of a pattern. */
type PatternName = (typeof PATTERN_NAMES)[number];

/** A pattern. */
export interface Pattern {
  /** All flows of a number of ranks. */
  readonly flows: (ranks: number) => readonly Flow[];
  /** Closed formula for the number of flows, and its text. */
  readonly count: (ranks: number) => number;
  readonly formula: string;
  /** True if the number of ranks must be even. */
  readonly isPaired: boolean;
}

/** Ranks except one. */
function others(ranks: number, own: number): number[] {
  return Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => rank !== own);
}

/** The patterns by name. In `pairwise` each rank of the lower half has one of the upper half. */
export const PATTERNS: Readonly<Record<PatternName, Pattern>> = {
  pairwise: {
    flows: (ranks) => Array.from({ length: ranks / 2 }, (_, from) => ({ from, to: from + ranks / 2 })),
    count: (ranks) => ranks / 2,
    formula: 'ranks / 2',
    isPaired: true,
  },
  'one-to-many': {
    flows: (ranks) => others(ranks, 0).map((to) => ({ from: 0, to })),
    count: (ranks) => ranks - 1,
    formula: '(ranks - 1)',
    isPaired: false,
  },
  'many-to-one': {
    flows: (ranks) => others(ranks, 0).map((from) => ({ from, to: 0 })),
    count: (ranks) => ranks - 1,
    formula: '(ranks - 1)',
    isPaired: false,
  },
  'all-to-all': {
    flows: (ranks) =>
      Array.from({ length: ranks }, (_, from) => from).flatMap((from) =>
        // Each rank begins with its neighbour, so that the first flows do not all go to one rank.
        Array.from({ length: ranks - 1 }, (_, step) => ({ from, to: (from + step + 1) % ranks })),
      ),
    count: (ranks) => ranks * (ranks - 1),
    formula: 'ranks * (ranks - 1)',
    isPaired: false,
  },
};

/** A cache, by the parameters of its model. */
interface KvCache {
  readonly layers: number;
  /** Heads of keys and values: with grouped-query attention fewer than those of queries. */
  readonly heads: number;
  readonly headDim: number;
  /** Tokens of a page. */
  readonly page: number;
  readonly tokens: number;
  readonly dtype: string;
}

/** Blocks of a cache: each is one page of the keys, or of the values, of one layer. */
export interface KvBlocks {
  readonly blockBytes: number;
  readonly blocksPerLayer: number;
  readonly blocks: number;
}

/** Formula for the bytes of a whole cache. */
const KV_FORMULA = '2 * layers * heads * head-dim * page * ceil(tokens / page) * bytes of dtype';

/** Bytes of an element, by the names that inference servers use. */
const DTYPE_BYTES: Readonly<Record<string, number>> = { fp32: 4, bf16: 2, fp16: 2, fp8: 1, int8: 1 };
/** Fields and their defaults: those of a model of 8 billion parameters with grouped-query attention. */
const DEFAULTS = { layers: 32, heads: 8, 'head-dim': 128, page: 16, tokens: 4096 } as const;
const FIELDS = keysOf(DEFAULTS);
const VALUE_MAX = 2 ** 24;

/**
 * Parses the value of `--kv`. Omitted fields have the defaults of the example above.
 * @throws UcxError ERR_INVALID_PARAM that names the field
 */
export function readKvCache(text: string): KvCache {
  const values: Record<keyof typeof DEFAULTS, number> = { ...DEFAULTS };
  let dtype = 'bf16';
  const given = new Set<string>();
  for (const field of text.split(',')) {
    const [name = '', value = '', ...rest] = field.split('=');
    const key = name === 'dtype' ? name : FIELDS.find((known) => known === name);
    if (key === undefined || rest.length > 0 || given.has(key)) {
      throw invalidParam('--kv', `must have each of ${FIELDS.join(', ')}, dtype at most once`, field);
    }
    given.add(key);
    if (key === 'dtype') dtype = value;
    else values[key] = countOf(key, value);
  }
  if (!Object.hasOwn(DTYPE_BYTES, dtype)) {
    throw invalidParam('--kv dtype', `must be one of ${Object.keys(DTYPE_BYTES).join(', ')}`, dtype);
  }
  const { layers, heads, 'head-dim': headDim, page, tokens } = values;
  return { layers, heads, headDim, page, tokens, dtype };
}

/** The blocks of a cache. */
export function kvBlocks({ layers, heads, headDim, page, tokens, dtype }: KvCache): KvBlocks {
  const blockBytes = page * heads * headDim * DTYPE_BYTES[dtype]!;
  const blocksPerLayer = 2 * Math.ceil(tokens / page);
  return { blockBytes, blocksPerLayer, blocks: layers * blocksPerLayer };
}

/** Bytes of a cache by {@link KV_FORMULA}. */
export function kvBytes({ layers, heads, headDim, page, tokens, dtype }: KvCache): number {
  return 2 * layers * heads * headDim * page * Math.ceil(tokens / page) * DTYPE_BYTES[dtype]!;
}

function countOf(name: string, text: string): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= VALUE_MAX) return value;
  throw invalidParam(`--kv ${name}`, `must be an integer from 1 to ${VALUE_MAX}`, text);
}
