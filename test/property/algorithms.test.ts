/** Every algorithm of collective operations against a serial oracle, also for teams of more ranks than the unit tests try. */

import { describe, it } from 'vitest';
import { ALGORITHMS } from '../../src/coll/choice/algorithms.ts';
import { checkAlgorithm } from '../fixtures/coll/schedule-oracle.ts';

describe.each(ALGORITHMS.map((one) => [`${one.collective}, ${one.name}`, one] as const))('%s', (_name, algorithm) => {
  it('has the result of the oracle for 1 to 9 ranks, every root, and any length', () => {
    checkAlgorithm(algorithm, 9);
  });
});
