/** One representative of each contract for HBM below ucp: the emulated driver, the transport gaudi_copy, and memory that programs have allocated. */

import { createEmulatedNode } from '../../src/emulator/index.ts';
import { driverFileContract } from '../contract/driver/driver-file.ts';
import { ownMemoryContract } from '../contract/ucp/ucp-own-memory.ts';
import { endpointRmaContract } from '../contract/uct/endpoint-rma.ts';
import { memoryDomainContract } from '../contract/uct/memory-domain.ts';
import { openGaudiCopy } from '../contract/uct/uct-implementations.ts';

driverFileContract('emulated gaudi2', 'gaudi2', () => createEmulatedNode({ cards: 1, dmaThreads: 0 }));
driverFileContract('emulated gaudi3', 'gaudi3', () =>
  createEmulatedNode({ asic: 'gaudi3', cards: 1, dmaThreads: 0, strict: true }),
);
memoryDomainContract('gaudi_copy', (log) => openGaudiCopy(log));
endpointRmaContract('gaudi_copy', (log) => openGaudiCopy(log));
endpointRmaContract('gaudi_copy on gaudi3', (log) => openGaudiCopy(log, { asic: 'gaudi3' }));
ownMemoryContract('native');
