/** Writes parts of a message to memory of the peer over all lanes that reach it, and reports when the bytes are there. Which memory is decided elsewhere. */

import { Status } from '../../ucs/type/status.ts';
import { eachPart } from '../api/local-bytes.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request } from '../base/request.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import { canMove, initTransfer, placesOf } from '../rma/internal-rma.ts';

/** Bytes of a message, and where they shall be written. */
export interface RemoteWrite {
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

/** True when lanes write these bytes by themselves. */
export function canWrite({ connection, pieces, from, byteLength, rkey, offset, origin }: RemoteWrite): boolean {
  let reaches = true;
  eachPart(pieces, from, byteLength, (local, localOffset, bytes, at) => {
    const place = { local, localOffset, byteLength: bytes, rkey, remoteOffset: offset + at, origin };
    reaches &&= canMove(connection, Operation.PUT, place);
  });
  return reaches;
}

/**
 * Writes, by all devices of a network between which so many bytes are divided.
 * @param by the request that is served: its lane and error are set
 * @param done called when the bytes are in remote memory, or with the first failure: then no lane works on them any more
 */
export function writeRemote(host: ProtocolHost, by: Request, write: RemoteWrite, done: (status: Status) => void): void {
  const { connection, rkey, offset, origin } = write;
  // One for the loop itself, so that writes that end at once do not end the whole early.
  let left = 1;
  let failure: Status = Status.OK;
  const ended = (status: Status): void => {
    if (status < 0 && failure === Status.OK) failure = status;
    left -= 1;
    if (left === 0) done(failure);
  };
  eachPart(write.pieces, write.from, write.byteLength, (local, localOffset, byteLength, at) => {
    const whole = { local, localOffset, byteLength, rkey, remoteOffset: offset + at, origin };
    for (const place of placesOf(connection, Operation.PUT, whole, host.context.rails)) {
      left += 1;
      try {
        const transfer = initTransfer(host, connection, Operation.PUT, place, ended);
        by.lane = transfer.lane;
        connection.run(transfer);
      } catch (error) {
        by.error = error;
        ended(Status.IO_ERROR);
      }
    }
  });
  ended(Status.OK);
}
