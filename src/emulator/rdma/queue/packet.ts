/**
 * A packet between emulated RDMA devices: the fields of the transport headers of InfiniBand (BTH, RETH, AtomicETH, AETH, DETH) that the emulation uses, and the
 * payload. A device reuses one packet for sending: a receiver must read the fields that it needs before it sends.
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';

/** Kinds of packets. */
export const PacketKind = {
  SEND: 1,
  WRITE: 2,
  READ_REQUEST: 3,
  READ_RESPONSE: 4,
  COMPARE_SWAP: 5,
  FETCH_ADD: 6,
  ATOMIC_ACK: 7,
  ACK: 8,
  DATAGRAM: 9,
} as const;
export type PacketKind = (typeof PacketKind)[keyof typeof PacketKind];

/** Flags of a packet. */
export const PacketFlag = { FIRST: 1, LAST: 2, ACK_REQUEST: 4, IMMEDIATE: 8, SOLICITED: 16 } as const;

/** Meaning of an acknowledgement (the syndrome of the AETH). */
export const Syndrome = {
  ACK: 0,
  RNR: 1,
  PSN_SEQUENCE: 2,
  INVALID_REQUEST: 3,
  REMOTE_ACCESS: 4,
  REMOTE_OPERATION: 5,
} as const;
export type Syndrome = (typeof Syndrome)[keyof typeof Syndrome];

/** The longest payload: the largest MTU. */
export const PAYLOAD_BYTES_MAX = 4096;

const PSN_BITS = 24;
const PSN_MASK: number = 2 ** PSN_BITS - 1;

/** The sequence number `count` packets after `psn`. */
export function psnAfter(psn: number, count: number): number {
  return (psn + count) & PSN_MASK;
}

/** How many packets `psn` is after `base`: negative if it is before. */
export function psnDistance(base: number, psn: number): number {
  return ((psn - base) << (32 - PSN_BITS)) >> (32 - PSN_BITS);
}

/** The packet. */
export class Packet {
  kind: PacketKind = PacketKind.ACK;
  flags = 0;
  destQpNum = 0;
  sourceQpNum = 0;
  psn = 0;
  /** Q_Key of a datagram. */
  qkey = 0;
  immediate = 0;
  remoteAddress = 0;
  rkey = 0;
  /** Bytes of the whole read or write. */
  dmaLength = 0;
  /** Operands of an atomic operation, or its result in `swap`, as 32-bit words. */
  compareLow = 0;
  compareHigh = 0;
  swapLow = 0;
  swapHigh = 0;
  syndrome: Syndrome = Syndrome.ACK;
  /** Code of the time that the sender has to wait (RNR timer), from a receiver that is not ready. */
  rnrTimer = 0;
  payloadBytes = 0;
  readonly payload: ScratchBlock = allocateScratch(PAYLOAD_BYTES_MAX);

  /** Starts a packet. */
  begin(kind: PacketKind, destQpNum: number, sourceQpNum: number, psn: number): void {
    this.kind = kind;
    this.flags = 0;
    this.destQpNum = destQpNum;
    this.sourceQpNum = sourceQpNum;
    this.psn = psn;
    this.payloadBytes = 0;
    this.syndrome = Syndrome.ACK;
  }

  /** Copies all fields and the payload of another packet. */
  copyFrom(other: Packet): void {
    const { payload, ...fields } = other;
    Object.assign(this, fields);
    this.payload.u8.set(payload.u8.subarray(0, other.payloadBytes));
  }

  close(): void {
    this.payload.free();
  }
}
