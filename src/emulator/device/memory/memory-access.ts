/**
 * Small accesses to physical memory from JavaScript: copies of up to a few kilobytes, fills and 32-bit words, at once and
 * in this thread. Large transfers are for the DMA engines.
 */

import { allocateScratch, memcpy, readAddressSpace, type ScratchBlock, writeAddressSpace } from '../../../sys/index.ts';
import { DIRECT, type PhysicalMemory, WINDOW_BYTES, windowIndex } from './physical-memory.ts';

/** Up to this size, a loop over bytes is faster than creating two subarrays, and makes no garbage. */
const LOOP_BYTES_MAX = 64;

/** Bytes of the buffer through which the kernel copies between two address spaces. */
const BOUNCE_BYTES = 65_536;

/**
 * Copies between two addresses, each in an address space or DIRECT. Ends at the first byte that cannot be read or written, because its process has ended
 * or has unmapped it.
 * @returns bytes copied
 */
export function copyBytes(
  targetSpace: number,
  target: number,
  sourceSpace: number,
  source: number,
  byteLength: number,
): number {
  if (sourceSpace === DIRECT && targetSpace === DIRECT) {
    memcpy(target, source, byteLength);
    return byteLength;
  }
  if (targetSpace === DIRECT) return readAddressSpace(sourceSpace, source, target, byteLength);
  if (sourceSpace === DIRECT) return writeAddressSpace(targetSpace, target, source, byteLength);
  using bounce = allocateScratch(BOUNCE_BYTES);
  for (let done = 0; done < byteLength; ) {
    const wanted = Math.min(BOUNCE_BYTES, byteLength - done);
    const read = readAddressSpace(sourceSpace, source + done, bounce.address, wanted);
    const written = writeAddressSpace(targetSpace, target + done, bounce.address, read);
    done += written;
    if (written < wanted) return done;
  }
  return byteLength;
}

/** Copies `byteLength` bytes; both ranges lie inside their memories. Bytes that cannot be read are left unchanged at the destination. */
export function copyMemory(
  destination: PhysicalMemory,
  destinationOffset: number,
  source: PhysicalMemory,
  sourceOffset: number,
  byteLength: number,
): void {
  const to = windowIndex(destinationOffset);
  const from = windowIndex(sourceOffset);
  const windowed = destination.hasWindows && source.hasWindows;
  if (!windowed || byteLength > LOOP_BYTES_MAX || Math.max(to, from) + byteLength > WINDOW_BYTES) {
    const target = destination.address + destinationOffset;
    copyBytes(destination.space, target, source.space, source.address + sourceOffset, byteLength);
    return;
  }
  const toBytes = destination.window(destinationOffset).u8;
  const fromBytes = source.window(sourceOffset).u8;
  // Backwards if the ranges overlap that way, as one engine burst would read before it writes.
  if (to > from) for (let i = byteLength - 1; i >= 0; i--) toBytes[to + i] = fromBytes[from + i]!;
  else for (let i = 0; i < byteLength; i++) toBytes[to + i] = fromBytes[from + i]!;
}

/**
 * Copies bytes of a memory to an address of this process. Bytes that cannot be read, because their process has ended or has unmapped
 * them, are left unchanged at the target: the card continues without an error.
 */
export function fetchBytes(memory: PhysicalMemory, offset: number, target: number, byteLength: number): void {
  copyBytes(DIRECT, target, memory.space, memory.address + offset, byteLength);
}

/** Copies bytes at an address of this process into a memory. Bytes that another process does not accept are lost. */
export function storeBytes(memory: PhysicalMemory, offset: number, source: number, byteLength: number): void {
  copyBytes(memory.space, memory.address + offset, DIRECT, source, byteLength);
}

/** Reads and writes 32-bit words at any alignment. */
export class WordAccess {
  readonly #scratch: ScratchBlock = allocateScratch(8);

  /** Writes a 32-bit value; an aligned one is a single store. */
  write(memory: PhysicalMemory, offset: number, value: number): void {
    if (memory.hasWindows && (offset & 3) === 0) {
      memory.window(offset).words[windowIndex(offset) >>> 2] = value;
      return;
    }
    this.#scratch.words[0] = value;
    // In another process, the kernel may copy byte by byte, lowest first: a counter that only grows never appears too high.
    storeBytes(memory, offset, this.#scratch.address, 4);
  }

  /** Reads a 32-bit value as a signed number. */
  read(memory: PhysicalMemory, offset: number): number {
    if (memory.hasWindows && (offset & 3) === 0) return memory.window(offset).words[windowIndex(offset) >>> 2]!;
    this.#scratch.words[0] = 0;
    fetchBytes(memory, offset, this.#scratch.address, 4);
    return this.#scratch.words[0]! | 0;
  }

  close(): void {
    this.#scratch.free();
  }
}
