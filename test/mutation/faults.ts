/** All faults, by area. */

import { COLL } from './coll.ts';
import type { Area } from './fault.ts';
import { LIBUCX } from './libucx.ts';
import { POSIX_DIRECTORY } from './posix-directory.ts';
import { POSIX_ENDPOINT } from './posix-endpoint.ts';
import { POSIX_RING } from './posix-ring.ts';
import { TCP_CONNECTION } from './tcp-connection.ts';
import { TCP_FRAMES } from './tcp-frames.ts';
import { UCP } from './ucp.ts';
import { UCP_CONNECTIONS } from './ucp-connections.ts';
import { UCP_MESSAGES } from './ucp-messages.ts';
import { UCP_RNDV } from './ucp-rndv.ts';
import { UCP_TRANSFER } from './ucp-transfer.ts';
import { UCT_BASE } from './uct-base.ts';

export const AREAS: readonly Area[] = [
  UCP,
  UCP_TRANSFER,
  UCP_RNDV,
  UCP_MESSAGES,
  UCP_CONNECTIONS,
  LIBUCX,
  COLL,
  POSIX_RING,
  POSIX_DIRECTORY,
  POSIX_ENDPOINT,
  TCP_CONNECTION,
  TCP_FRAMES,
  UCT_BASE,
];
