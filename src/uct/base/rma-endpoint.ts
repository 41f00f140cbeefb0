/** Base of endpoints of transports without messages and atomic operations: each of these calls returns UNSUPPORTED. */

import { Status } from '../../ucs/type/status.ts';

/** Base of endpoints with put and get only. */
export abstract class RmaOnlyEndpoint {
  amShort(): Status {
    return Status.UNSUPPORTED;
  }

  amBcopy(): Status {
    return Status.UNSUPPORTED;
  }

  atomic(): Status {
    return Status.UNSUPPORTED;
  }

  /** A peer that is this process is always reachable. */
  check(): Status {
    return Status.OK;
  }
}
