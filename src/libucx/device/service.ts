/**
 * The owner's side of operations on memory of cards that peers ask for by messages: checks what they say, has the data copied, and answers. Nobody is trusted: a
 * question that makes no sense is refused, or ignored where nobody can be told.
 */

import type { ReceivedMessage } from '../../ucp/api/received-message.ts';
import type { Request } from '../../ucp/api/request.ts';
import { modifyWord, WordOperation } from '../../ucp/api/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import { RequestKind } from '../request/request.ts';
import { DataReceive } from './data-receive.ts';
import type { Staging, Task } from './staging.ts';
import { NOTHING_ELSE, packWireHeader, type WireHeader, WireKind } from './wire.ts';

const WORD_BYTES_MAX = 8;

/** Memory that a peer may use. */
interface Place {
  readonly memory: UcpMemory;
  readonly offset: number;
  readonly byteLength: number;
}

/** An answer that goes, or waits for a request. */
class Answer implements Task {
  readonly endpoint: EngineEndpoint;
  readonly #service: DeviceService;
  readonly #header: WireHeader;
  readonly #place: Place | undefined;

  constructor(service: DeviceService, endpoint: EngineEndpoint, header: WireHeader, place: Place | undefined) {
    this.#service = service;
    this.endpoint = endpoint;
    this.#header = header;
    this.#place = place;
  }

  run(): void {
    this.#service.send(this.endpoint, this.#header, this.#place, this);
  }
}

/** The service of one worker. */
export class DeviceService {
  readonly #staging: Staging;
  /** Endpoints that are closed: answers for them are dropped. */
  readonly #gone: WeakSet<EngineEndpoint> = new WeakSet();
  readonly #receives: Map<DataReceive, EngineEndpoint> = new Map();
  #underWay = 0;

  constructor(staging: Staging) {
    this.#staging = staging;
  }

  /** Nothing is being done for a peer. */
  get isIdle(): boolean {
    return this.#underWay === 0;
  }

  /** Does what a peer asks for. */
  serve(endpoint: EngineEndpoint, header: WireHeader, message: ReceivedMessage): void {
    const place = this.#placeOf(header);
    if (typeof place === 'number') this.#done(endpoint, header.id, place);
    else if (header.kind === WireKind.WRITE) this.#write(endpoint, header.id, place, message);
    else if (header.kind === WireKind.READ) this.#answer(endpoint, WireKind.DATA, header.id, {}, place);
    else this.#modify(endpoint, header, place);
  }

  /** An endpoint is closed, or has failed. */
  endpointGone(endpoint: EngineEndpoint): void {
    this.#gone.add(endpoint);
    for (const [receive, sender] of [...this.#receives]) if (sender === endpoint) receive.cancel();
  }

  /** Sends an answer; one that finds no request is tried again. */
  send(endpoint: EngineEndpoint, header: WireHeader, place: Place | undefined, answer: Answer): void {
    const { requests, buffers } = this.#staging.worker;
    if (this.#gone.has(endpoint)) {
      this.#ended();
      return;
    }
    if (place !== undefined && !place.memory.mapped) {
      this.#ended();
      this.#done(endpoint, header.id, Status.INVALID_ADDR);
      return;
    }
    const request = requests.begin(RequestKind.SEND, 'am/libucp');
    if (request === undefined) {
      this.#staging.schedule(answer);
      return;
    }
    const { memory, offset, byteLength } = place ?? { memory: new Uint8Array(0), offset: 0, byteLength: 0 };
    buffers.describe(request, memory, offset, byteLength, false);
    const callback = (ended: Request): void => {
      ended.free();
      this.#ended();
    };
    const started = endpoint.sendMessage(request, STAGING_AM_ID, packWireHeader(header), { callback });
    if (typeof started === 'number') this.#ended();
  }

  /** The memory that a peer names, or why it may not have it. */
  #placeOf({ exportId, offset, byteLength }: WireHeader): Place | Status {
    const memory = this.#staging.worker.context.memory.exported(exportId);
    if (memory === undefined || offset + byteLength > memory.byteLength || byteLength === 0) return Status.INVALID_ADDR;
    return { memory, offset, byteLength };
  }

  #write(endpoint: EngineEndpoint, id: number, { memory, offset, byteLength }: Place, message: ReceivedMessage): void {
    if (message.byteLength !== byteLength) {
      this.#done(endpoint, id, Status.INVALID_PARAM);
      return;
    }
    this.#underWay += 1;
    const receive = new DataReceive(this.#staging, message, [memory, offset], (status) => {
      this.#receives.delete(receive);
      this.#ended();
      this.#done(endpoint, id, status);
    });
    this.#receives.set(receive, endpoint);
    receive.run();
  }

  /** Reads a word, changes it and writes it back, all at once: nobody else of this process gets between. */
  #modify(endpoint: EngineEndpoint, header: WireHeader, { memory, offset, byteLength }: Place): void {
    const { id, operation, value, compare } = header;
    if ((byteLength !== 4 && byteLength !== WORD_BYTES_MAX) || offset % byteLength !== 0) {
      this.#done(endpoint, id, Status.INVALID_PARAM);
      return;
    }
    const bits = byteLength * 8;
    const call = new WordOperation(operation, byteLength, BigInt.asUintN(bits, value), BigInt.asUintN(bits, compare));
    const word = this.#staging.word;
    let status = this.#staging.copyNow(false, memory, offset, word.address, byteLength);
    if (status === Status.OK) {
      modifyWord(word.u8, 0, call);
      status = this.#staging.copyNow(true, memory, offset, word.address, byteLength);
    }
    this.#answer(endpoint, WireKind.DONE, id, { status, value: call.result }, undefined);
  }

  #done(endpoint: EngineEndpoint, id: number, status: Status): void {
    this.#answer(endpoint, WireKind.DONE, id, { status }, undefined);
  }

  #answer(
    endpoint: EngineEndpoint,
    kind: WireKind,
    id: number,
    more: Partial<WireHeader>,
    place: Place | undefined,
  ): void {
    this.#underWay += 1;
    new Answer(this, endpoint, { ...NOTHING_ELSE, ...more, kind, id }, place).run();
  }

  #ended(): void {
    this.#underWay -= 1;
  }
}
