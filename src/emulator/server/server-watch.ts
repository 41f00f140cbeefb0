/**
 * Detects, for a waiting client, that the process of a node server is stopped (SIGSTOP, a debugger). A stopped server keeps its socket open but does not
 * reply; a slow server is not stopped, however long a call takes.
 */

import type { Clock } from '../../ucs/sys/clock.ts';

/** Time for which a client waits for a stopped server: a server that continues within it still replies to the call. */
const STOPPED_NS_MAX = 5e9;
/** Checks with a larger gap belong to different waits: the server may have run between them. */
const GAP_NS_MAX = 3e9;

export interface ServerWatchParts {
  readonly clock: Pick<Clock, 'nowNs'>;
  /** Whether the process is stopped now. */
  readonly isStopped: () => boolean;
}

export class ServerWatch {
  readonly #parts: ServerWatchParts;
  #sinceNs = Number.POSITIVE_INFINITY;
  #lastNs = 0;

  constructor(parts: ServerWatchParts) {
    this.#parts = parts;
  }

  /** Checks the process: true once every check within 5 s found it stopped. */
  look(): boolean {
    const { clock, isStopped } = this.#parts;
    const nowNs = clock.nowNs();
    if (nowNs - this.#lastNs > GAP_NS_MAX) this.#sinceNs = Number.POSITIVE_INFINITY;
    this.#lastNs = nowNs;
    this.#sinceNs = isStopped() ? Math.min(this.#sinceNs, nowNs) : Number.POSITIVE_INFINITY;
    return nowNs - this.#sinceNs >= STOPPED_NS_MAX;
  }
}
