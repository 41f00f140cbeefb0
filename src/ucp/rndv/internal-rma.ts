/**
 * Puts and gets of the protocol itself: a rendezvous that reads or writes the memory of the peer, or staging that reaches device memory. They
 * need no request of the application's pool.
 */

import { Status } from '../../ucs/status.ts';
import type { ProtocolHost } from '../core/protocol-host.ts';
import { type Connection, Request } from '../core/request.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, candidateFor, type Operation, Protocol } from '../proto/selection.ts';
import { checkRemote, chooseCandidate, describeLocal, describeRma, planFor } from '../rma/put-get.ts';
import { type RailLimits, railsOf } from './rails.ts';

/** Told how a copy has ended. */
export type CopyDone = (status: Status) => void;

/** Both sides of a transfer. */
export interface RmaPlace {
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly byteLength: number;
  readonly rkey: RemoteKey;
  readonly remoteOffset: number;
  /** What carries it; undefined for what is best. */
  readonly candidate?: Candidate | undefined;
}

/** True when a lane moves the bytes between these places by itself. */
export function canMove(connection: Connection, operation: Operation, place: RmaPlace): boolean {
  const plan = planFor(operation, place.local, place.rkey, connection);
  const candidate = candidateFor(plan, place.byteLength);
  return candidate !== undefined && candidate.protocol !== Protocol.MESSAGE;
}

/** The parts of a transfer that goes over several devices of a network; the transfer itself where one lane carries it. */
export function placesOf(
  connection: Connection,
  operation: Operation,
  place: RmaPlace,
  limits: RailLimits,
): readonly RmaPlace[] {
  const plan = planFor(operation, place.local, place.rkey, connection);
  const rails = railsOf(plan, connection.lanes, place.byteLength, limits);
  if (rails === undefined) return [place];
  return rails.map(({ candidate, offset, byteLength }) => ({
    ...place,
    candidate,
    byteLength,
    localOffset: place.localOffset + offset,
    remoteOffset: place.remoteOffset + offset,
  }));
}

/**
 * Describes a transfer for Connection.run; `done` is called with its end.
 * @throws UcxError ERR_UNREACHABLE, or what registering the local memory throws
 */
export function describeTransfer(
  host: ProtocolHost,
  connection: Connection,
  operation: Operation,
  place: RmaPlace,
  done: CopyDone,
): Request {
  const { local, localOffset, byteLength, rkey, remoteOffset } = place;
  checkRemote(connection, rkey, remoteOffset, byteLength);
  const plan = planFor(operation, local, rkey, connection);
  const candidate = place.candidate ?? chooseCandidate(plan, operation, local, rkey, byteLength);
  const request = new Request(host);
  describeRma(request, operation, connection, candidate, rkey, remoteOffset);
  describeLocal(request, local, localOffset, byteLength, host.context);
  host.internalTransfers += 1;
  request.callback = (_request, status) => {
    host.internalTransfers -= 1;
    done(status);
  };
  return request;
}

/**
 * Makes a request of the application the sum of the parts of a transfer that goes over several devices: it ends with the last of them.
 * @param request described, but for what it transfers
 */
export function describeParts(
  host: ProtocolHost,
  request: Request,
  operation: Operation,
  places: readonly RmaPlace[],
): void {
  const connection = request.connection!;
  let left = places.length;
  let failure: Status = Status.OK;
  let isStarting = true;
  const done = (status: Status): void => {
    if (status < 0 && failure === Status.OK) failure = status;
    left -= 1;
    if (left === 0 && !isStarting) request.end(failure);
  };
  request.byteLength = places.reduce((sum, { byteLength }) => sum + byteLength, 0);
  request.starter = () => {
    for (const place of places) {
      try {
        connection.run(describeTransfer(host, connection, operation, place, done));
      } catch (error) {
        request.error = error;
        done(Status.IO_ERROR);
      }
    }
    isStarting = false;
    return left === 0 ? failure : Status.INPROGRESS;
  };
}
