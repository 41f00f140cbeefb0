/**
 * Sends a message of header and payload, short or packed (bcopy) by its length. The contents of messages are defined in api/layout.
 */

import { gather, hostBytes } from '../../api/memory/local.ts';
import { copyBytes } from '../../ucs/memory/bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame, AmPacker } from '../../uct/api/iface.ts';
import type { OutboundCredit } from '../credit/credit.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import { WorkerCounter, type WorkerCounters } from './observation.ts';
import type { PeerLanes } from './peer-lanes.ts';

/** Writes a header, and a payload from host memory or pieces. A single instance: a packer runs only during the call that it is passed to. */
class MessagePacker implements AmPacker {
  #header: Int32Array = new Int32Array(0);
  #bytes: Uint8Array | undefined = undefined;
  #pieces: readonly LocalPiece[] | undefined = undefined;
  #offset = 0;
  #byteLength = 0;

  /** Holds one message, with bytes or pieces of its payload, until {@link release}. */
  hold(
    header: Int32Array,
    bytes: Uint8Array | undefined,
    pieces: readonly LocalPiece[] | undefined,
    offset: number,
    byteLength: number,
  ): this {
    this.#header = header;
    this.#bytes = bytes;
    this.#pieces = pieces;
    this.#offset = offset;
    this.#byteLength = byteLength;
    return this;
  }

  /** The memory of the caller must not live longer because it was sent. */
  release(): void {
    this.#bytes = undefined;
    this.#pieces = undefined;
  }

  pack(frame: AmFrame): number {
    const header = this.#header;
    const byteLength = this.#byteLength;
    const first = frame.offset >> 2;
    for (let i = 0; i < header.length; i++) frame.words[first + i] = header[i]!;
    const headerBytes = header.length * 4;
    const at = frame.offset + headerBytes;
    if (this.#pieces !== undefined) gather(this.#pieces, this.#offset, byteLength, frame.bytes, at);
    else if (this.#bytes !== undefined) copyBytes(frame.bytes, at, this.#bytes, this.#offset, byteLength);
    return headerBytes + byteLength;
  }
}

const PACKER = new MessagePacker();
const NO_BYTES = new Uint8Array(0);

/**
 * Sends a message whose payload is one piece of host memory.
 * @param header an even number of words
 * @returns OK, NO_RESOURCE, UNREACHABLE on a connection without messages, EXCEEDS_LIMIT for one longer than a frame, or a failure
 */
export function sendMessage(
  connection: PeerLanes,
  messageId: number,
  header: Int32Array,
  payload: Uint8Array | undefined,
  payloadOffset: number,
  payloadLength: number,
): Status {
  const { amLane } = connection;
  if (amLane === undefined) return Status.UNREACHABLE;
  if (connection.isLoopback) amLane.activity.busy = true;
  const total = header.length * 4 + payloadLength;
  if (total <= connection.amShortMax) {
    const status = amLane.endpoint.amShort(messageId, header, header.length, payload, payloadOffset, payloadLength);
    if (connection.trace !== undefined && status !== Status.NO_RESOURCE)
      connection.trace.sent(connection.id, messageId, header, payloadLength);
    return status;
  }
  if (total > connection.amBcopyMax) return Status.EXCEEDS_LIMIT;
  const status = amLane.endpoint.amBcopy(
    messageId,
    PACKER.hold(header, payload, undefined, payloadOffset, payloadLength),
  );
  return afterPacked(connection, status, messageId, header, payloadLength);
}

/**
 * The host memory of a message that goes by short; undefined for a message that is packed (bcopy), because it is longer or in several pieces.
 * @param byteLength bytes of the payload
 */
export function shortBytes(
  connection: PeerLanes,
  pieces: readonly LocalPiece[],
  headerBytes: number,
  byteLength: number,
): Uint8Array | undefined {
  if (headerBytes + byteLength > connection.amShortMax) return undefined;
  // Empty memory may be detached.
  if (byteLength === 0) return NO_BYTES;
  return pieces.length === 1 ? hostBytes(pieces[0]!.memory) : undefined;
}

/** Sends a message whose payload is a part of several pieces of host memory. Returns like {@link sendMessage}. */
export function sendPieces(
  connection: PeerLanes,
  messageId: number,
  header: Int32Array,
  pieces: readonly LocalPiece[],
  offset: number,
  byteLength: number,
): Status {
  const { amLane } = connection;
  if (amLane === undefined) return Status.UNREACHABLE;
  const bytes = shortBytes(connection, pieces, header.length * 4, byteLength);
  if (bytes !== undefined) {
    const at = byteLength === 0 ? 0 : pieces[0]!.offset + offset - pieces[0]!.start;
    return sendMessage(connection, messageId, header, bytes, at, byteLength);
  }
  if (connection.isLoopback) amLane.activity.busy = true;
  if (header.length * 4 + byteLength > connection.amBcopyMax) return Status.EXCEEDS_LIMIT;
  const status = amLane.endpoint.amBcopy(messageId, PACKER.hold(header, undefined, pieces, offset, byteLength));
  return afterPacked(connection, status, messageId, header, byteLength);
}

/**
 * Sends a message behind the puts of its lane that were started last: see UctEndpoint.amAfterPuts.
 * @returns like {@link sendMessage}; UNSUPPORTED on a lane whose messages may overtake puts
 */
export function sendAfterPuts(
  connection: PeerLanes,
  [messageId, failedId]: readonly [number, number],
  header: Int32Array,
  payload: Uint8Array,
  puts: number,
): Status {
  const { endpoint } = connection.amLane ?? {};
  if (endpoint?.amAfterPuts === undefined) return Status.UNSUPPORTED;
  if (header.length * 4 + payload.length > connection.amBcopyMax) return Status.EXCEEDS_LIMIT;
  const packer = PACKER.hold(header, payload, undefined, 0, payload.length);
  const status = endpoint.amAfterPuts(messageId, failedId, packer, puts);
  return afterPacked(connection, status, messageId, header, payload.byteLength);
}

/** Ends the use of the packer by a message. Returns its status. */
function afterPacked(
  { id, trace }: PeerLanes,
  status: Status,
  messageId: number,
  header: Int32Array,
  payloadLength: number,
): Status {
  PACKER.release();
  if (trace !== undefined && status !== Status.NO_RESOURCE) trace.sent(id, messageId, header, payloadLength);
  return status;
}

/**
 * Counts a message that lacks credit.
 * @returns true if it is to be offered by rendezvous; false if it waits, because credit arrives as soon as the receiver makes progress
 */
export function lacksCredit(credit: OutboundCredit, cost: number, counters: WorkerCounters): boolean {
  if (credit.isFirstLack()) counters.count(WorkerCounter.TX_NO_CREDIT);
  const isOffered = credit.isLongFor(cost);
  if (isOffered) counters.count(WorkerCounter.TX_NO_CREDIT_RNDV);
  return isOffered;
}
