/**
 * Cancelled operations that only the peer can end, if the process of the peer is stopped by a signal: those whose memory the peer cannot reach any more end at
 * once, without its answer. It does not detect whether a peer is stopped.
 */

import { Status } from '../../ucs/type/status.ts';
import { AtomicRequest, RmaRequest, SendRequest } from '../base/request/operation-requests.ts';
import type { Connection, Request } from '../base/request/request.ts';
import { ReceiveTransfer } from './receive.ts';
import { SendTransfer } from './send.ts';

/**
 * Ends a request with CANCELED if it only waits: for an answer, or for a message of which the peer has no key. A receive ends when its
 * writes to device memory have ended.
 * @returns false if it still needs the peer, which may write to its memory, or has received a part of its message
 */
export function endWithoutPeer(request: Request, connection: Connection): boolean {
  const { transfer } = request;
  if (transfer instanceof SendTransfer) return transfer.takeBack(connection);
  if (transfer instanceof ReceiveTransfer) return transfer.stop(Status.CANCELED);
  if (!onlyWaits(request)) return false;
  request.end(Status.CANCELED);
  return true;
}

function onlyWaits(request: Request): boolean {
  if (request.requestId === 0 || request.count > 1) return false;
  // A synchronous send has sent all of its bytes.
  if (request instanceof SendRequest) return request.replyHandler !== undefined;
  return request instanceof AtomicRequest || (request instanceof RmaRequest && request.isAsking);
}
