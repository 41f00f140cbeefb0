/**
 * The port to a habanalabs driver: the interface between hlthunk and its implementations in kernel/ and the emulator.
 *
 * The port is the ioctl boundary of Linux: byte-exact argument blocks in, errno out. The layers above cannot distinguish the kernel from the emulator, and the
 * layers below do not interpret the purpose of a call.
 */

import type { IoctlNumbers } from '../uapi/index.ts';
import type { VerbsPort } from '../verbs/port.ts';

/**
 * Memory for one ioctl argument, at a fixed address outside the JavaScript heap, accessed through views made once.
 * `sys` allocates it; the kernel reads `address`, the in-process emulator reads `words`.
 */
export interface ArgumentBlock {
  /** Host virtual address of the first byte, 8-byte aligned, below 2^47. */
  readonly address: number;
  /** The block as 32-bit little-endian words. Its length limits the bytes that an ioctl may read or write. */
  readonly words: Uint32Array;
}

/** Memory of the driver that the caller has mapped: a command buffer, a timestamp buffer or a hardware block. */
export interface DriverMapping {
  readonly address: number;
  /** Length in bytes, a multiple of 4096. */
  readonly byteLength: number;
  readonly buffer: ArrayBuffer;
  /** Removes the mapping; later accesses through views read zeros and reach no memory. Idempotent. */
  close(): void;
}

/**
 * A block of registers that the caller has mapped. Each access is one load or store of 32 bits. The card sees the accesses in the order of the calls, and
 * before a write all earlier stores to memory. A register may act on a write, so a read may return another value than the one that was written.
 */
export interface RegisterMapping {
  /** Length in bytes. */
  readonly byteLength: number;
  /**
   * Reads a register, as a signed number.
   * @param offset bytes from the start of the block, a multiple of 4
   */
  read(offset: number): number;
  /** Writes a register. */
  write(offset: number, value: number): void;
  /** Removes the mapping; later accesses have no effect and read 0. Idempotent. */
  close(): void;
}

/**
 * One open file description of a card.
 *
 * Errors of `ioctl` are returned, not thrown: 0 or a negative errno, as from the system call. A call interrupted by a signal (EINTR) is retried inside; EAGAIN
 * is returned, because only the caller can decide what else to do meanwhile.
 *
 * A `request` is 32 bits, signed or unsigned: -1073198013 and 3221769283 are the same request. `numbers` has them unsigned; hot paths keep them signed, as
 * small integers of V8.
 */
export interface DriverFile {
  /** The ioctl numbers of the family of this file ('H' before Linux 6.7, DRM 'd' after). */
  readonly numbers: IoctlNumbers;
  /** Reason why every call returns ENODEV, if the card is not the cause: the server of an emulated node has ended. Omitted by drivers without such a reason. */
  readonly lostReason?: string | undefined;
  /** Reason why a call would wait now: the server of an emulated node is stopped. Omitted by drivers without such a reason. */
  readonly stoppedReason?: string | undefined;
  /** Runs one ioctl on `block`. Blocks as long as the driver does. Returns 0 or a negative errno. */
  ioctl(request: number, block: ArgumentBlock): number;
  /** Runs one ioctl without blocking the event loop: for WAIT_CS with a time-out. The call owns `block` until it settles. */
  ioctlAsync(request: number, block: ArgumentBlock): Promise<number>;
  /**
   * Maps driver memory shared and read-write.
   * @param byteLength bytes; the driver requires exactly the size of the buffer rounded up to 4096
   * @param offset the handle (mmap cookie) that an ioctl returned, as an unsigned 64-bit value
   * @throws SyscallError with the errno of mmap
   */
  mmap(byteLength: number, offset: bigint): DriverMapping;
  /**
   * Maps a block of registers for exact accesses, unlike {@link mmap}, whose memory an emulated card cannot watch.
   * @param byteLength bytes of the block
   * @param offset the handle that MAP_BLOCK returned
   * @throws SyscallError with the errno of mmap
   */
  mapRegisters(byteLength: number, offset: bigint): RegisterMapping;
  /**
   * Closes the file: every later call returns EBADF, and calls of `ioctlAsync` in flight settle, early if possible. Idempotent.
   *
   * Without calls in flight the release is synchronous, as in the kernel: on return the card has stopped and can be opened again. A call in flight may keep the
   * open file description until it settles, as a system call does: see {@link released}.
   */
  close(): void;
  /**
   * Resolves when a closed file has been released; never rejects. Defined while calls in flight prevent the release. Until then the card may write to memory
   * that is mapped through this file, and opening it again fails with EBUSY. Omitted by drivers that always release at once.
   */
  readonly released?: Promise<void> | undefined;
}

/** Properties of a card that discovery reads without opening it. */
export interface CardEntry {
  /** Index in /dev/accel/accelN (or /dev/hlN). */
  readonly minor: number;
  /** PCI address such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Value of the sysfs attribute `module_id`; undefined if the driver does not publish it. */
  readonly moduleId: number | undefined;
  /** NUMA node of the PCI device; -1 if the platform does not report it. */
  readonly numaNode: number;
  /** The path from the PCI root to the card, such as `pci0000:17/0000:17:01.0/0000:19:00.0`; undefined if unknown. */
  readonly pciPath?: string | undefined;
  /** Path of the primary device node; for an emulated card, the path that it would have, and `(emulated)`. */
  readonly path: string;
}

