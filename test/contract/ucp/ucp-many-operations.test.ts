/** Runs the contract of many operations with thousands of them. */

import { describe } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { manyOperationsContract } from './ucp-many-operations.ts';

const fixture = useContexts();

describe.each([0, 1])('thousands of operations with %s engine threads', (dmaThreads) => {
  manyOperationsContract(fixture, { dmaThreads, puts: 12_000, requestsMax: 10_000 });
});
