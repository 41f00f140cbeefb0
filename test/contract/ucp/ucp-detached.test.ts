/** Runs the contracts of detached and resizable buffers over kinds of connection that use memory differently. */

import { connectionKind } from '../../fixtures/pair.ts';
import { lostMemoryContract, resizableBufferContract } from './ucp-detached.ts';

/** Kinds that differ in how operations use memory. */
const KINDS = ['loopback', 'posix', 'cma and posix', 'tcp', 'staging, posix', 'all transports'].map(connectionKind);

for (const kind of KINDS) lostMemoryContract(kind);
for (const kind of ['cma and posix', 'posix', 'tcp', 'RDMA', 'all transports'].map(connectionKind))
  resizableBufferContract(kind);
