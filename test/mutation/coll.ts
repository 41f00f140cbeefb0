/** Faults in collective operations and in the composition of contexts. */

import { OPERATION_FAULTS } from './coll-operation.ts';
import { TEAM_FAULTS } from './coll-team.ts';
import type { Area } from './fault.ts';

export const COLL: Area = {
  name: 'coll',
  suites: ['test/simulation/coll', 'test/integration/coll/', 'test/property/'],
  faults: [...OPERATION_FAULTS, ...TEAM_FAULTS],
};
