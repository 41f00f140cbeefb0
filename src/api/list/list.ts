/**
 * The blocks of a list: checked, expanded, and merged if they are adjacent; entries of lists, made from other forms of local memory; and the planned list for
 * the engine, with its memory and keys, for one move or for many.
 */

import { isBytes } from '../../ucs/memory/bytes.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { closedError, invalidParam, isUcxError, tooLong, UcxError } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import { checkAmId } from '../contract/active-message.ts';
import { accessesOf, type LocalBuffer, type LocalMemory, type RemoteKey } from '../contract/memory.ts';
import {
  LIST_BLOCKS_MAX,
  type ListCheckOptions,
  type ListParams,
  NOTIFICATION_BYTES_MAX,
  type PreparedList,
  type TransferEntry,
} from '../contract/request.ts';
import {
  byteLengthOf,
  bytesFrom,
  checkLocal,
  checkPieceFields,
  holdsBytes,
  hostBytes,
  isList,
} from '../memory/local.ts';
import { checkRemote, OwnedMemory, type RemoteRange } from '../memory/owned.ts';

const ENTRY_FIELDS = ['local', 'offset', 'rkey', 'remoteOffset', 'byteLength', 'count', 'localStride', 'remoteStride'];

/** One block. `entry` is the index of its entry; for a merged block, of the first one. */
export interface ListBlock {
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly rkey: RemoteKey;
  readonly remoteOffset: number;
  byteLength: number;
  readonly entry: number;
}

/** The owners of memory and keys in a list. */
export interface ListOwners {
  /** The context. */
  readonly memory: object;
  /** The endpoint or connection. */
  readonly keys: object;
}

/**
 * The blocks of a list.
 * @param strict rejects blocks that overlap in the written memory
 * @throws UcxError ERR_INVALID_PARAM or ERR_CLOSED, whose details name the entry; then nothing has moved
 */
export function checkList(
  owners: ListOwners,
  operation: 'put' | 'get',
  list: readonly TransferEntry[],
  strict: boolean,
): ListBlock[] {
  if (!Array.isArray(list)) throw invalidParam('list', 'must be an array of entries, or a prepared list', list);
  const blocks: ListBlock[] = [];
  let entry = 0;
  try {
    for (let left = LIST_BLOCKS_MAX; entry < list.length; entry++) {
      left -= addBlocks(owners, operation, { given: list[entry]!, entry, left }, blocks);
    }
  } catch (error) {
    throw entryError(entry, error);
  }
  if (strict) refuseOverlaps(operation, blocks);
  return blocks;
}

/** Checks the options of preparing a list. @throws UcxError ERR_INVALID_PARAM */
export function checkListOptions(operation: 'put' | 'get', options: ListCheckOptions): void {
  if (operation !== 'put' && operation !== 'get') throw invalidParam('operation', 'must be put or get', operation);
  checkOptions(options, 'options', ['strict']);
  const { strict } = options;
  if (strict !== undefined && typeof strict !== 'boolean') throw invalidParam('strict', 'must be a boolean', strict);
}

/** Checks the parameters that only lists have. @throws UcxError ERR_INVALID_PARAM */
export function checkListParams(
  operation: 'put' | 'get',
  { notify, notifyId, strict, flush, blocks }: ListParams,
  list: readonly TransferEntry[] | PreparedList,
): void {
  const blockCount = typeof list === 'object' && list !== null && 'blockCount' in list ? list.blockCount : undefined;
  if (flush !== undefined && typeof flush !== 'boolean') throw invalidParam('flush', 'must be a boolean', flush);
  if (strict !== undefined && typeof strict !== 'boolean') throw invalidParam('strict', 'must be a boolean', strict);
  if (notify !== undefined && operation === 'get') throw invalidParam('notify', 'must not be set for a get', operation);
  if (notify !== undefined) checkNotification(notify);
  if (notifyId !== undefined) {
    checkAmId(notifyId);
    if (notify === undefined) throw invalidParam('notifyId', 'needs the option notify', notifyId);
  }
  if (blocks === undefined) return;
  if (blockCount === undefined) throw invalidParam('blocks', 'needs a list of prepareList()', blocks);
  if (typeof blocks !== 'object' || blocks === null) {
    throw invalidParam('blocks', 'must be an array or typed array of numbers', blocks);
  }
  if (!(blocks.length <= LIST_BLOCKS_MAX)) {
    throw invalidParam('blocks', `must have at most ${LIST_BLOCKS_MAX} numbers`, blocks.length);
  }
  for (let i = 0; i < blocks.length; i++) {
    const block = blocks[i]!;
    if (Number.isInteger(block) && block >= 0 && block < blockCount) continue;
    throw invalidParam('blocks', `must contain block indices below ${blockCount}`, block);
  }
}

/** @throws UcxError ERR_INVALID_PARAM */
export function checkNotification(bytes: Uint8Array): void {
  if (isBytes(bytes) && bytes.byteLength <= NOTIFICATION_BYTES_MAX) return;
  if (!isBytes(bytes)) throw invalidParam('notify', 'must be a Uint8Array', bytes);
  throw tooLong('notify', 'notification', bytes.byteLength, NOTIFICATION_BYTES_MAX);
}

