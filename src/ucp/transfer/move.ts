/** Moves parts of a message between local memory and memory of the peer over all lanes that reach both, and reports when the bytes are there. */

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

/** Bytes of a message, and the remote memory that they are put to or got from. */
export interface RemoteMove {
  readonly operation: Operation;
  readonly connection: Connection;
  readonly pieces: readonly LocalPiece[];
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
  readonly rkey: RemoteKey;
  /** Byte of the remote memory at which they begin. */
  readonly offset: number;
  /** The device whose bytes pass through `pieces`, where those are fragments. */
  readonly origin?: number | undefined;
}

/** The transfers that make up a move, with the lanes that carry them; undefined if lanes do not move all of the bytes by themselves. */
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
 * Moves the bytes, divided between the network devices if there are enough of them.
 * @param by the request that is served: its lane and error are set
 * @param transfers the results of {@link transfersOf} for the move
 * @param done called when the bytes are there, or with the first failure: then no lane works on them any more
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
