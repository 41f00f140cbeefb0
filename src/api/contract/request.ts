/**
 * A request, which is an operation still pending when its call returned; and the parameters of operations, with 64-bit tags and lists of puts and gets, and
 * their checks.
 */

import { MemoryType, withMemoryType } from '../../ucs/memory/memory-type.ts';
import { checkFlag, checkOptions } from '../../ucs/type/check-options.ts';
import { argumentError, invalidParam } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { highOf, highWord, joinBig, lowWord } from '../../ucs/type/int64.ts';
import { type Status, statusName } from '../../ucs/type/status.ts';
import type { LocalMemory, MapParams, MemMapParams, RemoteKey } from './memory.ts';

/** Called once when a request ends, inside `progress()`; it may call `request.free()`. For errors that it throws see Worker.progress. */
export type RequestCallback = (request: Request, status: Status) => void;

/** Options of an nbx call (ucp_request_param_t). The object can be reused: the call keeps no reference to it. */
export interface RequestParams {
  /** Returns a request even if the operation ends in its call (UCP_OP_ATTR_FLAG_NO_IMM_CMPL). */
  readonly noImmediateCompletion?: boolean | undefined;
  /** Called when the request ends; not called if the operation ends in its call. */
  readonly callback?: RequestCallback | undefined;
  /** Any value; returned as `userData` of the request. */
  readonly userData?: unknown;
}

/** Parameters of a notification. */
export interface NotifyParams extends RequestParams {
  /** Active message id whose handler receives the notification, as the header of a message without data. Default: `worker.notifications()` returns it. */
  readonly notifyId?: number | undefined;
}

/** Parameters of a put. */
export interface PutParams extends NotifyParams {
  /**
   * Bytes that the peer receives as a notification once every byte of the put is visible in its memory; at most 4096. Copied. If the peer does not receive
   * notifications, they first use up its credit, and then wait here: a put that is cancelled meanwhile sends no notification, but may have written its bytes.
   * A sent notification is not withdrawn, even if the promise rejects because its signal fired later.
   */
  readonly notify?: Uint8Array | undefined;
}

/** Parameters of sending an active message. */
export interface AmSendParams extends RequestParams {
  /** Sends the message eagerly or by rendezvous; by default its length decides. If the receiver has no memory for it, rendezvous is used in any case. */
  readonly protocol?: 'eager' | 'rendezvous' | undefined;
}

/** Names of the atomic operations. */
export type AtomicName = 'add' | 'and' | 'or' | 'xor' | 'swap' | 'cswap';

/** An atomic operation on a word of remote memory. */
export interface AtomicParams extends RequestParams {
  /** Bits of the word. Default 64. */
  readonly bits?: 32 | 64 | undefined;
  /** For cswap: the expected value of the word. */
  readonly compare?: number | bigint | undefined;
}

/** Parameters of receiving from a stream. */
export interface StreamRecvParams extends RequestParams {
  /**
   * Ends only when all of the local memory is filled (UCP_STREAM_RECV_FLAG_WAITALL). Once bytes were received, it cannot be cancelled, because the stream
   * would lose them: it ends when it is complete, or with the endpoint. libucp cancels no stream receives at all.
   */
  readonly waitAll?: boolean | undefined;
}

/** A request. Pooled: after `free()` the object belongs to another operation. */
export interface Request {
  /** INPROGRESS, then the final status. */
  readonly status: Status;
  /** True once `status` is final. */
  readonly isCompleted: boolean;
  /** An error thrown during the operation, to be used as the cause of an error; undefined for most failures. */
  readonly error: unknown;
  /** The `callback` of the parameters. It may be set until the operation has ended. */
  callback: RequestCallback | undefined;
  /** The `userData` of the parameters. */
  readonly userData: unknown;
  /** Bytes of the operation. */
  readonly byteLength: number;
  /** Bytes of the received message. */
  readonly receivedBytes: number;
  /** Tag of the received message. */
  readonly senderTag: bigint;
  /** Value of the word before a completed atomic operation. */
  readonly atomicResult: bigint;
  /** Name of the transport, such as `gaudi_cpy`; undefined if there is none, as for a flush. */
  readonly transport: string | undefined;
  /** Name of the device, such as `gaudi0`. */
  readonly device: string | undefined;
  /** Name of the protocol, such as `put/zcopy`. */
  readonly protocol: string;
  /**
   * Returns the object to its pool once the operation has ended.
   * @throws UcxError ERR_BUSY before the end, ERR_INVALID_PARAM on the second call
   */
  free(): void;
  /**
   * Ends the operation with CANCELED if no transport has started it yet (ucp_request_cancel). A long or synchronous message that is not matched yet is
   * withdrawn: the peer is requested to drop it, and the request ends with CANCELED once the peer's worker has done so in its progress. The receiver no
   * longer finds a withdrawn tagged message; receiving the data of a retained active message fails with ERR_CANCELED. libucp does not withdraw messages. A
   * list ends without its notification, unless it was sent; started blocks arrive. A flush ends early, once the transports have completed their flushes. A
   * stream send with sent bytes is not cancelled, because the stream would have a gap.
   *
   * An operation that waits for a stopped process (SIGSTOP) on this host ends at once if that process cannot access its memory any more; otherwise with its
   * endpoint, which fails with ENDPOINT_TIMEOUT if the process is stopped at two consecutive checks of UCX_KEEPALIVE_INTERVAL. Over tcp, a stopped process is
   * detected after UCX_TCP_PEER_TIMEOUT. Cancellations that need the peer take until its event loop runs.
   * @returns false if the request ends without cancellation because it is too late, or ends with CANCELED later, once a withdrawal is complete
   */
  cancel(): boolean;
}

