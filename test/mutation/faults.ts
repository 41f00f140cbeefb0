/** All faults, by area. */

import { COLL } from './coll.ts';
import type { Area } from './fault.ts';
import { LIBUCX } from './libucx.ts';
import { UCP } from './ucp.ts';
import { UCP_MESSAGES } from './ucp-messages.ts';

export const AREAS: readonly Area[] = [UCP, UCP_MESSAGES, LIBUCX, COLL];
