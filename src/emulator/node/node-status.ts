/**
 * What a node server tells of itself. Types only.
 */

/** One card of a node. */
export interface CardStatus {
  readonly minor: number;
  readonly busId: string;
  readonly moduleId: number;
  readonly numaNode: number;
  /** Value of the sysfs attribute `status`; `removed` for a card that was unplugged. */
  readonly status: string;
  /** The process that has the compute context; null for none. */
  readonly owner: number | null;
  readonly dramUsedBytes: number;
  readonly dramBytes: number;
  readonly hardResets: number;
  readonly computeResets: number;
  /** Faults that wait for their moment, and those that have happened. */
  readonly faultsWaiting: number;
  readonly faultsFired: number;
  /** NIC ports whose link is down. */
  readonly portsDown: readonly number[];
}

/** One client. */
export interface ClientStatus {
  readonly pid: number;
  readonly files: number;
  readonly ioctls: number;
}

/** A node server. */
export interface NodeStatus {
  readonly pid: number;
  readonly socket: string;
  readonly asic: string;
  /** The links that the node started with, as `node up --links` takes them. */
  readonly links: string;
  readonly upSeconds: number;
  /** Dma-bufs that somebody has. */
  readonly dmabufs: number;
  readonly cards: readonly CardStatus[];
  readonly clients: readonly ClientStatus[];
}
