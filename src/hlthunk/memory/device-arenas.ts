/**
 * Allocator of device memory: divides arenas into blocks of any size, because the driver allocates pages of up to 768 MiB. Blocks have fixed addresses; at most
 * one empty arena is kept.
 *
 * A block comes from the fullest arena with enough free space, best fit within it. A new arena is one page of gaudi2, 512 MiB where pages are smaller, or as
 * many pages as a large block needs.
 */

import { Errno } from '../../sys/index.ts';
import { HL_MEM_OP } from '../../uapi/index.ts';
import { closedError, type UcxError } from '../../ucs/type/error.ts';
import type { AddressOwner, CardFile } from '../base/card-file.ts';
import {
  checkFlag,
  checkLength,
  checkMethods,
  checkObject,
  checkWord64,
  GaudiErrorCode,
  gaudiError,
  invalidArgument,
} from '../base/gaudi-error.ts';
import { Arena, BLOCK_GRANULE_BYTES, DeviceBlock } from './arena.ts';
import type { ArenaMemory, ArenaSource } from './arena-source.ts';
import { checkUnused } from './dma-memory.ts';

/** Minimum size of an arena in bytes if pages are smaller; rounded up to whole pages. */
export const ARENA_BYTES: number = 512 * 2 ** 20;
/** Strictest alignment of a block. */
export const BLOCK_ALIGNMENT_MAX: number = 2 ** 30;

/** Maximum number of cells in the maps of all arenas together, and so of arenas with a map: gaudi2 has 127 pages. */
export const ARENA_MAP_CELLS: number = 128;

/** Options of a block. */
export interface BlockOptions {
  /** Alignment of the device address: a power of two up to 1 GiB. Default and minimum 256. */
  readonly alignment?: number | undefined;
  /** Use a separate arena: an importer of its dma-buf has access to nothing else. Costs whole pages. Default false. */
  readonly dedicated?: boolean | undefined;
}

/** Statistics of arenas and blocks. */
export interface ArenaStatistics {
  /** Number of arenas. */
  readonly arenas: number;
  /** Length of all arenas in bytes. */
  readonly arenaBytes: number;
  /** Number of live blocks. */
  readonly blocks: number;
  /** Length of the live blocks in bytes, with padding. */
  readonly usedBytes: number;
  /** Length of the largest free range of an arena in bytes. */
  readonly largestFreeBytes: number;
}

/** The usage of an arena. */
export interface ArenaMap {
  /** Length of the arena in bytes. */
  readonly byteLength: number;
  /** Number of live blocks. */
  readonly blocks: number;
  /** The arena as cells of equal length: the percentage of each that is in blocks; 0 only for a free cell, 100 only for a full one. */
  readonly usedPercent: readonly number[];
}

/** Listener for allocations of device memory. */
export interface MemoryWatcher {
  /** Called before the address is returned to the program. */
  onAllocated(block: DeviceBlock): void;
  /** Called when a block was freed. */
  onFreed(block: DeviceBlock): void;
}

