/**
 * Layout of the datagrams that establish a connection: a request with the queue pair of the connecting interface, and the reply with that of the other one.
 * Messages from peers are validated.
 *
 * Layout, little-endian: u32 kind and version, u8 type, u8 MTU, u16 LID, u32 queue pair, u32 first sequence number, u32 reads in flight, u32 datagram queue
 * pair for the reply, 8 bytes id of the connection, 16 bytes GID, 16 bytes id of the sender, 16 bytes id of the receiver, u32 Q_Key for the reply.
 */

import { GID_BYTES } from '../../../verbs/abi.ts';
import { ID_BYTES } from './address.ts';

/** Types of messages. */
export const ConnectType = { REQUEST: 1, REPLY: 2, REFUSAL: 3 } as const;
export type ConnectType = (typeof ConnectType)[keyof typeof ConnectType];

/** Bytes of a message. */
export const CONNECT_BYTES = 84;
/** Bytes of the id of a connection. */
export const CONNECTION_ID_BYTES = 8;

const KIND = 0x0162_6963;
const AT_TYPE = 4;
const AT_MTU = 5;
const AT_LID = 6;
const AT_QP = 8;
const AT_PSN = 12;
const AT_READS = 16;
const AT_ANSWER_QP = 20;
const AT_CONNECTION = 24;
const AT_GID = 32;
const AT_SENDER = 48;
const AT_RECEIVER = 64;
const AT_ANSWER_QKEY = 80;

export interface ConnectMessage {
  readonly type: ConnectType;
  readonly mtu: number;
  readonly lid: number;
  readonly qpNum: number;
  readonly psn: number;
  /** Reads and atomic operations that the sender can serve at a time. */
  readonly maxReads: number;
  /** The datagram queue pair to which the reply is sent, and its Q_Key. */
  readonly answerQpNum: number;
  readonly answerQkey: number;
  readonly connection: Uint8Array;
  readonly gid: Uint8Array;
  readonly sender: Uint8Array;
  readonly receiver: Uint8Array;
}

/** Writes a message: {@link CONNECT_BYTES} at `offset`. */
export function packConnect(message: ConnectMessage, target: Uint8Array, offset: number): void {
  const view = new DataView(target.buffer, target.byteOffset + offset, CONNECT_BYTES);
  view.setUint32(0, KIND, true);
  view.setUint8(AT_TYPE, message.type);
  view.setUint8(AT_MTU, message.mtu);
  view.setUint16(AT_LID, message.lid, true);
  view.setUint32(AT_QP, message.qpNum, true);
  view.setUint32(AT_PSN, message.psn, true);
  view.setUint32(AT_READS, message.maxReads, true);
  view.setUint32(AT_ANSWER_QP, message.answerQpNum, true);
  view.setUint32(AT_ANSWER_QKEY, message.answerQkey, true);
  target.set(message.connection, offset + AT_CONNECTION);
  target.set(message.gid, offset + AT_GID);
  target.set(message.sender, offset + AT_SENDER);
  target.set(message.receiver, offset + AT_RECEIVER);
}

/** Reads a message; undefined if the bytes are not a message of this version. */
export function unpackConnect(packed: Uint8Array): ConnectMessage | undefined {
  if (packed.byteLength !== CONNECT_BYTES) return undefined;
  const view = new DataView(packed.buffer, packed.byteOffset, CONNECT_BYTES);
  const message = {
    type: view.getUint8(AT_TYPE) as ConnectType,
    mtu: view.getUint8(AT_MTU),
    lid: view.getUint16(AT_LID, true),
    qpNum: view.getUint32(AT_QP, true),
    psn: view.getUint32(AT_PSN, true),
    maxReads: view.getUint32(AT_READS, true),
    answerQpNum: view.getUint32(AT_ANSWER_QP, true),
    answerQkey: view.getUint32(AT_ANSWER_QKEY, true),
    connection: packed.slice(AT_CONNECTION, AT_CONNECTION + CONNECTION_ID_BYTES),
    gid: packed.slice(AT_GID, AT_GID + GID_BYTES),
    sender: packed.slice(AT_SENDER, AT_SENDER + ID_BYTES),
    receiver: packed.slice(AT_RECEIVER, AT_RECEIVER + ID_BYTES),
  };
  const isSound =
    view.getUint32(0, true) === KIND &&
    message.type >= ConnectType.REQUEST &&
    message.type <= ConnectType.REFUSAL &&
    message.mtu >= 1 &&
    message.mtu <= 5 &&
    Math.max(message.qpNum, message.psn, message.answerQpNum) < 2 ** 24 &&
    message.maxReads <= 255;
  return isSound ? message : undefined;
}
