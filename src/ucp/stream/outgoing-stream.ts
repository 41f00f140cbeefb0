/**
 * The sending side of a stream: requests in order, message by message, as far as there is credit. A send without credit waits here and not in the queue of its
 * connection, so that it holds nothing else up.
 */

import { Status } from '../../ucs/status.ts';
import { areHost, areMapped } from '../api/local-bytes.ts';
import { MessageId, NO_ENDPOINT, STREAM_ASKED } from '../core/message.ts';
import { sendMessage, sendPieces } from '../core/message-packer.ts';
import type { ProtocolHost } from '../core/protocol-host.ts';
import { type Connection, Request, RequestKind } from '../core/request.ts';
import { WorkerCounter } from '../core/worker-counters.ts';
import { KEPT_OVERHEAD_BYTES } from '../credit/credit-budget.ts';
import { CreditCode, postStreamCredit } from '../credit/credit-messages.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import type { Staging } from '../rndv/staging.ts';

/** Words of the header of a message of a stream. */
export const STREAM_WORDS = 2;
const HEADER = new Int32Array(STREAM_WORDS);

/** What a start has come to that has to wait for credit. */
const NO_CREDIT = -1000;

/** The stream of one connection. */
export class OutgoingStream {
  readonly #host: ProtocolHost;
  readonly #staging: Staging;
  readonly #connection: Connection;
  /** Sends that wait for credit, or behind such, in order. */
  readonly #waiting: Request[] = [];
  /** Device memory is being sent, fragment by fragment: what is sent after it waits. */
  #isStaging = false;
  /** A fragment of that which waits for credit. */
  #part: Request | undefined;
  /** The peer takes one message without credit. */
  #isAsked = false;
  /** The peer knows that we wait to be asked. */
  #hasTold = false;
  readonly #pump: Request;

  constructor(host: ProtocolHost, staging: Staging, connection: Connection) {
    this.#host = host;
    this.#staging = staging;
    this.#connection = connection;
    this.#pump = new Request(host);
  }

  /** True while device memory is copied. */
  get isStaging(): boolean {
    return this.#isStaging;
  }

