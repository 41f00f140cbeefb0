/**
 * The awaited operations of an endpoint, which use its nbx operations; also its errors and its closing. The same for every engine, except put and get, which
 * need flushes of the engine.
 */

import { isBytes } from '../../ucs/memory/bytes.ts';
import { nextTurn } from '../../ucs/sys/next-turn.ts';
import { checkFlag, checkOptions } from '../../ucs/type/check-options.ts';
import { closedError, invalidParam } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type {
  AmSendOptions,
  AtomicOptions,
  CloseOptions,
  NotifyOptions,
  PutOptions,
  SendOptions,
  StreamRecvOptions,
  TagSendOptions,
  TransferOptions,
  TransferResult,
} from '../contract/endpoint.ts';
import { ErrorHandling } from '../contract/error-handling.ts';
import type { LocalBuffer, LocalMemory, MessageBuffer, RemoteKey } from '../contract/memory.ts';
import {
  type AmSendParams,
  type AtomicName,
  type AtomicParams,
  checkParams,
  type ListOptions,
  type ListParams,
  type NotifyParams,
  type PreparedList,
  type Request,
  type RequestParams,
  type StreamRecvParams,
  type Tag,
  type TransferEntry,
} from '../contract/request.ts';
import { entriesOf } from '../list/list.ts';
import { byteLengthOf, bytesFrom, isList, isPiece, rangeOfPiece } from '../memory/local.ts';
import { type Outcome, type PromiseTier, type StartOperation, signalOf } from './promises.ts';

const TAG_OPTIONS = ['tag', 'signal'];
const AM_OPTIONS = ['header', 'protocol', 'signal'];
const LIST_OPTIONS = ['notify', 'notifyId', 'strict', 'blocks', 'signal'];

/** The awaited tier of one endpoint. */
abstract class AwaitedEndpoint {
  readonly thread: symbol = THREAD_BOUND;
  readonly #promises: PromiseTier;
  /** Awaited operations that have not settled: closing waits for them. */
  #awaited = 0;

  constructor(promises: PromiseTier) {
    this.#promises = promises;
  }

