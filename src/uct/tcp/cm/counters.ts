/** Counters of a connection manager: totals since its creation. */

import { namedCounters, type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';

const NAMES = [
  'clients',
  'clients_dropped',
  'clients_sent_away',
  'requests',
  'requests_busy',
  'accepted',
  'rejected',
  'connects',
  'connected',
] as const;

/** Names of the counters. */
export const CmCounter = {
  /** Clients that were accepted at the socket. */
  CLIENTS: 0,
  /** Clients among them that disconnected, were too slow or violated the protocol. */
  CLIENTS_DROPPED: 1,
  /** Clients that were disconnected for lack of places or descriptors. */
  CLIENTS_SENT_AWAY: 2,
  /** Requests that were reported to the program. */
  REQUESTS: 3,
  /** Requests that were rejected because too many waited. */
  REQUESTS_BUSY: 4,
  /** Decisions of the program on requests. */
  ACCEPTED: 5,
  REJECTED: 6,
  /** Attempts of this process to connect, and those that succeeded. */
  CONNECTS: 7,
  CONNECTED: 8,
} as const;
export type CmCounter = (typeof CmCounter)[keyof typeof CmCounter];

/** The counters of one manager. */
export class CmCounters {
  readonly #values: number[] = NAMES.map(() => 0);

  count(counter: CmCounter): void {
    this.#values[counter]! += 1;
  }

  /** Returns the counters as a node of the statistics. */
  node(name: string): StatsNode {
    return statsNode('uct_cm', name, namedCounters(NAMES, this.#values));
  }
}
