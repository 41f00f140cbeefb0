/**
 * An open file of a card with the argument block of its control-path ioctls: encodes, calls, decodes, and converts an errno into a typed error that names the
 * card. Kernel structs have their field names in camelCase: `dram_free_mem` becomes `dramFreeMem`; values are unchanged.
 *
 * 64-bit device addresses, which exceed the integers that a JavaScript number holds exactly, are two signed 32-bit words. Signed words are small integers of V8
 * and pass between functions without allocation.
 */

import { cardLabel, type NamedCard } from '../../driver/card-names.ts';
import type { DriverFile, DriverMapping, RegisterMapping } from '../../driver/port.ts';
import { allocateScratch, Errno, isSyscallError, PAGE_SIZE, type ScratchBlock } from '../../sys/index.ts';
import {
  HL_CB_ARGS,
  HL_DEVICE_STATUS,
  HL_INFO_ARGS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  HL_MEM_ARGS,
  HL_WAIT_CS_ARGS,
  type HlInfoOp,
  type Struct,
  type StructFields,
  type StructValues,
} from '../../uapi/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { DmabufCounts } from '../../ucs/stats/dmabuf-counts.ts';
import { closedError, UcxError } from '../../ucs/type/error.ts';
import { highOf } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  errnoMeaning,
  GaudiErrorCode,
  gaudiError,
  invalidArgument,
  ioctlError,
  MALFUNCTION_TEXT,
  REOPEN_TEXT,
} from './gaudi-error.ts';

/** Field values of the MEMORY ioctl. */
export type MemoryInput = Parameters<typeof HL_MEM_ARGS.in.encode>[0];
/** The result of the MEMORY ioctl. */
export type MemoryOutput = ReturnType<typeof HL_MEM_ARGS.out.decode>;
/** Field values of the CB ioctl. */
export type CommandBufferInput = Parameters<typeof HL_CB_ARGS.in.encode>[0];
/** The result of the CB ioctl. */
export type CommandBufferOutput = ReturnType<typeof HL_CB_ARGS.out.decode>;
/** Field values of the INFO ioctl other than op and result buffer. */
export type InfoInput = Parameters<typeof HL_INFO_ARGS.encode>[0];

/** The largest argument block. */
const ARGUMENT_BYTES: number = HL_WAIT_CS_ARGS.size;

/** An object that tracks memory with device addresses. memoryUnmap with an address has the same effect as the object's method. */
export interface AddressOwner {
  /**
   * Unmaps the memory that was mapped at an address.
   * @returns false if this owner has not mapped the address
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY while a transfer uses the memory; the error of the driver
   */
  unmapAt(address: bigint): boolean;
}

/** An object with an open file of a card: a device or a control device. */
export interface CardTarget {
  /** The open file. */
  readonly card: CardFile;
}

/**
 * Returns the card of a target: the argument check of every call that takes one.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS
 */
export function cardOf(target: CardTarget): CardFile {
  const card: unknown = target?.card;
  if (CardFile.isGenuine(card)) return card;
  throw invalidArgument('target', 'must be an open device or control device', target);
}

/** An open file of a card. */
export class CardFile {
  /** The file of the driver port. */
  readonly file: DriverFile;
  /** Index of the card in /dev/accel/accelN. */
  readonly minor: number;
  /** PCI address, such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Name for messages: `card 0 (accel2, 0000:33:00.0)`. */
  readonly name: string;
  /** True after a submission outside the DMA queues: its faults may be reported at any time. */
  submitsCommands = false;
  /** Page length of device memory; 0 for a control node, which has none. */
  pageBytes = 0;
  /** Called when the program has mapped memory with the raw calls, so that it can be registered like blocks. The length is that allocated by the driver. */
  onRawMapped: (address: bigint, byteLength: number, handle: bigint) => void = () => {};
  /** The owners of mapped memory; none for a control node. */
  readonly addressOwners: AddressOwner[] = [];
  /** Sizes in bytes of the raw allocations, by handle. */
  readonly rawAllocations: Map<bigint, number> = new Map();
  /** Counters of the card's exported and imported dma-bufs. */
  readonly dmabufs: DmabufCounts;
  readonly #arguments: ScratchBlock;
  readonly #mappings = new Set<DriverMapping>();
  #resetReason: string | undefined = undefined;
  #closed = false;

  /** Takes ownership of `file`. @param log for exports and imports of dma-bufs; undefined for a control node */
  constructor(file: DriverFile, card: Pick<NamedCard, 'index' | 'busId'> & { readonly minor: number }, log?: Log) {
    this.file = file;
    this.minor = card.minor;
    this.busId = card.busId;
    this.name = cardLabel(card);
    this.dmabufs = new DmabufCounts(log);
    this.#arguments = allocateScratch(ARGUMENT_BYTES);
  }

