/** What a connection manager counts: totals since the start. */

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

/** What is counted. */
export const CmCounter = {
  /** Clients that were taken. */
  CLIENTS: 0,
  /** Those among them that went away, were too slow or broke the rules. */
  CLIENTS_DROPPED: 1,
  /** Clients for which there was no place, or no descriptor. */
  CLIENTS_SENT_AWAY: 2,
  /** Requests that the program was told of. */
  REQUESTS: 3,
  /** Requests that were rejected as too many waited. */
  REQUESTS_BUSY: 4,
  /** What the program has made of them. */
  ACCEPTED: 5,
  REJECTED: 6,
  /** Own attempts to connect, and those that were accepted. */
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

  /** As a node of the statistics. */
  node(name: string): StatsNode {
    return statsNode('uct_cm', name, namedCounters(NAMES, this.#values));
  }
}
