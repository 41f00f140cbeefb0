/**
 * Layout of messages between workers of this engine about memory of cards: those of api/layout, sent as headers of active messages of libucp. Received
 * messages may be invalid.
 *
 * first word   magic, version and MessageId; api/layout has an endpoint id here, but libucp identifies the endpoint
 * others       as in api/layout: PUT, GET and ATOMIC requests; the reply is REPLY, for a GET preceded by DATA
 * 8 bytes      PUT, GET and ATOMIC: export id of the memory
 *
 * The payload of PUT and DATA is the data of the active message.
 */

import { HEADER_BYTES, MessageId } from '../../api/layout/message.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

const MAGIC = 0x5364;
const VERSION = 3;
const KEY_BYTES = 8;
const QUESTIONS: ReadonlySet<number> = new Set([MessageId.PUT, MessageId.GET, MessageId.ATOMIC]);
const ANSWERS: ReadonlySet<number> = new Set([MessageId.REPLY, MessageId.DATA]);

/** A received message: its id, and a frame for the parsers of api/layout. */
export interface CardRequest {
  readonly id: number;
  readonly frame: AmFrame;
  /** The memory that a request accesses; undefined for a reply. */
  readonly exportId: number | undefined;
}

/** Makes the first word for the packers of api/layout. */
export function firstWord(id: number): number {
  return (MAGIC << 16) | (VERSION << 8) | id;
}

/** @param exportId the memory that a request accesses */
export function packMessage({ buffer, byteLength }: Int32Array, exportId?: number): Uint8Array {
  const bytes = new Uint8Array(byteLength + (exportId === undefined ? 0 : KEY_BYTES));
  bytes.set(new Uint8Array(buffer, 0, byteLength));
  if (exportId !== undefined) new DataView(bytes.buffer).setBigUint64(byteLength, BigInt(exportId), true);
  return bytes;
}

/** Parses a message; undefined if its magic, version or length is wrong. */
export function parseMessage(header: Uint8Array): CardRequest | undefined {
  const { byteLength } = header;
  if (byteLength === 0 || byteLength % 4 !== 0) return undefined;
  // Copied to an aligned address.
  const bytes = header.slice();
  const words = new Int32Array(bytes.buffer);
  const id = bytes[0]!;
  const isQuestion = QUESTIONS.has(id);
  const headerBytes = HEADER_BYTES[id];
  const isKnown = words[0] === firstWord(id) && (isQuestion || ANSWERS.has(id));
  if (!isKnown || headerBytes === undefined || byteLength !== headerBytes + (isQuestion ? KEY_BYTES : 0))
    return undefined;
  const exportId = isQuestion ? Number(new DataView(bytes.buffer).getBigUint64(headerBytes, true)) : undefined;
  return { id, exportId, frame: { bytes, words, offset: 0, byteLength, source: '' } };
}
