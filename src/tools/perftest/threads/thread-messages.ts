/** What perftest and its threads tell each other. Types only. */

import type { Status } from '../../../ucs/type/status.ts';
import type { Place } from '../channel.ts';
import type { Measurement } from '../meter.ts';
import type { Role } from '../session.ts';

/** Data of a thread: the test as it goes over the wire, and where its channel is; undefined for loopback. */
export interface ThreadData {
  readonly spec: object;
  readonly role: Role;
  readonly place: Place | undefined;
}

/** A message of a thread. */
export type ThreadMessage =
  | { readonly kind: 'listening'; readonly place: Place }
  | { readonly kind: 'start'; readonly emulated: boolean }
  /** Measured iterations so far. */
  | { readonly kind: 'progress'; readonly iterations: number }
  | { readonly kind: 'report'; readonly measurement: Measurement; readonly isFinal: boolean; readonly carrier: string }
  | { readonly kind: 'failure'; readonly code: string; readonly status: Status; readonly text: string };
