/**
 * The verbs port: the interface between the ib transport and RDMA devices, implemented by libibverbs and by emulated devices.
 *
 * The port is the interface of libibverbs: work requests and completions are its structs, byte for byte (see abi.ts), and failures are its errnos. The
 * transport cannot distinguish a real device from an emulated one.
 */

import type { QpState, QpType } from './abi.ts';

/**
 * Memory for work requests and completions, at a fixed address outside the JavaScript heap. A chain of work requests, its scatter/gather lists and its inline
 * data are inside one block; a real device reads them by address, an emulated one through the views.
 */
export interface VerbsBlock {
  /** Host virtual address of the first byte, 8-byte aligned. */
  readonly address: number;
  readonly u8: Uint8Array;
  readonly words: Uint32Array;
}

/** A device of the machine. */
export interface VerbsDeviceEntry {
  /** Name, such as `mlx5_0`. */
  readonly name: string;
  /** The path from the PCI root; undefined if unknown. */
  readonly pciPath: string | undefined;
  /** NUMA node; -1 if unknown. */
  readonly numaNode: number;
}

/** RDMA devices of a machine. */
export interface VerbsPort {
  /** Whether the devices are emulated: the source of every "emulated" label. */
  readonly emulated: boolean;
  /** The devices, by name. */
  devices(): readonly VerbsDeviceEntry[];
  /** Why there are no devices, as part of a message. */
  whyNoDevices(): string;
  /**
   * Opens a device.
   * @throws SyscallError ENODEV, EACCES, EMFILE
   */
  open(name: string): VerbsContext;
}

/** Limits of a device (struct ibv_device_attr). */
export interface DeviceAttributes {
  /** Longest memory region in bytes. */
  readonly maxMrSize: number;
  readonly maxQp: number;
  /** Longest send or receive queue. */
  readonly maxQpWr: number;
  readonly maxSge: number;
  readonly maxCq: number;
  readonly maxCqe: number;
  readonly maxMr: number;
  readonly maxPd: number;
  /** Maximum number of RDMA reads and atomic operations in flight per queue pair, as target. */
  readonly maxQpRdAtom: number;
  /** Maximum number of RDMA reads and atomic operations in flight per queue pair, as initiator. */
  readonly maxQpInitRdAtom: number;
  readonly maxSrq: number;
  readonly maxSrqWr: number;
  readonly maxSrqSge: number;
  /** True if operations are atomic at least with those of this device (atomic_cap is not NONE). */
  readonly hasAtomics: boolean;
  readonly physPortCount: number;
  readonly firmware: string;
}

/** State of a port (struct ibv_port_attr). */
export interface PortAttributes {
  /** One of PortState. */
  readonly state: number;
  /** Active MTU (enum ibv_mtu). */
  readonly activeMtu: number;
  readonly gidTableLength: number;
  readonly pkeyTableLength: number;
  readonly maxMessageBytes: number;
  readonly lid: number;
  /** One of LinkLayer. */
  readonly linkLayer: number;
  /** Bytes per second of the active width and speed. */
  readonly bytesPerSecond: number;
}

/** An entry of the GID table of a port. */
export interface GidEntry {
  readonly index: number;
  readonly gid: Uint8Array;
  readonly type: 'ib' | 'roce_v1' | 'roce_v2';
}

/** An asynchronous event. */
export interface AsyncEvent {
  /** One of AsyncEventType. */
  readonly type: number;
  /** The port, or the number of the queue pair, if the type has one. */
  readonly element: number;
}

/** An object that is destroyed explicitly. */
export interface VerbsObject {
  /** Destroys the object. Idempotent. Objects that use it must be destroyed before, so that EBUSY cannot occur. */
  close(): void;
}

/** An open device. */
export interface VerbsContext extends VerbsObject {
  readonly name: string;
  queryDevice(): DeviceAttributes;
  /** @param port from 1 @throws SyscallError EINVAL */
  queryPort(port: number): PortAttributes;
  /** The valid entries of the GID table. */
  gids(port: number): readonly GidEntry[];
  /** The partition keys of the port, by index: 15 bits, and the highest bit for full membership; 0 for an invalid entry. @throws SyscallError */
  pkeys(port: number): readonly number[];
  /** @throws SyscallError ENOMEM */
  allocPd(): ProtectionDomain;
  /** @throws SyscallError EMFILE, ENOMEM */
  createCompletionChannel(): CompletionChannel;
  /** @param depth maximum number of completions in the queue, up to maxCqe @throws SyscallError EINVAL, ENOMEM */
  createCq(depth: number, channel: CompletionChannel | undefined): CompletionQueue;
  /** Descriptor that is readable while {@link nextAsyncEvent} has an event. Nonblocking. */
  readonly asyncFd: number;
  /** Takes and acknowledges the next asynchronous event; undefined if there is none. */
  nextAsyncEvent(): AsyncEvent | undefined;
}

