/** The interface of notifications, which follow puts and lists of a peer. Types only. */

import type { Endpoint } from '../endpoint.ts';

/** A notification of a peer. */
export interface Notification {
  /** The bytes: in a handler, a view that is valid during the call; in a loop, a copy. */
  readonly bytes: Uint8Array;
  /** The endpoint to the peer that has sent it. */
  readonly endpoint: Endpoint;
}

/** Handles notifications, inside `progress()`. It must not throw. */
export type NotificationHandler = (notification: Notification) => void;
