/**
 * Mapped memory of a context: what memMap returns, usable as local memory of every operation and as the origin of remote keys.
 */

import { closedError } from '../../ucs/error.ts';
import { MemoryType } from '../../ucs/memory-type.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import type { MemoryPlace } from '../proto/selection.ts';

/** What memMap can be asked for. */
export type MemMapParams =
  | {
      /** Host memory to register. It must own its bytes and keep its length while it is mapped. */
      readonly buffer: Uint8Array;
    }
  | {
      /** Address of host memory that another library of this process owns; it must stay until it is reported unmapped. */
      readonly address: number | bigint;
      /** Bytes of it, 4 GiB at most. */
      readonly byteLength: number;
    }
  | {
      /** Bytes to allocate. */
      readonly allocate: number;
      /** Default host. */
      readonly memoryType?: MemoryType;
      /** Card, by its logical index; the first one by default. */
      readonly sysDevice?: number;
      /** Asks for device memory that can be shared without exposing neighbours. */
      readonly shared?: boolean;
    };

const NONE: ReadonlyMap<number, string> = new Map();

/** Mapped memory. */
export class MemoryHandle implements MemoryPlace {
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

/** Memory on the local side of an operation: mapped memory, or any host buffer. */
export type LocalMemory = MemoryHandle | Uint8Array;

/** Host memory as a place. */
export const HOST_PLACE: MemoryPlace = { memoryType: MemoryType.HOST, sysDevice: undefined };
