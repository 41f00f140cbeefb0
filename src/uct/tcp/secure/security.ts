/** What is asked of connections: nothing, that both ends know the shared key, or that they are encrypted as well. Not how that is done. */

import type { Log } from '../../../ucs/debug/log.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { readKeyFile } from './key-file.ts';

/** What may be asked for, the least first. */
export const SECURITY_LEVELS = ['none', 'auth', 'encrypt'] as const;
/** One of {@link SECURITY_LEVELS}. */
export type SecurityLevel = (typeof SECURITY_LEVELS)[number];

/** What the configuration says. */
export interface SecurityConfig {
  readonly SECURITY: SecurityLevel;
  /** Path; empty for none. */
  readonly KEY_FILE: string;
}

/** What is asked of every connection, and the key that both ends have to know. */
export interface Security {
  readonly level: Exclude<SecurityLevel, 'none'>;
  readonly key: Uint8Array;
}

/**
 * Reads what the configuration asks for.
 * @returns undefined for nothing
 * @throws UcxError ERR_TCP_KEY_FILE where there is no key, or the file is not as it must be
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
