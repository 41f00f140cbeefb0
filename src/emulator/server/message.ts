/** Messages between a node server and its clients: one JSON packet each, with at most one descriptor. Encoding, limits, and checks of received fields. */

import { errnoText, MESSAGE_BYTES_MAX, SyscallError } from '../../sys/index.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** One byte that wakes a sleeping server (the doorbell). */
export const RING: Uint8Array = Uint8Array.of(0);
/** One byte that makes a client check its mailboxes. */
export const SETTLED: Uint8Array = Uint8Array.of(1);
export const DESCRIPTORS_MAX = 1;

/** A received message, whose fields are not checked. */
export type Message = Readonly<Record<string, unknown>>;

/** An error in a reply. */
export interface ErrorReply {
  readonly message: string;
  /** Name of the system call, if the driver returned an errno; else {@link code} is set. */
  readonly syscall?: string;
  readonly errno?: number;
  readonly code?: string;
  /** The argument that was rejected. */
  readonly argument?: string;
}

/** The peer violated the protocol: the connection is closed. Not reported to users. */
export class ProtocolError extends Error {
  override readonly name: string = 'ProtocolError';
}

/** @throws ProtocolError if the message is longer than a packet */
export function encodeMessage(message: object): Uint8Array {
  const bytes = Buffer.from(JSON.stringify(message));
  if (bytes.byteLength > MESSAGE_BYTES_MAX)
    throw new ProtocolError(`message of ${bytes.byteLength} bytes is above the limit of ${MESSAGE_BYTES_MAX}`);
  return bytes;
}

/** Parses a message. Throws ProtocolError unless it is a JSON object. */
export function decodeMessage(bytes: Uint8Array): Message {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'));
  } catch {
    throw new ProtocolError(`message of ${bytes.byteLength} bytes is not JSON`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ProtocolError('message is not a JSON object');
  return value as Message;
}

/** An integer field from 0 to `max`. Throws ProtocolError. */
export function integerField(message: Message, name: string, max: number): number {
  const value = message[name];
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > max) {
    throw new ProtocolError(`field ${name} must be an integer from 0 to ${max}`);
  }
  return value;
}

/** A string field of at most `max` characters. Throws ProtocolError. */
export function textField(message: Message, name: string, max: number): string {
  const value = message[name];
  if (typeof value !== 'string' || value.length > max)
    throw new ProtocolError(`field ${name} must be a string of at most ${max} characters`);
  return value;
}

/** A field of unsigned 32-bit words, `min` to `max` of them. Throws ProtocolError. */
export function wordsField(message: Message, name: string, min: number, max: number): Uint32Array<ArrayBuffer> {
  const value = message[name];
  const isList = Array.isArray(value) && value.length >= min && value.length <= max;
  if (!isList || !value.every((word) => Number.isInteger(word) && word >= 0 && word < 2 ** 32)) {
    throw new ProtocolError(`field ${name} must be ${min} to ${max} words`);
  }
  return Uint32Array.from(value);
}

/** The error to send to a client; undefined for a defect of the server. */
export function errorReplyOf(error: unknown): ErrorReply | undefined {
  if (error instanceof SyscallError) {
    const { syscall, errno, message } = error;
    // The client adds the name of the call and the errno again.
    const prefix = new SyscallError(syscall, errno, '').message;
    return { syscall, errno, message: message.startsWith(prefix) ? message.slice(prefix.length) : message };
  }
  if (!isUcxError(error)) return undefined;
  const { code, message } = error;
  const argument = error.details['argument'];
  return { code, message, ...(typeof argument === 'string' && { argument }) };
}

/** Makes an error object of a received error, in the client. */
export function errorOf(reply: ErrorReply): UcxError {
  const { syscall, errno, code, message, argument } = reply;
  if (syscall !== undefined && errno !== undefined) {
    // Without the limits of this process (errnoReason): the server has reached its own.
    return new SyscallError(syscall, errno, `node server: ${message}`, { reason: errnoText(errno) });
  }
  const status = code === 'ERR_INVALID_PARAM' ? Status.INVALID_PARAM : Status.REJECTED;
  const details = argument === undefined ? {} : { argument };
  return new UcxError({ code: code ?? 'ERR_NODE_REFUSED', status, message, details });
}
