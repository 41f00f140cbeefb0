/** Memory and remote keys of simulated memory domains: data that the domain creates and the endpoints use. */

import { MemoryType } from '../../src/ucs/memory/memory-type.ts';
import type { Status } from '../../src/ucs/type/status.ts';
import type { MdMemory, RemoteKey } from '../../src/uct/api/memory.ts';

const FIRST_ADDRESS = 0x10_0000_0000n;
const SPACING = 0x40_0000n;

/** The memory domain of memory. */
export interface MemoryOwner {
  readonly name: string;
  readonly isCard: boolean;
  /** The memory behind a key that a peer has used; a status for an invalid one. */
  find(packed: Uint8Array, offset: number, byteLength: number): SimulatedMemory | Status;
}

/** Memory of a simulated memory domain. */
export class SimulatedMemory implements MdMemory {
  readonly mdName: string;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly generation: number;
  /** The bytes, also of memory that no processor reaches. */
  readonly storage: Uint8Array;
  readonly isAllocated: boolean;
  readonly packable: boolean;
  live = true;
  inFlight = 0;

  constructor(
    { name, isCard }: MemoryOwner,
    storage: Uint8Array,
    memoryType: MemoryType,
    isAllocated: boolean,
    generation: number,
  ) {
    this.mdName = name;
    this.memoryType = memoryType;
    this.sysDevice = memoryType === MemoryType.GAUDI ? 0 : undefined;
    this.storage = storage;
    this.isAllocated = isAllocated;
    this.packable = isAllocated || !isCard;
    this.generation = generation;
    this.address = FIRST_ADDRESS + BigInt(generation) * SPACING;
  }

  get byteLength(): number {
    return this.storage.byteLength;
  }

  get bytes(): Uint8Array | undefined {
    return this.memoryType === MemoryType.HOST ? this.storage : undefined;
  }
}

/** An unpacked key, which is checked by its owner. */
export class SimulatedKey implements RemoteKey {
  readonly mdName: string;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  readonly packed: Uint8Array;

  constructor(mdName: string, isCard: boolean, packed: Uint8Array, byteLength: number) {
    this.mdName = mdName;
    this.memoryType = isCard ? MemoryType.GAUDI : MemoryType.HOST;
    this.sysDevice = isCard ? 0 : undefined;
    this.packed = packed;
    this.byteLength = byteLength;
  }

  release(): void {}
}
