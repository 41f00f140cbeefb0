/**
 * The exception of the control path and of promises: `UcxError`, with a stable code, a status and typed details. The data path returns {@link Status} integers
 * instead.
 */

import { startAtCaller } from './caller-stack.ts';
import { clip, SHOWN_NAME } from './inspect.ts';
import { Status, statusName, statusOf, statusString } from './status.ts';

/** Maximum number of characters of a string value in an error. */
const TEXT_COLUMNS = 200;

const BRAND = Symbol.for('gaudi-ucx.UcxError');

/** Values that explain an error; each can be passed to `JSON.stringify` or is a bigint. */
export type ErrorDetails = Readonly<Record<string, string | number | bigint | boolean | undefined>>;

/** The parts of a {@link UcxError}. */
export interface UcxErrorInit {
  /** Stable identifier `ERR_<LAYER>_<REASON>`, listed in docs/ERRORS.md. */
  readonly code: string;
  /** The status of the same failure on the data path. */
  readonly status: Status;
  /** One sentence in lower case that names the argument, the rule and the value. */
  readonly message: string;
  /** Numbers and names that the message contains. */
  readonly details?: ErrorDetails | undefined;
  /** The underlying error. */
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

// On the prototype instead of each error; lets two copies of this library recognise each other's errors.
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

/** Runs code and renames the arguments in its errors to the names by which the user gave them, such as a variable or an option. */
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

/** An error for an invalid argument whose message does not have the form of {@link invalidParam}. */
export function argumentError(argument: string, rule: string, value: string, message: string): UcxError {
  const details = { argument, rule, value };
  return new UcxError({ code: 'ERR_INVALID_PARAM', status: Status.INVALID_PARAM, message, details });
}

/**
 * The error for bytes that exceed the limit of a message or a memory: `header of 5000 bytes: at most 4096`.
 * @param what the name of the bytes
 */
export function tooLong(argument: string, what: string, byteLength: number, max: number): UcxError {
  return argumentError(
    argument,
    `must have at most ${max} bytes`,
    `${byteLength}`,
    `${what} of ${byteLength} bytes: at most ${max}`,
  );
}

/** A range of bytes and the size of the memory that it should be in. */
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

/** Combines several errors: code and details of the first, each message once. Undefined for an empty list. */
export function joinedError(errors: readonly UcxError[]): UcxError | undefined {
  const [first] = errors;
  const messages = [...new Set(errors.map(({ message }) => message))];
  if (first === undefined || messages.length === 1) return first;
  const { code, status, details } = first;
  return new UcxError({ code, status, details, message: `${messages.length} problems: ${messages.join('; ')}` });
}

/** The error for using an object after its `close()`. Code `ERR_CLOSED`, status INVALID_PARAM. @param state another word than "closed" */
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

/** Name of the error with which AbortSignal.timeout aborts. */
const TIMEOUT_NAME = 'TimeoutError';

/**
 * The rejection of an operation whose AbortSignal fired. As in Node.js, its code is that of an abort and its cause the reason of the signal. Its name is
 * `AbortError`, or `TimeoutError` for AbortSignal.timeout.
 */
export class AbortError extends Error {
  /** The code of cancelled operations in Node.js. */
  readonly code: string = 'ABORT_ERR';

  constructor(signal: AbortSignal) {
    const isTimeout = (signal.reason as Partial<Error> | undefined)?.name === TIMEOUT_NAME;
    super(isTimeout ? 'the operation timed out' : 'the operation was aborted', { cause: signal.reason });
    this.name = isTimeout ? TIMEOUT_NAME : 'AbortError';
    startAtCaller(this, new.target);
  }
}

/** Settles like the promise; if that is rejected by a timer, an event or a signal, the error gets the stack of the call that awaits it. */
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
 * A caught value as an error; any other value becomes the message of one. Test runners such as jest load the package in a node:vm context, where the errors of
 * Node.js are not instances of the context's Error.
 */
export function asError(thrown: unknown): NodeJS.ErrnoException {
  return isError(thrown) ? thrown : new Error(String(thrown));
}

function isError(thrown: unknown): thrown is Error {
  return thrown instanceof Error || Object.prototype.toString.call(thrown) === '[object Error]';
}

/** A short description of any value: the beginning of a long string, the class name of an object. Never throws. */
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
