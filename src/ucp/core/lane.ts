/** A lane: one transport on one device, connected, as an endpoint uses it. Data only. */

import type { Iface, UctEndpoint } from '../../uct/api/iface.ts';
import type { OpenMd } from './resources.ts';

export interface Lane {
  readonly iface: Iface;
  readonly endpoint: UctEndpoint;
  readonly md: OpenMd;
}
