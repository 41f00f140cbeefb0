/** What a pending request of the native engine waits for, from its state. It decides nothing. */

import { wantedText } from '../../api/contract/request.ts';
import type { WaitReason } from '../../api/contract/snapshot.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { ReceiveRequest, SendRequest } from '../base/request/message-request.ts';
import { ConnectRequest, FlushRequest, type Request } from '../base/request/request.ts';

/** A reason with its details. */
export interface Wait {
  readonly reason: WaitReason;
  readonly text: string;
}

/** The reason alone: cheap, for many requests. */
export function waitReasonOf(request: Request): WaitReason {
  const { connection } = request;
  if (request.queued) {
    if (connection?.remoteId === NO_ENDPOINT && !connection.isLoopback) return 'connection';
    const isUnasked = request instanceof SendRequest && !request.protocolName.startsWith('rndv');
    return isUnasked && connection !== undefined && connection.credit.bytes < request.byteLength
      ? 'credit'
      : 'resources';
  }
  if (request instanceof FlushRequest) return 'operations';
  if (request instanceof ConnectRequest || request.requestId !== 0) return 'peer';
  if (request instanceof ReceiveRequest && request.transfer === undefined && request.messageBytes === 0) {
    return 'message';
  }
  return request.lane === undefined && request.transfer !== undefined ? 'peer' : 'transport';
}

/** The reason in words. @param transport of the request, as `gaudi_cpy/gaudi0` */
export function waitTextOf(request: Request, reason: WaitReason, transport: string | undefined): string {
  const { connection } = request;
  switch (reason) {
    case 'connection':
      return 'the peer has not answered the request to connect';
    case 'credit':
      return `${connection?.credit.bytes ?? 0} bytes of credit are left`;
    case 'resources':
      return transport === undefined
        ? 'operations before it, or room in a transport'
        : `operations before it, or room in ${transport}`;
    case 'message':
      return request instanceof ReceiveRequest && connection === undefined
        ? messageText(request)
        : 'bytes of the stream';
    case 'peer':
      return request instanceof ConnectRequest ? 'the answer of the listener' : 'the answer of the peer';
    case 'operations':
      return 'operations that began before it';
    case 'transport':
      return transport === undefined ? 'a transport' : transport;
  }
}

function messageText({ tagLow, tagHigh, maskLow, maskHigh }: ReceiveRequest): string {
  return wantedText(joinBig(tagLow, tagHigh), joinBig(maskLow, maskHigh));
}