  abstract get closed(): boolean;
  abstract get status(): Status;
  abstract readonly closedByPeer: boolean | undefined;
  abstract atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request;
  abstract tagSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request;
  abstract tagSendSyncNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request;
  abstract amSendNbx(
    id: number,
    header: Uint8Array | undefined,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: AmSendParams,
  ): Status | Request;
  abstract streamSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: RequestParams,
  ): Status | Request;
  abstract streamRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: StreamRecvParams,
  ): Status | Request;
  abstract putListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request;
  abstract getListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request;
  abstract notifyNbx(bytes: Uint8Array, params?: NotifyParams): Status | Request;
  abstract flushNbx(params?: RequestParams): Status | Request;

  async atomic(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    options: AtomicOptions = {},
  ): Promise<bigint> {
    checkOptions(options, 'options', ['remoteOffset', 'bits', 'compare', 'signal']);
    const { remoteOffset = 0, signal, ...word } = options;
    const { atomicResult } = await this.#await('atomic operation', signal, (params) =>
      this.atomicNbx(operation, value, rkey, remoteOffset, { ...params, ...word }),
    );
    return atomicResult;
  }

  putList(list: readonly TransferEntry[] | PreparedList, options: ListOptions = {}): Promise<TransferResult> {
    return this.#moveList('put of a list', options, (params) => this.putListNbx(list, params));
  }

  getList(list: readonly TransferEntry[] | PreparedList, options: ListOptions = {}): Promise<TransferResult> {
    return this.#moveList('get of a list', options, (params) => this.getListNbx(list, params));
  }

  async notify(bytes: Uint8Array, options: NotifyOptions = {}): Promise<void> {
    checkOptions(options, 'options', ['notifyId', 'signal']);
    const { notifyId, signal } = options;
    await this.#await('notification', signal, (params) => this.notifyNbx(bytes, { ...params, notifyId }));
  }

  tagSend(local: MessageBuffer, options: TagSendOptions = {}): Promise<TransferResult> {
    return this.#send('tag send', local, [options, TAG_OPTIONS], (memory, offset, length, params) =>
      this.tagSendNbx(memory, offset, length, tagOf(options), params),
    );
  }

  tagSendSync(local: MessageBuffer, options: TagSendOptions = {}): Promise<TransferResult> {
    return this.#send('synchronous tag send', local, [options, TAG_OPTIONS], (memory, offset, length, params) =>
      this.tagSendSyncNbx(memory, offset, length, tagOf(options), params),
    );
  }

  amSend(id: number, local: MessageBuffer, options: AmSendOptions = {}): Promise<TransferResult> {
    return this.#send('active message', local, [options, AM_OPTIONS], (memory, offset, length, params) => {
      const { header, signal: _, ...how } = options;
      return this.amSendNbx(id, header, memory, offset, length, { ...params, ...how });
    });
  }

  streamSend(local: MessageBuffer, options: SendOptions = {}): Promise<TransferResult> {
    return this.#send('stream send', local, [options, ['signal']], (memory, offset, length, params) =>
      this.streamSendNbx(memory, offset, length, params),
    );
  }

  async streamRecv(local: MessageBuffer, options: StreamRecvOptions = {}): Promise<number> {
    checkOptions(options, 'options', ['waitAll', 'signal']);
    const { waitAll = false } = options;
    const [memory, offset, byteLength] = rangeOf(local);
    const { receivedBytes } = await this.#await('stream receive', options.signal, (params) =>
      this.streamRecvNbx(memory, offset, byteLength, { ...params, waitAll }),
    );
    return receivedBytes;
  }

  /** Checks the argument. Engines that return copies need nothing else. */
  streamDataRelease(data: Uint8Array): void {
    if (!isBytes(data)) throw invalidParam('data', 'must be a Uint8Array', data);
  }

  stream(options: SendOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    signalOf(options);
    return streamChunks(this, options);
  }

  async flush(options: SendOptions = {}): Promise<void> {
    checkOptions(options, 'options', ['signal']);
    if (this.closed) throw closedError('endpoint');
    await this.#promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  /** Awaited operations that have not settled. */
  protected get awaited(): number {
    return this.#awaited;
  }

  /** Runs an awaited operation and counts it until its promise settles, for closing. */
  protected async track<T>(run: () => Promise<T>): Promise<T> {
    this.#awaited += 1;
    try {
      return await this.#promises.track(run);
    } finally {
      this.#awaited -= 1;
      if (this.closed) this.#promises.wake();
    }
  }

  async #moveList(
    what: string,
    options: ListOptions,
    startList: (params: ListParams) => Status | Request,
  ): Promise<TransferResult> {
    checkOptions(options, 'options', LIST_OPTIONS);
    const { signal, ...list } = options;
    const outcome = await this.#await(what, signal, (params) => startList({ ...params, ...list, flush: true }));
    return resultOf(outcome, outcome.byteLength);
  }

  async #send(
    what: string,
    local: MessageBuffer,
    [options, names]: readonly [SendOptions, readonly string[]],
    startSend: (memory: LocalBuffer, offset: number, byteLength: number, params: RequestParams) => Status | Request,
  ): Promise<TransferResult> {
    checkOptions(options, 'options', names);
    const [memory, offset, length] = rangeOf(local);
    const start: StartOperation = (params) => startSend(memory, offset, length, params);
    return resultOf(await this.#await(what, options.signal, start), length);
  }

  #await(what: string, signal: AbortSignal | undefined, startOperation: StartOperation): Promise<Outcome> {
    return this.track(() => this.#promises.run(what, signal, startOperation));
  }
}

