/** Faults in collective operations and in the composition of contexts. */

import type { Area } from './fault.ts';

export const COLL: Area = {
  name: 'coll',
  suites: ['test/simulation/coll', 'test/integration/coll/', 'test/property/'],
  faults: [],
};