/** A block of a list: a local range and a remote range of the same length; or `count` such blocks at regular distances. */
export interface TransferEntry {
  /** Host bytes or mapped memory. */
  readonly local: LocalMemory;
  /** Offset in the local memory. Default 0. */
  readonly offset?: number | undefined;
  /** Key of the remote memory, unpacked by the endpoint of the list. */
  readonly rkey: RemoteKey;
  /** Offset in the remote memory. Default 0. */
  readonly remoteOffset?: number | undefined;
  /** Bytes of each block; a block of 0 bytes moves nothing. */
  readonly byteLength: number;
  /** Number of blocks. Default 1. */
  readonly count?: number | undefined;
  /** Bytes from the start of one local block to the start of the next. Default `byteLength`. */
  readonly localStride?: number | undefined;
  /** The same for the remote memory. Default `byteLength`. */
  readonly remoteStride?: number | undefined;
}

/** Options of checking a list. */
export interface ListCheckOptions {
  /** Rejects lists in which two blocks write the same byte. Otherwise, the order of such writes is undefined. Default false. */
  readonly strict?: boolean | undefined;
}

/** Parameters of lists of the nbx tier. */
export interface ListParams extends PutParams, ListCheckOptions {
  /** The request ends only when every byte is visible in remote memory; without it, when the local memory can be reused. Default false. */
  readonly flush?: boolean | undefined;
  /** For a prepared list: the indices of the blocks to move. Default: all. */
  readonly blocks?: ArrayLike<number> | undefined;
}

/** Options of awaited lists. */
export interface ListOptions extends Omit<ListParams, keyof RequestParams | 'flush'> {
  /** Cancels the operation: its promise rejects with an AbortError, or resolves if the operation is executed nevertheless (see `Request.cancel`). */
  readonly signal?: AbortSignal | undefined;
}

/** A list that was checked once, and can be moved many times. Its mapped memory and keys must be kept. */
export interface PreparedList {
  /** Operation for which it was prepared. */
  readonly operation: 'put' | 'get';
  /** Number of blocks: consecutive blocks that are adjacent in both memories are merged. */
  readonly blockCount: number;
  /** Bytes of all blocks. */
  readonly byteLength: number;
}

/** Maximum length of a notification. */
export const NOTIFICATION_BYTES_MAX = 4096;
/** Maximum number of blocks of a list, before adjacent ones are merged. */
export const LIST_BLOCKS_MAX: number = 2 ** 20;

/** A tag or a mask: a non-negative safe integer, or a bigint below 2^64. */
export type Tag = number | bigint;

/** The mask with all bits: matches only equal tags. */
export const TAG_MASK_FULL = 0xffff_ffff_ffff_ffffn;

const TAG_END = 1n << 64n;

/** The low 32 bits of a tag, as a signed word. @throws UcxError ERR_INVALID_PARAM for a value that is not a tag */
export function tagLow(argument: string, tag: Tag): number {
  if (typeof tag === 'number' && tag >= 0 && Number.isSafeInteger(tag)) return tag | 0;
  if (typeof tag === 'bigint' && tag >= 0n && tag < TAG_END) return lowWord(tag);
  throw invalidParam(argument, 'must be an integer from 0 to 2^64 - 1, as a bigint from 2^53 on', tag);
}

/** The high 32 bits of a tag that {@link tagLow} has accepted, as a signed word. */
export function tagHigh(tag: Tag): number {
  if (typeof tag === 'number') return highOf(tag);
  return highWord(tag);
}

/** `0x12` for a tag. */
export function tagText(tag: Tag): string {
  return `0x${tag.toString(16)}`;
}

/** `0x12` for the two signed words of a tag. */
export function tagWordsText(low: number, high: number): string {
  return tagText(joinBig(low, high));
}

