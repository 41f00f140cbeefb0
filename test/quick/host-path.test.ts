/** One representative of each contract for host memory: the transport posix, and the operations of ucp over it. */

import { tcpConnectionManager } from '../../src/uct/tcp/cm/manager.ts';
import { describeConnectionManager } from '../contract/uct/connection-manager.ts';
import { endpointAtomicsContract } from '../contract/uct/endpoint-atomics.ts';
import { endpointMessagesContract } from '../contract/uct/endpoint-messages.ts';
import { endpointRmaContract } from '../contract/uct/endpoint-rma.ts';
import { memoryDomainContract } from '../contract/uct/memory-domain.ts';
import { openPosix } from '../contract/uct/uct-implementations.ts';
import { connectionKind } from '../fixtures/pair.ts';
import { ucpContracts } from './ucp-contracts.ts';

describeConnectionManager('tcp', tcpConnectionManager);
memoryDomainContract('posix', openPosix);
endpointRmaContract('posix', openPosix);
endpointMessagesContract('posix', openPosix);
endpointAtomicsContract('posix', openPosix);
ucpContracts(connectionKind('posix'));
