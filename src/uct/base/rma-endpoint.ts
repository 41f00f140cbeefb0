/** Base of endpoints of transports without messages, atomic operations and remote peers: each of these calls returns UNSUPPORTED. */

import { Status } from '../../ucs/type/status.ts';

/** Base of endpoints with put and get within one process only. */
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

  /** The peer is this process, so it is always reachable. */
  check(): Status {
    return Status.OK;
  }
}
