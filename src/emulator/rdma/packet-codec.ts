/** The bytes of a packet between processes. The sender is not trusted: every field that a receiver relies on is checked. */

import { GID_BYTES } from '../../verbs/abi.ts';
import { PAYLOAD_BYTES_MAX, type Packet, PacketKind, Syndrome } from './queue/packet.ts';

/** "GRW1": a packet of this version. */
const MAGIC = 0x3157_5247;
const SOURCE_GID = 64;
const HEADER_BYTES: number = SOURCE_GID + GID_BYTES;
/** Codes of RNR timers are below this. */
const RNR_TIMERS = 32;

/** The longest message. */
export const MESSAGE_BYTES_MAX: number = HEADER_BYTES + PAYLOAD_BYTES_MAX;

/** Writes a packet. @returns its length */
export function encodePacket(packet: Packet, sourceGid: Uint8Array, target: DataView): number {
  target.setUint32(0, MAGIC, true);
  target.setUint8(4, packet.kind);
  target.setUint8(5, packet.flags);
  target.setUint8(6, packet.syndrome);
  target.setUint8(7, packet.rnrTimer);
  target.setUint32(8, packet.destQpNum, true);
  target.setUint32(12, packet.sourceQpNum, true);
  target.setUint32(16, packet.psn, true);
  target.setUint32(20, packet.qkey, true);
  target.setUint32(24, packet.immediate, true);
  target.setUint32(28, packet.rkey, true);
  target.setFloat64(32, packet.remoteAddress, true);
  target.setFloat64(40, packet.dmaLength, true);
  target.setUint32(48, packet.compareLow, true);
  target.setUint32(52, packet.compareHigh, true);
  target.setUint32(56, packet.swapLow, true);
  target.setUint32(60, packet.swapHigh, true);
  const bytes = new Uint8Array(target.buffer, target.byteOffset);
  bytes.set(sourceGid, SOURCE_GID);
  bytes.set(packet.payload.u8.subarray(0, packet.payloadBytes), HEADER_BYTES);
  return HEADER_BYTES + packet.payloadBytes;
}

/**
 * Reads a packet.
 * @returns the GID of its sender, valid until the source is overwritten; undefined for bytes that are no packet of this version
 */
export function decodePacket(source: DataView, byteLength: number, packet: Packet): Uint8Array | undefined {
  if (byteLength < HEADER_BYTES || source.getUint32(0, true) !== MAGIC) return undefined;
  const kind = source.getUint8(4);
  const syndrome = source.getUint8(6);
  const rnrTimer = source.getUint8(7);
  const remoteAddress = source.getFloat64(32, true);
  const dmaLength = source.getFloat64(40, true);
  const isKnown = kind >= PacketKind.SEND && kind <= PacketKind.DATAGRAM && syndrome <= Syndrome.REMOTE_OPERATION;
  const isInRange = rnrTimer < RNR_TIMERS && Number.isInteger(remoteAddress) && dmaLength >= 0 && dmaLength < 2 ** 32;
  if (!isKnown || !isInRange || !Number.isInteger(dmaLength)) return undefined;
  packet.begin(kind as PacketKind, source.getUint32(8, true), source.getUint32(12, true), source.getUint32(16, true));
  packet.flags = source.getUint8(5);
  packet.syndrome = syndrome as Syndrome;
  packet.rnrTimer = rnrTimer;
  packet.qkey = source.getUint32(20, true);
  packet.immediate = source.getUint32(24, true);
  packet.rkey = source.getUint32(28, true);
  packet.remoteAddress = remoteAddress;
  packet.dmaLength = dmaLength;
  packet.compareLow = source.getUint32(48, true);
  packet.compareHigh = source.getUint32(52, true);
  packet.swapLow = source.getUint32(56, true);
  packet.swapHigh = source.getUint32(60, true);
  packet.payloadBytes = byteLength - HEADER_BYTES;
  const bytes = new Uint8Array(source.buffer, source.byteOffset, byteLength);
  packet.payload.u8.set(bytes.subarray(HEADER_BYTES));
  return bytes.subarray(SOURCE_GID, HEADER_BYTES);
}
