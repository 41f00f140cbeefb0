/** The client id, by which listeners identify a worker. */

import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { WorkerOptions } from './worker.ts';

const CLIENT_ID_MAX = 0xffff_ffff_ffff_ffffn;

/**
 * The client id of a worker with these options.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function clientIdOf(options: WorkerOptions): bigint {
  checkOptions(options, 'options', ['clientId']);
  const { clientId } = options;
  if (clientId === undefined) return new DataView(systemRandomBytes(8).buffer).getBigUint64(0, true);
  const isNumber = typeof clientId === 'number' && Number.isSafeInteger(clientId) && clientId >= 0;
  const isBigint = typeof clientId === 'bigint' && clientId >= 0n && clientId <= CLIENT_ID_MAX;
  if (!isNumber && !isBigint) throw invalidParam('clientId', 'must be an integer from 0 to 2^64 - 1', clientId);
  return BigInt(clientId);
}
