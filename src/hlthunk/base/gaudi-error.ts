/**
 * The eight error codes of the Gaudi layer: their text, their status, and the mapping from errno values of the driver. Also the argument checks of the hl-thunk
 * calls, which throw ERR_GAUDI_INVALID_PARAMS with argument, rule and value.
 */

import { Errno, errnoName, errnoReason } from '../../sys/index.ts';
import {
  checkOptions,
  checkString,
  isOptions,
  missingMethod,
  nullOption,
  unknownOption,
} from '../../ucs/type/check-options.ts';
import {
  describeValue,
  type ErrorDetails,
  invalidParam,
  outsideText,
  type SizedRange,
  UcxError,
} from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** The codes, in the order of the documentation. */
export const GaudiErrorCode = {
  /** The card does not exist or was removed (ENOENT, ENODEV, ENXIO). */
  DEVICE_NOT_FOUND: 'ERR_GAUDI_DEVICE_NOT_FOUND',
  /** Device memory, device addresses or driver resources are exhausted (ENOMEM, ENOSPC, EMFILE). */
  OUT_OF_MEMORY: 'ERR_GAUDI_OUT_OF_MEMORY',
  /** The driver or hlthunk rejected the arguments (EINVAL, EFAULT, EBADF, ENOTTY, EOPNOTSUPP). */
  INVALID_PARAMS: 'ERR_GAUDI_INVALID_PARAMS',
  /** Another process has the compute context, or the card is in reset (EBUSY, EAGAIN). */
  DEVICE_BUSY: 'ERR_GAUDI_DEVICE_BUSY',
  /** A transfer was aborted, or the card reported an error (EIO and undocumented errno values) or has failed permanently. */
  DMA_FAILED: 'ERR_GAUDI_DMA_FAILED',
  /** A submission, or the reply of a peer, exceeded its time limit (ETIMEDOUT). */
  TIMEOUT: 'ERR_GAUDI_TIMEOUT',
  /** The device node is not accessible, or the card rejects users (EPERM, EACCES). */
  PERMISSION_DENIED: 'ERR_GAUDI_PERMISSION_DENIED',
  /** A DMA channel, or the channel service of the owner of remote memory, is unusable. */
  CHANNEL_FAILED: 'ERR_GAUDI_CHANNEL_FAILED',
} as const;

/** One of the values of {@link GaudiErrorCode}. */
export type GaudiErrorCode = (typeof GaudiErrorCode)[keyof typeof GaudiErrorCode];

const TEXT: Readonly<Record<GaudiErrorCode, string>> = {
  ERR_GAUDI_DEVICE_NOT_FOUND: 'gaudi device not found',
  ERR_GAUDI_OUT_OF_MEMORY: 'out of gaudi device memory or driver resources',
  ERR_GAUDI_INVALID_PARAMS: 'invalid parameters',
  ERR_GAUDI_DEVICE_BUSY: 'gaudi device is busy',
  ERR_GAUDI_DMA_FAILED: 'dma transfer failed',
  ERR_GAUDI_TIMEOUT: 'operation timed out',
  ERR_GAUDI_PERMISSION_DENIED: 'permission denied',
  ERR_GAUDI_CHANNEL_FAILED: 'channel failed',
};

/** The reason for a card that has failed permanently. */
export const MALFUNCTION_TEXT = 'the card has failed (malfunction): reload its driver or restart the server';
/** The remedy for a card that was reset or has failed while it was open. */
export const REOPEN_TEXT =
  'close the context and create a new one, or with hl-thunk close the device and open it again';

const STATUS: Readonly<Record<GaudiErrorCode, Status>> = {
  ERR_GAUDI_DEVICE_NOT_FOUND: Status.NO_DEVICE,
  ERR_GAUDI_OUT_OF_MEMORY: Status.NO_MEMORY,
  ERR_GAUDI_INVALID_PARAMS: Status.INVALID_PARAM,
  ERR_GAUDI_DEVICE_BUSY: Status.BUSY,
  ERR_GAUDI_DMA_FAILED: Status.IO_ERROR,
  ERR_GAUDI_TIMEOUT: Status.TIMED_OUT,
  ERR_GAUDI_PERMISSION_DENIED: Status.IO_ERROR,
  ERR_GAUDI_CHANNEL_FAILED: Status.UNREACHABLE,
};

