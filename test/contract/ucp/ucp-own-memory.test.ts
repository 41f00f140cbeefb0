/** Runs the contract of own memory over every engine. */

import { ENGINES } from '../../fixtures/pair.ts';
import { ownMemoryContract } from './ucp-own-memory.ts';

for (const engine of ENGINES) ownMemoryContract(engine);
