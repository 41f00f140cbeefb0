/**
 * Puts and gets of the protocol itself: a rendezvous that reads or writes the memory of the peer, or staging that reaches device memory. They
 * need no request of the application's pool.
 */

import { closedError } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection } from '../base/request/request.ts';
import { RmaRequest } from '../base/request/rma-request.ts';
import { type RailLimits, railsOf } from '../lane/rails.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, candidateFor, type Operation, Protocol } from '../proto/selection.ts';
import { chooseCandidate, planFor } from './plan.ts';
import { canRegister, initLocal, initRma } from './transfer.ts';

/** Both sides of a transfer. */
export interface RmaPlace {
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly byteLength: number;
  readonly rkey: RemoteKey;
  readonly remoteOffset: number;
  /** The device whose bytes pass through `local`, where that is a fragment. */
  readonly origin?: number | undefined;
  /** The candidate that carries it; undefined for the best one. */
  readonly candidate?: Candidate | undefined;
}

/**
 * The transfers that carry the bytes between two places: the place with its candidate, or its parts with theirs if several network devices share it. The
 * range in the remote memory may come from a peer.
 * @returns undefined if no lane moves the bytes by itself, or the lane would have to register memory that can go away
 */
export function carriedPlaces(
  connection: Connection,
  operation: Operation,
  place: RmaPlace,
  limits: RailLimits,
): readonly RmaPlace[] | undefined {
  const { local, localOffset, byteLength, rkey, remoteOffset, origin } = place;
  if (!(remoteOffset >= 0 && remoteOffset + byteLength <= rkey.byteLength)) return undefined;
  const plan = planFor(operation, local, rkey, connection, origin);
  const candidate = candidateFor(plan, byteLength);
  if (candidate === undefined || candidate.protocol === Protocol.SOFTWARE) return undefined;
  if (candidate.protocol === Protocol.ZCOPY && !canRegister(local)) return undefined;
  const rails = connection.hasRails ? railsOf(plan, connection.lanes, byteLength, limits) : undefined;
  if (rails === undefined) return [{ local, localOffset, byteLength, rkey, remoteOffset, origin, candidate }];
  return rails.map((rail) => ({
    ...place,
    candidate: rail.candidate,
    byteLength: rail.byteLength,
    localOffset: localOffset + rail.offset,
    remoteOffset: remoteOffset + rail.offset,
  }));
}

/**
 * Makes a transfer for Connection.run, whose ranges are checked; `done` is called with its end.
 * @throws UcxError ERR_UNREACHABLE, or what registering the local memory throws
 */
export function initTransfer(
  host: ProtocolHost,
  connection: Connection,
  operation: Operation,
  place: RmaPlace,
  done: (status: Status) => void,
): RmaRequest {
  const { local, localOffset, byteLength, rkey, remoteOffset, origin } = place;
  if (rkey.released) throw closedError('remote key');
  const candidate =
    place.candidate ??
    chooseCandidate(planFor(operation, local, rkey, connection, origin), operation, local, rkey, byteLength);
  const request = new RmaRequest(host);
  initRma(request, operation, connection, candidate, rkey, remoteOffset);
  initLocal(request, local, localOffset, byteLength, host.context);
  host.internalTransfers += 1;
  request.callback = (_request, status) => {
    host.internalTransfers -= 1;
    done(status);
  };
  return request;
}
