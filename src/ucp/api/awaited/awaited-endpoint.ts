/**
 * The awaited operations of an endpoint on top of its nbx operations, the same for every engine. The engines implement put and get, because only they know
 * what has to be flushed.
 */

import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { closedError, invalidParam } from '../../../ucs/type/error.ts';
import type { Status } from '../../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import type {
  AmSendOptions,
  AtomicOptions,
  NotifyOptions,
  SendOptions,
  StreamRecvOptions,
  TagSendOptions,
  TransferResult,
} from '../endpoint.ts';
import type { ListOptions, ListParams, PreparedList, TransferEntry } from '../operation/list.ts';
import type { LocalBuffer, MessageBuffer, RemoteKey } from '../operation/memory.ts';
import type {
  AmSendParams,
  AtomicName,
  AtomicParams,
  NotifyParams,
  Request,
  RequestParams,
  StreamRecvParams,
} from '../operation/request.ts';
import type { Tag } from '../operation/tag.ts';
import { rangeOf, resultOf, tagOf } from './awaited-options.ts';
import { type Outcome, type PromiseTier, type StartOperation, signalOf } from './promise-tier.ts';
import { streamChunks } from './stream-chunks.ts';

const TAG_OPTIONS = ['tag', 'signal'];
const AM_OPTIONS = ['header', 'protocol', 'signal'];
const LIST_OPTIONS = ['notify', 'notifyId', 'strict', 'blocks', 'signal'];

/** The awaited tier of one endpoint. */
export abstract class AwaitedEndpoint {
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
    const { receivedBytes } = await this.#await(
      'stream receive',
      options.signal,
      (params) => this.streamRecvNbx(memory, offset, byteLength, { ...params, waitAll }),
      true,
    );
    return receivedBytes;
  }

  /** Checks the argument. An engine whose data are copies has nothing else to do. */
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

  #await(
    what: string,
    signal: AbortSignal | undefined,
    startOperation: StartOperation,
    keepsResult = false,
  ): Promise<Outcome> {
    return this.track(() => this.#promises.run(what, signal, startOperation, keepsResult));
  }
}
