/**
 * The part of an endpoint that a transport without messages, atomic operations and peers does not have: every such call is UNSUPPORTED.
 */

import { Status } from '../../ucs/type/status.ts';

/** Base of endpoints that only put and get within one process. */
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

  /** The peer is this process. */
  check(): Status {
    return Status.OK;
  }
}
