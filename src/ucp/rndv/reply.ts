/**
 * The answer that ends a request of the peer, and the names of what carried its bytes: written here, read here. Who answers what is decided by the
 * protocols.
 */

import type { Status } from '../../ucs/type/status.ts';
import type { Connection, Request } from '../base/request.ts';
import { RmaRequest } from '../base/rma-request.ts';
import { MessageId } from '../wire/message.ts';
import { writeReply } from '../wire/reply.ts';

/** Answers a request of the peer. @param by the request that moved the bytes of the peer's request: the peer is told what carried them */
export function postReply(
  connection: Connection,
  peerRequest: number,
  status: Status,
  low = 0,
  high = 0,
  by?: Request,
): void {
  const header = writeReply(connection.remoteId, { request: peerRequest, status, low, high });
  connection.post(MessageId.REPLY, header, by === undefined ? undefined : carrierOf(by));
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
  if (!(request instanceof RmaRequest)) request.protocolName = name;
}
