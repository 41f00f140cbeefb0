/** Moves ranges of a message between local memory and memory of the peer over all lanes that reach both, and reports when the bytes have arrived. */

import { eachPart } from '../../api/memory/local.ts';
import type { Operation } from '../../api/operation/call.ts';
import { Parts } from '../../api/operation/completion.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import type { Request } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { carriersOf, initTransfer, type Transfer } from './transfer.ts';

/** A range of a message, and the remote memory to which it is put or from which it is got. */
export interface RemoteMove {
  readonly operation: Operation;
  readonly connection: Connection;
  readonly pieces: readonly LocalPiece[];
  /** Range of the message. */
  readonly from: number;
  readonly byteLength: number;
  readonly rkey: RemoteKey;
  /** Offset in the remote memory. */
  readonly offset: number;
  /** The device whose bytes pass through `pieces`, if those are fragments. */
  readonly origin?: number | undefined;
}

/** The transfers that make up a move, with their lanes; undefined if the lanes alone cannot move all of the bytes. */
export function transfersOf(host: WorkerCore, move: RemoteMove): readonly Transfer[] | undefined {
  const { operation, connection, pieces, from, byteLength, rkey, offset, origin } = move;
  const { rails } = host.context;
  const transfers: Transfer[] = [];
  let isCarried = true;
  eachPart(pieces, from, byteLength, (local, localOffset, bytes, at) => {
    const remoteOffset = offset + at;
    const transfer = { operation, connection, local, localOffset, byteLength: bytes, rkey, remoteOffset, origin };
    const carried = isCarried ? carriersOf(transfer, rails) : undefined;
    isCarried = carried !== undefined;
    if (carried !== undefined) transfers.push(...carried);
  });
  return isCarried ? transfers : undefined;
}

/**
 * Moves the bytes, divided between network devices if the size is sufficient.
 * @param by the request that is served: its lane and error are set
 * @param transfers the result of {@link transfersOf} for the move
 * @param done called when the bytes have arrived, or with the first failure, once no lane works on them any more
 */
export function moveRemote(
  host: WorkerCore,
  by: Request,
  transfers: readonly Transfer[],
  done: (status: Status) => void,
): void {
  const [only] = transfers;
  if (only !== undefined && transfers.length === 1) {
    moveOne(host, by, only, done);
    return;
  }
  const parts = new Parts(done);
  for (const transfer of transfers) moveOne(host, by, transfer, parts.add());
  parts.complete(Status.OK);
}

function moveOne(host: WorkerCore, by: Request, transfer: Transfer, done: (status: Status) => void): void {
  let request: Request;
  try {
    request = initTransfer(host, transfer, done);
  } catch (error) {
    by.error = error;
    done(isUcxError(error) ? error.status : Status.IO_ERROR);
    return;
  }
  by.lane = request.lane;
  transfer.connection.run(request);
}
