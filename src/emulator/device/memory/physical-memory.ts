/**
 * Memory that an emulated device can reach: HBM, SRAM, a command buffer of the driver or pinned pages of the host.
 *
 * Two kinds of access: `address` for memcpy in the engine threads, and windows (typed arrays created once, at first access) for
 * small copies and words in JavaScript, without a foreign call and without garbage.
 */

/** Windows are 1 GiB, so that every index in one is a small integer of V8. */
export const WINDOW_BYTES: number = 2 ** 30;

/** Creates one window: `byteLength` bytes from `offset`. */
export type WindowFactory = (offset: number, byteLength: number) => Uint8Array;

/**
 * Views of foreign memory count as external memory of V8 and provoke collections, so pinned host memory above this size
 * has none: its small copies use a foreign call instead.
 */
export const HOST_WINDOW_BYTES_MAX: number = 16 * 2 ** 20;

/** The name that marks host memory. */
export const HOST_MEMORY = 'host';

/** Memory that this process accesses by loads and stores. */
export const DIRECT = -2;

/** A window as bytes and as 32-bit words. */
export class MemoryWindow {
  readonly u8: Uint8Array;
  readonly words: Int32Array;

  constructor(bytes: Uint8Array) {
    this.u8 = bytes;
    this.words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >>> 2);
  }
}

/** Where a memory is in the host: bytes from an address on, in this process or in another address space. */
export interface HostRange {
  readonly address: number;
  readonly byteLength: number;
  /** Default DIRECT. */
  readonly space?: number;
}

/** A contiguous piece of host virtual memory that represents physical memory. */
export class PhysicalMemory {
  /** Name for fault records and logs: "hbm", "sram", "host", "command buffer". */
  readonly name: string;
  /** True for pinned pages of the host: the far side of the card's PCIe port. */
  readonly isHost: boolean;
  /** Host virtual address of byte 0, in {@link space}. */
  readonly address: number;
  /** {@link DIRECT}, or an address space, which only system calls reach: see `readAddressSpace`. */
  readonly space: number;
  readonly byteLength: number;
  /** Minor of the card that has the memory; -1 for none. */
  card = -1;
  /** The file of the memory, whose length is sealed; -1 for none. */
  fd = -1;
  /** False if windows would cost too much; then {@link PhysicalMemory.window} must not be called. */
  readonly hasWindows: boolean;
  readonly #windows: (MemoryWindow | undefined)[];
  readonly #makeWindow: WindowFactory | undefined;

  /** @param makeWindow undefined if windows would cost too much */
  constructor(name: string, { address, byteLength, space = DIRECT }: HostRange, makeWindow?: WindowFactory) {
    this.name = name;
    this.isHost = name === HOST_MEMORY;
    this.address = address;
    this.space = space;
    this.byteLength = byteLength;
    this.hasWindows = makeWindow !== undefined;
    this.#makeWindow = makeWindow;
    this.#windows = new Array<MemoryWindow | undefined>(Math.ceil(byteLength / WINDOW_BYTES)).fill(undefined);
  }

  /** The window that contains byte `offset`; the index inside it is {@link windowIndex}. */
  window(offset: number): MemoryWindow {
    const slot = Math.floor(offset / WINDOW_BYTES);
    return this.#windows[slot] ?? this.#openWindow(slot);
  }

  /** Drops the views, so that the memory behind them can be released. */
  forget(): void {
    this.#windows.fill(undefined);
  }

  #openWindow(slot: number): MemoryWindow {
    if (this.#makeWindow === undefined) throw new RangeError(`${this.name} memory has no windows`);
    const offset = slot * WINDOW_BYTES;
    const opened = new MemoryWindow(this.#makeWindow(offset, Math.min(WINDOW_BYTES, this.byteLength - offset)));
    this.#windows[slot] = opened;
    return opened;
  }
}

/** Index of byte `offset` inside its window. */
export function windowIndex(offset: number): number {
  return offset % WINDOW_BYTES;
}
