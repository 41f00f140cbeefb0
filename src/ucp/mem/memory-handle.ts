/**
 * Mapped memory of a context: what memMap returns, usable as local memory of every operation and as the origin of remote keys.
 */

import type { Piece, PieceOf } from '../../api/memory/local.ts';
import { type MemoryOwner, OwnedMemory } from '../../api/memory/owned.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { MemoryPlace } from '../proto/selection.ts';

const LOCAL_ACCESS = MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE;
const NONE: ReadonlyMap<number, string> = new Map();

/** A key that ends with the memory, or before. */
export interface RevocableKey {
  revoke(): void;
}

/** Mapped memory. */
export class MemoryHandle extends OwnedMemory implements MemoryPlace {
  declare readonly owner: MemoryOwner;
  /** The part of each memory domain, by its index. */
  readonly mdMemory: readonly (MdMemory | undefined)[];
  readonly #parts: (MdMemory | undefined)[];
  /** Why memory domains that could have a part have none, by their index. */
  readonly refusals: ReadonlyMap<number, string>;
  /** Row of a plan table: 0 is host memory that is not mapped, 1 mapped host memory; every device has two, for its memory and for fragments of it. */
  readonly placeIndex: number;
  /** Why nothing moves its bytes; undefined for memory that can be moved. */
  readonly limitation: string | undefined;
  /** The bytes of host memory, while it is mapped and for every local access: what short operations use without more checks. */
  plainBytes: Uint8Array | undefined;
  /** The packed remote key, made at its first use. */
  packed: Uint8Array | undefined = undefined;
  /** The keys of it that connections have. */
  readonly messageKeys: Set<RevocableKey> = new Set();
  /** Time at which the key is packed again. */
  packAgainNs: number = Number.POSITIVE_INFINITY;

  constructor(
    owner: MemoryOwner,
    memory: MdMemory,
    bytes: Uint8Array | undefined,
    mdMemory: readonly (MdMemory | undefined)[],
    access: number,
    refusals: ReadonlyMap<number, string> = NONE,
  ) {
    super(owner, memory, bytes, access);
    this.#parts = [...mdMemory];
    this.mdMemory = this.#parts;
    this.refusals = refusals;
    this.limitation = memory.limitation;
    this.plainBytes = (access & LOCAL_ACCESS) === LOCAL_ACCESS ? bytes : undefined;
    this.placeIndex = memory.sysDevice === undefined ? 1 : 2 + 2 * memory.sysDevice;
  }

  override retire(): void {
    super.retire();
    this.plainBytes = undefined;
    this.revokeMessageKeys();
  }

  /** Peers cannot use it for messages any more. */
  revokeMessageKeys(): void {
    for (const key of this.messageKeys) key.revoke();
  }

  /** Forgets the part of a memory domain, which is about to be deregistered. */
  dropPart(index: number): void {
    this.#parts[index] = undefined;
  }

  protected override get native(): MemoryHandle {
    return this;
  }
}

/** Whether keys of mapped memory have a part for a memory domain. */
export function hasKeyPart({ mdMemory }: MemoryHandle, md: number): boolean {
  const part = mdMemory[md];
  return part !== undefined && part.packable !== false;
}

/** Row of a plan table for host memory through which the bytes of a device pass. */
export function stagedPlaceIndex(sysDevice: number): number {
  return 3 + 2 * sysDevice;
}

/** Memory on the local side of an operation, once it is known to be of this engine. */
export type LocalMemory = MemoryHandle | Uint8Array;

/** Local memory of a message of this engine: one piece, or pieces that are one message in order. */
export type LocalBuffer = LocalMemory | readonly PieceOf<LocalMemory>[];

/** A checked piece of it. */
export type LocalPiece = Piece<LocalMemory>;

/** Host memory as a place. */
export const HOST_PLACE: MemoryPlace = { memoryType: MemoryType.HOST, sysDevice: undefined };
