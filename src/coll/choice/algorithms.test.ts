/** Every algorithm against a serial oracle, for small teams; test/property has larger ones. */

import { describe, it } from 'vitest';
import { checkAlgorithm } from '../../../test/fixtures/coll/schedule-oracle.ts';
import { ALGORITHMS } from './algorithms.ts';

describe.each(ALGORITHMS.map((one) => [`${one.collective}, ${one.name}`, one] as const))('%s', (_name, algorithm) => {
  it('has the result of the oracle for 1 to 6 ranks, every root, and any length', () => {
    checkAlgorithm(algorithm, 6);
  });
});
