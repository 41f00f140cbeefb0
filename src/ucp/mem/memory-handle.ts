/**
 * Mapped memory of a context: what memMap returns, usable as local memory of every operation and as the origin of remote keys.
 */

import { closedError } from '../../ucs/error.ts';
import { MemoryType } from '../../ucs/memory-type.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import type { MemoryHandle as MappedMemory } from '../api/memory.ts';
import type { MemoryPlace } from '../proto/selection.ts';

const NONE: ReadonlyMap<number, string> = new Map();

/** Mapped memory. */
export class MemoryHandle implements MemoryPlace, MappedMemory {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  /** Address of the first byte: host virtual or of the device. */
  readonly address: bigint;
  readonly byteLength: number;
  /** The bytes, for host memory; device memory has none that a CPU can reach. */
  readonly bytes: Uint8Array | undefined;
  /** The context that mapped it. */
  readonly owner: object;
  /** The part of each memory domain, by its index. */
  readonly mdMemory: readonly (MdMemory | undefined)[];
  /** Why memory domains that could have a part have none, by their index. */
  readonly refusals: ReadonlyMap<number, string>;
  /** Row of a plan table: 1 for host memory, 2 + system device for device memory. Row 0 is host memory that is not mapped. */
  readonly placeIndex: number;
  /** The packed remote key, made at its first use. */
  packed: Uint8Array | undefined = undefined;
  #mapped = true;

  constructor(
    owner: object,
    memory: MdMemory,
    bytes: Uint8Array | undefined,
    mdMemory: readonly (MdMemory | undefined)[],
    refusals: ReadonlyMap<number, string> = NONE,
  ) {
    this.owner = owner;
    this.memoryType = memory.memoryType;
    this.sysDevice = memory.sysDevice;
    this.address = memory.address;
    this.byteLength = memory.byteLength;
    this.bytes = bytes;
    this.mdMemory = mdMemory;
    this.refusals = refusals;
    this.placeIndex = memory.sysDevice === undefined ? 1 : memory.sysDevice + 2;
  }

  /** False after memUnmap. */
  get mapped(): boolean {
    return this.#mapped;
  }

  /**
   * The bytes of host memory.
   * @throws UcxError ERR_CLOSED after memUnmap; undefined for device memory
   */
  view(): Uint8Array | undefined {
    if (!this.#mapped) throw closedError('memory handle');
    return this.bytes;
  }

  /** Marks the handle as gone; for the context. */
  retire(): void {
    this.#mapped = false;
  }
}

/** Memory on the local side of an operation, once it is known to be of this engine. */
export type LocalMemory = MemoryHandle | Uint8Array;

/** Host memory as a place. */
export const HOST_PLACE: MemoryPlace = { memoryType: MemoryType.HOST, sysDevice: undefined };
