/**
 * The frames of connection managers as bytes: packing, and reading from the pieces that a socket returns.
 *
 * Layout, little-endian: u32 magic, u8 version, u8 type, i16 status, u32 payload bytes, u32 CRC-32 of the 12 bytes before and the payload; payload.
 */

import { crc32 } from 'node:zlib';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import { PRIVATE_DATA_BYTES_MAX, REASON_BYTES_MAX } from '../../api/connection-manager.ts';
import { HELLO_MAGIC } from '../secure/key-exchange.ts';
import { beginningText, canBegin, MAGIC_BYTES } from '../secure/security.ts';

const MAGIC = 0x4d435855;
const VERSION = 2;
const AT_VERSION = MAGIC_BYTES;
const AT_CHECKSUM = 12;
/**
 * Bytes of the random value that a server sends on each connection. A request must repeat it, so a request that was recorded on another connection is
 * rejected.
 */
export const NONCE_BYTES = 16;
/** Bytes of the header of a frame. */
export const FRAME_HEADER_BYTES = 16;
/** Bytes of the longest frame. */
export const FRAME_BYTES_MAX: number = FRAME_HEADER_BYTES + NONCE_BYTES + PRIVATE_DATA_BYTES_MAX;

/** Types of frames. */
export const CmFrameType = {
  /** The client requests a connection; payload: the nonce of the server, and the private data of the client. */
  REQUEST: 1,
  /** The server accepts; payload: its private data. */
  ACCEPT: 2,
  /** The server rejects; status, and the reason as UTF-8. */
  REJECT: 3,
  /** The result of the acceptance at the client: status. */
  CONFIRM: 4,
  /** The server has accepted the TCP connection and listens: the first frame; payload: its nonce. */
  HELLO: 5,
} as const;
export type CmFrameType = (typeof CmFrameType)[keyof typeof CmFrameType];

/** Longest payload by type; undefined for an invalid type. */
const PAYLOAD_BYTES_MAX: readonly (number | undefined)[] = [
  undefined,
  NONCE_BYTES + PRIVATE_DATA_BYTES_MAX,
  PRIVATE_DATA_BYTES_MAX,
  REASON_BYTES_MAX,
  0,
  NONCE_BYTES,
];

/** A frame. */
export interface Frame {
  readonly type: CmFrameType;
  /** OK or a failure, in a rejection and a confirmation. */
  readonly status: Status;
  readonly payload: Uint8Array;
}

const NO_BYTES = new Uint8Array(0);

/** Packs a frame. The payload must fit. */
export function packFrame(type: CmFrameType, status: Status, payload: Uint8Array = NO_BYTES): Uint8Array {
  const packed = new Uint8Array(FRAME_HEADER_BYTES + payload.byteLength);
  const view = new DataView(packed.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint8(AT_VERSION, VERSION);
  view.setUint8(5, type);
  view.setInt16(6, status, true);
  view.setUint32(8, payload.byteLength, true);
  packed.set(payload, FRAME_HEADER_BYTES);
  view.setUint32(AT_CHECKSUM, checksum(packed), true);
  return packed;
}

/**
 * Reads one frame from bytes that arrive in any segmentation. Errors are detected as early as possible, so the payload of an invalid header is never stored.
 */
export class FrameReader {
  #bytes: Uint8Array = new Uint8Array(FRAME_HEADER_BYTES);
  #filled = 0;
  #frame: Frame | undefined;
  #fault: string | undefined;

  /** The frame, once it is complete. */
  get frame(): Frame | undefined {
    return this.#frame;
  }

  /** Description of the error; undefined if there is none. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** Bytes of the frame that have not been read: 0 if it is complete or invalid. */
  get missing(): number {
    return this.#frame === undefined && this.#fault === undefined ? this.#bytes.byteLength - this.#filled : 0;
  }

  /** Appends bytes, at most {@link missing}. */
  take(bytes: Uint8Array): void {
    this.#bytes.set(bytes, this.#filled);
    this.#filled += bytes.byteLength;
    this.#fault = beginningFault(this.#bytes.subarray(0, this.#filled));
    if (this.#fault !== undefined || this.#filled < this.#bytes.byteLength) return;
    if (this.#filled > FRAME_HEADER_BYTES || !this.#takeHeader()) this.#finish();
  }

  /** Reads the header and allocates the payload; false if the frame is complete or invalid. */
  #takeHeader(): boolean {
    const view = new DataView(this.#bytes.buffer);
    this.#fault = headerFault(view);
    const payloadBytes = view.getUint32(8, true);
    if (this.#fault !== undefined || payloadBytes === 0) return false;
    const frame = new Uint8Array(FRAME_HEADER_BYTES + payloadBytes);
    frame.set(this.#bytes);
    this.#bytes = frame;
    return true;
  }

  #finish(): void {
    if (this.#fault !== undefined) return;
    const view = new DataView(this.#bytes.buffer);
    if (view.getUint32(AT_CHECKSUM, true) !== checksum(this.#bytes)) {
      this.#fault = 'has a wrong checksum';
      return;
    }
    const type = view.getUint8(5) as CmFrameType;
    const status = statusOf(view.getInt16(6, true));
    this.#frame = { type, status, payload: this.#bytes.subarray(FRAME_HEADER_BYTES) };
  }
}

/** The fault in the bytes of a frame that have been received so far. */
function beginningFault(bytes: Uint8Array): string | undefined {
  if (!canBegin(bytes, MAGIC)) {
    if (!canBegin(bytes, HELLO_MAGIC))
      return `begins with ${beginningText(bytes)}: the peer does not use this protocol`;
    if (bytes.byteLength < MAGIC_BYTES) return undefined;
    return 'requests authentication by the key of UCX_TCP_KEY_FILE, but UCX_TCP_SECURITY is none here';
  }
  const version = bytes[AT_VERSION] ?? VERSION;
  return version === VERSION
    ? undefined
    : `has protocol version ${version}, but this library uses ${VERSION}: use the same version of gaudi-ucx at both ends`;
}

function headerFault(view: DataView): string | undefined {
  const type = view.getUint8(5);
  const payloadBytesMax = PAYLOAD_BYTES_MAX[type];
  if (payloadBytesMax === undefined) return `has the unknown type ${type}`;
  const payloadBytes = view.getUint32(8, true);
  if (payloadBytes > payloadBytesMax) return `has ${payloadBytes} bytes, more than ${payloadBytesMax}`;
  return statusFault(type, view.getInt16(6, true));
}

function statusFault(type: number, status: number): string | undefined {
  const isFailure = status < Status.OK && status >= Status.ENDPOINT_TIMEOUT;
  if (type === CmFrameType.REJECT) return isFailure ? undefined : `rejects with the status ${status}`;
  if (type === CmFrameType.CONFIRM) return isFailure || status === Status.OK ? undefined : `has the status ${status}`;
  return status === Status.OK ? undefined : `has the status ${status}`;
}

function checksum(packed: Uint8Array): number {
  return crc32(packed.subarray(FRAME_HEADER_BYTES), crc32(packed.subarray(0, AT_CHECKSUM)));
}
