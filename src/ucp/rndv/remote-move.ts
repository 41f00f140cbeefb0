/** Moves parts of a message between local memory and memory of the peer over all lanes that reach both, and reports when the bytes are there. Which memory is decided elsewhere. */

import { Status } from '../../ucs/type/status.ts';
import { eachPart } from '../api/memory/local-bytes.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import { Parts } from '../base/request/completion.ts';
import type { Connection, Request } from '../base/request/request.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { Operation } from '../proto/selection.ts';
import { canMove, initTransfer, placesOf, type RmaPlace } from '../rma/internal-rma.ts';

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

/** True when lanes move these bytes by themselves. */
export function canMoveAll(move: RemoteMove): boolean {
  return placesIn(move).every((place) => canMove(move.connection, move.operation, place));
}

/**
 * Moves, by all devices of a network between which so many bytes are divided.
 * @param by the request that is served: its lane and error are set
 * @param done called when the bytes are there, or with the first failure: then no lane works on them any more
 */
export function moveRemote(host: ProtocolHost, by: Request, move: RemoteMove, done: (status: Status) => void): void {
  const { operation, connection } = move;
  const parts = new Parts(done);
  for (const range of placesIn(move)) {
    for (const place of placesOf(connection, operation, range, host.context.rails)) {
      const ended = parts.add();
      try {
        const transfer = initTransfer(host, connection, operation, place, ended);
        by.lane = transfer.lane;
        connection.run(transfer);
      } catch (error) {
        by.error = error;
        ended(Status.IO_ERROR);
      }
    }
  }
  parts.complete(Status.OK);
}

/** Both sides of each piece. */
function placesIn({ pieces, from, byteLength, rkey, offset, origin }: RemoteMove): RmaPlace[] {
  const places: RmaPlace[] = [];
  eachPart(pieces, from, byteLength, (local, localOffset, bytes, at) => {
    places.push({ local, localOffset, byteLength: bytes, rkey, remoteOffset: offset + at, origin });
  });
  return places;
}
