/** Memory that all connections of one interface share: one frame is built and one batch is received at a time, so that idle connections do not need memory. */

import { type MappedMemory, mapAnonymous, TcpPieces } from '../../../sys/index.ts';
import type { AmFrame } from '../../api/iface.ts';
import { HEADER_BYTES, HEADER_BYTES_MAX } from '../layout.ts';
import { RECORD_PLAIN_BYTES_MAX } from '../secure/session.ts';
import { OutgoingPool } from './queue.ts';

/** Offset at which frames are built; the bytes before are for an acknowledgement. */
export const TX_START: number = HEADER_BYTES;

/** Frames of the longest length in one read. */
const FRAMES_PER_READ = 3;

/** A message in memory of the transport. */
class TcpFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  offset = 0;
  byteLength = 0;
  source = '';

  constructor(memory: MappedMemory) {
    this.bytes = memory.u8;
    this.words = new Int32Array(memory.buffer, 0, memory.byteLength >> 2);
  }
}

/**
 * An address that is often passed to the kernel. A field that held values of other types before is an object in V8 and is passed as such; a plain number would
 * be boxed in each call.
 */
class Address {
  value: number | undefined = undefined;

  constructor(value: number) {
    this.value = value;
  }
}

export class TcpBuffers {
  readonly txBytesMax: number;
  readonly rxBytesMax: number;
  readonly tx: MappedMemory;
  readonly txFrame: TcpFrame;
  readonly rx: MappedMemory;
  /** Address of the first byte of `rx`. */
  readonly rxAddress: Address;
  /** Address of `tx`, where an acknowledgement before a frame is. */
  readonly txAddress: Address;
  /** Address at which frames are built in `tx`. */
  readonly txFrameAddress: Address;
  /** Minimum free bytes for a read: the longest frame, or a record. */
  readonly rxReadBytes: number;
  readonly rxFrame: TcpFrame;
  /** True while received frames are being delivered: progress in a handler must not receive over them. */
  isDelivering = false;
  /** Scratch list of ranges, used by one call at a time. */
  readonly pieces: TcpPieces = new TcpPieces();
  readonly pool: OutgoingPool;
  /** The function of the connection that has received last: the memory may contain the beginning of its next frame. */
  #vacate: (() => void) | undefined;

  /**
   * @param txBytesMax longest message that is copied to be sent
   * @param rxBytesMax longest message that is received
   * @param isEncrypted whether connections are encrypted: they receive records
   */
  constructor(txBytesMax: number, rxBytesMax: number, isEncrypted: boolean) {
    this.txBytesMax = txBytesMax;
    this.rxBytesMax = rxBytesMax;
    const frameBytes = TX_START + HEADER_BYTES_MAX + txBytesMax + 8;
    this.tx = mapAnonymous(frameBytes);
    this.txFrame = new TcpFrame(this.tx);
    this.txAddress = new Address(this.tx.address);
    this.txFrameAddress = new Address(this.tx.address + TX_START);
    const restBytes = HEADER_BYTES_MAX + rxBytesMax + 8;
    this.rxReadBytes = isEncrypted ? Math.max(restBytes, RECORD_PLAIN_BYTES_MAX) : restBytes;
    // The rest of a frame, and the bytes that are read behind it: several frames, of which at most one is incomplete.
    this.rx = mapAnonymous(restBytes + FRAMES_PER_READ * this.rxReadBytes);
    this.rxFrame = new TcpFrame(this.rx);
    this.rxAddress = new Address(this.rx.address);
    this.pool = new OutgoingPool(frameBytes);
  }

  /**
   * A connection calls this before it receives: the previous connection then copies what it still needs of the memory.
   * @param vacate copies what the connection still needs of the memory; the same function in each call
   */
  claim(vacate: () => void): void {
    if (this.#vacate === vacate) return;
    this.#vacate?.();
    this.#vacate = vacate;
  }

  close(): void {
    this.#vacate = undefined;
    this.pool.close();
    this.pieces.free();
    this.tx.close();
    this.rx.close();
  }
}
