/**
 * The counters of an interface: what its endpoints have taken, by operation, and what has arrived. An array of Numbers, so that counting is an
 * addition in place; it never allocates.
 */

import { namedCounters, type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { Status } from '../../ucs/status.ts';
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

/** Counts what an interface does. The calls return the status they are given, so that an operation can return what it counts. */
export class TransferCounters {
  readonly #values: Float64Array = new Float64Array(NAMES.length);

  /** A short operation has ended with a status: counted when it was taken. */
  short(transfer: Transfer, byteLength: number, status: Status): Status {
    return this.#transfer(transfer, BYTES_SHORT, byteLength, status);
  }

  /** A message that was packed into memory of the transport. */
  bcopy(transfer: Transfer, byteLength: number, status: Status): Status {
    return this.#transfer(transfer, BYTES_BCOPY, byteLength, status);
  }

  /** A zero-copy operation. */
  zcopy(transfer: Transfer, byteLength: number, status: Status): Status {
    return this.#transfer(transfer, BYTES_ZCOPY, byteLength, status);
  }

  /** An atomic operation. */
  atomic(status: Status): Status {
    return this.#count(ATOMIC, status);
  }

  /** A flush; one that is not done at once counts as a wait as well. */
  flush(status: Status): Status {
    this.#values[FLUSH]! += 1;
    if (status === Status.INPROGRESS) this.#values[FLUSH_WAIT]! += 1;
    return status;
  }

  /** A fence. */
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

  #transfer(transfer: Transfer, bytes: number, byteLength: number, status: Status): Status {
    if (status >= 0) this.#values[bytes]! += byteLength;
    return this.#count(transfer, status);
  }

  #count(index: number, status: Status): Status {
    if (status >= 0) this.#values[index]! += 1;
    else if (status === Status.NO_RESOURCE) this.#values[NO_RES]! += 1;
    return status;
  }
}
