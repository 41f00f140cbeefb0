/** An arena: whole pages of device memory, mapped once and exported once, and divided into blocks. */

import { close as closeFd, dup, isSyscallError, noteDescriptor } from '../../sys/index.ts';
import { RangeAllocator } from '../../ucs/datastruct/range-allocator.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import type { CardFile } from '../base/card-file.ts';
import { checkInteger, checkLength, invalidArgument, outsideArgument } from '../base/gaudi-error.ts';
import type { ArenaMemory } from './arena-source.ts';
import { DmaMemory, nextGeneration } from './dma-memory.ts';

/** Blocks begin and end at multiples of this, the widest access of the DMA engines, so that two blocks never share an access. */
export const BLOCK_GRANULE_BYTES = 256;

/** A range of a block, whose transfers are counted separately; they also count as transfers of the block. Made by {@link DeviceBlock.part}. */
export class DevicePart extends DmaMemory {
  /** The block that contains it. */
  readonly block: DeviceBlock;
  /** Offset from the start of the block in bytes. */
  readonly offset: number;

  constructor(block: DeviceBlock, offset: number, byteLength: number) {
    const address = block.address + BigInt(offset);
    super(block.card, lowWord(address), highWord(address), byteLength);
    this.block = block;
    this.offset = offset;
  }

  override retain(): void {
    super.retain();
    this.block.retain();
  }

  override release(): void {
    super.release();
    this.block.release();
  }
}

/** A block of device memory. Made by `device.memory.allocate`, and for mappings of the raw calls. */
export class DeviceBlock extends DmaMemory implements Disposable {
  /** The arena that it is allocated from. */
  readonly arena: Arena;
  /** Offset from the start of the arena in bytes: identifies the block for other processes, together with the arena's dma-buf. */
  readonly offset: number;
  /** Start of the allocated range, before the start of the block if that had to be aligned. */
  readonly rangeOffset: number;
  readonly #parts: Set<DevicePart> = new Set();
  readonly #onFree: Set<() => void> = new Set();

  constructor(arena: Arena, offset: number, rangeOffset: number, byteLength: number) {
    const address = arena.memory.address + BigInt(offset);
    super(arena.card, lowWord(address), highWord(address), byteLength);
    this.arena = arena;
    this.offset = offset;
    this.rangeOffset = rangeOffset;
  }

  /**
   * Frees the block. No effect after the device was closed.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY while a transfer uses the block; ERR_GAUDI_INVALID_PARAMS the second time
   */
  free(): void {
    this.arena.free(this);
  }

  /**
   * Makes a part of the block, whose transfers are counted separately; {@link endPart} ends it.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a range outside of the block, and for a freed block
   */
  part(offset: number, byteLength: number): DevicePart {
    if (!this.live) throw invalidArgument('block', 'has been freed', this.address);
    checkInteger('offset', offset);
    checkLength('byteLength', byteLength);
    if (byteLength > this.byteLength - offset) {
      throw outsideArgument('block', 'offset', { offset, byteLength, size: this.byteLength });
    }
    const part = new DevicePart(this, offset, byteLength);
    this.#parts.add(part);
    return part;
  }

  /**
   * Ends a part, which transfers must no longer use.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an object that is not a part of this block
   */
  endPart(part: DevicePart): void {
    const isOwn = DmaMemory.isGenuine(part) && part instanceof DevicePart && part.block === this;
    if (!isOwn) throw invalidArgument('part', 'must be a part of the block', part);
    part.live = false;
    this.#parts.delete(part);
  }

  /** Registers `callback`, which is called before the memory is freed. Returns a function that cancels the registration. */
  onFree(callback: () => void): () => void {
    if (typeof callback !== 'function') throw invalidArgument('callback', 'must be a function', callback);
    this.#onFree.add(callback);
    return () => this.#onFree.delete(callback);
  }

