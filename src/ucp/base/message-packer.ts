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

/** Writes a header, and a payload from host memory or from a list. A single instance: a packer runs only during the call that it is passed to. */
class MessagePacker implements AmPacker {
  #header: Int32Array = new Int32Array(0);
  #bytes: Uint8Array | undefined = undefined;
  #pieces: readonly LocalPiece[] | undefined = undefined;
  #offset = 0;
  #byteLength = 0;

  /** Holds one message with a contiguous payload until {@link passed}. */
  hold(header: Int32Array, bytes: Uint8Array | undefined, offset: number, byteLength: number): this {
    this.#header = header;
    this.#bytes = bytes;
    this.#offset = offset;
    this.#byteLength = byteLength;
    return this;
  }

  /** Holds one message whose payload is a list. */
  holdPieces(header: Int32Array, pieces: readonly LocalPiece[], offset: number, byteLength: number): this {
    this.#pieces = pieces;
    return this.hold(header, undefined, offset, byteLength);
  }

  /** Drops the references to the memory of the message, whether the transport accepted it or not, and traces it. Returns its status. */
  passed({ id, trace }: PeerLanes, messageId: number, status: Status): Status {
    this.#bytes = undefined;
    this.#pieces = undefined;
    if (trace !== undefined && status !== Status.NO_RESOURCE) trace.sent(id, messageId, this.#header, this.#byteLength);
    return status;
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
 * Sends a message whose payload is contiguous host memory.
 * @param header an even number of words
 * @returns OK, NO_RESOURCE, UNREACHABLE on a connection without a message lane, EXCEEDS_LIMIT for a message longer than a frame, or a failure
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
  const status = amLane.endpoint.amBcopy(messageId, PACKER.hold(header, payload, payloadOffset, payloadLength));
  return PACKER.passed(connection, messageId, status);
}

/**
 * The host memory of a message that is sent by short; undefined for a message that must be packed (bcopy), because it is longer or a list.
 * @param byteLength bytes of the payload
 */
export function shortBytes(
  connection: PeerLanes,
  pieces: readonly LocalPiece[],
  headerBytes: number,
  byteLength: number,
): Uint8Array | undefined {
  if (headerBytes + byteLength > connection.amShortMax) return undefined;
  // Empty memory may be detached: do not touch it.
  if (byteLength === 0) return NO_BYTES;
  return pieces.length === 1 ? hostBytes(pieces[0]!.memory) : undefined;
}

/** Sends a message whose payload is a range of a list of host memory. Returns like {@link sendMessage}. */
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
  const status = amLane.endpoint.amBcopy(messageId, PACKER.holdPieces(header, pieces, offset, byteLength));
  return PACKER.passed(connection, messageId, status);
}

/** A message that follows puts. */
export interface FollowingMessage {
  readonly messageId: number;
  /** Message id that the peer receives instead if the puts fail. */
  readonly failedId: number;
  readonly header: Int32Array;
  readonly payload: Uint8Array;
}

/**
 * Sends a message behind the last puts of its lane: see UctEndpoint.amAfterPuts.
 * @param puts the number of the puts
 * @returns like {@link sendMessage}; UNSUPPORTED on a lane whose messages may overtake puts
 */
export function sendAfterPuts(connection: PeerLanes, message: FollowingMessage, puts: number): Status {
  const { messageId, failedId, header, payload } = message;
  const { endpoint } = connection.amLane ?? {};
  if (endpoint?.amAfterPuts === undefined) return Status.UNSUPPORTED;
  if (header.length * 4 + payload.length > connection.amBcopyMax) return Status.EXCEEDS_LIMIT;
  const packer = PACKER.hold(header, payload, 0, payload.length);
  const status = endpoint.amAfterPuts(messageId, failedId, packer, puts);
  return PACKER.passed(connection, messageId, status);
}

/**
 * Counts a message that lacks credit.
 * @returns true if it must be offered by rendezvous; false if it waits, because credit arrives as soon as the receiver makes progress
 */
export function lacksCredit(credit: OutboundCredit, cost: number, counters: WorkerCounters): boolean {
  if (credit.isFirstLack()) counters.count(WorkerCounter.TX_NO_CREDIT);
  const isOffered = credit.isLongFor(cost);
  if (isOffered) counters.count(WorkerCounter.TX_NO_CREDIT_RNDV);
  return isOffered;
}