  /** Whether a value is an open or closed file made by this class, not an object that imitates one. */
  static isGenuine(value: unknown): value is CardFile {
    return typeof value === 'object' && value !== null && #closed in value;
  }

  /** True after `close()`. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Why the file and the memory of the card are lost (the driver resets the card, or the node has closed); undefined while they work. */
  get lostReason(): string | undefined {
    return this.file.lostReason ?? this.#resetReason;
  }

  /**
   * Records that the driver resets the card, at the latest when this file is closed, and that the contents of its memory are lost. Recorded here because until
   * then the driver still accepts submissions (hl_device_cond_reset, Linux 6.12).
   */
  markReset(): void {
    this.#resetReason ??= `the driver resets the card, so the contents of its memory are lost: ${REOPEN_TEXT}`;
  }

  /**
   * Throws if the memory of the card is lost.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY
   */
  checkUsable(): void {
    const { lostReason } = this;
    if (lostReason !== undefined) throw this.lostError(lostReason);
  }

  /**
   * The reason if the card has failed permanently, after which the driver always returns EBUSY; undefined while the card works or is in reset. Queries the
   * driver (DEVICE_STATUS works in every state of a card).
   */
  malfunction(): string | undefined {
    return this.#deviceStatus() === HL_DEVICE_STATUS.MALFUNCTION ? MALFUNCTION_TEXT : undefined;
  }

  /**
   * Why the driver returned EBUSY for this file: the card has failed, is in reset, or works again after it dropped the work of this file. Queries the driver.
   */
  whyBusy(): string {
    const status = this.#deviceStatus();
    if (status === HL_DEVICE_STATUS.MALFUNCTION) return MALFUNCTION_TEXT;
    if (status !== HL_DEVICE_STATUS.OPERATIONAL) return 'the card is in reset (10 to 30 s on a real gaudi)';
    return 'the card works again, but was reset or failed after this process had opened it';
  }