const CODE_OF_ERRNO: ReadonlyMap<number, GaudiErrorCode> = new Map([
  [Errno.ENOENT, GaudiErrorCode.DEVICE_NOT_FOUND],
  [Errno.ENODEV, GaudiErrorCode.DEVICE_NOT_FOUND],
  [Errno.ENXIO, GaudiErrorCode.DEVICE_NOT_FOUND],
  [Errno.ENOMEM, GaudiErrorCode.OUT_OF_MEMORY],
  [Errno.ENOSPC, GaudiErrorCode.OUT_OF_MEMORY],
  [Errno.EMFILE, GaudiErrorCode.OUT_OF_MEMORY],
  [Errno.EINVAL, GaudiErrorCode.INVALID_PARAMS],
  [Errno.EFAULT, GaudiErrorCode.INVALID_PARAMS],
  [Errno.EBADF, GaudiErrorCode.INVALID_PARAMS],
  [Errno.ENOTTY, GaudiErrorCode.INVALID_PARAMS],
  [Errno.EOPNOTSUPP, GaudiErrorCode.INVALID_PARAMS],
  [Errno.EBUSY, GaudiErrorCode.DEVICE_BUSY],
  [Errno.EAGAIN, GaudiErrorCode.DEVICE_BUSY],
  [Errno.EIO, GaudiErrorCode.DMA_FAILED],
  [Errno.ENOEXEC, GaudiErrorCode.DMA_FAILED],
  [Errno.ETIMEDOUT, GaudiErrorCode.TIMEOUT],
  [Errno.EPERM, GaudiErrorCode.PERMISSION_DENIED],
  [Errno.EACCES, GaudiErrorCode.PERMISSION_DENIED],
]);

/** The numbers of the codes, as C programs return them. */
export const GaudiErrorNumber = {
  /** See {@link GaudiErrorCode.DEVICE_NOT_FOUND}. */
  DEVICE_NOT_FOUND: -1,
  /** See {@link GaudiErrorCode.OUT_OF_MEMORY}. */
  OUT_OF_MEMORY: -2,
  /** See {@link GaudiErrorCode.INVALID_PARAMS}. */
  INVALID_PARAMS: -3,
  /** See {@link GaudiErrorCode.DEVICE_BUSY}. */
  DEVICE_BUSY: -4,
  /** See {@link GaudiErrorCode.DMA_FAILED}. */
  DMA_FAILED: -5,
  /** See {@link GaudiErrorCode.TIMEOUT}. */
  TIMEOUT: -6,
  /** See {@link GaudiErrorCode.PERMISSION_DENIED}. */
  PERMISSION_DENIED: -7,
  /** See {@link GaudiErrorCode.CHANNEL_FAILED}. */
  CHANNEL_FAILED: -8,
} as const;

/** One of the values of {@link GaudiErrorNumber}. */
export type GaudiErrorNumber = (typeof GaudiErrorNumber)[keyof typeof GaudiErrorNumber];

/** The codes in the order of their numbers, from -1 downwards. */
const CODES: readonly GaudiErrorCode[] = Object.values(GaudiErrorCode);

/** @throws UcxError ERR_INVALID_PARAM */
function checkedCode(code: GaudiErrorCode | GaudiErrorNumber): GaudiErrorCode {
  const named = typeof code === 'number' ? CODES[-code - 1] : code;
  if (typeof named === 'string' && Object.hasOwn(TEXT, named)) return named;
  throw invalidParam('code', 'must be one of GaudiErrorCode, or a number of GaudiErrorNumber', code);
}

/** @throws UcxError ERR_INVALID_PARAM */
function checkMessage(what: string, details: ErrorDetails | undefined): void {
  checkString('what', what);
  if (details !== undefined) checkOptions(details, 'details');
}

/** The text of a code or its number, which begins the messages of {@link gaudiError}. */
export function gaudiErrorText(code: GaudiErrorCode | GaudiErrorNumber): string {
  return TEXT[checkedCode(code)];
}

/** The number of a code, or of its number. */
export function gaudiErrorNumber(code: GaudiErrorCode | GaudiErrorNumber): GaudiErrorNumber {
  return (-1 - CODES.indexOf(checkedCode(code))) as GaudiErrorNumber;
}

/** The status of a code or its number on the data path. */
export function gaudiErrorStatus(code: GaudiErrorCode | GaudiErrorNumber): Status {
  return STATUS[checkedCode(code)];
}

/** The code for a positive errno of the driver; DMA_FAILED for an errno that the driver does not document. */
export function gaudiErrorOfErrno(errno: number): GaudiErrorCode {
  if (!Number.isInteger(errno) || errno <= 0) throw invalidParam('errno', 'must be a positive errno', errno);
  return CODE_OF_ERRNO.get(errno) ?? GaudiErrorCode.DMA_FAILED;
}

/**
 * Builds an error of the Gaudi layer.
 * @param code or its number
 * @param what the call and the rule or cause, such as "deviceMemoryAlloc: 1024 bytes of card 0"
 */
export function gaudiError(
  code: GaudiErrorCode | GaudiErrorNumber,
  what: string,
  details?: ErrorDetails,
  cause?: unknown,
): UcxError {
  const named = checkedCode(code);
  checkMessage(what, details);
  const init = { code: named, status: STATUS[named], message: `${TEXT[named]}: ${what}`, cause };
  return new UcxError(details === undefined ? init : { ...init, details });
}

/** The meaning of a positive errno of the driver: the text of the errno, except where the driver uses it differently. */
export function errnoMeaning(errno: number): string {
  return errno === Errno.ENODEV ? 'the card was removed, or its driver was unloaded' : errnoReason(errno);
}

