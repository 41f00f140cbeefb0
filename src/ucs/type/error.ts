/**
 * The exception of the control path and of promises: `UcxError`, with a stable code, a status and typed details. The data path returns {@link Status}
 * integers instead.
 */

import { startAtCaller } from './caller-stack.ts';
import { clip, SHOWN_NAME } from './inspect.ts';
import { Status, statusName, statusOf, statusString } from './status.ts';

/** How much of a text an error shows. */
const TEXT_COLUMNS = 200;

const BRAND = Symbol.for('gaudi-ucx.UcxError');

/** Values that explain an error; every value is compatible with `JSON.stringify` or a bigint. */
export type ErrorDetails = Readonly<Record<string, string | number | bigint | boolean | undefined>>;

/** The parts of a {@link UcxError}. */
export interface UcxErrorInit {
  /** Stable identifier `ERR_<LAYER>_<REASON>`, listed in docs/ERRORS.md. */
  readonly code: string;
  /** The status of the same failure on the data path. */
  readonly status: Status;
  /** One sentence in lower case that names the argument, the rule and the value. */
  readonly message: string;
  /** What explains it: numbers and names of the message. */
  readonly details?: ErrorDetails | undefined;
  /** The error behind it. */
  readonly cause?: unknown;
}

/** An error of this library. Match on {@link UcxError.code}, never on the message. */
export class UcxError extends Error {
  /** Stable code, such as `ERR_INVALID_PARAM`; see docs/ERRORS.md. */
  readonly code: string;
  /** The status of the same failure on the data path. */
  readonly status: Status;
  /** Typed details of the failure. */
  readonly details: ErrorDetails;

  constructor(init: UcxErrorInit) {
    super(init.message, init.cause === undefined ? undefined : { cause: init.cause });
    this.name = 'UcxError';
    this.code = init.code;
    this.status = init.status;
    this.details = init.details ?? {};
    startAtCaller(this, new.target);
  }
}

// On the prototype, so that the errors of two copies of this library recognise each other, and not a field of each error.
Object.defineProperty(UcxError.prototype, BRAND, { value: true });

/** True if `value` is an error of this library, or of another copy of it. */
export function isUcxError(value: unknown): value is UcxError {
  return typeof value === 'object' && value !== null && BRAND in value;
}

/**
 * The error for a bad argument: names the argument, the violated rule and the value.
 * Code `ERR_INVALID_PARAM`, status INVALID_PARAM.
 */
export function invalidParam(argument: string, rule: string, value: unknown): UcxError {
  return argumentError(
    argument,
    rule,
    describeValue(value),
    `argument ${argument} ${rule}, got ${describeValue(value)}`,
  );
}

/** Runs code whose errors for bad arguments shall have the names under which the user gave them: of a variable, of an option. */
export function withArgumentNames<T>(names: Readonly<Record<string, string>>, run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (!isUcxError(error)) throw error;
    const { argument, rule, value } = error.details;
    const name = names[String(argument)];
    if (name === undefined || rule === undefined || value === undefined) throw error;
    throw argumentError(name, String(rule), String(value), `argument ${name} ${String(rule)}, got ${String(value)}`);
  }
}

/** An error for a bad argument whose message does not have the form of {@link invalidParam}. */
export function argumentError(argument: string, rule: string, value: string, message: string): UcxError {
  const details = { argument, rule, value };
  return new UcxError({ code: 'ERR_INVALID_PARAM', status: Status.INVALID_PARAM, message, details });
}

/**
 * The error for more bytes than a message or a memory may have: `header of 5000 bytes: at most 4096`.
 * @param what names the bytes
 */
export function tooLong(argument: string, what: string, byteLength: number, max: number): UcxError {
  return argumentError(
    argument,
    `must have at most ${max} bytes`,
    `${byteLength}`,
    `${what} of ${byteLength} bytes: at most ${max}`,
  );
}

/** A range of bytes, and the size of the memory that it is in. */
export interface SizedRange {
  readonly offset: number;
  readonly byteLength: number;
  readonly size: number;
}

/** The error for a range outside of its memory: `5000 bytes do not fit into remote memory of 4096 bytes`. */
export function outsideOf(memory: string, argument: string, range: SizedRange): UcxError {
  const text = outsideText(memory, range);
  return argumentError(argument, text, `${range.byteLength}`, text);
}

