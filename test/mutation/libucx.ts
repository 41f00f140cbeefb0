/** Faults in libucx: releases, cancel against completion, requests of endpoints that are gone. */

import type { Area } from './fault.ts';
import { DEVICE_FAULTS } from './libucx-device.ts';
import { MESSAGE_FAULTS } from './libucx-message.ts';
import { REQUEST_FAULTS } from './libucx-request.ts';

export const LIBUCX: Area = {
  name: 'libucx',
  suites: ['test/contract/ucp/', 'test/integration/libucx/'],
  faults: [...REQUEST_FAULTS, ...MESSAGE_FAULTS, ...DEVICE_FAULTS],
};