  /**
   * Why the card cannot be used through this file: its loss, removal or failure; undefined while it works, and during a reset that the driver has not reported.
   * Queries the driver.
   */
  unusableReason(): string | undefined {
    const { lostReason } = this;
    if (lostReason !== undefined || this.#closed) return lostReason;
    // Does not query a stopped driver: the query would wait.
    const { stoppedReason } = this.file;
    if (stoppedReason !== undefined) return stoppedReason;
    const status = this.#deviceStatus();
    if (status === -Errno.ENODEV) return this.lostReason ?? errnoMeaning(Errno.ENODEV);
    return status === HL_DEVICE_STATUS.MALFUNCTION ? MALFUNCTION_TEXT : undefined;
  }

  /** A value of HL_DEVICE_STATUS, or a negative errno. */
  #deviceStatus(): number {
    if (this.#closed) return -Errno.EBADF;
    const answer = allocateScratch(HL_INFO_DEVICE_STATUS.size);
    try {
      const result = this.tryInfo(HL_INFO_OP.DEVICE_STATUS, answer);
      return result < 0 ? result : HL_INFO_DEVICE_STATUS.decode(answer.view).status;
    } finally {
      answer.free();
    }
  }

  /** The error for uses of the card after a reset. */
  lostError(reason: string): UcxError {
    return gaudiError(GaudiErrorCode.DEVICE_BUSY, `${this.name}: ${reason}`, { minor: this.minor, busId: this.busId });
  }

  /** Throws ERR_CLOSED after {@link close}. */
  checkOpen(): void {
    if (this.#closed) throw closedError(this.name);
  }

  /** Runs MEMORY. @throws UcxError ERR_GAUDI_* by the errno, ERR_CLOSED */
  memory(input: MemoryInput, what: string): MemoryOutput {
    const result = this.tryMemory(input);
    if (result < 0) throw this.error(result, what);
    return this.memoryResult();
  }

  /** The result of the last MEMORY ioctl, valid until the next call. */
  memoryResult(): MemoryOutput {
    return HL_MEM_ARGS.out.decode(this.#arguments.view);
  }

  /** Runs MEMORY; returns only 0 or a negative errno. */
  tryMemory(input: MemoryInput): number {
    this.checkOpen();
    HL_MEM_ARGS.in.encode(input, this.#arguments.view);
    return this.file.ioctl(this.file.numbers.MEMORY, this.#arguments);
  }

  /** Runs CB. @throws UcxError ERR_GAUDI_* by the errno, ERR_CLOSED */
  commandBuffer(input: CommandBufferInput, what: string): CommandBufferOutput {
    const result = this.tryCommandBuffer(input);
    if (result < 0) throw this.error(result, what);
    return HL_CB_ARGS.out.decode(this.#arguments.view);
  }

  /** Runs CB; returns only 0 or a negative errno. */
  tryCommandBuffer(input: CommandBufferInput): number {
    this.checkOpen();
    HL_CB_ARGS.in.encode(input, this.#arguments.view);
    return this.file.ioctl(this.file.numbers.CB, this.#arguments);
  }

  /**
   * Runs INFO.
   * @param answer memory for the result; undefined for ops without a result
   * @returns 0 or a negative errno
   */
  tryInfo(op: HlInfoOp, answer: ScratchBlock | undefined, input: InfoInput = {}): number {
    this.checkOpen();
    const place =
      answer === undefined ? {} : { return_pointer: BigInt(answer.address), return_size: answer.byteLength };
    HL_INFO_ARGS.encode({ ...input, ...place, op }, this.#arguments.view);
    return this.file.ioctl(this.file.numbers.INFO, this.#arguments);
  }

  /**
   * Runs INFO and decodes its result. Fields that an older kernel does not fill are zero.
   * @throws UcxError ERR_GAUDI_* by the errno, ERR_CLOSED
   */
  info<F extends StructFields>(op: HlInfoOp, struct: Struct<F>, what: string, input: InfoInput = {}): StructValues<F> {
    const answer = allocateScratch(struct.size);
    try {
      const result = this.tryInfo(op, answer, input);
      if (result < 0) throw this.error(result, what);
      return struct.decode(answer.view);
    } finally {
      answer.free();
    }
  }

  /** The arguments of INFO after the call: some ops return values in them. */
  infoArguments(): ReturnType<typeof HL_INFO_ARGS.decode> {
    return HL_INFO_ARGS.decode(this.#arguments.view);
  }

  /**
   * Maps driver memory; the mapping is closed with the card at the latest.
   * @param byteLength bytes, rounded up to pages
   * @param handle the mmap cookie of an ioctl
   */
  mmap(byteLength: number, handle: bigint, what: string): DriverMapping {
    this.checkOpen();
    try {
      const mapping = this.file.mmap(Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE, handle);
      this.#mappings.add(mapping);
      return mapping;
    } catch (error) {
      if (isSyscallError(error)) throw this.error(-error.errno, `${what}: mmap`, error);
      throw error;
    }
  }

  /** Maps a block of registers for exact accesses. @throws UcxError like {@link mmap} */
  mapRegisters(byteLength: number, handle: bigint, what: string): RegisterMapping {
    this.checkOpen();
    try {
      return this.file.mapRegisters(byteLength, handle);
    } catch (error) {
      if (isSyscallError(error)) throw this.error(-error.errno, `${what}: mmap`, error);
      throw error;
    }
  }

  /** Removes a mapping of {@link mmap}. Idempotent. */
  unmap(mapping: DriverMapping): void {
    this.#mappings.delete(mapping);
    mapping.close();
  }

  /** The error for a negative errno of this card. */
  error(result: number, what: string, cause?: unknown): UcxError {
    const { lostReason, minor, busId } = this;
    const failed = result === -Errno.EBUSY ? this.malfunction() : undefined;
    if (failed !== undefined) {
      return new UcxError({
        code: GaudiErrorCode.DMA_FAILED,
        status: Status.IO_ERROR,
        message: `${what} of ${this.name}: ${failed}`,
        details: { minor, busId, errno: 'EBUSY' },
        cause,
      });
    }
    const why = lostReason === undefined ? '' : ` (${lostReason})`;
    return ioctlError(result, `${what} of ${this.name}${why}`, { minor, busId }, cause);
  }

  /** Removes the mappings, which keep the file open, and closes it. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const mapping of this.#mappings) mapping.close();
    this.#mappings.clear();
    this.file.close();
    this.#arguments.free();
  }
}

/** A range of device addresses: a mapping of host memory or a block of device memory. */
export interface DeviceRange {
  /** Low word of the address of the first byte, as a signed 32-bit number. */
  readonly low: number;
  /** High word of the device address, as a signed 32-bit number. */
  readonly high: number;
  /** Bytes. */
  readonly byteLength: number;
}

/** The low word of an address plus a byte offset below 2^53. */
export function lowAt(low: number, offset: number): number {
  return ((low >>> 0) + offset) | 0;
}

/** The high word of an address plus a byte offset below 2^53. */
export function highAt(low: number, high: number, offset: number): number {
  return (high + highOf((low >>> 0) + offset)) | 0;
}

type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : S;

/** `T` with the names of its fields in camelCase. */
export type CamelRecord<T> = { readonly [K in keyof T & string as CamelCase<K>]: T[K] };

/** Renames the fields of a decoded struct. */
export function camelRecord<T extends object>(values: T): CamelRecord<T> {
  const entries = Object.entries(values).map(([name, value]) => [camelCase(name), value]);
  return Object.fromEntries(entries) as CamelRecord<T>;
}

function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