  /** Runs the callbacks before the block is freed. Called by its owner. */
  announceFree(): void {
    for (const callback of this.#onFree) callback();
    this.#onFree.clear();
  }

  /** Marks the block and its parts as freed. Called by its arena. */
  retire(): void {
    this.live = false;
    for (const part of this.#parts) part.live = false;
    this.#parts.clear();
  }

  /** Frees the block unless it is freed already. */
  [Symbol.dispose](): void {
    if (this.live) this.free();
  }
}

/** Pages of device memory, divided into blocks. */
export class Arena {
  /** The open file of the card that has the memory. */
  readonly card: CardFile;
  /** The device memory allocated from the driver. */
  readonly memory: ArenaMemory;
  /** Whether it contains a single block, which may be shared with an untrusted process. */
  readonly dedicated: boolean;
  /** Unique in this process. */
  readonly generation: number;
  readonly #ranges: RangeAllocator;
  readonly #blocks: Map<number, DeviceBlock> = new Map();
  readonly #onFree: (block: DeviceBlock) => void;
  #exported = -1;

  /** @param onFree called to free a block of the arena */
  constructor(card: CardFile, memory: ArenaMemory, dedicated: boolean, onFree: (block: DeviceBlock) => void) {
    this.#onFree = onFree;
    this.card = card;
    this.memory = memory;
    this.dedicated = dedicated;
    this.generation = nextGeneration();
    this.#ranges = new RangeAllocator(memory.byteLength);
  }

  /** Length in bytes. */
  get byteLength(): number {
    return this.memory.byteLength;
  }

  /** Bytes that belong to no block. */
  get freeBytes(): number {
    return this.#ranges.freeBytes;
  }

  /** Length in bytes of the largest free range. */
  get largestFree(): number {
    return this.#ranges.largestFree;
  }

  /** Live blocks. */
  get blockCount(): number {
    return this.#blocks.size;
  }

  /** The percentage of each of `cells` equal cells that is in blocks: 0 only for a free cell, 100 only for a full one. */
  usedPercent(cells: number): number[] {
    return Array.from(this.#ranges.usedShares(cells), (share) => {
      return share === 0 || share === 1 ? 100 * share : Math.min(99, Math.max(1, Math.round(100 * share)));
    });
  }

  /** The live blocks, in arbitrary order. */
  blocks(): Iterable<DeviceBlock> {
    return this.#blocks.values();
  }

  /** Allocates a block; undefined if no free range is large enough. @param alignment power of two of the device address */
  allocate(byteLength: number, alignment: number): DeviceBlock | undefined {
    const bytes = Math.ceil(byteLength / BLOCK_GRANULE_BYTES) * BLOCK_GRANULE_BYTES;
    const skew = Number(this.memory.address % BigInt(alignment));
    // Pages are aligned to 2 MiB and more; for a stricter alignment the range is extended and the block placed inside it.
    const padding = skew === 0 ? 0 : alignment - BLOCK_GRANULE_BYTES;
    const rangeOffset = this.#ranges.allocate(bytes + padding, skew === 0 ? alignment : BLOCK_GRANULE_BYTES);
    if (rangeOffset < 0) return undefined;
    const offset = rangeOffset + (skew === 0 ? 0 : (alignment - ((skew + rangeOffset) % alignment)) % alignment);
    const block = new DeviceBlock(this, offset, rangeOffset, byteLength);
    this.#blocks.set(rangeOffset, block);
    return block;
  }

  /** See {@link DeviceBlock.free}. */
  free(block: DeviceBlock): void {
    this.#onFree(block);
  }

  /** Removes a block; its range is merged with free neighbours. */
  remove(block: DeviceBlock): void {
    block.retire();
    this.#blocks.delete(block.rangeOffset);
    this.#ranges.free(block.rangeOffset);
  }

  /** The live block that contains an offset of the arena. */
  find(offset: number): DeviceBlock | undefined {
    const range = this.#ranges.find(offset);
    if (range === undefined) return undefined;
    const block = this.#blocks.get(range.offset);
    if (block === undefined || offset < block.offset || offset >= block.offset + block.byteLength) return undefined;
    return block;
  }

  /**
   * A new descriptor of the arena's dma-buf, close-on-exec, owned by the caller.
   * @param exportFd exports the whole arena; called once
   * @throws UcxError ERR_GAUDI_OUT_OF_MEMORY without free descriptors; errors of `exportFd`
   */
  exportFd(exportFd: (memory: ArenaMemory) => number): number {
    if (this.#exported < 0) {
      this.#exported = noteDescriptor(exportFd(this.memory));
      this.card.dmabufs.kept();
    }
    try {
      return dup(this.#exported);
    } catch (error) {
      if (isSyscallError(error)) throw this.card.error(-error.errno, 'descriptor of a dma-buf', error);
      throw error;
    }
  }

  /** Closes the arena's own descriptor of its dma-buf: the driver keeps exported memory until all are closed. Idempotent. */
  closeExport(): void {
    if (this.#exported < 0) return;
    closeFd(this.#exported);
    this.#exported = -1;
    this.card.dmabufs.closed();
  }
}
