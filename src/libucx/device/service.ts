/**
 * The owner's side of operations on memory of cards that peers request by messages: checks the request, copies the data, and answers. A request with a
 * wrong key or range is rejected.
 */

import type { ReceivedMessage } from '../../ucp/api/awaited/received-message.ts';
import { ATOMIC_ACCESS } from '../../ucp/api/memory/protection.ts';
import type { Request } from '../../ucp/api/request.ts';
import { WordOperation } from '../../ucp/api/word-operation.ts';
import type { CopyDone, DeviceCopy, StagingPort } from '../../ucp/staging/device-copier.ts';
import { DeviceWords } from '../../ucp/staging/device-words.ts';
import type { FragmentUser } from '../../ucp/staging/fragment-pool.ts';
import { readAtomic } from '../../ucp/wire/atomic.ts';
import { MessageId } from '../../ucp/wire/message.ts';
import { writeReply } from '../../ucp/wire/reply.ts';
import { readRma } from '../../ucp/wire/rma.ts';
import { writeData } from '../../ucp/wire/window.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { type AmFrame, AtomicOperation } from '../../uct/api/iface.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import { RequestKind } from '../request/request.ts';
import { DataReceive } from './staged/data-receive.ts';
import type { Staging } from './staged/staging.ts';
import { type DeviceMessage, exportIdAt, firstWord, packMessage } from './wire.ts';

const NO_BYTES = new Uint8Array(0);
const WORD_BYTES_MAX = 8;

/** A range of memory that a peer may access. */
interface Place {
  readonly memory: UcpMemory;
  readonly offset: number;
  readonly byteLength: number;
}

/** An answer that waits for a free request of the worker. */
interface Answer {
  readonly endpoint: EngineEndpoint;
  /** The request id of the peer. */
  readonly request: number;
  readonly header: Uint8Array;
  /** The memory whose bytes are the payload. */
  readonly place: Place | undefined;
}

/** Staging of one word at a time, through a separate fragment. */
class WordPort implements StagingPort<UcpMemory> {
  readonly #staging: Staging;
  #fragment: UcpMemory | undefined;

  constructor(staging: Staging) {
    this.#staging = staging;
  }

  acquire(run: FragmentUser<UcpMemory>): void {
    try {
      this.#fragment ??= this.#staging.reserve(WORD_BYTES_MAX);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      run(undefined, error.status);
      return;
    }
    run(this.#fragment, Status.OK);
  }

  /** Kept for the next word. */
  release(): void {}

  copy(isToCard: boolean, copy: DeviceCopy<UcpMemory>, done: CopyDone): void {
    this.#staging.copy(isToCard, copy, done);
  }
}

/** The service of one worker. */
export class DeviceService {
  readonly #staging: Staging;
  readonly #words: DeviceWords<UcpMemory>;
  /** Closed endpoints: answers for them are dropped. */
  readonly #gone: WeakSet<EngineEndpoint> = new WeakSet();
  readonly #receives: Map<DataReceive, EngineEndpoint> = new Map();
  #inFlight = 0;

  constructor(staging: Staging) {
    this.#staging = staging;
    this.#words = new DeviceWords(new WordPort(staging));
  }

  /** Whether no operation of a peer is in progress. */
  get isIdle(): boolean {
    return this.#inFlight === 0;
  }

  /** Executes the request of a peer. */
  serve(endpoint: EngineEndpoint, { id, frame }: DeviceMessage, message: ReceivedMessage): void {
    if (id === MessageId.ATOMIC) {
      this.#modify(endpoint, readAtomic(frame), frame);
      return;
    }
    const { request, remoteOffset, byteLength, keyAt } = readRma(frame);
    const access = id === MessageId.PUT ? MemAccess.REMOTE_PUT : MemAccess.REMOTE_GET;
    const place = this.#placeOf(exportIdAt(frame, keyAt), remoteOffset, byteLength, access);
    if (place === undefined) this.#reply(endpoint, request, Status.INVALID_ADDR);
    else if (id === MessageId.PUT) this.#write(endpoint, request, place, message);
    else this.#answer(endpoint, request, packMessage(writeData(firstWord(MessageId.DATA), request, 0)), place);
  }

