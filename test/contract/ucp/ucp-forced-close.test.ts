/** Runs the contract of forced closes over every kind of connection between two workers. */

import { PAIR_KINDS } from '../../fixtures/pair.ts';
import { forcedCloseContract } from './ucp-forced-close.ts';

/** Not over libucp 1.13: it aborts a process whose peer goes away during its puts (ucp_rma_sw_send_cmpl). */
const KINDS = PAIR_KINDS.filter(({ engine }) => engine !== 'libucx');

for (const kind of KINDS) forcedCloseContract(kind);
