/**
 * The counters of an interface: what its endpoints have taken, by operation, and what has arrived. An array of Numbers, so that counting is an
 * addition in place; it never allocates.
 */

import { namedCounters, type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { Status } from '../../ucs/type/status.ts';
import type { IfaceResource } from '../api/iface.ts';

/** Names as UCX has them for its endpoints and interfaces (uct_ep, uct_iface), by index. */
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

/** Operations that are counted by their bytes. */
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

/**
 * Counts what an interface does. The calls for operations that were taken are as small as can be: they are part of every put, and V8 inlines what
 * is small.
 */
export class TransferCounters {
  readonly #values: Float64Array = new Float64Array(NAMES.length);

  /** A short operation was taken. */
  short(transfer: Transfer, byteLength: number): void {
    const values = this.#values;
    values[transfer]! += 1;
    values[BYTES_SHORT]! += byteLength;
  }

  /** A message was packed into memory of the transport. */
  bcopy(transfer: Transfer, byteLength: number): void {
    const values = this.#values;
    values[transfer]! += 1;
    values[BYTES_BCOPY]! += byteLength;
  }

  /** A zero-copy operation was taken. */
  zcopy(transfer: Transfer, byteLength: number): void {
    const values = this.#values;
    values[transfer]! += 1;
    values[BYTES_ZCOPY]! += byteLength;
  }

  /** An atomic operation was taken. */
  atomic(): void {
    this.#values[ATOMIC]! += 1;
  }

  /** An operation was refused; counted where it was for want of resources. Returns the refusal. */
  refused(status: Status): Status {
    if (status === Status.NO_RESOURCE) this.#values[NO_RES]! += 1;
    return status;
  }

  /** A flush with this result; one that is not done at once counts as a wait as well. Returns the result. */
  flush(status: Status): Status {
    this.#values[FLUSH]! += 1;
    if (status === Status.INPROGRESS) this.#values[FLUSH_WAIT]! += 1;
    return status;
  }

  /** A fence with this result, which is returned. */
  fence(status: Status): Status {
    this.#values[FENCE]! += 1;
    return status;
  }

  /** A message has arrived. */
  received(byteLength: number): void {
    this.#values[RX_AM]! += 1;
    this.#values[RX_AM_BYTES]! += byteLength;
  }

  /** The counters as a node of the statistics. */
  node({ transport, device }: IfaceResource): StatsNode {
    return statsNode('uct_iface', `${transport}/${device}`, namedCounters(NAMES, this.#values));
  }
}
