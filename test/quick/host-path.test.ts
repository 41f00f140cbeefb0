/** One representative of each contract for host memory: the transport posix, and the operations of ucp over it. */

import { tcpConnectionManager } from '../../src/uct/tcp/cm/manager.ts';
import { describeConnectionManager } from '../contract/connection-manager.ts';
import { endpointAtomicsContract } from '../contract/endpoint-atomics.ts';
import { endpointMessagesContract } from '../contract/endpoint-messages.ts';
import { endpointRmaContract } from '../contract/endpoint-rma.ts';
import { memoryDomainContract } from '../contract/memory-domain.ts';
import { openPosix } from '../contract/uct-implementations.ts';
import { connectionKind } from '../fixtures/pair.ts';
import { ucpContracts } from './ucp-contracts.ts';

describeConnectionManager('tcp', tcpConnectionManager);
memoryDomainContract('posix', openPosix);
endpointRmaContract('posix', openPosix);
endpointMessagesContract('posix', openPosix);
endpointAtomicsContract('posix', openPosix);
ucpContracts(connectionKind('posix'));
