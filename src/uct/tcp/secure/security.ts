/** Security required of connections: none, proof of the shared key, or encryption in addition. The implementation is elsewhere. */

import type { Log } from '../../../ucs/debug/log.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { readKeyFile } from './key-file.ts';

/** Security levels, in ascending order. */
export const SECURITY_LEVELS = ['none', 'auth', 'encrypt'] as const;
/** One of {@link SECURITY_LEVELS}. */
export type SecurityLevel = (typeof SECURITY_LEVELS)[number];

/** The settings. */
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
    if (KEY_FILE !== '') log.warn('UCX_TCP_KEY_FILE is not used: UCX_TCP_SECURITY=none asks no peer for the key');
    return undefined;
  }
  if (KEY_FILE === '') {
    throw new UcxError({
      code: 'ERR_TCP_KEY_FILE',
      status: Status.INVALID_PARAM,
      message: `UCX_TCP_SECURITY=${SECURITY} needs a shared key: UCX_TCP_KEY_FILE names no file`,
    });
  }
  return { level: SECURITY, key: readKeyFile(KEY_FILE) };
}
