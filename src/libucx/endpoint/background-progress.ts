/**
 * Background progress of a manual worker with endpoints by socket addresses: libucp answers a peer that connects or closes only during progress. It sleeps on the
 * events of libucp, and does not keep the process alive.
 */

import { type Progressable, progressInBackground } from '../../api/progress/progressable.ts';

/** Maximum number of progress calls before the event loop runs. */
const CALLS_MAX = 64;

/** The background progress of one worker. */
export class BackgroundProgress {
  readonly #worker: Progressable;
  readonly #endpoints: Set<{ readonly closed: boolean }> = new Set();
  /** Identifies the current sleep: an older one that wakes has no effect. */
  #ticket: object | undefined;

  constructor(worker: Progressable) {
    this.#worker = worker;
  }

  /** Runs until the endpoint is closed: closing makes progress itself. */
  keepProgressing(endpoint: { readonly closed: boolean }): void {
    this.#endpoints.add(endpoint);
    if (this.#ticket === undefined) this.#sleep();
  }

  /** Stops when the worker closes. */
  close(): void {
    this.#endpoints.clear();
  }

  #sleep(): void {
    const ticket = {};
    this.#ticket = ticket;
    this.#worker.sleepOn(() => {
      if (this.#ticket === ticket) this.#progress();
    });
  }

  #progress(): void {
    this.#ticket = undefined;
    for (const endpoint of this.#endpoints) if (endpoint.closed) this.#endpoints.delete(endpoint);
    if (this.#endpoints.size === 0) return;
    for (let calls = 0; calls < CALLS_MAX && progressInBackground(this.#worker) > 0; calls++);
    if (this.#ticket === undefined) this.#sleep();
  }
}
