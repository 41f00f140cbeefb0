/** Layout of the hello that every rank passes to the exchange when a team is created. The hellos of other ranks are untrusted input: every field is checked. */

import { isBytes } from '../../../ucs/memory/bytes.ts';
import { invalidParam } from '../../../ucs/type/error.ts';

const VERSION = 1;
const BYTES_MAX = 64 * 1024;

/** What a rank announces to all others. */
export interface Hello {
  readonly rank: number;
  readonly size: number;
  /** Random team id; the team uses that of rank 0. */
  readonly team: number;
  /** Ranks with the same name are on one node. */
  readonly node: string;
  readonly address: Uint8Array;
  /** Remote key of some host memory, to estimate costs with. */
  readonly key: Uint8Array;
}

export function packHello({ address, key, ...fields }: Hello): Uint8Array {
  const text = { version: VERSION, ...fields, address: toBase64(address), key: toBase64(key) };
  return new TextEncoder().encode(JSON.stringify(text));
}

/**
 * Reads the hellos of all ranks; the result is indexed by rank.
 * @param own this rank's hello
 * @throws UcxError ERR_INVALID_PARAM that names the field and the rule: wrong number of ranks, duplicate or missing ranks, bytes of another version
 */
export function readHellos(replies: readonly Uint8Array[], own: Hello): readonly Hello[] {
  if (!Array.isArray(replies) || replies.length !== own.size) {
    throw invalidParam('exchange', `must return an array with the bytes of ${own.size} ranks`, replies?.length);
  }
  const byRank: Hello[] = [];
  for (const bytes of replies) {
    const one = readHello(bytes);
    if (one.size !== own.size) {
      throw invalidParam('size', `must be equal on all ranks: rank ${one.rank} has ${one.size}`, own.size);
    }
    if (byRank[one.rank] !== undefined) throw invalidParam('rank', 'must be unique in the team', one.rank);
    byRank[one.rank] = one;
  }
  if (byRank[own.rank]?.team !== own.team) {
    throw invalidParam(
      'exchange',
      `must return the bytes of all ranks, also those that rank ${own.rank} has passed`,
      own.rank,
    );
  }
  return byRank;
}

function readHello(bytes: Uint8Array): Hello {
  const rule = 'must return the bytes that the ranks have passed (or a rank has another version of gaudi-ucx)';
  if (!isBytes(bytes) || bytes.byteLength > BYTES_MAX) throw invalidParam('exchange', rule, bytes);
  let fields: Record<string, unknown>;
  try {
    fields = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>;
  } catch {
    throw invalidParam('exchange', rule, bytes.byteLength);
  }
  const { version, rank, size, team, node, address, key } = fields ?? {};
  const isRank = typeof size === 'number' && Number.isInteger(rank) && Number(rank) >= 0 && Number(rank) < size;
  const areTexts = typeof node === 'string' && typeof address === 'string' && typeof key === 'string';
  if (version !== VERSION || !isRank || typeof team !== 'number' || !areTexts) {
    throw invalidParam('exchange', rule, String(version));
  }
  return { rank: Number(rank), size, team, node, address: fromBase64(address), key: fromBase64(key) };
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64');
}

function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, 'base64'));
}
