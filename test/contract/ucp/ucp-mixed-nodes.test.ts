/** The operations of ucp between contexts on two nodes whose cards are of different generations. */

import { MIXED_KINDS } from '../../fixtures/pair.ts';
import { activeMessageContract } from './ucp-active-message.ts';
import { atomicContract } from './ucp-atomic.ts';
import { listContract } from './ucp-list.ts';
import { putGetContract } from './ucp-put-get.ts';
import { tagMatchingContract } from './ucp-tag.ts';

for (const kind of MIXED_KINDS) {
  putGetContract(kind);
  tagMatchingContract(kind);
  activeMessageContract(kind);
  // Their messages do not differ between the older generations.
  if (kind.node?.asic !== 'gaudi2') continue;
  atomicContract(kind);
  listContract(kind);
}
