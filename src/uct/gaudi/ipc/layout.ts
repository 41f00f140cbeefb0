/**
 * Layouts of gaudi_ipc: the payload of a published key (device, length, arena, offset, card, and the channel service of the owner), and the messages of the
 * channel service. These are a request, which contains a whole key; its reply, a handle with a descriptor or a NACK; and notifications, sent without a request.
 * Every field is validated, because either side may be hostile.
 */

import { IPC_HANDLE_BYTES } from '../../../hlthunk/index.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { highOf, joinWords } from '../../../ucs/type/int64.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import { TAG_BYTES } from '../../base/key/segment-name.ts';

/** Bytes of the tag in the name of a channel service. */
export const SERVICE_TAG_BYTES: number = TAG_BYTES;

const KEY_VERSION = 1;
const WORDS = 13;
const AT_KEY_VERSION = 0;
const AT_GENERATION = 1;
const AT_OFFSET = 3;
const AT_ARENA_LENGTH = 5;
const AT_BUS = 7;
const AT_SERVICE = 9;

export interface KeyPayload {
  /** Identifies the arena among those of its owner. */
  readonly arenaGeneration: number;
  /** Offset of the memory in the arena. */
  readonly arenaOffset: number;
  readonly arenaBytes: number;
  /** PCI address of the card as a number: domain, bus, device and function. */
  readonly busNumber: number;
  /** {@link SERVICE_TAG_BYTES}. */
  readonly serviceTag: Uint8Array;
}

/** Packs a payload. */
export function packPayload(payload: KeyPayload): Int32Array {
  const words = new Int32Array(WORDS);
  words[AT_KEY_VERSION] = KEY_VERSION;
  put64(words, AT_GENERATION, payload.arenaGeneration);
  put64(words, AT_OFFSET, payload.arenaOffset);
  put64(words, AT_ARENA_LENGTH, payload.arenaBytes);
  words[AT_BUS] = payload.busNumber;
  new Uint8Array(words.buffer).set(payload.serviceTag, AT_SERVICE * 4);
  return words;
}

/**
 * Unpacks a payload that another process has written.
 * @param byteLength length of the memory of the key
 * @returns undefined if it is not of this version, or its range is outside its arena
 */
export function unpackPayload(words: Int32Array, byteLength: number): KeyPayload | undefined {
  if (words.length < WORDS || words[AT_KEY_VERSION] !== KEY_VERSION) return undefined;
  const arenaOffset = get64(words, AT_OFFSET);
  const arenaBytes = get64(words, AT_ARENA_LENGTH);
  const arenaGeneration = get64(words, AT_GENERATION);
  const isExact = Number.isSafeInteger(arenaBytes) && Number.isSafeInteger(arenaGeneration);
  if (!isExact || arenaOffset + byteLength > arenaBytes) return undefined;
  const serviceTag = new Uint8Array(words.buffer, words.byteOffset + AT_SERVICE * 4, SERVICE_TAG_BYTES).slice();
  return { arenaGeneration, arenaOffset, arenaBytes, busNumber: words[AT_BUS]! >>> 0, serviceTag };
}

function put64(words: Int32Array, at: number, value: number): void {
  words[at] = value;
  words[at + 1] = highOf(value);
}

function get64(words: Int32Array, at: number): number {
  return joinWords(words[at]!, words[at + 1]!);
}

/** Length of the longest message. */
export const CHANNEL_MESSAGE_BYTES_MAX = 512;

const VERSION = 1;
/** Kinds of messages. */
export const ChannelMessage = { REQUEST: 1, HANDLE: 2, NACK: 3, RETIRED: 4, CLOSING: 5 } as const;
export type ChannelMessage = (typeof ChannelMessage)[keyof typeof ChannelMessage];

const AT_VERSION = 0;
const AT_KIND = 2;
const AT_ID = 4;
const AT_BODY = 8;
const FAILURES: ReadonlySet<number> = new Set(
  Object.values(Status).filter((status) => status < 0 && status !== Status.NO_RESOURCE),
);
const TEXT_BYTES_MAX: number = CHANNEL_MESSAGE_BYTES_MAX - AT_BODY - 4;

