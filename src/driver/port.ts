/**
 * The port to a habanalabs driver: what hlthunk needs from it and what kernel/ and the emulator provide. Types only, no behaviour.
 *
 * The port is the ioctl boundary of Linux: byte-exact argument blocks in, errno out. Nothing above it can tell the
 * kernel from the emulator, and nothing below it knows what its caller wants the bytes for.
 */

import type { IoctlNumbers } from '../uapi/index.ts';

/**
 * Memory for one ioctl argument, at a fixed address outside the JavaScript heap, seen through views made once.
 * `sys` allocates it; the kernel reads `address`, the in-process emulator reads `words`.
 */
export interface ArgumentBlock {
  /** Host virtual address of the first byte, 8-byte aligned, below 2^47. */
  readonly address: number;
  /** The block as 32-bit little-endian words. Its length bounds what an ioctl may read or write. */
  readonly words: Uint32Array;
}

/** Memory of the driver that the caller has mapped: a command buffer, a timestamp buffer or a hardware block. */
export interface DriverMapping {
  readonly address: number;
  /** Length in bytes, a multiple of 4096. */
  readonly byteLength: number;
  readonly buffer: ArrayBuffer;
  /** Removes the mapping; later access through views reads zeros and reaches nothing. Idempotent. */
  close(): void;
}

/**
 * One open file description of a card.
 *
 * Errors of `ioctl` are returned, not thrown: 0 or a negative errno, as the system call has it. A signal (EINTR) is
 * retried inside; EAGAIN is returned, because only the caller knows what else it could do meanwhile.
 *
 * A `request` is 32 bits, given signed or unsigned: -1073198013 and 3221769283 are the same request. `numbers` has them unsigned; hot
 * paths keep them signed, as small integers of V8.
 */
export interface DriverFile {
  /** The ioctl numbers of the family that this file speaks ('H' before Linux 6.7, DRM 'd' after). */
  readonly numbers: IoctlNumbers;
  /** Why every call answers ENODEV, where that is not the card's doing: the server of an emulated node has ended. Left out by drivers that have no such reason. */
  readonly lostReason?: string | undefined;
  /** Runs one ioctl on `block`. Blocks as the driver blocks. Returns 0 or a negative errno. */
  ioctl(request: number, block: ArgumentBlock): number;
  /** The same without blocking the event loop: for WAIT_CS with a time-out. `block` belongs to the call until it settles. */
  ioctlAsync(request: number, block: ArgumentBlock): Promise<number>;
  /**
   * Maps driver memory shared and read-write.
   * @param byteLength bytes; the driver wants exactly the size of the buffer rounded up to 4096
   * @param offset the handle (mmap cookie) that an ioctl returned, as an unsigned 64-bit value
   * @throws SyscallError with the errno of mmap
   */
  mmap(byteLength: number, offset: bigint): DriverMapping;
  /**
   * Closes the file: every later call answers EBADF, and calls of `ioctlAsync` in flight settle, early where they can. Idempotent.
   *
   * Without calls in flight the release is synchronous, as in the kernel: on return the card has stopped and can be opened again.
   * A call in flight may hold the open file description until it settles, as a system call does: see {@link released}.
   */
  close(): void;
  /**
   * Defined while a closed file is not released, because of calls in flight; resolves with the release and never rejects. Until then
   * the card may write to memory that is mapped through this file, and opening it again is refused with EBUSY.
   * A driver that always releases at once leaves it out.
   */
  readonly released?: Promise<void> | undefined;
}

/** What discovery tells about a card without opening it. */
export interface CardEntry {
  /** Index in /dev/accel/accelN (or /dev/hlN). */
  readonly minor: number;
  /** PCI address such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Value of the sysfs attribute `module_id`; undefined where the driver does not publish it. */
  readonly moduleId: number | undefined;
  /** NUMA node of the PCI device; -1 when the platform does not say. */
  readonly numaNode: number;
  /** The way from the PCI root to the card, such as `pci0000:17/0000:17:01.0/0000:19:00.0`; undefined when not known. */
  readonly pciPath?: string | undefined;
  /** Path of the primary device node, or a name for it where there is none. */
  readonly path: string;
}

