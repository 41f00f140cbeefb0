/**
 * Small zeroed blocks of memory at fixed addresses, for arguments of system calls: an ioctl block, an iovec, a timespec. Every thread has a separate arena.
 *
 * Blocks are taken from 64 KiB chunks in size classes of powers of two. Chunks are never unmapped, so an arena keeps the maximum size that was ever in use. A
 * block larger than a chunk has a separate mapping.
 */

import { invalidParam } from '../../ucs/type/error.ts';
import { type AnonymousOptions, type MappedMemory, mapAnonymous } from './mapped-memory.ts';
import { MappingKind } from './thread-resources.ts';

const CHUNK_BYTES = 65536;
const SLOT_BYTES_MIN = 64;
const BLOCK_BYTES_MAX = 2 ** 30;
/** LOCAL, because peers never have the address of a block. */
const LOCAL: AnonymousOptions = { kind: MappingKind.LOCAL };

interface Slot {
  readonly memory: MappedMemory;
  readonly offset: number;
}

const freeSlots = new Map<number, Slot[]>();
const counters = { liveBlocks: 0, liveBytes: 0, arenaBytes: 0 };

/** Counters of this thread. */
export interface ScratchStatistics {
  /** Number of blocks that are not freed. */
  readonly liveBlocks: number;
  /** Requested bytes of these blocks. */
  readonly liveBytes: number;
  /** Bytes in chunks, which stay mapped. */
  readonly arenaBytes: number;
}

/** The current counters of this thread. */
export function scratchStatistics(): ScratchStatistics {
  return { ...counters };
}

/** A block of scratch memory; implements the `ArgumentBlock` of the driver port. */
export class ScratchBlock implements Disposable {
  /** Host virtual address, 8-byte aligned, below 2^47. Valid until {@link free}, even if this object is not referenced. */
  readonly address: number;
  /** Requested size in bytes. */
  readonly byteLength: number;
  readonly u8: Uint8Array;
  /** The block as 32-bit words; the last one may extend up to three bytes beyond `byteLength`, into padding of the block. */
  readonly words: Uint32Array;
  readonly view: DataView;
  readonly #slot: Slot;
  readonly #slotBytes: number;
  #freed = false;

  /** @param slotBytes size class to which the slot returns; 0 for a separate mapping */
  constructor(slot: Slot, slotBytes: number, byteLength: number) {
    const { memory, offset } = slot;
    this.address = memory.address + offset;
    this.byteLength = byteLength;
    this.u8 = new Uint8Array(memory.buffer, offset, byteLength);
    this.words = new Uint32Array(memory.buffer, offset, Math.ceil(byteLength / 4));
    this.view = new DataView(memory.buffer, offset, byteLength);
    this.#slot = slot;
    this.#slotBytes = slotBytes;
    counters.liveBlocks++;
    counters.liveBytes += byteLength;
  }

  get freed(): boolean {
    return this.#freed;
  }

  /** Releases the block; the next allocation may reuse it, so its views must not be used any more. Idempotent. */
  free(): void {
    if (this.#freed) return;
    this.#freed = true;
    counters.liveBlocks--;
    counters.liveBytes -= this.byteLength;
    if (this.#slotBytes === 0) this.#slot.memory.close();
    else slotsOf(this.#slotBytes).push(this.#slot);
  }

  [Symbol.dispose](): void {
    this.free();
  }
}

/**
 * Allocates a zeroed, 8-byte aligned block.
 * @param byteLength bytes, 1 to 1 GiB
 * @throws UcxError ERR_INVALID_PARAM for an invalid length; SyscallError ENOMEM
 */
export function allocateScratch(byteLength: number): ScratchBlock {
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0 || byteLength > BLOCK_BYTES_MAX) {
    throw invalidParam('byteLength', 'must be an integer from 1 to 2^30', byteLength);
  }
  if (byteLength > CHUNK_BYTES) {
    return new ScratchBlock({ memory: mapAnonymous(Math.ceil(byteLength / 4) * 4, LOCAL), offset: 0 }, 0, byteLength);
  }
  let slotBytes = SLOT_BYTES_MIN;
  while (slotBytes < byteLength) slotBytes *= 2;
  const slots = slotsOf(slotBytes);
  const slot = slots.pop() ?? addChunk(slots, slotBytes);
  slot.memory.u8.fill(0, slot.offset, slot.offset + slotBytes);
  return new ScratchBlock(slot, slotBytes, byteLength);
}

function slotsOf(slotBytes: number): Slot[] {
  let slots = freeSlots.get(slotBytes);
  if (slots === undefined) {
    slots = [];
    freeSlots.set(slotBytes, slots);
  }
  return slots;
}

/** Maps a chunk and puts its slots on the free list, except the first, which it returns. */
function addChunk(slots: Slot[], slotBytes: number): Slot {
  const memory = mapAnonymous(CHUNK_BYTES, LOCAL);
  counters.arenaBytes += CHUNK_BYTES;
  // Highest address first, so that pop() returns the slots in ascending order.
  for (let offset = CHUNK_BYTES - slotBytes; offset > 0; offset -= slotBytes) slots.push({ memory, offset });
  return { memory, offset: 0 };
}
