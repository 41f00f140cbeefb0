/**
 * The counters of an interface: operations that its endpoints have accepted, by kind, and received messages. An array of Numbers, so that counting is an
 * addition in place and allocates nothing.
 */

import { namedCounters, type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { Status } from '../../ucs/type/status.ts';
import type { IfaceResource } from '../api/iface.ts';

/** Names of the counters in UCX for endpoints and interfaces (uct_ep, uct_iface), by index. */
const NAMES = [
  'am',
  'put',
  'get',
  'atomic',
  'bytes_short',
  'bytes_bcopy',
  'bytes_zcopy',
  'no_res',
  'flush',
  'flush_wait',
  'fence',
  'rx_am',
  'rx_am_bytes',
] as const;

/** Operations whose bytes are counted. */
export const Transfer = { AM: 0, PUT: 1, GET: 2 } as const;
export type Transfer = (typeof Transfer)[keyof typeof Transfer];

const ATOMIC = 3;
const BYTES_SHORT = 4;
const BYTES_BCOPY = 5;
const BYTES_ZCOPY = 6;
const NO_RES = 7;
const FLUSH = 8;
const FLUSH_WAIT = 9;
const FENCE = 10;
const RX_AM = 11;
const RX_AM_BYTES = 12;

/** The counters of an interface. The methods for accepted operations are short, because every put calls one and V8 inlines short functions. */
export class TransferCounters {
  readonly #values: Float64Array = new Float64Array(NAMES.length);

  /** Counts an accepted short operation. */
  short(transfer: Transfer, byteLength: number): void {
    const values = this.#values;
    values[transfer]! += 1;
    values[BYTES_SHORT]! += byteLength;
  }

  /** Counts a message that was packed into memory of the transport. */
  bcopy(transfer: Transfer, byteLength: number): void {
    const values = this.#values;
    values[transfer]! += 1;
    values[BYTES_BCOPY]! += byteLength;
  }

  /** Counts an accepted zero-copy operation. */
  zcopy(transfer: Transfer, byteLength: number): void {
    const values = this.#values;
    values[transfer]! += 1;
    values[BYTES_ZCOPY]! += byteLength;
  }

  /** Counts an accepted atomic operation. */
  atomic(): void {
    this.#values[ATOMIC]! += 1;
  }

  /** Counts an operation that was not started if the status is NO_RESOURCE. Returns the status. */
  refused(status: Status): Status {
    if (status === Status.NO_RESOURCE) this.#values[NO_RES]! += 1;
    return status;
  }

  /** Counts a flush with this result; one that is not complete counts as a wait too. Returns the result. */
  flush(status: Status): Status {
    this.#values[FLUSH]! += 1;
    if (status === Status.INPROGRESS) this.#values[FLUSH_WAIT]! += 1;
    return status;
  }

  /** Counts a fence with this result. Returns the result. */
  fence(status: Status): Status {
    this.#values[FENCE]! += 1;
    return status;
  }

  /** Counts a received message. */
  received(byteLength: number): void {
    this.#values[RX_AM]! += 1;
    this.#values[RX_AM_BYTES]! += byteLength;
  }

  /** The counters as a node of the statistics. */
  node({ transport, device }: IfaceResource): StatsNode {
    return statsNode('uct_iface', `${transport}/${device}`, namedCounters(NAMES, this.#values));
  }
}
