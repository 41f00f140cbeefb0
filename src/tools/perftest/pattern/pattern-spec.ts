/** Specification of a run of `perftest --pattern`, shared by its ranks, and the closed formula of its bytes. */

import { LIST_BLOCKS_MAX } from '../../../api/contract/request.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { sizesOfRange, specOf, type TestOptions } from '../options/options.ts';
import { type MemoryName, type TestSpec, unsupported } from '../options/spec.ts';
import { PATTERN_NAMES, PATTERNS, type PatternName } from './flows.ts';
import { KV_FORMULA, type KvCache, kvBlocks, kvBytes, readKvCache } from './kv-cache.ts';

/** What is moved along every flow in one iteration: a transfer. */
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
/** Fewer than of tests between two processes: a transfer is many blocks to many ranks. */
const ITERATIONS_DEFAULT = '100';
const WARM_UP_DEFAULT = '10';
/** The most bytes of a transfer: memory handles of host memory have at most so many, and a rank has one for each peer. */
const TRANSFER_BYTES_MAX = 2 ** 32;
const TESTS: Readonly<Record<string, PatternSpec['operation']>> = { ucp_put_bw: 'put', ucp_get: 'get' };
/** Options of tests that patterns have too. */
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
  if (foreign !== undefined) throw unsupported(`-${foreign} with --pattern`, 'ranks move lists of blocks');
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

/** All bytes of the measured iterations, by the closed formula that {@link formulaText} states. */
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

/** By default a list for each layer, as inference servers send them. */
function shapeOfKv(kv: KvCache, { s, batch }: PatternOptions): Shape {
  if (s !== undefined) throw invalidParam('-s', 'must not be given with --kv, which has sizes of its own', s);
  const { blockBytes, blocks, blocksPerLayer } = kvBlocks(kv);
  const count = batch === undefined ? blocksPerLayer : integerOf('--batch', batch, 1, LIST_BLOCKS_MAX);
  return checkShape('--kv', { blockBytes, blocks, batch: Math.min(count, blocks) });
}

function checkShape(option: string, shape: Shape): Shape {
  const bytes = transferBytes(shape);
  if (bytes <= TRANSFER_BYTES_MAX && shape.batch <= LIST_BLOCKS_MAX) return shape;
  throw invalidParam(
    option,
    `must be at most ${TRANSFER_BYTES_MAX} bytes for each peer, in lists of ${LIST_BLOCKS_MAX} blocks`,
    bytes,
  );
}

function integerOf(option: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw invalidParam(option, `must be an integer from ${min} to ${max}`, text);
}