/** The text of {@link outsideOf}. */
export function outsideText(memory: string, { offset, byteLength, size }: SizedRange): string {
  if (offset > size) return `offset ${offset} is beyond the end of ${memory} of ${size} bytes`;
  return `${byteLength} bytes${offset === 0 ? '' : ` at offset ${offset}`} do not fit into ${memory} of ${size} bytes`;
}

/** One error for several, with the code and the details of the first, and each message once; undefined for none. */
export function joinedError(errors: readonly UcxError[]): UcxError | undefined {
  const [first] = errors;
  const messages = [...new Set(errors.map(({ message }) => message))];
  if (first === undefined || messages.length === 1) return first;
  const { code, status, details } = first;
  return new UcxError({ code, status, details, message: `${messages.length} problems: ${messages.join('; ')}` });
}

/** The error for the use of an object after its `close()`. Code `ERR_CLOSED`, status INVALID_PARAM. @param state another word for it */
export function closedError(object: string, state = 'closed'): UcxError {
  return new UcxError({
    code: 'ERR_CLOSED',
    status: Status.INVALID_PARAM,
    message: `${object} is ${state}`,
    details: { object },
  });
}

/**
 * Throws if `status` is a failure.
 * @param status a value of {@link Status}
 * @param what the failed action, for the message: "register host memory"
 */
export function checkStatus(status: number, what: string): void {
  if (status < 0) throw statusError(status, what);
}

/** The error for a failed status of the data path: code `ERR_<status name>`; the message of `cause` follows that of the status. */
export function statusError(status: number, what: string, cause?: unknown): UcxError {
  return new UcxError({
    code: `ERR_${statusName(status)}`,
    status: statusOf(status),
    message: `${what}: ${statusString(status).toLowerCase()}${cause instanceof Error ? ` (${cause.message})` : ''}`,
    cause,
  });
}

/** Name of the reason of AbortSignal.timeout. */
const TIMEOUT_NAME = 'TimeoutError';

/**
 * The rejection of an operation whose AbortSignal fired. As in Node's own functions, it has the code of an abort and the reason as cause. Its name is that of an
 * abort, or for AbortSignal.timeout that of its reason.
 */
export class AbortError extends Error {
  /** The code of cancelled operations in Node.js. */
  readonly code: string = 'ABORT_ERR';

  constructor(signal: AbortSignal) {
    const isTimeout = (signal.reason as Partial<Error> | undefined)?.name === TIMEOUT_NAME;
    super(isTimeout ? 'the operation has timed out' : 'the operation was aborted', { cause: signal.reason });
    this.name = isTimeout ? TIMEOUT_NAME : 'AbortError';
    startAtCaller(this, new.target);
  }
}

/** Settles like a promise that a timer, an event or a signal may reject: the error gets the stack of the call that awaits it. */
export async function awaitedHere<T>(promise: Promise<T>): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof UcxError || error instanceof AbortError) startAtCaller(error);
    throw error;
  }
}

/** @throws AbortError if the signal has fired */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new AbortError(signal);
}

/**
 * A caught value as an error: a value that is not an Error becomes the message of one. Under test runners that load the package in a context of node:vm,
 * such as jest, the errors of Node.js are of another Error.
 */
export function asError(thrown: unknown): NodeJS.ErrnoException {
  return isError(thrown) ? thrown : new Error(String(thrown));
}

function isError(thrown: unknown): thrown is Error {
  return thrown instanceof Error || Object.prototype.toString.call(thrown) === '[object Error]';
}

/** A short text for any value: of a long string its beginning, for an object the name of its class. Never throws. */
export function describeValue(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(clip(value, TEXT_COLUMNS));
  if (typeof value === 'bigint') return `${value} (0x${value.toString(16)})`;
  if (typeof value === 'function') return 'a function';
  if (value === undefined) return 'nothing';
  if (ArrayBuffer.isView(value)) return `${value.constructor?.name ?? 'view'} of ${value.byteLength} bytes`;
  if (typeof value === 'object' && value !== null) return describeObject(value);
  return String(value);
}

interface Shown {
  readonly [SHOWN_NAME]?: string;
}

function describeObject(value: object): string {
  const name = String((value as Shown)[SHOWN_NAME] ?? value.constructor?.name ?? 'object');
  const keys = name === 'Object' ? Object.keys(value) : [];
  return keys.length === 0 ? name : clip(`{ ${keys.join(', ')} }`, TEXT_COLUMNS);
}