/** A received message. */
export type ParsedMessage =
  | { readonly kind: typeof ChannelMessage.REQUEST; readonly id: number; readonly key: Uint8Array }
  | { readonly kind: typeof ChannelMessage.HANDLE; readonly id: number; readonly handle: Uint8Array }
  | { readonly kind: typeof ChannelMessage.NACK; readonly id: number; readonly error: UcxError }
  | { readonly kind: typeof ChannelMessage.RETIRED; readonly arenaGeneration: number }
  | { readonly kind: typeof ChannelMessage.CLOSING };

/** A request for the arena of a key. */
export function requestMessage(id: number, key: Uint8Array): Uint8Array {
  return message(ChannelMessage.REQUEST, id, key);
}

/** The reply that accompanies the descriptor. */
export function handleMessage(id: number, handle: Uint8Array): Uint8Array {
  return message(ChannelMessage.HANDLE, id, handle);
}

/** The NACK with the reason as a string, which is truncated if it is long. */
export function nackMessage(id: number, error: UcxError): Uint8Array {
  const text = Buffer.from(`${error.code}\0${error.message}`).subarray(0, TEXT_BYTES_MAX);
  const body = new Uint8Array(4 + text.byteLength);
  new DataView(body.buffer).setInt32(0, error.status, true);
  body.set(text, 4);
  return message(ChannelMessage.NACK, id, body);
}

/** Notification that memory of an arena is no longer registered. Peers must unmap it, because their mappings prevent the owner from freeing the arena. */
export function retiredMessage(arenaGeneration: number): Uint8Array {
  const body = new Uint8Array(8);
  new DataView(body.buffer).setBigUint64(0, BigInt(arenaGeneration), true);
  return message(ChannelMessage.RETIRED, 0, body);
}

/** Notification that the owner closes. Peers must unmap its memory. */
export function closingMessage(): Uint8Array {
  return message(ChannelMessage.CLOSING, 0, new Uint8Array(0));
}

/** Reads a message of a peer; undefined if it is invalid. */
export function readMessage(bytes: Uint8Array): ParsedMessage | undefined {
  if (bytes.byteLength < AT_BODY) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint16(AT_VERSION, true) !== VERSION) return undefined;
  const kind = view.getUint16(AT_KIND, true);
  const id = view.getUint32(AT_ID, true);
  const body = bytes.slice(AT_BODY);
  if (kind === ChannelMessage.REQUEST && body.byteLength === RKEY_TABLE_KEY_BYTES) return { kind, id, key: body };
  if (kind === ChannelMessage.HANDLE && body.byteLength === IPC_HANDLE_BYTES) return { kind, id, handle: body };
  if (kind === ChannelMessage.NACK && body.byteLength >= 4) return { kind, id, error: readNack(body) };
  if (kind === ChannelMessage.RETIRED && body.byteLength === 8) {
    return { kind, arenaGeneration: Number(view.getBigUint64(AT_BODY, true)) };
  }
  return kind === ChannelMessage.CLOSING ? { kind } : undefined;
}

/** Reads a NACK. Its status is always a failure, whatever the bytes: NO_RESOURCE would be retried endlessly. */
function readNack(body: Uint8Array): UcxError {
  const number = new DataView(body.buffer, body.byteOffset).getInt32(0, true);
  const status = FAILURES.has(number) ? statusOf(number) : Status.INVALID_ADDR;
  const [code = '', text = ''] = Buffer.from(body.subarray(4)).toString('utf8').split('\0');
  const isCode = /^ERR_[A-Z0-9_]{1,60}$/.test(code);
  return new UcxError({
    code: isCode ? code : 'ERR_RKEY_STALE',
    status,
    message: `the owner of the memory replied: ${text}`,
  });
}

function message(kind: ChannelMessage, id: number, body: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(AT_BODY + body.byteLength);
  const view = new DataView(bytes.buffer);
  view.setUint16(AT_VERSION, VERSION, true);
  view.setUint16(AT_KIND, kind, true);
  view.setUint32(AT_ID, id, true);
  bytes.set(body, AT_BODY);
  return bytes;
}
