/** The open interfaces of a memory domain, which close with it. It opens none. */

import type { Iface } from '../api/iface.ts';

/** An interface that reports whether it is closed. */
export interface ClosableIface extends Iface {
  readonly closed: boolean;
}

/** The interfaces in the order in which they were opened. */
export class OpenIfaces<T extends ClosableIface> {
  #ifaces: T[] = [];

  /** Adds an interface, and releases those that have been closed: otherwise every closed worker would stay in memory. */
  add(iface: T): T {
    this.#ifaces = [...this.#ifaces.filter(({ closed }) => !closed), iface];
    return iface;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#ifaces[Symbol.iterator]();
  }

  close(): void {
    for (const iface of this.#ifaces) iface.close();
  }
}