  /** Sends a message of host memory if nothing is in front of it: NO_RESOURCE where it has to become a request. */
  sendAtOnce(bytes: Uint8Array, offset: number, byteLength: number): Status {
    const connection = this.#connection;
    const cost = byteLength + KEPT_OVERHEAD_BYTES;
    if (this.#waiting.length > 0 || this.#isStaging || connection.credit.bytes < cost) return Status.NO_RESOURCE;
    if (STREAM_WORDS * 4 + byteLength > connection.amBcopyMax) return Status.NO_RESOURCE;
    HEADER[0] = connection.remoteId;
    HEADER[1] = 0;
    const status = sendMessage(connection, MessageId.STREAM, HEADER, STREAM_WORDS, bytes, offset, byteLength);
    if (status === Status.OK) connection.credit.bytes -= cost;
    return status;
  }

  /** The starter of a send. */
  start(request: Request): Status {
    const connection = this.#connection;
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    if (this.#waiting.length > 0 || this.#isStaging) return this.#wait(request);
    if (!areHost(request.pieces!)) return this.#stage(request);
    const status = this.#sendRest(request);
    return status === NO_CREDIT ? this.#wait(request) : (status as Status);
  }

  /** There is credit. */
  resume(): void {
    this.#hasTold = false;
    this.#drain();
  }

  /** The peer takes a message without credit. */
  asked(): void {
    this.#isAsked = true;
    this.resume();
  }

  /** True for a send that waits for credit, and of which nothing was sent: it can be ended. */
  canCancel(request: Request): boolean {
    return request.done === 0 && this.#waiting.includes(request);
  }

  /** Keeps a request until there is credit. The end of the connection ends it as others that wait for the peer. */
  #wait(request: Request): Status {
    this.#waiting.push(request);
    request.release = () => {
      const index = this.#waiting.indexOf(request);
      if (index >= 0) this.#waiting.splice(index, 1);
    };
    this.#connection.expect(request);
    return Status.INPROGRESS;
  }

  /** Sends what waits, now or when there is room. */
  #drain(): void {
    const pump = this.#pump;
    if (this.#connection.failure !== Status.OK || pump.queued) return;
    if (this.#waiting.length === 0 && this.#part === undefined) return;
    pump.begin(RequestKind.MESSAGE);
    pump.connection = this.#connection;
    pump.starter = this.#sendWaiting;
    this.#connection.run(pump);
  }

  readonly #sendWaiting = (): Status => {
    for (;;) {
      const request = this.#part ?? (this.#isStaging ? undefined : this.#waiting[0]);
      if (request === undefined) return Status.OK;
      if (request !== this.#part && !areHost(request.pieces!)) {
        this.#waiting.shift();
        request.release = undefined;
        this.#connection.forget(request);
        this.#stage(request);
        continue;
      }
      const status = this.#sendRest(request);
      if (status === NO_CREDIT) return Status.OK;
      if (status === Status.NO_RESOURCE) return status;
      request.end(status as Status);
    }
  };

  /** Sends what is left, message by message; goes on where it stopped. */
  #sendRest(request: Request): number {
    const connection = this.#connection;
    const { credit } = connection;
    const frameBytes = connection.amBcopyMax - STREAM_WORDS * 4;
    // Device memory may have been read meanwhile.
    if (connection.failure !== Status.OK) return connection.failure;
    if (!areMapped(request.pieces!)) return Status.INVALID_ADDR;
    while (request.done < request.byteLength) {
      const rest = Math.min(frameBytes, request.byteLength - request.done);
      // No longer than what may be waited for.
      const bytes = this.#isAsked ? rest : Math.min(rest, Math.floor(credit.waitBytesMax) - KEPT_OVERHEAD_BYTES);
      const cost = bytes + KEPT_OVERHEAD_BYTES;
      if (!this.#isAsked && (bytes <= 0 || credit.bytes < cost)) {
        this.#lack(bytes <= 0 || credit.isLongFor(cost));
        return NO_CREDIT;
      }
      HEADER[0] = connection.remoteId;
      HEADER[1] = this.#isAsked ? STREAM_ASKED : 0;
      const { pieces, done } = request;
      const status = sendPieces(connection, MessageId.STREAM, HEADER, STREAM_WORDS, pieces!, done, bytes);
      if (status !== Status.OK) return status;
      if (this.#isAsked) this.#isAsked = false;
      else credit.bytes -= cost;
      request.done += bytes;
    }
    return Status.OK;
  }

  /** Tells the peer, once, where credit may not come by itself. */
  #lack(isLong: boolean): void {
    const { credit } = this.#connection;
    if (credit.isFirstLack()) this.#host.counters.count(WorkerCounter.TX_NO_CREDIT);
    if (this.#hasTold || !isLong) return;
    this.#hasTold = true;
    postStreamCredit(this.#connection, CreditCode.STREAM_WAITS);
  }

  /** Sends device memory: fragment by fragment through host memory, in order. */
  #stage(request: Request): Status {
    const connection = this.#connection;
    const staging = this.#staging;
    const pieces = request.pieces!;
    this.#isStaging = true;
    const end = (status: Status): void => {
      this.#isStaging = false;
      request.end(status);
      this.#drain();
    };
    const next = (): void => {
      if (request.done === request.byteLength || connection.failure !== Status.OK) {
        end(connection.failure);
        return;
      }
      staging.acquire((fragment, refusal) => {
        if (fragment === undefined) {
          end(refusal);
          return;
        }
        const bytes = Math.min(staging.fragmentBytes, request.byteLength - request.done);
        staging.read(pieces, request.done, fragment, bytes, (status) => {
          if (status < 0) {
            staging.release(fragment);
            end(status);
            return;
          }
          this.#sendFragment(fragment, bytes, (sent) => {
            staging.release(fragment);
            if (sent < 0) {
              end(sent);
              return;
            }
            request.done += bytes;
            next();
          });
        });
      });
    };
    next();
    return Status.INPROGRESS;
  }

  #sendFragment(fragment: MemoryHandle, byteLength: number, done: (status: Status) => void): void {
    const part = new Request(this.#host);
    part.begin(RequestKind.MESSAGE);
    part.connection = this.#connection;
    part.pieces = [{ memory: fragment, offset: 0, byteLength, start: 0 }];
    part.byteLength = byteLength;
    part.callback = (_part, status) => done(status);
    part.starter = () => {
      const status = this.#sendRest(part);
      if (status !== NO_CREDIT) return status as Status;
      this.#part = part;
      part.release = () => {
        this.#part = undefined;
      };
      this.#connection.expect(part);
      return Status.INPROGRESS;
    };
    this.#connection.run(part);
  }
}
