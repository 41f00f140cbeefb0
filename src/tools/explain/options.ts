/** Arguments of `gaudi-ucx explain`: operation, memory on both sides, sizes. */

import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../../api/contract/endpoint.ts';
import { ENGINE_CHOICES, type EngineChoice } from '../../assembly/program/config.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { type PeerPlace, peerPlaceOf } from './remote-peer.ts';

/** Maximum number of sizes; a range from 1 byte to the longest message has 53. */
export const SIZES_MAX = 64;

/** Memory type and card. */
export interface MemorySide {
  readonly memoryType: MemoryType;
  /** Logical index of the card; undefined for host memory, and for an arbitrary card. */
  readonly card: number | undefined;
}

/** The checked arguments. */
export interface ExplainRequest {
  readonly operation: ExplainedOperation;
  readonly local: MemorySide;
  readonly remote: MemorySide;
  /** Whether the remote memory belongs to another process of this host, or to {@link place}. */
  readonly otherProcess: boolean;
  /** Address of a peer that `explain --serve` runs; undefined for this host. */
  readonly place: PeerPlace | undefined;
  readonly sizes: readonly number[];
  /** Undefined for UCX_ENGINE. */
  readonly engine: EngineChoice | undefined;
}

/** The arguments as text. */
export interface ExplainArguments {
  readonly op: string;
  readonly local: string;
  readonly remote: string;
  readonly size: string;
  readonly peer: string;
  readonly engine?: string;
}

/**
 * Reads the arguments.
 * @throws UcxError ERR_INVALID_PARAM that names the argument
 */
export function readExplainArguments({ op, local, remote, size, peer, engine }: ExplainArguments): ExplainRequest {
  const operation = EXPLAINED_OPERATIONS.find((name) => name === op.toLowerCase());
  if (operation === undefined) throw invalidParam('op', `must be one of ${EXPLAINED_OPERATIONS.join(', ')}`, op);
  const sizes = operation === 'atomic' ? atomicSizes(size) : sizesOf(size);
  const place = peer === 'self' || peer === 'process' ? undefined : peerPlaceOf(peer);
  if (peer !== 'self' && peer !== 'process' && place === undefined) {
    throw invalidParam('peer', 'must be self, process, <host>:<port> or a worker address in base64url', peer);
  }
  const request = { operation, local: memoryOf('local', local), remote: memoryOf('remote', remote), sizes };
  const otherProcess = peer !== 'self';
  if (peer === 'process' && request.remote.card !== undefined && request.remote.card === request.local.card) {
    throw invalidParam('local', 'must differ from the card of the other process', local);
  }
  return { ...request, otherProcess, place, engine: engineOf(engine) };
}

/** The argument for a memory: the inverse of parsing. */
export function printMemory({ memoryType, card }: MemorySide): string {
  return card === undefined ? memoryTypeName(memoryType) : `${memoryTypeName(memoryType)}:${card}`;
}

function engineOf(text: string | undefined): EngineChoice | undefined {
  if (text === undefined) return undefined;
  const engine = ENGINE_CHOICES.find((name) => name === text.toLowerCase());
  if (engine === undefined) throw invalidParam('engine', `must be one of ${ENGINE_CHOICES.join(', ')}`, text);
  return engine;
}

function memoryOf(argument: string, text: string): MemorySide {
  const match = /^(host|gaudi)(?::(\d{1,3}))?$/i.exec(text.trim());
  const isHost = match?.[1]?.toLowerCase() === 'host';
  if (match === null || (isHost && match[2] !== undefined)) {
    throw invalidParam(argument, 'must be host, gaudi or gaudi:<card>', text);
  }
  const memoryType = isHost ? MemoryType.HOST : MemoryType.GAUDI;
  return { memoryType, card: match[2] === undefined ? undefined : Number(match[2]) };
}

/** `4K`, `1,8,4K`, `4K..1G`: a range has the powers of two between its ends, and the ends. */
function sizesOf(text: string): number[] {
  const sizes = text.split(',').flatMap((part) => {
    const ends = part.split('..');
    if (ends.length > 2) throw invalidParam('size', 'must be sizes and ranges such as 8,4K..1G', text);
    const [from = 0, to = from] = ends.map((end) => sizeOf(end, text));
    if (from > to) throw invalidParam('size', 'must be ranges from a smaller to a larger size', text);
    const between: number[] = [];
    for (let size = 2 ** Math.ceil(Math.log2(from)); size < to; size *= 2) between.push(size);
    return [from, ...between, to];
  });
  const sorted = [...new Set(sizes)].sort((left, right) => left - right);
  if (sorted.length > SIZES_MAX) throw invalidParam('size', `must have at most ${SIZES_MAX} sizes`, sorted.length);
  return sorted;
}

function sizeOf(text: string, whole: string): number {
  const size = memorySizeType.parse(text.trim());
  if (size === undefined || !Number.isSafeInteger(size) || size < 1) {
    throw invalidParam('size', 'must be sizes and ranges such as 8,4K..1G, of 1 byte or more', whole);
  }
  return size;
}

/** Words of atomic operations have 4 or 8 bytes: other sizes are dropped, and a list with neither is rejected. */
function atomicSizes(text: string): number[] {
  const words = sizesOf(text).filter((size) => size === 4 || size === 8);
  if (words.length === 0) throw invalidParam('size', 'must be 4 or 8 for atomic', text);
  return words;
}
