/** Mapped memory as every engine knows it: whose it is, where it is, and whether it still is. Engines extend it by what they reach it with. */

import type { MemoryType } from '../../ucs/memory/memory-type.ts';
import { closedError } from '../../ucs/type/error.ts';
import type { MemoryHandle } from './memory.ts';

/** Where memory lies. */
export interface MemoryExtent {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
}

/** Mapped memory. */
export class OwnedMemory implements MemoryHandle {
  /** The context that mapped it. The first field: it refuses to be cloned, before bytes are. */
  readonly owner: object;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  readonly bytes: Uint8Array | undefined;
  #mapped = true;

  constructor(owner: object, extent: MemoryExtent, bytes: Uint8Array | undefined) {
    this.owner = owner;
    this.memoryType = extent.memoryType;
    this.sysDevice = extent.sysDevice;
    this.address = extent.address;
    this.byteLength = extent.byteLength;
    this.bytes = bytes;
  }

  /** Whether a value is mapped memory, and nothing that looks like it. */
  static isGenuine(value: unknown): value is OwnedMemory {
    return typeof value === 'object' && value !== null && #mapped in value;
  }

  get mapped(): boolean {
    return this.#mapped;
  }

  view(): Uint8Array | undefined {
    if (!this.#mapped) throw closedError('memory handle');
    return this.bytes;
  }

  /** Marks the handle as gone; for the context. */
  retire(): void {
    this.#mapped = false;
  }
}