/** A card of the machine without a device node: it cannot be opened. */
export interface AbsentCard {
  /** Its former minor; undefined if it never had one. */
  readonly minor: number | undefined;
  /** PCI address such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Reason: `removed`, `no driver`, `no device node`. */
  readonly state: string;
}

/** The link of a NIC port of a card. */
export interface PortLink {
  readonly port: number;
  readonly up: boolean;
  /** Network interface of the port, such as `eth5`; undefined if it has none. */
  readonly netdev: string | undefined;
  /** The card at the far end, if the node itself reports it. */
  readonly peer: { readonly busId: string; readonly port: number } | undefined;
}

/** Number of bytes and transfers since the node was created. */
export interface TransferCount {
  readonly bytes: number;
  readonly operations: number;
}

/** Transfers of a card since the node was created. */
export interface CardTransfers {
  readonly minor: number;
  readonly hostToDevice: TransferCount;
  readonly deviceToHost: TransferCount;
  /** Within the card, and between cards. */
  readonly deviceToDevice: TransferCount;
  readonly fills: TransferCount;
  /** Busy time of its DMA engines in nanoseconds, summed over all of them. */
  readonly busyNs: number;
}

/** Transfers of a node. */
export interface NodeTransfers {
  /** Time of the reading, by the clock of the node. */
  readonly timeNs: number;
  /** Number of threads that move bytes, for all cards together: `busyNs` grows at most this many times as fast as the clock. */
  readonly engineThreads: number;
  /** By minor. */
  readonly cards: readonly CardTransfers[];
  /** Bytes over the links, by the minors of sender and receiver. */
  readonly linkBytes: readonly (readonly number[])[];
}

/** The version that an emulated driver reports in /sys/module/habanalabs. */
export const EMULATED_DRIVER_VERSION = 'gaudi-ucx';

/** A machine with Gaudi cards: the real one or an emulated one. */
export interface DriverNode {
  /** Origin of the files: device nodes of this machine, or an emulated node. */
  readonly kind: 'kernel' | 'emulator';
  /** Whether the cards are emulated, also behind device nodes (`gaudi-ucx run`): the source of every "emulated" label. */
  readonly emulated: boolean;
  /**
   * Identifies the node for programs that share device memory: equal for all users of the same cards, and different for other cards. The kernel driver uses the
   * boot id; an emulated node a random value for each node object or for each server, which sends it to its clients. A node without it is not shared.
   */
  readonly identity?: string;
  /** See `DriverFile.lostReason`. */
  readonly lostReason?: string | undefined;
  /** The cards, ordered by minor. Scans the machine at every call. */
  cards(): readonly CardEntry[];
  /** Present or former cards of the machine that are not among {@link cards}. */
  absentCards?(): readonly AbsentCard[];
  /** The reason why there are no cards, for a message to the user. Undefined if it is unknown. */
  whyNoCards?(): string;
  /** Id of the process that has the compute context of a card; undefined if there is none or it cannot be determined. */
  ownerOf?(minor: number): number | undefined;
  /**
   * Opens the primary node: the one compute context of a card.
   * @throws SyscallError ENOENT, ENODEV, EBUSY, EAGAIN, EPERM, EACCES as returned by the driver
   */
  open(minor: number): DriverFile;
  /** Opens the control node: INFO only, any number of times. Throws like {@link DriverNode.open}. */
  openControl(minor: number): DriverFile;
  /**
   * Reads an attribute in the card's sysfs folder, without the trailing newline; undefined if it does not exist.
   * @param name such as `fw_os_ver`, `status`, `pci_addr` (Documentation/ABI/testing/sysfs-driver-habanalabs)
   */
  attribute(minor: number, name: string): string | undefined;
  /**
   * The current links of a card; undefined if the driver does not report them. The upstream driver does not support NIC ports; the vendor's drivers create a
   * network interface for every port. The driver does not report changes: read the links again.
   */
  links?(minor: number): readonly PortLink[] | undefined;
  /** Transfers of the cards, for emulated nodes only: drivers of real cards do not count them. Undefined after the node has ended. */
  transfers?(): NodeTransfers | undefined;
  /** Temperature of a card in degrees Celsius; undefined without a sensor. */
  temperature?(minor: number): number | undefined;
  /** The version that the driver reports; undefined if it reports none. */
  readonly driverVersion?: string | undefined;
  /** The RDMA devices of an emulated node; if undefined, those of the machine are used. */
  readonly verbs?: VerbsPort | undefined;
  /** The process that serves an emulated node; undefined for a node in this process, and for real cards. */
  readonly serverPid?: number | undefined;
  /** The socket of the server process; undefined without a server. */
  readonly socketPath?: string | undefined;
  /** Closes the node and its open files. Idempotent. */
  close(): void;
}