/** A copy of the notification, because the caller may change its bytes; undefined for none. */
export function notificationOf(params: ListParams | undefined): Uint8Array | undefined {
  const notify = params?.notify;
  // Detached bytes are an empty notification, and cannot be copied.
  return notify === undefined || notify.byteLength > 0 ? notify?.slice() : new Uint8Array(0);
}

/** An entry with its index, and its limit of blocks. */
interface NumberedEntry {
  readonly given: TransferEntry;
  readonly entry: number;
  readonly left: number;
}

/** Adds the blocks of an entry; returns their number before merging. */
function addBlocks(
  owners: ListOwners,
  operation: 'put' | 'get',
  { given, entry, left }: NumberedEntry,
  blocks: ListBlock[],
): number {
  checkOptions(given, 'entry', ENTRY_FIELDS);
  const { local, offset: localOffset = 0, rkey, remoteOffset = 0, byteLength, count = 1 } = given;
  const { localStride = byteLength, remoteStride = byteLength } = given;
  checkSize('byteLength', byteLength);
  checkSize('count', count);
  checkSize('localStride', localStride);
  checkSize('remoteStride', remoteStride);
  if (count > left)
    throw invalidParam('list', `must have at most ${LIST_BLOCKS_MAX} blocks`, LIST_BLOCKS_MAX - left + count);
  const last = Math.max(0, count - 1);
  const isEmpty = count === 0;
  const [localBytes, remoteBytes] = isEmpty
    ? [0, 0]
    : [last * localStride + byteLength, last * remoteStride + byteLength];
  const { ownAccess, remoteAccess } = accessesOf(operation);
  checkLocal(owners.memory, { local, localOffset, byteLength: localBytes }, ownAccess);
  checkRemote(owners.keys, { rkey, remoteOffset, byteLength: remoteBytes }, remoteAccess);
  if (byteLength === 0) return count;
  for (let i = 0; i < count; i++) {
    const from = localOffset + i * localStride;
    const to = remoteOffset + i * remoteStride;
    const before = blocks.at(-1);
    const continues =
      before !== undefined &&
      before.local === local &&
      before.rkey === rkey &&
      before.localOffset + before.byteLength === from &&
      before.remoteOffset + before.byteLength === to;
    if (continues) before.byteLength += byteLength;
    else blocks.push({ local, localOffset: from, rkey, remoteOffset: to, byteLength, entry });
  }
  return count;
}

function checkSize(name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0) throw invalidParam(name, 'must be an integer of 0 or more', value);
}

/** Bytes of a block in the written memory: in an ArrayBuffer, or by address. */
interface WrittenBytes {
  readonly block: ListBlock;
  readonly start: bigint;
  readonly end: bigint;
}

/** Rejects blocks that overlap in the written memory. */
function refuseOverlaps(operation: 'put' | 'get', blocks: readonly ListBlock[]): void {
  const byMemory = new Map<unknown, WrittenBytes[]>();
  for (const block of blocks) {
    const { memory, first } = operation === 'put' ? placeBehind(block) : placeOf(block);
    const bytes = { block, start: first, end: first + BigInt(block.byteLength) };
    const others = byMemory.get(memory);
    if (others === undefined) byMemory.set(memory, [bytes]);
    else others.push(bytes);
  }
  for (const written of byMemory.values()) {
    written.sort((one, other) => (one.start < other.start ? -1 : Number(one.start > other.start)));
    for (let i = 1; i < written.length; i++) {
      const [before, { block, start }] = [written[i - 1]!, written[i]!];
      if (before.end <= start) continue;
      const rule = `must not overlap entry ${before.block.entry} (both write the same bytes)`;
      throw entryError(
        block.entry,
        invalidParam('list', rule, operation === 'put' ? block.remoteOffset : block.localOffset),
      );
    }
  }
}

/** The range that a put writes, by address: several keys of one peer may refer to the same bytes. */
function placeBehind({ rkey, remoteOffset }: ListBlock): { readonly memory: unknown; readonly first: bigint } {
  const { memoryType, sysDevice, address } = rkey;
  return { memory: `${memoryType} ${sysDevice}`, first: address + BigInt(remoteOffset) };
}

/** The range that a get writes: all views of one ArrayBuffer, and mapped host memory in it, count as one memory. */
function placeOf({ local, localOffset }: ListBlock): { readonly memory: unknown; readonly first: bigint } {
  const bytes = hostBytes(local);
  if (bytes !== undefined) return { memory: bytes.buffer, first: BigInt(bytes.byteOffset + localOffset) };
  if (local instanceof Uint8Array) return { memory: local.buffer, first: BigInt(local.byteOffset + localOffset) };
  return { memory: `${local.memoryType} ${local.sysDevice}`, first: local.address + BigInt(localOffset) };
}