/** The device memory of one open card. */
export class DeviceArenas implements AddressOwner {
  readonly #card: CardFile;
  readonly #source: ArenaSource;
  readonly #arenaBytes: number;
  readonly #arenas: Arena[] = [];
  /** Mappings made by the raw calls: one block each, by its address. */
  readonly #raw: Map<bigint, DeviceBlock> = new Map();
  readonly #watchers: Set<MemoryWatcher> = new Set();
  readonly #onFree: (block: DeviceBlock) => void = (block) => this.free(block);
  readonly #onRawMapped: CardFile['onRawMapped'] = (address, byteLength, handle) => {
    const arena = new Arena(this.#card, { address, byteLength, handle }, true, this.#onFree);
    const block = arena.allocate(byteLength, BLOCK_GRANULE_BYTES)!;
    this.#raw.set(address, block);
    for (const watcher of this.#watchers) watcher.onAllocated(block);
  };
  #closed = false;

  /** @param arenaBytes minimum size of a new arena; rounded up to whole pages */
  constructor(card: CardFile, source: ArenaSource, arenaBytes: number = ARENA_BYTES) {
    this.#card = card;
    this.#source = source;
    this.#arenaBytes = roundUp(arenaBytes, source.pageBytes);
    card.pageBytes = source.pageBytes;
    card.onRawMapped = this.#onRawMapped;
    card.addressOwners.push(this);
  }

  /** Page size of the driver in bytes: the minimum cost of a dedicated block. */
  get pageBytes(): number {
    return this.#source.pageBytes;
  }

  /** Statistics of arenas and blocks in use. */
  get statistics(): ArenaStatistics {
    let blocks = 0;
    let arenaBytes = 0;
    let usedBytes = 0;
    let largestFreeBytes = 0;
    for (const arena of this.#arenas) {
      blocks += arena.blockCount;
      arenaBytes += arena.byteLength;
      usedBytes += arena.byteLength - arena.freeBytes;
      largestFreeBytes = Math.max(largestFreeBytes, arena.largestFree);
    }
    return { arenas: this.#arenas.length, arenaBytes, blocks, usedBytes, largestFreeBytes };
  }

  /** The maps of the first {@link ARENA_MAP_CELLS} arenas. Together they have at most that many cells. */
  maps(): ArenaMap[] {
    const arenas = this.#arenas.slice(0, ARENA_MAP_CELLS);
    const cells = Math.floor(ARENA_MAP_CELLS / arenas.length);
    return arenas.map((arena) => {
      return { byteLength: arena.byteLength, blocks: arena.blockCount, usedPercent: arena.usedPercent(cells) };
    });
  }

  /**
   * Allocates device memory; its contents are undefined.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS; ERR_GAUDI_OUT_OF_MEMORY with the requested bytes, the free bytes and the largest free range;
   *   ERR_GAUDI_DEVICE_BUSY after a reset of the card
   */
  allocate(byteLength: number, options: BlockOptions = {}): DeviceBlock {
    const block = this.#allocate(byteLength, options);
    for (const watcher of this.#watchers) watcher.onAllocated(block);
    return block;
  }

  #allocate(byteLength: number, options: BlockOptions): DeviceBlock {
    if (this.#closed) throw closedError(this.#card.name);
    this.#card.checkUsable();
    checkLength('byteLength', byteLength);
    checkObject('options', options, ['alignment', 'dedicated']);
    checkFlag('dedicated', options.dedicated);
    const alignment = Math.max(BLOCK_GRANULE_BYTES, checkAlignment(options.alignment ?? BLOCK_GRANULE_BYTES));
    const block = options.dedicated === true ? undefined : this.#allocateInArenas(byteLength, alignment);
    return block ?? this.#allocateInNewArena(byteLength, alignment, options.dedicated === true);
  }

  /** The live block that contains a device address; undefined if there is none. */
  find(address: bigint): DeviceBlock | undefined {
    checkWord64('address', address);
    for (const arena of this.#allArenas()) {
      const offset = address - arena.memory.address;
      if (offset >= 0n && offset < BigInt(arena.byteLength)) return arena.find(Number(offset));
    }
    return undefined;
  }

  /** Every live block. */
  blocks(): DeviceBlock[] {
    return this.#allArenas().flatMap((arena) => [...arena.blocks()]);
  }

  /** Notifies `watcher` of every allocated and freed block from now on. Returns a function that ends the notifications. */
  watch(watcher: MemoryWatcher): () => void {
    checkMethods('watcher', watcher, ['onAllocated', 'onFreed']);
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  unmapAt(address: bigint): boolean {
    const block = this.#raw.get(address);
    if (block === undefined) {
      if (!this.#arenas.some(({ memory }) => memory.address === address)) return false;
      throw invalidArgument(
        'address',
        'must be the address of a mapping; free blocks of device.memory with free',
        address,
      );
    }
    checkUnused(block, this.#card, 'address');
    this.#raw.delete(address);
    this.#end(block);
    block.arena.closeExport();
    const result = this.#card.tryMemory({ unmap_device_virt_addr: address, op: HL_MEM_OP.UNMAP });
    if (result === 0) return true;
    const { byteLength, handle } = block.arena.memory;
    this.#onRawMapped(address, byteLength, handle);
    const holder =
      result === -Errno.EINVAL
        ? ': a dma-buf of the memory is open in this process or in one that imported it; close it and repeat the call'
        : '';
    throw this.#card.error(result, `memoryUnmap of 0x${address.toString(16)}${holder}`);
  }

  /** See {@link DeviceBlock.free}. */
  free(block: DeviceBlock): void {
    if (this.#closed) return;
    checkUnused(block, this.#card, 'block');
    if (!(block instanceof DeviceBlock)) throw invalidArgument('block', 'must be device memory', block);
    if (this.#raw.get(block.address) === block) {
      throw invalidArgument(
        'block',
        'must be a block of device.memory; unmap memory of deviceMemoryMap with memoryUnmap',
        block.address,
      );
    }
    this.#end(block);
    if (block.arena.blockCount === 0) this.#retire(block.arena);
  }

  /** Ends all blocks. Call it before the file is closed, which releases their memory: open dma-bufs would prevent that. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const arena of this.#allArenas()) {
      for (const block of [...arena.blocks()]) arena.remove(block);
      arena.closeExport();
    }
    this.#arenas.length = 0;
    this.#raw.clear();
  }

  /**
   * Returns the empty arenas to the driver; those with an open dma-buf are kept until a later call.
   * @returns whether one was returned
   */
  reclaim(): boolean {
    let released = false;
    for (const arena of this.#arenas.filter(({ blockCount }) => blockCount === 0)) {
      released = this.#release(arena) || released;
    }
    return released;
  }

  /** The arenas of blocks, and those of raw mappings. */
  #allArenas(): Arena[] {
    return [...this.#arenas, ...[...this.#raw.values()].map(({ arena }) => arena)];
  }

  /** Frees a block, after its `onFree` callbacks have run. */
  #end(block: DeviceBlock): void {
    block.announceFree();
    block.arena.remove(block);
    for (const watcher of this.#watchers) watcher.onFreed(block);
  }

  #allocateInArenas(byteLength: number, alignment: number): DeviceBlock | undefined {
    // Fullest first, so that the others become empty. There are at most as many arenas as pages, 127 on gaudi2.
    const candidates = this.#arenas.filter((arena) => !arena.dedicated && arena.largestFree >= byteLength);
    candidates.sort((a, b) => a.freeBytes - b.freeBytes);
    for (const arena of candidates) {
      const block = arena.allocate(byteLength, alignment);
      if (block !== undefined) return block;
    }
    return undefined;
  }

  #allocateInNewArena(byteLength: number, alignment: number, dedicated: boolean): DeviceBlock {
    const pageBytes = this.#source.pageBytes;
    // Space for padding, if pages are less strictly aligned than the block.
    const slack = pageBytes % alignment === 0 ? 0 : alignment;
    const needed = roundUp(byteLength + slack, pageBytes);
    const wanted = dedicated ? needed : Math.max(needed, this.#arenaBytes);
    const memory = this.#acquire(wanted, needed);
    if (memory === undefined) throw this.#outOfMemory(byteLength);
    const arena = new Arena(this.#card, memory, dedicated, this.#onFree);
    this.#arenas.push(arena);
    // Defined, because the arena is large enough for the block.
    return arena.allocate(byteLength, alignment)!;
  }

  /** Allocates memory for an arena: the wanted size, or the needed size, or the needed size after empty arenas were returned. */
  #acquire(wanted: number, needed: number): ArenaMemory | undefined {
    const memory = this.#source.acquire(wanted);
    if (memory !== undefined) return memory;
    const smaller = needed < wanted ? this.#source.acquire(needed) : undefined;
    if (smaller !== undefined) return smaller;
    return this.reclaim() ? this.#source.acquire(needed) : undefined;
  }

  /** Called when an arena has become empty: one non-dedicated arena is kept as a spare. */
  #retire(arena: Arena): void {
    const ordinary = !arena.dedicated && arena.byteLength === this.#arenaBytes;
    const hasSpare = this.#arenas.some((other) => other !== arena && other.blockCount === 0);
    if (!ordinary || hasSpare) this.#release(arena);
  }

  /** Returns an empty arena to the driver; it is kept while a dma-buf of it is open. */
  #release(arena: Arena): boolean {
    arena.closeExport();
    if (!this.#source.release(arena.memory)) return false;
    this.#arenas.splice(this.#arenas.indexOf(arena), 1);
    return true;
  }

  #outOfMemory(byteLength: number): UcxError {
    const unclaimed = this.#source.freeBytes();
    const shared = this.#arenas.filter((arena) => !arena.dedicated);
    const freeBytes = shared.reduce((sum, arena) => sum + arena.freeBytes, unclaimed);
    const largestFree = shared.reduce((max, arena) => Math.max(max, arena.largestFree), unclaimed);
    return gaudiError(
      GaudiErrorCode.OUT_OF_MEMORY,
      `${byteLength} bytes of ${this.#card.name}: ${freeBytes} bytes are free, the largest free range has ${largestFree}`,
      { byteLength, freeBytes, largestFree },
    );
  }
}

function checkAlignment(alignment: number): number {
  const isPowerOfTwo = Number.isInteger(alignment) && alignment > 0 && (alignment & (alignment - 1)) === 0;
  if (isPowerOfTwo && alignment <= BLOCK_ALIGNMENT_MAX) return alignment;
  throw invalidArgument('alignment', 'must be a power of two up to 2^30', alignment);
}

function roundUp(value: number, unit: number): number {
  return Math.ceil(value / unit) * unit;
}
