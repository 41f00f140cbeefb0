/**
 * Security required of connections: none, proof of the shared key, or encryption in addition. Also the file of the shared key (permissions and format), and
 * the check of magic numbers from the first byte on: a foreign peer may send less than a header, then wait.
 */

import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import type { Log } from '../../../ucs/debug/log.ts';
import { effectiveUserId } from '../../../ucs/sys/user-id.ts';
import { asError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** Security levels, in ascending order. */
export const SECURITY_LEVELS = ['none', 'auth', 'encrypt'] as const;
/** One of {@link SECURITY_LEVELS}. */
export type SecurityLevel = (typeof SECURITY_LEVELS)[number];

export interface SecurityConfig {
  readonly SECURITY: SecurityLevel;
  /** Path; empty for none. */
  readonly KEY_FILE: string;
}

/** Security required of every connection, and the key that both ends must have. */
export interface Security {
  readonly level: Exclude<SecurityLevel, 'none'>;
  readonly key: Uint8Array;
}

/**
 * Reads the configured security.
 * @returns undefined for none
 * @throws UcxError ERR_TCP_KEY_FILE if the key is missing, or the file is invalid
 */
export function openSecurity({ SECURITY, KEY_FILE }: SecurityConfig, log: Log): Security | undefined {
  if (SECURITY === 'none') {
    if (KEY_FILE !== '') log.warn('UCX_TCP_KEY_FILE is not used, because UCX_TCP_SECURITY is none');
    return undefined;
  }
  if (KEY_FILE === '') {
    throw new UcxError({
      code: 'ERR_TCP_KEY_FILE',
      status: Status.INVALID_PARAM,
      message: `UCX_TCP_SECURITY=${SECURITY} needs a shared key: set UCX_TCP_KEY_FILE`,
    });
  }
  return { level: SECURITY, key: readKeyFile(KEY_FILE) };
}

/** Minimum bytes of a key, without blanks at its ends. */
export const KEY_BYTES_MIN = 16;
const FILE_BYTES_MAX = 4096;
const OTHERS = 0o077;
const PERMISSIONS = 0o777;
const BLANKS: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/**
 * Reads a key: the bytes of the file without blanks and line ends around them.
 * @param user required owner of the file, because the owner can change the key and the mode
 * @throws UcxError ERR_TCP_KEY_FILE, status IO_ERROR if the file cannot be read, INVALID_PARAM if it belongs to another user, is readable by others,
 * or the key is too short or too long
 */
export function readKeyFile(path: string, user: number = effectiveUserId()): Uint8Array {
  try {
    // Opening a pipe without a writer must not block the program: pipes are rejected below.
    const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      return readKey(fd, path, user);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (error instanceof UcxError) throw error;
    throw keyFileError(path, `cannot be read: ${asError(error).message}`, Status.IO_ERROR);
  }
}

function readKey(fd: number, path: string, user: number): Uint8Array {
  const status = fstatSync(fd);
  if (!status.isFile()) throw keyFileError(path, 'must be a regular file');
  if (status.uid !== user) {
    throw keyFileError(path, `must belong to the user of this process, ${user}, but belongs to user ${status.uid}`);
  }
  if ((status.mode & OTHERS) !== 0) {
    const mode = (status.mode & PERMISSIONS).toString(8).padStart(4, '0');
    throw keyFileError(path, `must be readable by its owner only, mode 0600 or 0400, got ${mode}`);
  }
  const bytes = new Uint8Array(FILE_BYTES_MAX + 1);
  let end = readSync(fd, bytes);
  if (end > FILE_BYTES_MAX) throw keyFileError(path, `must have at most ${FILE_BYTES_MAX} bytes`);
  let start = 0;
  while (start < end && BLANKS.includes(bytes[start]!)) start += 1;
  while (end > start && BLANKS.includes(bytes[end - 1]!)) end -= 1;
  if (end - start < KEY_BYTES_MIN) {
    throw keyFileError(path, `must have a key of at least ${KEY_BYTES_MIN} bytes, got ${end - start}`);
  }
  return bytes.slice(start, end);
}

/** The error for an invalid key file. */
export function keyFileError(path: string, rule: string, status: Status = Status.INVALID_PARAM): UcxError {
  return new UcxError({
    code: 'ERR_TCP_KEY_FILE',
    status,
    message: `the file of UCX_TCP_KEY_FILE, ${JSON.stringify(path)}, ${rule}`,
    details: { path },
  });
}

/** Bytes of a magic number. */
export const MAGIC_BYTES = 4;

/** Whether the bytes received so far can be the beginning of a message with this magic number (u32, little-endian). */
export function canBegin(bytes: Uint8Array, magic: number): boolean {
  const known = Math.min(bytes.byteLength, MAGIC_BYTES);
  for (let at = 0; at < known; at++) if (bytes[at] !== ((magic >>> (8 * at)) & 0xff)) return false;
  return true;
}

/** The received bytes of a magic number, as text for a message. */
export function beginningText(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.subarray(0, MAGIC_BYTES)).toString('latin1');
  return /^[\x20-\x7e]*$/.test(text) ? JSON.stringify(text) : `0x${Buffer.from(text, 'latin1').toString('hex')}`;
}
