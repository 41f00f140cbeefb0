import { memoryDomainContract } from './memory-domain.ts';
import { IMPLEMENTATIONS } from './uct-implementations.ts';

for (const [name, setup] of IMPLEMENTATIONS) memoryDomainContract(name, setup);