/** Builds the error for a negative errno that an ioctl returned. */
export function ioctlError(result: number, what: string, details?: ErrorDetails, cause?: unknown): UcxError {
  if (!Number.isInteger(result) || result >= 0) throw invalidParam('result', 'must be a negative errno', result);
  checkMessage(what, details);
  const errno = -result;
  const text = `${what}: ${errnoName(errno)} (${errnoMeaning(errno)})`;
  return gaudiError(gaudiErrorOfErrno(errno), text, { ...details, errno: errnoName(errno) }, cause);
}

/**
 * True for a negative errno by which the driver reports that the card is not usable: in reset (EBUSY), failed (EPERM, EIO) or removed (ENODEV). A resource that
 * the caller wanted to release is then lost with the card.
 */
export function isDeviceLost(result: number): boolean {
  return result === -Errno.EBUSY || result === -Errno.ENODEV || result === -Errno.EIO || result === -Errno.EPERM;
}

/** True for the errno that a kernel returns for an unknown op. */
export function isOpAbsent(result: number): boolean {
  return result === -Errno.EINVAL || result === -Errno.ENOTTY || result === -Errno.EOPNOTSUPP;
}

/** The error for an invalid argument of the Gaudi layer. Code ERR_GAUDI_INVALID_PARAMS. */
export function invalidArgument(argument: string, rule: string, value: unknown): UcxError {
  const shown =
    typeof value === 'bigint' ? `0x${value.toString(16)}` : typeof value === 'string' ? value : describeValue(value);
  return badArgument(argument, rule, shown, `argument ${argument} ${rule}, got ${shown}`);
}

/** The error for a range outside of its memory; see `outsideOf`. */
export function outsideArgument(memory: string, argument: string, range: SizedRange): UcxError {
  const text = outsideText(memory, range);
  return badArgument(argument, text, `${range.byteLength}`, text);
}

function badArgument(argument: string, rule: string, value: string, message: string): UcxError {
  return gaudiError(GaudiErrorCode.INVALID_PARAMS, message, { argument, rule, value });
}

/** End of user addresses of x86-64. */
const HOST_ADDRESS_END = 2 ** 47;

/** Throws unless `value` is a possible address of user memory. */
export function checkHostAddress(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value <= 0 || value >= HOST_ADDRESS_END) {
    throw invalidArgument(argument, 'must be a user address below 2^47', value);
  }
}

/** Throws unless `value` is an integer from 1 to 2^53 - 1. */
export function checkLength(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value <= 0) {
    throw invalidArgument(argument, 'must be a positive integer below 2^53', value);
  }
}

/** Throws unless `value` fits an unsigned 64-bit word. */
export function checkWord64(argument: string, value: bigint): void {
  if (typeof value !== 'bigint' || value < 0n || value >= 1n << 64n)
    throw invalidArgument(argument, 'must be a bigint of 64 bits, unsigned', value);
}

/** Throws unless `value` is an integer of 0 to 2^32 - 1. */
export function checkWord32(argument: string, value: number): void {
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** 32) {
    throw invalidArgument(argument, 'must be an integer from 0 to 2^32 - 1', value);
  }
}

/** Throws unless `value` is an integer from `least` to 2^53 - 1. */
export function checkInteger(argument: string, value: number, least = 0): void {
  if (!Number.isSafeInteger(value) || value < least) {
    throw invalidArgument(argument, `must be an integer from ${least} to 2^53 - 1`, value);
  }
}

/**
 * Throws unless `value` is an object. Its fields are checked where they are used.
 * @param names permitted options, which must not be null; if omitted, any are accepted
 */
export function checkObject(argument: string, value: object, names?: readonly string[]): void {
  if (typeof value !== 'object' || value === null) throw invalidArgument(argument, 'must be an object', value);
  if (names === undefined) return;
  if (!isOptions(value)) throw invalidArgument(argument, `must be an object with ${names.join(', ')}`, value);
  const unknown = unknownOption(value, names);
  if (unknown !== undefined)
    throw badArgument(argument, unknown.rule, unknown.name, `argument ${argument} ${unknown.rule}`);
  const isNull = nullOption(value);
  if (isNull !== undefined) throw invalidArgument(isNull, 'must be omitted to use its default', null);
}

/** Throws unless `value` is a boolean, or undefined for its default. */
export function checkFlag(argument: string, value: boolean | undefined): void {
  if (value !== undefined && typeof value !== 'boolean') throw invalidArgument(argument, 'must be a boolean', value);
}

/** Throws unless `value` is a string. */
export function checkText(argument: string, value: string): void {
  if (typeof value !== 'string') throw invalidArgument(argument, 'must be a string', value);
}

/** Throws unless `value` has these methods. For interfaces that programs may implement. */
export function checkMethods<T extends object>(
  argument: string,
  value: T,
  methods: readonly (keyof T & string)[],
): void {
  checkObject(argument, value);
  const missing = missingMethod(value, methods);
  if (missing !== undefined) throw invalidArgument(argument, `must have the method ${missing}`, value);
}
