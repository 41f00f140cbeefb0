/** The status of work completions in terms of transports. */

import { Status } from '../../../ucs/type/status.ts';
import { WcStatus } from '../../../verbs/abi.ts';

/** Status of the operation whose work request ended so. */
export function statusOfWc(status: number): Status {
  switch (status) {
    case WcStatus.SUCCESS:
      return Status.OK;
    case WcStatus.REM_ACCESS_ERR:
    case WcStatus.REM_INV_REQ_ERR:
    case WcStatus.REM_INV_RD_REQ_ERR:
    case WcStatus.LOC_PROT_ERR:
      return Status.INVALID_ADDR;
    case WcStatus.RETRY_EXC_ERR:
    case WcStatus.RNR_RETRY_EXC_ERR:
    case WcStatus.RESP_TIMEOUT_ERR:
      return Status.ENDPOINT_TIMEOUT;
    case WcStatus.WR_FLUSH_ERR:
    case WcStatus.REM_ABORT_ERR:
    case WcStatus.REM_OP_ERR:
      return Status.CONNECTION_RESET;
    default:
      return Status.IO_ERROR;
  }
}

/** Status of the connection, and of its other operations, after a work request ended so. */
export function connectionStatusOfWc(status: number): Status {
  const own = statusOfWc(status);
  return own === Status.INVALID_ADDR ? Status.CONNECTION_RESET : own;
}
