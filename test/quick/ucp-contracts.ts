/** The contracts of the operations of ucp, for one kind of connection. */

import { activeMessageContract } from '../contract/ucp/ucp-active-message.ts';
import { atomicContract } from '../contract/ucp/ucp-atomic.ts';
import { callbackContract } from '../contract/ucp/ucp-callbacks.ts';
import { lostMemoryContract } from '../contract/ucp/ucp-detached.ts';
import { forcedCloseContract } from '../contract/ucp/ucp-forced-close.ts';
import { listContract, notificationContract } from '../contract/ucp/ucp-list.ts';
import { protectionContract } from '../contract/ucp/ucp-protection.ts';
import { putGetContract } from '../contract/ucp/ucp-put-get.ts';
import { streamContract } from '../contract/ucp/ucp-stream.ts';
import { tagMatchingContract } from '../contract/ucp/ucp-tag.ts';
import type { ConnectionKind } from '../fixtures/pair.ts';

/** Declares them. */
export function ucpContracts(kind: ConnectionKind): void {
  putGetContract(kind);
  atomicContract(kind);
  activeMessageContract(kind);
  tagMatchingContract(kind);
  streamContract(kind);
  listContract(kind);
  notificationContract(kind);
  protectionContract(kind);
  callbackContract(kind);
  lostMemoryContract(kind);
  forcedCloseContract(kind);
}
