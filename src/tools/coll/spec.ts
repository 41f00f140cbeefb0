/** Specification of a run of `gaudi-ucx coll`, shared by its processes; options with the names of hccl_demo and nccl-tests. */

import { checkAlgorithm } from '../../coll/choice/choice.ts';
import type { Collective } from '../../coll/choice/problem.ts';
import { DTYPES, type Dtype, dtypeBytes, REDUCE_OPS, type ReduceOp } from '../../coll/dtype/dtype.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** Names of the tests. */
export const TESTS: Readonly<Record<string, Collective>> = {
  all_reduce: 'allReduce',
  all_gather: 'allGather',
  all_to_all: 'allToAll',
  reduce_scatter: 'reduceScatter',
  broadcast: 'broadcast',
  reduce: 'reduce',
  gather: 'gather',
  scatter: 'scatter',
  barrier: 'barrier',
};

/** Aliases of types and operations. */
const DTYPE_ALIASES: Readonly<Record<string, Dtype>> = {
  float: 'float32',
  fp32: 'float32',
  double: 'float64',
  fp64: 'float64',
  half: 'float16',
  fp16: 'float16',
  bf16: 'bfloat16',
};
const OP_ALIASES: Readonly<Record<string, ReduceOp>> = { prod: 'product' };

/** The memory of the ranks. */
export type RankMemoryType = 'host' | 'gaudi';

/** Specification of a run. */
export interface CollSpec {
  readonly test: string;
  readonly collective: Collective;
  readonly dtype: Dtype;
  readonly op: ReduceOp;
  readonly root: number;
  readonly memory: RankMemoryType;
  /** Sizes in bytes: of the whole vector, that is, of all blocks together. */
  readonly sizes: readonly number[];
  readonly iterations: number;
  readonly warmup: number;
  readonly checks: boolean;
  readonly algorithm: string | undefined;
  readonly explains: boolean;
}

/** Options as text. */
export interface CollOptions {
  readonly test: string;
  readonly size?: string;
  readonly minbytes?: string;
  readonly maxbytes?: string;
  readonly stepfactor: string;
  readonly iters: string;
  readonly warmup_iters: string;
  readonly check: string;
  readonly op: string;
  readonly datatype: string;
  readonly root: string;
  readonly memory: string;
  readonly algorithm?: string;
  readonly explain?: boolean;
  readonly ranks: string;
  readonly csv?: boolean;
  readonly json?: boolean;
}

const ITERATIONS_MAX = 1_000_000;
const RANKS_MAX = 256;

/**
 * Reads the options.
 * @throws UcxError ERR_INVALID_PARAM that names the option
 */
export function readSpec(options: CollOptions, ranks: number): CollSpec {
  const collective = TESTS[options.test];
  if (collective === undefined) {
    throw invalidParam('--test', `must be one of ${Object.keys(TESTS).join(', ')}`, options.test);
  }
  const dtype = DTYPE_ALIASES[options.datatype] ?? DTYPES.find((name) => name === options.datatype);
  if (dtype === undefined) throw invalidParam('-d', `must be one of ${DTYPES.join(', ')}`, options.datatype);
  const op = OP_ALIASES[options.op] ?? REDUCE_OPS.find((name) => name === options.op);
  if (op === undefined) throw invalidParam('-o', 'must be one of sum, prod, min, max', options.op);
  if (options.memory !== 'host' && options.memory !== 'gaudi') {
    throw invalidParam('--memory', 'must be host or gaudi', options.memory);
  }
  if (options.check !== '0' && options.check !== '1') throw invalidParam('-c', 'must be 0 or 1', options.check);
  return {
    test: options.test,
    collective,
    dtype,
    op,
    root: numberIn('-r', options.root, 0, ranks - 1),
    memory: options.memory,
    sizes: collective === 'barrier' ? [0] : sizesOf(options, dtypeBytes(dtype)),
    iterations: numberIn('-n', options.iters, 1, ITERATIONS_MAX),
    warmup: numberIn('-w', options.warmup_iters, 0, ITERATIONS_MAX),
    checks: options.check === '1',
    algorithm: options.algorithm === undefined ? undefined : checkAlgorithm(collective, options.algorithm, '-A'),
    explains: options.explain === true,
  };
}

/** The number of ranks to start. @throws UcxError ERR_INVALID_PARAM */
export function readRanks(text: string): number {
  return numberIn('--ranks', text, 1, RANKS_MAX);
}

/** The sizes of `--size 1K..64M`, or of -b, -e and -f. */
function sizesOf({ size, minbytes, maxbytes, stepfactor }: CollOptions, unit: number): number[] {
  const [first, last] = size === undefined ? [minbytes ?? '1K', maxbytes ?? minbytes ?? '64M'] : size.split('..');
  const [smallest, largest] = size === undefined ? ['-b', '-e'] : ['--size', '--size'];
  const min = bytesIn(smallest, first ?? '');
  const max = last === undefined ? min : bytesIn(largest, last);
  if (max < min) throw invalidParam(largest, `must be at least the smallest size of ${min} bytes`, last);
  const factor = numberIn('-f', stepfactor, 2, 1024);
  const sizes: number[] = [];
  for (let bytes = Math.max(min, unit); bytes <= max; bytes *= factor) sizes.push(bytes);
  if (sizes.length === 0) throw invalidParam(smallest, `must be at least one element of ${unit} bytes`, min);
  return sizes;
}

function bytesIn(name: string, text: string): number {
  const value = memorySizeType.parse(text.replace(/iB$/i, 'B'));
  if (value === undefined || !(value > 0) || !Number.isSafeInteger(value)) {
    throw invalidParam(name, 'must be a size such as 64M, or 1K..64M for --size', text);
  }
  return value;
}

function numberIn(name: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw invalidParam(name, `must be an integer from ${min} to ${max}`, text);
}