/** Describes the message that a receive waits for. */
export function wantedText(tag: Tag, mask: Tag): string {
  const bits = BigInt(mask) === TAG_MASK_FULL ? '' : ` in the bits ${tagText(mask)}`;
  return `a message with tag ${tagText(tag)}${bits}`;
}

const MAP_OPTIONS = {
  buffer: ['buffer', 'protection'],
  address: ['address', 'byteLength', 'memoryType', 'sysDevice', 'protection'],
  dmabuf: ['dmabuf', 'memoryType', 'sysDevice', 'protection'],
  allocate: ['allocate', 'memoryType', 'sysDevice', 'shared', 'protection'],
} as const;

const MAP_RULE = 'must have exactly one of buffer, address, dmabuf and allocate';

/**
 * Checks the names of the parameters of memMap, and replaces the name of a memory type by its number.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkMapParams(params: MemMapParams): MapParams {
  checkOptions(params, 'params');
  const [kind, ...others] = (['buffer', 'address', 'dmabuf', 'allocate'] as const).filter((name) => name in params);
  if (others.length > 0) {
    const given = [kind, ...others].join(' and ');
    throw argumentError(
      'params',
      MAP_RULE,
      given,
      `argument params ${MAP_RULE}, got ${given}, which exclude each other`,
    );
  }
  if (kind !== undefined) checkOptions(params, 'params', MAP_OPTIONS[kind]);
  const sysDevice: unknown = (params as { readonly sysDevice?: unknown }).sysDevice;
  if (sysDevice !== undefined && !(Number.isSafeInteger(sysDevice) && (sysDevice as number) >= 0)) {
    throw invalidParam('sysDevice', 'must be an integer of 0 or more', sysDevice);
  }
  const checked = withMemoryType(params);
  const { memoryType = MemoryType.HOST } = checked as { readonly memoryType?: MemoryType };
  if (kind === 'allocate' && sysDevice !== undefined && memoryType === MemoryType.HOST) {
    throw invalidParam(
      'sysDevice',
      'must not be set for host memory: use memoryType gaudi to allocate on a card',
      sysDevice,
    );
  }
  return checked;
}

const REQUEST_FIELDS = ['noImmediateCompletion', 'callback', 'userData'] as const;
const PUT_FIELDS = [...REQUEST_FIELDS, 'notify', 'notifyId'] as const;

/** Parameters of the operations that have more than a request. */
export const PARAM_FIELDS: Readonly<
  Record<'put' | 'notify' | 'list' | 'atomic' | 'am' | 'streamRecv', readonly string[]>
> = {
  put: PUT_FIELDS,
  notify: [...REQUEST_FIELDS, 'notifyId'],
  list: [...PUT_FIELDS, 'strict', 'flush', 'blocks'],
  atomic: [...REQUEST_FIELDS, 'bits', 'compare'],
  am: [...REQUEST_FIELDS, 'protocol'],
  streamRecv: [...REQUEST_FIELDS, 'waitAll'],
};

/**
 * Checks the parameters of a request. Allocates nothing.
 * @param names the parameters of the operation
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkParams(params: RequestParams | undefined, names?: readonly string[]): void {
  if (params === undefined) return;
  checkOptions(params, 'params');
  for (const name in params) {
    // Comparisons with constants take a tenth of the time of a search.
    if (name === 'callback' || name === 'noImmediateCompletion' || name === 'userData') continue;
    if (names?.includes(name) !== true) checkOptions(params, 'params', names ?? REQUEST_FIELDS);
  }
  const { noImmediateCompletion, callback } = params;
  checkFlag('params.noImmediateCompletion', noImmediateCompletion);
  checkCallback('params.callback', callback);
}

/** Checks the callback of a request. @throws UcxError ERR_INVALID_PARAM */
export function checkCallback(argument: string, callback: RequestCallback | undefined): void {
  if (callback !== undefined && typeof callback !== 'function') {
    throw invalidParam(argument, 'must be a function', callback);
  }
}

/** Shows the fields of the interface when requests of a class are inspected. */
export function showRequests(type: { readonly prototype: Request }): void {
  showAs(type, 'Request', ({ protocol, status, byteLength, transport, device }) => ({
    protocol: protocol === '' ? undefined : protocol,
    status: statusName(status),
    byteLength,
    transport,
    device,
  }));
}

/** Tag and length of a message. */
export class TagInfo {
  readonly senderTag: bigint;
  readonly byteLength: number;

  constructor(senderTag: bigint, byteLength: number) {
    this.senderTag = senderTag;
    this.byteLength = byteLength;
  }
}

// JSON has no bigint.
showAs(TagInfo, 'TagMessage', ({ senderTag, byteLength }) => ({ senderTag, byteLength }));
