/** Device memory by address, for transfers: memory mapped by the raw calls, SRAM, and physical memory of gaudi, which the program manages. */

import { highWord, lowWord } from '../../ucs/type/int64.ts';
import type { CardFile } from '../base/card-file.ts';
import { checkLength, checkWord64, invalidArgument } from '../base/gaudi-error.ts';
import type { HwIpInfo } from '../info/device-info.ts';
import type { PhysicalArenaSource } from './arena-source.ts';
import type { DeviceArenas } from './device-arenas.ts';
import { type CardRange, checkUnused, DmaMemory } from './dma-memory.ts';

/** A range of device addresses for transfers. Made by `deviceMemoryRange`. */
export class DeviceMemoryRange extends DmaMemory implements Disposable {
  readonly #owner: DeviceRanges;
  /** The block that contains the range: a transfer of the range uses it. */
  readonly #block: DmaMemory | undefined;

  constructor(owner: DeviceRanges, { card, address, byteLength }: CardRange, block: DmaMemory | undefined) {
    super(card, lowWord(address), highWord(address), byteLength);
    this.#owner = owner;
    this.#block = block;
  }

  override retain(): void {
    super.retain();
    this.#block?.retain();
  }

  override release(): void {
    super.release();
    this.#block?.release();
  }

  /**
   * Releases the range; the memory itself is not affected. No effect after the device was closed.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY while a transfer uses the range; ERR_GAUDI_INVALID_PARAMS the second time
   */
  end(): void {
    this.#owner.end(this);
  }

  /** Ends the range unless it has ended already. */
  [Symbol.dispose](): void {
    if (this.live) this.end();
  }
}

/** The ranges of one device. */
export class DeviceRanges {
  readonly #card: CardFile;
  readonly #info: HwIpInfo;
  readonly #memory: DeviceArenas;
  /** Gaudi only: the source of arenas, from which physical ranges are reserved. */
  readonly #physical: PhysicalArenaSource | undefined;
  /** Live ranges, each with the function that releases it. */
  readonly #ranges: Map<DeviceMemoryRange, () => void> = new Map();

  constructor(card: CardFile, info: HwIpInfo, memory: DeviceArenas, physical: PhysicalArenaSource | undefined) {
    this.#card = card;
    this.#info = info;
    this.#memory = memory;
    this.#physical = physical;
  }

  /** Number of live ranges. */
  get count(): number {
    return this.#ranges.size;
  }

  /**
   * Makes a range of device memory that begins at `address`.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for memory that the program does not own: only a mapping of deviceMemoryMap, a block, SRAM and, on gaudi, DRAM
   *   whose pages neither a block nor another range uses are permitted; ERR_CLOSED
   */
  add(address: bigint, byteLength: number): DeviceMemoryRange {
    this.#card.checkOpen();
    checkWord64('address', address);
    checkLength('byteLength', byteLength);
    const block = this.#memory.find(address);
    if (block !== undefined) {
      checkWithin(address, byteLength, block.address, block.byteLength);
      const range = new DeviceMemoryRange(this, { card: this.#card, address, byteLength }, block);
      this.#ranges.set(
        range,
        block.onFree(() => this.#forget(range)),
      );
      return range;
    }
    const undo = this.#takeUnmanaged(address, byteLength);
    const range = new DeviceMemoryRange(this, { card: this.#card, address, byteLength }, undefined);
    this.#ranges.set(range, undo);
    return range;
  }

  /** See {@link DeviceMemoryRange.end}. */
  end(range: DeviceMemoryRange): void {
    if (this.#card.closed) return;
    checkUnused(range, this.#card, 'range');
    const undo = this.#ranges.get(range);
    if (undo === undefined) throw invalidArgument('range', 'must be a result of deviceMemoryRange', range.address);
    undo();
    this.#forget(range);
  }

  /** Ends all ranges when the device is closed. Idempotent. */
  close(): void {
    for (const range of this.#ranges.keys()) this.#forget(range);
  }

  /** Reserves memory that the driver does not allocate; returns a function that releases it. */
  #takeUnmanaged(address: bigint, byteLength: number): () => void {
    const { sramBaseAddress, sramSize, dramBaseAddress, dramSize } = this.#info;
    if (address >= sramBaseAddress && address < sramBaseAddress + BigInt(sramSize)) {
      checkWithin(address, byteLength, sramBaseAddress, sramSize);
      return () => {};
    }
    const physical = this.#physical;
    if (physical === undefined || address < dramBaseAddress || address >= dramBaseAddress + dramSize) {
      const places = physical === undefined ? 'a mapping of deviceMemoryMap or SRAM' : 'DRAM or SRAM';
      throw invalidArgument('address', `must be in a block, ${places} of ${this.#card.name}`, address);
    }
    checkWithin(address, byteLength, dramBaseAddress, Number(dramSize));
    const undo = physical.claim(address, byteLength);
    if (undo === undefined) {
      throw invalidArgument('address', 'must not be in pages that blocks or other ranges use', address);
    }
    return undo;
  }

  #forget(range: DeviceMemoryRange): void {
    range.live = false;
    this.#ranges.delete(range);
  }
}

/** Throws unless a range that begins inside another one also ends inside it. */
function checkWithin(address: bigint, byteLength: number, base: bigint, baseLength: number): void {
  const left = baseLength - Number(address - base);
  if (byteLength > left) {
    throw invalidArgument(
      'byteLength',
      `must be at most ${left}, up to the end of the memory at the address`,
      byteLength,
    );
  }
}
