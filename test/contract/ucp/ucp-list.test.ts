import { CONNECTION_KINDS, PAIR_KINDS } from '../../fixtures/pair.ts';
import { listContract, notificationContract } from './ucp-list.ts';

for (const kind of CONNECTION_KINDS) listContract(kind);
for (const kind of PAIR_KINDS) notificationContract(kind);
