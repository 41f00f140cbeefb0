/** A lane: one transport on one device, connected, as an endpoint uses it. Data only. */

import type { Iface, UctEndpoint } from '../../uct/api/iface.ts';
import type { OpenMd } from '../resources/resources.ts';

/** Whether transports of a worker may have operations in flight: progress need not poll those that have none. */
export interface Activity {
  busy: boolean;
}

export interface Lane {
  readonly iface: Iface;
  readonly endpoint: UctEndpoint;
  readonly md: OpenMd;
  /** Of the worker; starting an operation sets it. */
  readonly activity: Activity;
}