/** An endpoint that can be closed. */
export abstract class ClosableEndpoint extends AwaitedEndpoint {
  protected readonly errorHandling: ErrorHandling = new ErrorHandling();
  /** Whether it is closed with `force`: operations that only the peer can end are not awaited. */
  protected isForced = false;
  #closed = false;
  #closing: Promise<void> | undefined = undefined;

  abstract readonly transports: readonly string[];

  get closed(): boolean {
    return this.#closed;
  }

  /** Runs an awaited put or get of one range, without a notification. */
  protected abstract transfer(
    name: 'put' | 'get',
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult>;

  /** Whether a value is an endpoint, and not merely an object with its prototype. */
  static isGenuine(value: unknown): value is ClosableEndpoint {
    return typeof value === 'object' && value !== null && #closing in value;
  }

  /** Calls back when the connection has ended, or when the endpoint is closed here. */
  onEnded(callback: () => void): Disposable {
    return this.errorHandling.onEnded(callback);
  }

  /** Closes the endpoint, which accepts no more operations; called once. */
  protected abstract shutDown(): Promise<void>;

  /** Called when the endpoint is closed with `force`, also while it is already closing. */
  protected abstract onForced(): void;

  put(local: LocalBuffer, rkey: RemoteKey, options: PutOptions = {}): Promise<TransferResult> {
    return this.track(() => {
      if (options?.notify === undefined && options?.notifyId === undefined && !isList(local))
        return this.transfer('put', local, rkey, options);
      return this.#transferList('put', local, rkey, options);
    });
  }

  get(local: LocalBuffer, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.track(() => {
      if (!isList(local)) return this.transfer('get', local, rkey, options);
      return this.#transferList('get', local, rkey, options);
    });
  }

  async #transferList(
    name: 'put' | 'get',
    local: LocalBuffer,
    rkey: RemoteKey,
    options: PutOptions,
  ): Promise<TransferResult> {
    this.checkOpen();
    const { notify, notifyId, signal, ...range } = options;
    const { localOffset, byteLength, remoteOffset } = resolveTransfer(name, local, rkey, range);
    const entries = entriesOf({ local, localOffset, byteLength, rkey, remoteOffset });
    const aborted = signal === undefined ? {} : { signal };
    if (name === 'get') return await this.getList(entries, aborted);
    const told = { ...(notify !== undefined && { notify }), ...(notifyId !== undefined && { notifyId }) };
    return await this.putList(entries, { ...aborted, ...told });
  }

  close(options: CloseOptions = {}): Promise<void> {
    try {
      checkOptions(options, 'options', ['force']);
      checkFlag('force', options.force);
    } catch (error) {
      return Promise.reject(error);
    }
    this.#closed = true;
    if (options.force === true) {
      this.isForced = true;
      this.onForced();
    }
    this.errorHandling.end();
    this.#closing ??= this.shutDown();
    return this.#closing;
  }

  /** Closes the endpoint; with `force` if awaited operations have not ended, because the program has left the block that awaits them. */
  async [Symbol.asyncDispose](): Promise<void> {
    // Promises of operations that have ended settle first.
    if (this.awaited > 0) await nextTurn();
    await this.close({ force: this.awaited > 0 });
  }