/** A card of the machine that has no device node: it cannot be opened. */
export interface AbsentCard {
  /** The minor that it had; undefined where it has had none. */
  readonly minor: number | undefined;
  /** PCI address such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Why: `removed`, `no driver`, `no device node`. */
  readonly state: string;
}

/** The link of a NIC port of a card. */
export interface PortLink {
  readonly port: number;
  readonly up: boolean;
  /** Network interface of the port, such as `eth5`; undefined where it has none. */
  readonly netdev: string | undefined;
  /** The card at the far end, where the node itself knows it. */
  readonly peer: { readonly busId: string; readonly port: number } | undefined;
}

/** Bytes and transfers, since the node was made. */
export interface TransferCount {
  readonly bytes: number;
  readonly operations: number;
}

/** What a card has moved, since the node was made. */
export interface CardTransfers {
  readonly minor: number;
  readonly hostToDevice: TransferCount;
  readonly deviceToHost: TransferCount;
  /** Within the card, and between cards. */
  readonly deviceToDevice: TransferCount;
  readonly fills: TransferCount;
  /** Time for which its DMA engines worked, the sum over all that did. */
  readonly busyNs: number;
}

/** What a node has moved. */
export interface NodeTransfers {
  /** When it was read, by the clock of the node. */
  readonly timeNs: number;
  /** Threads that move bytes, those of all cards together: as many times as fast as the clock `busyNs` grows at most. */
  readonly engineThreads: number;
  /** By minor. */
  readonly cards: readonly CardTransfers[];
  /** Bytes over the links, by the minors of sender and receiver. */
  readonly linkBytes: readonly (readonly number[])[];
}

/** A machine with Gaudi cards: the real one or an emulated one. */
export interface DriverNode {
  /** Where the cards come from; shown to users, and the reason for every "emulated" label. */
  readonly kind: 'kernel' | 'emulator';
  /**
   * Tells nodes apart, for programs that want to share device memory: the same for all that see the same cards, and for no others. The boot id
   * with the kernel; random per node object in process; random per server, which sends it to its clients. Without it the node is shared with no other process.
   */
  readonly identity?: string;
  /** See `DriverFile.lostReason`. */
  readonly lostReason?: string | undefined;
  /** The cards, ordered by minor. Reads the machine anew at every call. */
  cards(): readonly CardEntry[];
  /** Cards that the machine has, or has had, and that are not among {@link cards}. */
  absentCards?(): readonly AbsentCard[];
  /** Why there are no cards, as far as the machine tells: for a message to the user. Undefined where nothing is known. */
  whyNoCards?(): string;
  /** Id of the process that has the compute context of a card; undefined for none, and where it cannot be told. */
  ownerOf?(minor: number): number | undefined;
  /**
   * Opens the primary node: the one compute context of a card.
   * @throws SyscallError ENOENT, ENODEV, EBUSY, EAGAIN, EPERM, EACCES as the driver refuses
   */
  open(minor: number): DriverFile;
  /** Opens the control node: INFO only, any number of times. Throws like {@link DriverNode.open}. */
  openControl(minor: number): DriverFile;
  /**
   * Reads an attribute of the card's sysfs folder, without the trailing newline; undefined where there is none.
   * @param name such as `fw_os_ver`, `status`, `pci_addr` (Documentation/ABI/testing/sysfs-driver-habanalabs)
   */
  attribute(minor: number, name: string): string | undefined;
  /**
   * The links of a card, as they are now; undefined where the driver does not tell, as upstream kernels, whose driver has no NIC ports. The vendor's
   * drivers make a network interface of every port. No event tells of a change: ask again.
   */
  links?(minor: number): readonly PortLink[] | undefined;
  /** What the cards have moved; of emulated nodes only: no driver of real cards counts it. Undefined when the node is gone. */
  transfers?(): NodeTransfers | undefined;
  /** Temperature of a card in degrees Celsius; undefined where no sensor tells it. */
  temperature?(minor: number): number | undefined;
  /** The version of the driver as it tells it; undefined where it does not. */
  readonly driverVersion?: string | undefined;
  /** The process that serves an emulated node; undefined for one in this process, and for real cards. */
  readonly serverPid?: number | undefined;
  /** Releases what the node holds; open files are closed. Idempotent. */
  close(): void;
}
