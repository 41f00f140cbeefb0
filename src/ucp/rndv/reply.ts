/**
 * The answer that ends a request of the peer, and the names of what carried its bytes: written here, read here. Who answers what is decided by the
 * protocols.
 */

import type { Status } from '../../ucs/type/status.ts';
import { MessageId } from '../base/message.ts';
import { type Connection, type Request, RequestKind } from '../base/request.ts';

const REPLY_WORDS = 6;
const HEADER = new Int32Array(REPLY_WORDS);

/** Answers a request of the peer. @param by the request that moved the bytes of the peer's request: the peer is told what carried them */
export function postReply(
  connection: Connection,
  peerRequest: number,
  status: Status,
  low = 0,
  high = 0,
  by?: Request,
): void {
  HEADER[0] = connection.remoteId;
  HEADER[1] = peerRequest;
  HEADER[2] = status;
  HEADER[3] = 0;
  HEADER[4] = low;
  HEADER[5] = high;
  connection.post(MessageId.REPLY, HEADER, REPLY_WORDS, by === undefined ? undefined : carrierOf(by));
}

/** What moves the bytes of a request, as the peer is told: transport, device and protocol. */
export function carrierOf({ transport, device, protocol }: Request): Uint8Array {
  return Buffer.from([transport, device, protocol].join('/'), 'latin1');
}

/** Takes what the peer says of what moved the bytes of a request. */
export function readCarrier(request: Request, names: Uint8Array): void {
  const [transport = '', device = '', ...protocol] = Buffer.from(names).toString('latin1').split('/');
  request.carriedBy = [transport, device];
  nameProtocol(request, protocol.join('/'));
}

/** A put or get through messages keeps its own name, whatever way its bytes take. */
export function nameProtocol(request: Request, name: string): void {
  if (request.kind !== RequestKind.RMA) request.protocolName = name;
}
