/**
 * Sleeping on the events of transports, without blocking the event loop. It drives nothing.
 */

import type { Clock } from '../../ucs/clock.ts';
import { type Iface, IfaceFlag } from '../../uct/api/iface.ts';
import { SLEEP_NS_MAX } from '../api/awaited/progress-driver.ts';

/** Pause where no transport tells when to go on: the application must free requests. */
const PAUSE_NS = 1e6;
/** Look after requests that wait for resources, should the transport that is slept on not tell of them. */
const PENDING_NS = 50e6;

const LISTENING: number = IfaceFlag.AM_SHORT | IfaceFlag.EVENT;

/** What is slept on. */
export interface SleptOn {
  readonly ifaces: readonly Iface[];
  /** Listeners and attempts to connect by socket addresses. */
  readonly sockets: { readonly outstanding: number; wait(timeoutNs: number): Promise<void> };
  /** Requests wait for resources. */
  readonly hasPending: boolean;
}

/** Calls `wake`, once or more often, when there may be something to do: an operation has ended, or a message has arrived. */
export function sleepOn({ ifaces, sockets, hasPending }: SleptOn, clock: Clock, wake: () => void): void {
  let isSleeping = false;
  for (const iface of ifaces) {
    const hears = (iface.attributes.flags & LISTENING) === LISTENING;
    if (iface.outstanding === 0 && !hears) continue;
    isSleeping = true;
    iface.wait(SLEEP_NS_MAX).then(wake, wake);
  }
  if (sockets.outstanding > 0) {
    isSleeping = true;
    sockets.wait(SLEEP_NS_MAX).then(wake, wake);
  }
  if (!isSleeping) clock.setTimer(PAUSE_NS, wake).ref();
  else if (hasPending) clock.setTimer(PENDING_NS, wake).ref();
}
