/** Which requests can be ended before their time. Those that a transport or a peer works on end by themselves. */

import { Status } from '../../ucs/type/status.ts';
import { ReceiveRequest, SendRequest } from '../base/message-request.ts';
import { ConnectRequest, type Request } from '../base/request.ts';

/** Withdraws a request; false when it is too late. */
interface Canceller<R extends Request> {
  cancel(request: R): boolean;
}

/** Where requests wait that no connection has queued. */
export interface WaitingPlaces {
  readonly tag: Canceller<ReceiveRequest>;
  readonly streams: Canceller<ReceiveRequest> & { canCancelSend(request: SendRequest): boolean };
  readonly sockets: Canceller<ConnectRequest>;
}

/** Ends a request with CANCELED; false when it is too late. */
export function cancelRequest(request: Request, places: WaitingPlaces): boolean {
  if (request.isCompleted || !withdraw(request, places)) return false;
  request.end(Status.CANCELED);
  return true;
}

function withdraw(request: Request, { tag, streams, sockets }: WaitingPlaces): boolean {
  if (request instanceof ReceiveRequest) return tag.cancel(request) || streams.cancel(request);
  if (request instanceof ConnectRequest) return sockets.cancel(request);
  if (request instanceof SendRequest && !request.queued) return streams.canCancelSend(request);
  // A flush that one lane has already taken ends by itself, and a message that has been sent in part goes on.
  if (!request.queued || request.count > 1 || request.done > 0) return false;
  return request.connection?.unqueue(request) === true;
}