  /** Called when an endpoint is closed, or has failed. */
  endpointGone(endpoint: EngineEndpoint): void {
    this.#gone.add(endpoint);
    for (const [receive, sender] of [...this.#receives]) if (sender === endpoint) receive.cancel();
  }

  /** Sends an answer; without a free request, the next progress tries again. */
  #send(answer: Answer): void {
    const { requests, buffers } = this.#staging.worker;
    const { endpoint, place } = answer;
    if (this.#gone.has(endpoint)) {
      this.#ended();
      return;
    }
    if (place !== undefined && !place.memory.mapped) {
      this.#ended();
      this.#reply(endpoint, answer.request, Status.INVALID_ADDR);
      return;
    }
    const request = requests.begin(RequestKind.SEND, 'am/libucp');
    if (request === undefined) {
      this.#staging.schedule(() => this.#send(answer));
      return;
    }
    const { memory, offset, byteLength } = place ?? { memory: NO_BYTES, offset: 0, byteLength: 0 };
    buffers.init(request, memory, offset, byteLength, false, 0);
    const callback = (ended: Request): void => {
      ended.free();
      this.#ended();
    };
    const started = endpoint.sendMessage(request, STAGING_AM_ID, answer.header, { callback });
    if (typeof started === 'number') this.#ended();
  }

  /** The memory range of a request; undefined for a wrong key, memory that is not for its access, or a range outside the memory. */
  #placeOf(exportId: number, offset: number, byteLength: number, access: number): Place | undefined {
    const memory = this.#staging.worker.context.memory.exported(exportId);
    if (memory === undefined || offset + byteLength > memory.byteLength || byteLength === 0) return undefined;
    if ((memory.access & access) !== access) return undefined;
    return { memory, offset, byteLength };
  }

  #write(endpoint: EngineEndpoint, request: number, place: Place, message: ReceivedMessage): void {
    if (message.byteLength !== place.byteLength) {
      this.#reply(endpoint, request, Status.INVALID_PARAM);
      return;
    }
    this.#inFlight += 1;
    const receive = new DataReceive(this.#staging, message, [place.memory, place.offset], (status) => {
      this.#receives.delete(receive);
      this.#ended();
      this.#reply(endpoint, request, status);
    });
    this.#receives.set(receive, endpoint);
    receive.run();
  }

  #modify(endpoint: EngineEndpoint, asked: ReturnType<typeof readAtomic>, frame: AmFrame): void {
    const { request, remoteOffset, operation, wordBytes, value, compare, keyAt } = asked;
    const isOperation = operation >= AtomicOperation.ADD && operation <= AtomicOperation.CSWAP;
    if ((wordBytes !== 4 && wordBytes !== 8) || remoteOffset % wordBytes !== 0 || !isOperation) {
      this.#reply(endpoint, request, Status.INVALID_PARAM);
      return;
    }
    const place = this.#placeOf(exportIdAt(frame, keyAt), remoteOffset, wordBytes, ATOMIC_ACCESS);
    if (place === undefined) {
      this.#reply(endpoint, request, Status.INVALID_ADDR);
      return;
    }
    const call = WordOperation.of(operation as AtomicOperation, wordBytes, value, compare);
    this.#inFlight += 1;
    this.#words.modify(place.memory, place.offset, call, (status) => {
      this.#ended();
      this.#reply(endpoint, request, status, call.result);
    });
  }

  #reply(endpoint: EngineEndpoint, request: number, status: Status, word = 0n): void {
    const fields = { request, status, low: lowWord(word), high: highWord(word) };
    this.#answer(endpoint, request, packMessage(writeReply(firstWord(MessageId.REPLY), fields)), undefined);
  }

  #answer(endpoint: EngineEndpoint, request: number, header: Uint8Array, place: Place | undefined): void {
    this.#inFlight += 1;
    this.#send({ endpoint, request, header, place });
  }

  #ended(): void {
    this.#inFlight -= 1;
  }
}
