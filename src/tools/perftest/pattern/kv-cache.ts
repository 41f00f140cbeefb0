/** Size of a KV cache (`--kv layers=32,heads=8,head-dim=128,page=16,tokens=4096,dtype=bf16`), and its blocks. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { keysOf } from '../../../ucs/type/keys.ts';

/** A cache, by the parameters of its model. */
export interface KvCache {
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

/** Bytes of a whole cache, as a formula. */
export const KV_FORMULA = '2 * layers * heads * head-dim * page * ceil(tokens / page) * bytes of dtype';

/** Bytes of an element, by the names that inference servers use. */
const DTYPE_BYTES: Readonly<Record<string, number>> = { fp32: 4, bf16: 2, fp16: 2, fp8: 1, int8: 1 };
/** Fields and their defaults: those of a model of 8 billion parameters with grouped-query attention. */
const DEFAULTS = { layers: 32, heads: 8, 'head-dim': 128, page: 16, tokens: 4096 } as const;
const FIELDS = keysOf(DEFAULTS);
const VALUE_MAX = 2 ** 24;

/**
 * Reads the text of `--kv`. Fields that it does not name have the defaults of the example above.
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
