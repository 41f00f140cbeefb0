/** The errors of gaudi_ipc for unavailable remote memory. */

import { GaudiErrorCode, gaudiError } from '../../../../hlthunk/index.ts';
import { UcxError } from '../../../../ucs/type/error.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { ProcessIdentity } from '../../../base/key/process-identity.ts';
import { GAUDI_IPC_NAME } from './ipc-names.ts';

/** The memory of a key was freed or deregistered. */
export function staleKey(rule: string, cause?: unknown): UcxError {
  const message = `remote key of ${GAUDI_IPC_NAME} ${rule}`;
  const details = { md: GAUDI_IPC_NAME };
  return new UcxError({ code: 'ERR_RKEY_STALE', status: Status.INVALID_ADDR, message, details, cause });
}

/** The fields of a key are inconsistent. */
export function forgedKey(rule: string): UcxError {
  const message = `remote key of ${GAUDI_IPC_NAME} ${rule}`;
  const details = { md: GAUDI_IPC_NAME };
  return new UcxError({ code: 'ERR_RKEY_FORGED', status: Status.INVALID_ADDR, message, details });
}

/** The process that owns the memory has ended. */
export function ownerGone({ pid }: ProcessIdentity): UcxError {
  const message = `process ${pid}, which owned the remote memory, has ended`;
  return new UcxError({ code: 'ERR_GAUDI_IPC_OWNER_GONE', status: Status.ENDPOINT_TIMEOUT, message, details: { pid } });
}

/** The owner runs and does not answer. */
export function ownerSilent({ pid }: ProcessIdentity, timeoutNs: number): UcxError {
  const what = `process ${pid} did not share its memory within ${timeoutNs / 1e9} s (UCX_GAUDI_IPC_TIMEOUT)`;
  return gaudiError(GaudiErrorCode.TIMEOUT, what, { pid });
}

/** The channel service of the owner cannot be used. */
export function channelFailed({ pid }: ProcessIdentity, reason: string, cause?: unknown): UcxError {
  return gaudiError(GaudiErrorCode.CHANNEL_FAILED, `channel service of process ${pid}: ${reason}`, { pid }, cause);
}

/** The owner has answered, but this process has no free descriptor. */
export function descriptorLost({ pid }: ProcessIdentity): UcxError {
  return gaudiError(GaudiErrorCode.OUT_OF_MEMORY, `no descriptor is left for the memory of process ${pid}`, { pid });
}