/** Adds the index of the entry to a UcxError; other errors are returned unchanged. */
export function entryError(entry: number, error: unknown): unknown {
  if (!isUcxError(error)) return error;
  return new UcxError({
    code: error.code,
    status: error.status,
    message: `entry ${entry} of the list: ${error.message}`,
    details: { ...error.details, entry },
    cause: error.cause,
  });
}

/** One put or get as passed by a program. */
export interface GivenTransfer extends RemoteRange {
  readonly local: LocalBuffer;
  readonly localOffset: number;
}

/** One put or get as a list: the ranges of local memory form one range of remote memory, in order. */
export function entriesOf(given: GivenTransfer): readonly TransferEntry[] {
  const { local, localOffset: offset, byteLength, rkey, remoteOffset } = given;
  if (!isList(local)) {
    // In an entry, both fields are optional.
    if (offset === undefined) throw invalidParam('offset', 'must be an integer of 0 or more', offset);
    if (remoteOffset === undefined) throw invalidParam('remoteOffset', 'must be an integer of 0 or more', remoteOffset);
    return [{ local, offset, byteLength, rkey, remoteOffset }];
  }
  if (offset !== 0)
    throw invalidParam('offset', 'must be 0 with a list of ranges, which have their own offsets and lengths', offset);
  if (!Number.isSafeInteger(remoteOffset) || remoteOffset < 0) {
    throw invalidParam('remoteOffset', 'must be an integer of 0 or more', remoteOffset);
  }
  let at = remoteOffset;
  return local.map((piece, index) => {
    checkPieceFields(piece, index);
    const { memory, offset = 0, byteLength: own } = piece;
    const bytes = own === undefined ? Math.max(0, bytesFrom(byteLengthOf(memory), offset)) : own;
    const entry = { local: memory, offset, byteLength: bytes, rkey, remoteOffset: at };
    // An invalid length may be a bigint or a symbol, which cannot be added.
    if (typeof bytes === 'number') at += bytes;
    return entry;
  });
}

/** Memory of a list, with its length at the check, and the first entry that uses it. */
interface UsedMemory {
  readonly local: LocalMemory;
  readonly byteLength: number;
  readonly entry: number;
}

/** A key of a list, with the first entry that uses it. */
interface UsedKey {
  readonly rkey: RemoteKey;
  readonly entry: number;
}

/** A planned list. */
export class PlannedList<B extends ListBlock = ListBlock> implements PreparedList {
  /** Marks the object as bound to the thread that created it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly operation: 'put' | 'get';
  /** Its endpoint or connection. */
  readonly owner: object;
  readonly blocks: readonly B[];
  readonly byteLength: number;
  readonly #memories: UsedMemory[] = [];
  readonly #keys: UsedKey[] = [];

  constructor(operation: 'put' | 'get', owner: object, blocks: readonly B[]) {
    this.operation = operation;
    this.owner = owner;
    this.blocks = blocks;
    let sum = 0;
    let last: B | undefined;
    const seen = new Set<object>();
    for (const block of blocks) {
      const { local, rkey, entry, byteLength } = block;
      sum += byteLength;
      if (local !== last?.local && !seen.has(local)) {
        seen.add(local);
        this.#memories.push({ local, byteLength: local.byteLength, entry });
      }
      if (rkey !== last?.rkey && !seen.has(rkey)) {
        seen.add(rkey);
        this.#keys.push({ rkey, entry });
      }
      last = block;
    }
    this.byteLength = sum;
  }

  get blockCount(): number {
    return this.blocks.length;
  }

  /** False if any of its memory was detached or shortened. */
  get isIntact(): boolean {
    return this.#memories.every(isIntact);
  }

  /**
   * Checks a prepared list before a move.
   * @throws UcxError ERR_CLOSED or ERR_INVALID_PARAM; the details name the entry
   */
  check(operation: 'put' | 'get', owner: object): void {
    if (this.operation !== operation) throw invalidParam('list', `must be prepared for ${operation}`, this.operation);
    if (this.owner !== owner) throw invalidParam('list', 'must be prepared by this endpoint, not by another one', this);
    for (const { rkey, entry } of this.#keys) if (rkey.released) throw entryError(entry, closedError('remote key'));
    for (const used of this.#memories) {
      const { local, entry } = used;
      if (OwnedMemory.isGenuine(local) && !local.mapped) {
        throw entryError(entry, local.unmappedError('local memory'));
      }
      if (isIntact(used)) continue;
      const rule = 'must not change its length after prepareList: its ArrayBuffer was detached or shortened';
      throw entryError(entry, invalidParam('local', rule, hostBytes(local)?.byteLength));
    }
  }

  /** Bytes of the blocks with these indices; without indices, of all blocks. */
  bytesOf(selected: ArrayLike<number> | undefined): number {
    if (selected === undefined) return this.byteLength;
    let sum = 0;
    for (let i = 0; i < selected.length; i++) sum += this.blocks[selected[i]!]!.byteLength;
    return sum;
  }
}

showAs(PlannedList, 'PreparedList', ({ operation, blockCount, byteLength }) => ({ operation, blockCount, byteLength }));

function isIntact({ local, byteLength }: UsedMemory): boolean {
  return holdsBytes(hostBytes(local), 0, byteLength);
}