  /** @throws UcxError ERR_CLOSED */
  protected checkOpen(): void {
    if (this.#closed) throw closedError('endpoint');
  }

  /**
   * Checks the parameters of nbx operations. @param names parameters of the operation, if it has more than a request @throws UcxError ERR_CLOSED,
   * ERR_INVALID_PARAM
   */
  protected check(params: RequestParams | undefined, names?: readonly string[]): void {
    if (this.#closed) throw closedError('endpoint');
    checkParams(params, names);
  }
}

showAs(ClosableEndpoint, 'Endpoint', ({ closed, status, closedByPeer, transports }) => ({
  transports: transports.length === 0 ? undefined : transports.join(' '),
  state: closed ? 'closed' : stateOf(status, closedByPeer),
}));

function stateOf(status: Status, closedByPeer: boolean | undefined): string {
  if (status === Status.OK) return 'open';
  return closedByPeer === true ? 'closed by the peer' : `failed with ${statusName(status)}`;
}

const TRANSFER_OPTIONS = ['offset', 'byteLength', 'remoteOffset', 'remoteAddress', 'signal'];
const OPTIONS_OF = { get: TRANSFER_OPTIONS, put: [...TRANSFER_OPTIONS, 'notify', 'notifyId'] } as const;

/** Bytes of unchecked local memory. */
export function lengthOf(local: LocalBuffer): number {
  if (typeof local !== 'object' || local === null) {
    throw invalidParam('local', 'must be a Uint8Array, a memory handle or a list of ranges', local);
  }
  if (!isList(local)) return byteLengthOf(local);
  return local.reduce((sum, piece) => {
    const { memory, offset = 0, byteLength } = piece ?? {};
    // An invalid length may be a bigint or a symbol, which cannot be added.
    const bytes = byteLength === undefined ? bytesFrom(byteLengthOf(memory), offset) : byteLength;
    return typeof bytes === 'number' ? sum + bytes : sum;
  }, 0);
}

/** The memory of an awaited message, and its range. @throws UcxError ERR_INVALID_PARAM */
export function rangeOf(local: MessageBuffer): readonly [local: LocalBuffer, offset: number, byteLength: number] {
  return isPiece(local) ? rangeOfPiece(local) : [local, 0, lengthOf(local)];
}

/** The tag of a message. Null is not replaced by the default: the check rejects it, as everywhere. */
export function tagOf({ tag = 0 }: { readonly tag?: Tag | undefined }): Tag {
  return tag;
}

/** The result of an awaited operation. */
export function resultOf({ transport, device, protocol }: Outcome, byteLength: number): TransferResult {
  return { byteLength, transport, device, protocol };
}

/**
 * Fills in the defaults of an awaited put or get. Memory and key are checked when the operation starts: invalid ones result in length 0 and offset 0 here.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function resolveTransfer(
  name: 'put' | 'get',
  local: LocalBuffer,
  rkey: RemoteKey,
  options: TransferOptions,
): { readonly localOffset: number; readonly byteLength: number; readonly remoteOffset: number } {
  checkOptions(options, 'options', OPTIONS_OF[name]);
  const { offset: localOffset = 0, byteLength, remoteOffset = 0, remoteAddress } = options;
  if (remoteAddress !== undefined && typeof remoteAddress !== 'bigint') {
    throw invalidParam('remoteAddress', 'must be a bigint', remoteAddress);
  }
  return {
    localOffset,
    byteLength: byteLength === undefined ? Math.max(0, bytesFrom(lengthOf(local), localOffset)) : byteLength,
    remoteOffset: remoteAddress === undefined ? remoteOffset : offsetOf(remoteAddress, rkey),
  };
}

function offsetOf(remoteAddress: bigint, rkey: RemoteKey): number {
  const start: unknown = rkey?.address;
  return typeof start === 'bigint' ? Number(remoteAddress - start) : Number.NaN;
}

/** Maximum chunk length in bytes. */
const CHUNK_BYTES_MAX = 65_536;

/** Yields received bytes until the peer closes. Throws the failure of a receive in all other cases. */
async function* streamChunks(source: AwaitedEndpoint, options: SendOptions): AsyncGenerator<Uint8Array, void, void> {
  const room = new Uint8Array(CHUNK_BYTES_MAX);
  for (;;) {
    let byteLength: number;
    try {
      byteLength = await source.streamRecv(room, options);
    } catch (error) {
      const isEnd = source.status === Status.CONNECTION_RESET && source.closedByPeer !== false;
      if (isEnd && options.signal?.aborted !== true) return;
      throw error;
    }
    yield room.slice(0, byteLength);
  }
}
