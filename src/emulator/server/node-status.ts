/** Types of the status report of a node server. */

/** One card of a node. */
export interface CardStatus {
  /** Index of the card in /dev/accel/accelN. */
  readonly minor: number;
  /** PCI address, such as `0000:3b:00.0`. */
  readonly busId: string;
  /** OCP module id. */
  readonly moduleId: number;
  /** NUMA node; -1 if the platform does not report it. */
  readonly numaNode: number;
  /** Value of the sysfs attribute `status`; `removed` for a card that was unplugged. */
  readonly status: string;
  /** The process that has the compute context; null for none. */
  readonly owner: number | null;
  /** Allocated device memory in bytes. */
  readonly dramUsedBytes: number;
  /** Device memory for users in bytes. */
  readonly dramBytes: number;
  /** Hard resets since the start of the node. */
  readonly hardResets: number;
  /** Injected faults that have not fired yet. */
  readonly faultsWaiting: number;
  /** Kinds of the pending faults, such as `hang`: at most eight, oldest first. */
  readonly faultKinds: readonly string[];
  /** Injected faults that have fired. */
  readonly faultsFired: number;
  /** Indices of NIC ports whose link is down. */
  readonly portsDown: readonly number[];
}

/** One client. */
export interface ClientStatus {
  /** Process id. */
  readonly pid: number;
  /** Open device files. */
  readonly files: number;
  /** Ioctls that the server has executed for it. */
  readonly ioctls: number;
}

/** A node server. */
export interface NodeStatus {
  /** Process id of the server. */
  readonly pid: number;
  /** Path of the Unix socket on which it listens. */
  readonly socket: string;
  /** Generation of the cards, such as `gaudi2`. */
  readonly asic: string;
  /** The initial links of the node, in the syntax of `node up --links`. */
  readonly links: string;
  /** Seconds since the start. */
  readonly upSeconds: number;
  /** RDMA devices of the node; every client emulates them in its process. */
  readonly nics: number;
  /** Dma-bufs that are open or imported. */
  readonly dmabufs: number;
  /** The cards, by minor. */
  readonly cards: readonly CardStatus[];
  /** The connected clients, one entry per connection. */
  readonly clients: readonly ClientStatus[];
}
