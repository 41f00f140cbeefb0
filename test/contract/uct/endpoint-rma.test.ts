import { keyFile } from '../../fixtures/transports/key-files.ts';
import { endpointRmaContract } from './endpoint-rma.ts';
import { IMPLEMENTATIONS, openTcp } from './uct-implementations.ts';

for (const [name, setup] of IMPLEMENTATIONS) endpointRmaContract(name, setup);

const SECURITY = { TCP_SECURITY: 'encrypt', TCP_KEY_FILE: keyFile() };
endpointRmaContract('tcp with encryption', (log) => openTcp(log, SECURITY));
