import { endpointRmaContract } from './endpoint-rma.ts';
import { IMPLEMENTATIONS } from './uct-implementations.ts';

for (const [name, setup] of IMPLEMENTATIONS) endpointRmaContract(name, setup);
