/** Messages between perftest and its threads. Types only. */

import type { Status } from '../../../ucs/type/status.ts';
import type { Measurement } from '../measure/meter.ts';
import type { Place } from '../session/channel.ts';

/** Side of a thread, and address of its channel; loopback has none. */
export type ThreadEnd = { readonly role: 'loopback' } | { readonly role: 'server' | 'client'; readonly place: Place };

/** Data of a thread. The test is as it goes over the wire. */
export interface ThreadData {
  readonly spec: object;
  readonly end: ThreadEnd;
}

/** A message of a thread. */
export type ThreadMessage =
  | { readonly kind: 'listening'; readonly place: Place }
  | { readonly kind: 'start'; readonly emulated: boolean }
  /** Measured iterations so far. */
  | { readonly kind: 'progress'; readonly iterations: number }
  | { readonly kind: 'report'; readonly measurement: Measurement; readonly isFinal: boolean; readonly carrier: string }
  | { readonly kind: 'failure'; readonly code: string; readonly status: Status; readonly text: string };
