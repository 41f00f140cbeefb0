/**
 * An arena: whole pages of device memory, mapped once and exported once, and the blocks that it is divided into. Which arena a
 * block comes from, and when an arena goes back, is decided in device-arenas.ts.
 */

import { close as closeFd, dup, isSyscallError } from '../../sys/index.ts';
import { RangeAllocator } from '../../ucs/datastruct/range-allocator.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { checkInteger, checkLength, invalidArgument } from '../base/argument-error.ts';
import type { CardFile } from '../base/card-file.ts';
import type { ArenaMemory } from './arena-source.ts';
import { DmaMemory, nextGeneration } from './dma-memory.ts';

/** Blocks begin and end at multiples of this: the widest access of the DMA engines, so that no two blocks share one. */
export const BLOCK_GRANULE_BYTES = 256;

/** Takes blocks back. */
export interface BlockOwner {
  free(block: DeviceBlock): void;
}

/** A part of a block, with transfers of its own: what uses it uses the block. Made by {@link DeviceBlock.part}. */
export class DevicePart extends DmaMemory {
  /** The block that it is a part of. */
  readonly block: DeviceBlock;
  /** Bytes from the start of the block. */
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

/** A block of device memory. Made by `device.memory.allocate`, and for what the raw calls have mapped. */
export class DeviceBlock extends DmaMemory implements Disposable {
  /** The arena that it is allocated from. */
  readonly arena: Arena;
  /** Bytes from the start of the arena: with the arena's dma-buf this names the block to others. */
  readonly offset: number;
  /** Where the range of the allocator starts, which alignment may have moved away from the block. */
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
   * Gives the memory back. Without effect after the device was closed.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY while a transfer uses the block; ERR_GAUDI_INVALID_PARAMS the second time
   */
  free(): void {
    this.arena.owner.free(this);
  }

  /**
   * A part of the block, for transfers that are counted apart; {@link endPart} gives it back.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a range that does not lie inside, and for a block that was freed
   */
  part(offset: number, byteLength: number): DevicePart {
    if (!this.live) throw invalidArgument('block', 'must be live', this.address);
    checkInteger('offset', offset);
    checkLength('byteLength', byteLength);
    if (byteLength > this.byteLength - offset) {
      throw invalidArgument(
        'offset',
        `plus byteLength ${byteLength} must stay within ${this.byteLength} bytes`,
        offset,
      );
    }
    const part = new DevicePart(this, offset, byteLength);
    this.#parts.add(part);
    return part;
  }

  /**
   * Ends a part: no transfer uses it.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for what is no part of this block
   */
  endPart(part: DevicePart): void {
    const isOwn = DmaMemory.isGenuine(part) && part instanceof DevicePart && part.block === this;
    if (!isOwn) throw invalidArgument('part', 'must be a part of the block', part);
    part.live = false;
    this.#parts.delete(part);
  }

  /** Has `callback` run before the memory goes. Returns what takes the wish back. */
  onFree(callback: () => void): () => void {
    if (typeof callback !== 'function') throw invalidArgument('callback', 'must be a function', callback);
    this.#onFree.add(callback);
    return () => this.#onFree.delete(callback);
  }

  /** Tells those who depend on the block that it is about to go. For its owner. */
  announceFree(): void {
    for (const callback of this.#onFree) callback();
    this.#onFree.clear();
  }

  /** The block and its parts are not to be used any more. For its arena. */
  retire(): void {
    this.live = false;
    for (const part of this.#parts) part.live = false;
    this.#parts.clear();
  }

  /** Frees the block unless that has been done. */
  [Symbol.dispose](): void {
    if (this.live) this.free();
  }
}

/** Pages of device memory, divided into blocks. */
export class Arena {
  /** Takes freed blocks back. */
  readonly owner: BlockOwner;
  /** The open file of the card that has the memory. */
  readonly card: CardFile;
  /** The device memory as the driver allocated it. */
  readonly memory: ArenaMemory;
  /** For one block alone, which may be shared with an untrusted process. */
  readonly dedicated: boolean;
  /** Unique in this process. */
  readonly generation: number;
  readonly #ranges: RangeAllocator;
  readonly #blocks: Map<number, DeviceBlock> = new Map();
  #exported = -1;

  constructor(owner: BlockOwner, card: CardFile, memory: ArenaMemory, dedicated: boolean) {
    this.owner = owner;
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

  /** Bytes that no block uses. */
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

  /** The live blocks, in no order. */
  blocks(): Iterable<DeviceBlock> {
    return this.#blocks.values();
  }

  /** Takes a block; undefined when no free range is large enough. @param alignment power of two of the device address */
  allocate(byteLength: number, alignment: number): DeviceBlock | undefined {
    const bytes = Math.ceil(byteLength / BLOCK_GRANULE_BYTES) * BLOCK_GRANULE_BYTES;
    const skew = Number(this.memory.address % BigInt(alignment));
    // Pages are aligned to 2 MiB and more; for a stricter wish the range is made longer and the block put where it fits.
    const padding = skew === 0 ? 0 : alignment - BLOCK_GRANULE_BYTES;
    const rangeOffset = this.#ranges.allocate(bytes + padding, skew === 0 ? alignment : BLOCK_GRANULE_BYTES);
    if (rangeOffset < 0) return undefined;
    const offset = rangeOffset + (skew === 0 ? 0 : (alignment - ((skew + rangeOffset) % alignment)) % alignment);
    const block = new DeviceBlock(this, offset, rangeOffset, byteLength);
    this.#blocks.set(rangeOffset, block);
    return block;
  }

  /** Takes a block back; its range joins its free neighbours. */
  remove(block: DeviceBlock): void {
    block.retire();
    this.#blocks.delete(block.rangeOffset);
    this.#ranges.free(block.rangeOffset);
  }

  /** The live block that contains a byte of the arena. */
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
   * @throws UcxError ERR_GAUDI_OUT_OF_MEMORY without descriptors; what `exportFd` throws
   */
  exportFd(exportFd: (memory: ArenaMemory) => number): number {
    if (this.#exported < 0) this.#exported = exportFd(this.memory);
    try {
      return dup(this.#exported);
    } catch (error) {
      if (isSyscallError(error)) throw this.card.error(-error.errno, 'descriptor of a dma-buf', error);
      throw error;
    }
  }

  /** Closes the arena's own descriptor of its dma-buf: the driver keeps exported memory until all are closed. Idempotent. */
  closeExport(): void {
    if (this.#exported >= 0) closeFd(this.#exported);
    this.#exported = -1;
  }
}
