/**
 * A put or get of the application that several network devices share (UCX_MAX_RMA_RAILS): one request, which ends with the last of its parts, with the first
 * failure as its status. The parts are transfers of internal-rma.ts.
 *
 *   STARTING --every part was accepted by its lane--> STARTED --the last part has ended--> the request ends
 *      |  ^                                              ^
 *      |  '-- NO_RESOURCE: started again by its queue    |
 *      '-- a failure, or a peer that is gone: parts that no lane has accepted are dropped
 *
 * While it is STARTING, one count of the request keeps it from ending, and flushes and fences wait behind it.
 */

import { Status } from '../../ucs/type/status.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import { type Connection, start } from '../base/request/request.ts';
import type { RmaRequest } from '../base/request/rma-request.ts';
import type { Operation } from '../proto/selection.ts';
import { initTransfer, type RmaPlace } from './internal-rma.ts';

/** The states of a divided transfer: see the diagram above. */
const DividedState = { STARTING: 0, STARTED: 1 } as const;
type DividedState = (typeof DividedState)[keyof typeof DividedState];

/** The parts of one request. */
class DividedTransfer {
  readonly #request: RmaRequest;
  /** Parts that no lane has accepted. */
  readonly #waiting: Set<RmaRequest> = new Set();
  #state: DividedState = DividedState.STARTING;

  constructor(request: RmaRequest) {
    this.#request = request;
  }

  /** Adds a part. @throws what registering the local memory throws */
  add(host: ProtocolHost, connection: Connection, operation: Operation, place: RmaPlace): void {
    const request = this.#request;
    this.#waiting.add(initTransfer(host, connection, operation, place, (status) => request.complete(status)));
    request.byteLength += place.byteLength;
  }

  /** Starts the parts that are left; see Request.start. */
  start(): Status {
    const request = this.#request;
    for (const part of [...this.#waiting]) {
      if (request.failure !== Status.OK) break;
      this.#startPart(part);
      // The start of a part has ended the connection.
      if (this.#state !== DividedState.STARTING) return Status.INPROGRESS;
    }
    if (request.failure !== Status.OK) this.drop();
    if (this.#waiting.size > 0) return Status.NO_RESOURCE;
    this.#state = DividedState.STARTED;
    request.count -= 1;
    return request.count > 0 ? Status.INPROGRESS : request.failure;
  }

  #startPart(part: RmaRequest): void {
    const request = this.#request;
    this.#waiting.delete(part);
    request.count += 1;
    const { byteLength } = part;
    const status = start(part);
    if (status === Status.NO_RESOURCE && this.#state === DividedState.STARTING) {
      request.count -= 1;
      this.#waiting.add(part);
      return;
    }
    if (status !== Status.NO_RESOURCE) request.done += byteLength;
    if (status === Status.INPROGRESS) return;
    if (part.error !== undefined) request.error ??= part.error;
    part.end(status === Status.NO_RESOURCE ? Status.CANCELED : status);
  }

  /** Ends the parts that no lane has accepted. */
  drop(): void {
    for (const part of this.#waiting) {
      this.#waiting.delete(part);
      this.#request.count += 1;
      part.end(Status.CANCELED);
    }
  }

  /** The peer is gone. */
  abandon(status: Status): void {
    const request = this.#request;
    if (request.failure === Status.OK) request.failure = status;
    if (this.#state !== DividedState.STARTING) return;
    this.#state = DividedState.STARTED;
    this.drop();
    request.complete(status);
  }
}

/**
 * Divides a request into parts.
 * @param request initialized, except for its memory
 * @throws what registering the local memory throws: nothing is held then
 */
export function initDivided(
  host: ProtocolHost,
  request: RmaRequest,
  connection: Connection,
  operation: Operation,
  places: readonly RmaPlace[],
): void {
  const transfer = new DividedTransfer(request);
  request.starter = () => transfer.start();
  request.release = () => transfer.drop();
  request.abandon = (_request, status) => transfer.abandon(status);
  for (const place of places) transfer.add(host, connection, operation, place);
}
