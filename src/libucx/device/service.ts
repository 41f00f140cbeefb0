/**
 * The owner's side of operations on memory of cards that peers request by messages: checks the request, copies the data, and replies. A request with a
 * wrong key or range is rejected.
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

/** A range of memory that a peer may access. */
interface Place {
  readonly local: UcpMemory;
  readonly localOffset: number;
  readonly byteLength: number;
}

/** The service of one worker. */
export class DeviceService {
  readonly #staging: CardSteps;
  readonly #receives: DataReceives;
  readonly #words: DeviceWords;
  /** Closed endpoints: answers for them, and data that they have sent, are dropped. */
  readonly #gone: WeakSet<EngineEndpoint> = new WeakSet();
  #inFlight = 0;

  constructor(staging: CardSteps, receives: DataReceives) {
    this.#staging = staging;
    this.#receives = receives;
    this.#words = new DeviceWords(staging);
  }

  /** Whether no operation of a peer is in progress. */
  get isIdle(): boolean {
    return this.#inFlight === 0;
  }

  /** Executes the request of a peer. */
  serve(endpoint: EngineEndpoint, { id, frame }: CardRequest, exportId: number, message: ReceivedMessage): void {
    if (id === MessageId.ATOMIC) {
      this.#modify(endpoint, readAtomic(frame), exportId);
      return;
    }
    const { request, remoteOffset, byteLength } = readRma(frame);
    const access = id === MessageId.PUT ? MemAccess.REMOTE_PUT : MemAccess.REMOTE_GET;
    const place = this.#placeOf(exportId, remoteOffset, byteLength, access);
    if (place === undefined) this.#reply(endpoint, request, Status.INVALID_ADDR);
    else if (id === MessageId.PUT) this.#write(endpoint, request, place, message);
    else this.#read(endpoint, request, place);
  }

  /** Called when an endpoint is closed, or has failed. */
  endpointGone(endpoint: EngineEndpoint): void {
    this.#gone.add(endpoint);
  }

  /** The memory range of a request; undefined for a wrong key, memory that is not for its access, or a range outside the memory. */
  #placeOf(exportId: number, offset: number, byteLength: number, access: number): Place | undefined {
    const memory = this.#staging.core.context.memory.exported(exportId);
    if (memory === undefined || offset + byteLength > memory.byteLength || byteLength === 0) return undefined;
    if ((memory.access & access) !== access) return undefined;
    return { local: memory, localOffset: offset, byteLength };
  }

  /** Sends the bytes of a get, then whether they could be read: a message whose bytes cannot is sent all the same. */
  #read(endpoint: EngineEndpoint, request: number, place: Place): void {
    const header = packMessage(writeData(firstWord(MessageId.DATA), request, 0));
    this.#inFlight += 1;
    this.#staging.run(
      (params) => {
        if (this.#gone.has(endpoint)) return Status.CANCELED;
        return place.local.mapped ? endpoint.sendOwn(STAGING_AM_ID, header, place, params) : Status.INVALID_ADDR;
      },
      (status) => {
        this.#inFlight -= 1;
        this.#reply(endpoint, request, status);
      },
    );
  }

  #write(endpoint: EngineEndpoint, request: number, place: Place, message: ReceivedMessage): void {
    if (message.byteLength !== place.byteLength) {
      this.#reply(endpoint, request, Status.INVALID_PARAM);
      return;
    }
    this.#inFlight += 1;
    const isWanted = (): boolean => !this.#gone.has(endpoint);
    this.#receives.receiveOwn(message, place, isWanted, (status) => {
      this.#inFlight -= 1;
      this.#reply(endpoint, request, status);
    });
  }

  #modify(endpoint: EngineEndpoint, asked: ReturnType<typeof readAtomic>, exportId: number): void {
    const { request, remoteOffset, operation, wordBytes, value, compare } = asked;
    const isOperation = operation >= AtomicOperation.ADD && operation <= AtomicOperation.CSWAP;
    if ((wordBytes !== 4 && wordBytes !== 8) || remoteOffset % wordBytes !== 0 || !isOperation) {
      this.#reply(endpoint, request, Status.INVALID_PARAM);
      return;
    }
    const place = this.#placeOf(exportId, remoteOffset, wordBytes, ATOMIC_ACCESS);
    if (place === undefined) {
      this.#reply(endpoint, request, Status.INVALID_ADDR);
      return;
    }
    const call = WordOperation.of(operation as AtomicOperation, wordBytes, value, compare);
    this.#inFlight += 1;
    this.#words.modify(place.local.node, place.localOffset, call, (status) => {
      this.#inFlight -= 1;
      this.#reply(endpoint, request, status, call.result);
    });
  }

  /** @param request id of the peer */
  #reply(endpoint: EngineEndpoint, request: number, status: Status, word = 0n): void {
    const fields = { request, status, low: lowWord(word), high: highWord(word) };
    const header = packMessage(writeReply(firstWord(MessageId.REPLY), fields));
    this.#inFlight += 1;
    this.#staging.run(
      (params) => {
        if (this.#gone.has(endpoint)) return Status.CANCELED;
        return endpoint.sendOwn(STAGING_AM_ID, header, undefined, params);
      },
      () => {
        this.#inFlight -= 1;
      },
    );
  }
}