/** A channel for events of completion queues. */
export interface CompletionChannel extends VerbsObject {
  /** Descriptor that is readable while there is an event. Nonblocking. */
  readonly fd: number;
  /** Takes and acknowledges all events. */
  consume(): void;
}

/** A completion queue. */
export interface CompletionQueue extends VerbsObject {
  /**
   * Takes completions, in their order.
   * @param block receives `struct ibv_wc`, from its start
   * @returns their number, or a negative errno
   */
  poll(block: VerbsBlock, count: number): number;
  /** Requests one event on the channel for the next completion. Earlier completions do not raise an event. */
  requestNotify(): void;
}

/** Capacities of a new queue pair: of its send queue, and of its receive queue if it does not share one. */
export interface QpInit {
  readonly type: QpType;
  readonly sendCq: CompletionQueue;
  readonly receiveCq: CompletionQueue;
  /** Shared receive queue of the queue pair; if undefined, the queue pair has a separate receive queue. */
  readonly srq: SharedReceiveQueue | undefined;
  readonly maxSendWr: number;
  readonly maxReceiveWr: number;
  readonly maxSendSge: number;
  readonly maxReceiveSge: number;
  readonly maxInlineBytes: number;
}

/** A path to a port (struct ibv_ah_attr). */
export interface AddressVector {
  /** LID of the destination; 0 on Ethernet. */
  readonly dlid: number;
  /** GID of the destination; undefined for a path without a global route header. */
  readonly gid: Uint8Array | undefined;
  readonly sgidIndex: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  readonly serviceLevel: number;
  readonly port: number;
}

/** Attributes of a state transition: the fields that ibv_modify_qp requires for it. */
export interface QpAttributes {
  readonly state: QpState;
  readonly port?: number;
  readonly pkeyIndex?: number;
  readonly accessFlags?: number;
  readonly qkey?: number;
  readonly pathMtu?: number;
  readonly destQpNum?: number;
  readonly rqPsn?: number;
  readonly sqPsn?: number;
  readonly maxDestRdAtomic?: number;
  readonly maxRdAtomic?: number;
  /** RNR timer code, 0 to 31: the time that a sender waits when the receiver is not ready. */
  readonly minRnrTimer?: number;
  /** Time to wait for an acknowledgement: 4.096 us * 2^timeout; 0 means no limit. */
  readonly timeout?: number;
  readonly retryCount?: number;
  /** Number of retries after the receiver was not ready; 7 means no limit. */
  readonly rnrRetry?: number;
  readonly path?: AddressVector;
}

/** A protection domain. */
export interface ProtectionDomain extends VerbsObject {
  /**
   * Registers host memory.
   * @param iova address of the first byte in work requests; the same as `address` modulo the page size
   * @param access bits of AccessFlag
   * @throws SyscallError EINVAL, EFAULT, ENOMEM
   */
  regMr(address: number, byteLength: number, iova: number, access: number): MemoryRegion;
  /**
   * Registers a range of a dma-buf. The descriptor can be closed afterwards.
   * @throws SyscallError EOPNOTSUPP if the device cannot do so; EBADF, EINVAL, ENOMEM
   */
  regDmabufMr(fd: number, offset: number, byteLength: number, iova: number, access: number): MemoryRegion;
  /** @throws SyscallError EINVAL, ENOMEM */
  createSrq(maxWr: number, maxSge: number): SharedReceiveQueue;
  /** @throws SyscallError EINVAL, ENOMEM */
  createQp(init: QpInit): QueuePair;
  /** @throws SyscallError EINVAL, ENOMEM */
  createAh(path: AddressVector): AddressHandle;
}

/** A memory region. */
export interface MemoryRegion extends VerbsObject {
  readonly lkey: number;
  readonly rkey: number;
}

/** The destination of datagrams. */
export interface AddressHandle extends VerbsObject {
  /** The value of the field `ah` of a work request: a pointer, for a real device. */
  readonly handle: number;
}

/** A queue that receives. */
export interface ReceiveQueue {
  /**
   * Posts a chain of receive work requests.
   * @param offset of the first `struct ibv_recv_wr` in the block, in bytes
   * @returns 0 or a positive errno, with the first requests of the chain posted
   */
  postReceive(block: VerbsBlock, offset: number): number;
}

/** A receive queue that queue pairs share. */
export interface SharedReceiveQueue extends VerbsObject, ReceiveQueue {}

/** A queue pair. */
export interface QueuePair extends VerbsObject, ReceiveQueue {
  readonly qpNum: number;
  /** Maximum length of inline data, at least the requested length. */
  readonly maxInlineBytes: number;
  /** Current state. */
  readonly state: QpState;
  /** @throws SyscallError EINVAL for a transition or attributes that are not permitted */
  modify(attributes: QpAttributes): void;
  /**
   * Posts a chain of send work requests.
   * @param offset of the first `struct ibv_send_wr` in the block, in bytes
   * @returns 0 or a positive errno: EINVAL, ENOMEM for a full queue
   */
  postSend(block: VerbsBlock, offset: number): number;
}
