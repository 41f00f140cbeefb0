/**
 * The server side of remote operations on device memory: checks the request of a peer, copies the data, and replies. A request with a wrong key or range
 * gets an error reply.
 */

import type { ReceivedMessage } from '../../api/awaited/messages.ts';
import { ATOMIC_ACCESS } from '../../api/contract/memory.ts';
import { MessageId } from '../../api/layout/message.ts';
import { writeData, writeReply } from '../../api/layout/rendezvous.ts';
import { readAtomic, readRma } from '../../api/layout/rma.ts';
import { WordOperation } from '../../api/operation/word-operation.ts';
import { DeviceWords } from '../../api/staging/device-copier.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import { type CardRequest, firstWord, packMessage } from './layout.ts';
import type { DataReceives } from './receives.ts';
import type { CardSteps } from './steps.ts';

/** A range of exported memory. */
interface ExportedRange {
  readonly local: UcpMemory;
  readonly localOffset: number;
  readonly byteLength: number;
}

/** The service of one worker. */
export class DeviceService {
  readonly #staging: CardSteps;
  readonly #receives: DataReceives;
  readonly #words: DeviceWords;
  /** Closed endpoints: replies to them, and data received from them, are dropped. */
  readonly #closed: WeakSet<EngineEndpoint> = new WeakSet();
  #inFlight = 0;

  constructor(staging: CardSteps, receives: DataReceives) {
    this.#staging = staging;
    this.#receives = receives;
    this.#words = new DeviceWords(staging);
  }

  get isIdle(): boolean {
    return this.#inFlight === 0;
  }

  serve(endpoint: EngineEndpoint, { id, frame }: CardRequest, exportId: number, message: ReceivedMessage): void {
    if (id === MessageId.ATOMIC) {
      this.#modify(endpoint, readAtomic(frame), exportId);
      return;
    }
    const { request, remoteOffset, byteLength } = readRma(frame);
    const access = id === MessageId.PUT ? MemAccess.REMOTE_PUT : MemAccess.REMOTE_GET;
    const range = this.#rangeOf(exportId, remoteOffset, byteLength, access);
    if (range === undefined) this.#reply(endpoint, request, Status.INVALID_ADDR);
    else if (id === MessageId.PUT) this.#write(endpoint, request, range, message);
    else this.#read(endpoint, request, range);
  }

  /** Called when an endpoint is closed or has failed. */
  endpointClosed(endpoint: EngineEndpoint): void {
    this.#closed.add(endpoint);
  }

  /** The memory range of a request; undefined for an unknown key, a denied access, or a range that exceeds the memory. */
  #rangeOf(exportId: number, offset: number, byteLength: number, access: number): ExportedRange | undefined {
    const memory = this.#staging.core.context.memory.exported(exportId);
    if (memory === undefined || offset + byteLength > memory.byteLength || byteLength === 0) return undefined;
    if ((memory.access & access) !== access) return undefined;
    return { local: memory, localOffset: offset, byteLength };
  }

  /** Sends the data of a get, then the reply with its status. The data is sent even if it could not be read, because the peer waits for it. */
  #read(endpoint: EngineEndpoint, request: number, range: ExportedRange): void {
    const header = packMessage(writeData(firstWord(MessageId.DATA), request, 0));
    this.#inFlight += 1;
    this.#staging.run(
      (params) => {
        if (this.#closed.has(endpoint)) return Status.CANCELED;
        return range.local.mapped ? endpoint.sendOwn(STAGING_AM_ID, header, range, params) : Status.INVALID_ADDR;
      },
      (status) => {
        this.#inFlight -= 1;
        this.#reply(endpoint, request, status);
      },
    );
  }

  #write(endpoint: EngineEndpoint, request: number, range: ExportedRange, message: ReceivedMessage): void {
    if (message.byteLength !== range.byteLength) {
      this.#reply(endpoint, request, Status.INVALID_PARAM);
      return;
    }
    this.#inFlight += 1;
    const isWanted = (): boolean => !this.#closed.has(endpoint);
    this.#receives.receiveOwn(message, range, isWanted, (status) => {
      this.#inFlight -= 1;
      this.#reply(endpoint, request, status);
    });
  }

  #modify(endpoint: EngineEndpoint, atomic: ReturnType<typeof readAtomic>, exportId: number): void {
    const { request, remoteOffset, operation, wordBytes, value, compare } = atomic;
    const isOperation = operation >= AtomicOperation.ADD && operation <= AtomicOperation.CSWAP;
    if ((wordBytes !== 4 && wordBytes !== 8) || remoteOffset % wordBytes !== 0 || !isOperation) {
      this.#reply(endpoint, request, Status.INVALID_PARAM);
      return;
    }
    const range = this.#rangeOf(exportId, remoteOffset, wordBytes, ATOMIC_ACCESS);
    if (range === undefined) {
      this.#reply(endpoint, request, Status.INVALID_ADDR);
      return;
    }
    const call = WordOperation.of(operation as AtomicOperation, wordBytes, value, compare);
    this.#inFlight += 1;
    this.#words.modify(range.local.nativeHandle, range.localOffset, call, (status) => {
      this.#inFlight -= 1;
      this.#reply(endpoint, request, status, call.result);
    });
  }

  /** @param request id that the peer assigned */
  #reply(endpoint: EngineEndpoint, request: number, status: Status, word = 0n): void {
    const fields = { request, status, low: lowWord(word), high: highWord(word) };
    const header = packMessage(writeReply(firstWord(MessageId.REPLY), fields));
    this.#inFlight += 1;
    this.#staging.run(
      (params) => {
        if (this.#closed.has(endpoint)) return Status.CANCELED;
        return endpoint.sendOwn(STAGING_AM_ID, header, undefined, params);
      },
      () => {
        this.#inFlight -= 1;
      },
    );
  }
}
