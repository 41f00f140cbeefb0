/** Faults in libucx: releases, cancel against completion, requests of endpoints that are gone. */

import type { Area } from './fault.ts';

export const LIBUCX: Area = {
  name: 'libucx',
  suites: ['test/contract/ucp/', 'test/integration/libucx/'],
  faults: [],
};
