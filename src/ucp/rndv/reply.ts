/** Replies that end a request of the peer. A reply can name the transport, device and protocol that moved the bytes of the request. */

import { MessageId } from '../../api/layout/message.ts';
import { writeReply } from '../../api/layout/rendezvous.ts';
import { equalBytes } from '../../ucs/memory/bytes.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { RmaRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';

/**
 * Replies to a request of the peer.
 * @param by the request that moved the bytes, whose carrier the reply names. If its transport does not support the memory, the reply is IO_ERROR, because
 * the arguments are not those of the peer.
 */
export function postReply(connection: Connection, peerRequest: number, status: Status, by?: Request): void {
  const sentStatus = by !== undefined && status === Status.INVALID_PARAM ? Status.IO_ERROR : status;
  const header = writeReply(connection.remoteId, { request: peerRequest, status: sentStatus, low: 0, high: 0 });
  connection.post(MessageId.REPLY, header, by === undefined ? undefined : carrierOf(by));
}

/** Replies to an atomic operation of the peer. @param result value of the word before the operation */
export function postWord(connection: Connection, peerRequest: number, status: Status, result: bigint): void {
  const word = { low: lowWord(result), high: highWord(result) };
  connection.post(MessageId.REPLY, writeReply(connection.remoteId, { request: peerRequest, status, ...word }));
}

/** What moved the bytes of a request: names, and their encoding in messages. */
interface Carrier {
  readonly by: readonly [transport: string, device: string];
  readonly protocol: string;
  readonly bytes: Uint8Array;
}

/** The last carriers sent and read: usually the next one is the same. */
let sent: Carrier = carrierFrom(new Uint8Array(0));
let read: Carrier = sent;

function carrierFrom(bytes: Uint8Array): Carrier {
  const [transport = '', device = '', ...protocol] = Buffer.from(bytes).toString('latin1').split('/');
  return { by: [transport, device], protocol: protocol.join('/'), bytes };
}

/** The names of a request's carrier, for the peer: transport, device and rendezvous protocol. */
export function carrierOf({ transport = '', device = '', protocolName }: Request): Uint8Array {
  if (sent.by[0] !== transport || sent.by[1] !== device || sent.protocol !== protocolName) {
    sent = carrierFrom(Buffer.from([transport, device, protocolName].join('/'), 'latin1'));
  }
  return sent.bytes;
}

/** Records the carrier that the peer reports for a request. @param names copied if they are kept */
export function readCarrier(request: Request, names: Uint8Array): void {
  if (!equalBytes(read.bytes, names)) read = carrierFrom(names.slice());
  request.carriedBy = read.by;
  nameProtocol(request, read.protocol);
}

/** Sets the protocol name of a request. A software put or get keeps its protocol name. */
export function nameProtocol(request: Request, name: string): void {
  if (!(request instanceof RmaRequest)) request.protocolName = name;
}
