/** The interfaces of a worker that receive no messages of peers: polled while they may have operations in flight, and periodically. Others are polled always. */

import type { Iface } from '../../uct/api/iface.ts';
import type { Activity } from './lane.ts';
import { isListening } from './lanes.ts';

/** The interfaces. */
export class QuietIfaces {
  /** Set when an operation starts on one of them. */
  readonly activity: Activity = { busy: false };
  readonly #ifaces: readonly Iface[];

  /** @param ifaces all of the worker */
  constructor(ifaces: readonly Iface[]) {
    this.#ifaces = ifaces.filter((iface) => !isListening(iface));
  }

  /** Polls those with operations in flight. @param isPeriodic polls the others too: they may serve peers */
  progress(isPeriodic: boolean): number {
    let count = 0;
    // Reset first: an operation that ends on one interface may start another on an interface that was polled before.
    this.activity.busy = false;
    for (let i = 0; i < this.#ifaces.length; i++) {
      const iface = this.#ifaces[i]!;
      if (iface.outstanding === 0 && !isPeriodic) continue;
      count += iface.progress();
      if (iface.outstanding > 0) this.activity.busy = true;
    }
    return count;
  }
}
