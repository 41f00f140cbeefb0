/**
 * Mapped memory of a context: the result of memMap, valid as local memory of every operation and as the source of remote keys. Also the table of exported
 * memory, in which workers find the memory that peers request them to move.
 */

import type { Piece, PieceOf } from '../../api/memory/local.ts';
import { type MemoryOwner, OwnedMemory } from '../../api/memory/owned.ts';
import { isBytes } from '../../ucs/memory/bytes.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { MemAccess, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { MemoryPlace } from '../proto/selection.ts';

const LOCAL_ACCESS = MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE;
const NONE: ReadonlyMap<number, string> = new Map();

/** A key that is revoked with the memory, or before. */
export interface RevocableKey {
  revoke(): void;
}

/** The registrations of a handle. */
interface HandleParts {
  /** The registrations, by memory domain index. */
  readonly parts: readonly (MdMemory | undefined)[];
  /** Bits of MemAccess. */
  readonly access: number;
  /** Why memory domains have no registration. */
  readonly registrationErrors?: ReadonlyMap<number, string>;
}

export class MemoryHandle extends OwnedMemory implements MemoryPlace {
  declare readonly owner: MemoryOwner;
  /** The registrations, by memory domain index. */
  readonly mdMemory: readonly (MdMemory | undefined)[];
  readonly #parts: (MdMemory | undefined)[];
  /** Why memory domains that could register the memory have not, by index. */
  readonly registrationErrors: ReadonlyMap<number, string>;
  /** Row of a plan table: 0 is host memory that is not mapped, 1 mapped host memory; every device has two rows, for its memory and for fragments of it. */
  readonly placeIndex: number;
  /** Why no transport can move its bytes; undefined for memory that can be moved. */
  readonly limitation: string | undefined;
  /** The bytes of host memory that is mapped with all local accesses, until it is unmapped: short operations use them without further checks. */
  plainBytes: Uint8Array | undefined;
  /** The packed remote key, created at first use. */
  packed: Uint8Array | undefined = undefined;
  /** Keys of this memory that connections keep. */
  readonly messageKeys: Set<RevocableKey> = new Set();
  /** Time after which the key is packed again. */
  packAgainNs: number = Number.POSITIVE_INFINITY;

  constructor(
    owner: MemoryOwner,
    memory: MdMemory,
    bytes: Uint8Array | undefined,
    { parts, access, registrationErrors = NONE }: HandleParts,
  ) {
    super(owner, memory, bytes, access);
    this.#parts = [...parts];
    this.mdMemory = this.#parts;
    this.registrationErrors = registrationErrors;
    this.limitation = memory.limitation;
    this.plainBytes = (access & LOCAL_ACCESS) === LOCAL_ACCESS ? bytes : undefined;
    this.placeIndex = memory.sysDevice === undefined ? 1 : 2 + 2 * memory.sysDevice;
  }

  override retire(): void {
    super.retire();
    this.plainBytes = undefined;
    this.revokeMessageKeys();
  }

  /** Revokes the keys of connections: peers can no longer use the memory for messages. */
  revokeMessageKeys(): void {
    for (const key of this.messageKeys) key.revoke();
  }

  /** Drops the registration with a memory domain, which is about to be deregistered. */
  dropPart(index: number): void {
    this.#parts[index] = undefined;
  }

  protected override get native(): MemoryHandle {
    return this;
  }
}

/** True if keys of mapped memory have a part for a memory domain. */
export function hasKeyPart({ mdMemory }: MemoryHandle, md: number): boolean {
  const part = mdMemory[md];
  return part !== undefined && part.packable !== false;
}

/** Row of a plan table for host memory through which bytes of a device are staged. */
export function stagedPlaceIndex(sysDevice: number): number {
  return 3 + 2 * sysDevice;
}

/** Local memory of an operation, checked to be of this engine. */
export type LocalMemory = MemoryHandle | Uint8Array;

/** Local memory of a message: contiguous, or a list. */
export type LocalBuffer = LocalMemory | readonly PieceOf<LocalMemory>[];

/** A checked element of a list. */
export type LocalPiece = Piece<LocalMemory>;

/** Host memory as a place of selection. */
export const HOST_PLACE: MemoryPlace = { memoryType: MemoryType.HOST, sysDevice: undefined };

/*
 * Exported memory of a context, for which remote keys were packed: workers find it here when a peer requests them to move bytes. The keys of transports
 * belong to the memory domains.
 *
 * A memory key is 24 bytes: u64 id, 16 bytes secret.
 */

/** Name of the memory key's part in a remote key. */
export const MEMORY_KEY_NAME = 'ucp';
/** Length of a memory key. */
export const MEMORY_KEY_BYTES = 24;
const SECRET_BYTES = 16;

interface Entry {
  readonly id: number;
  readonly handle: MemoryHandle;
  readonly key: Uint8Array;
}

export class ExportedMemory {
  readonly #byId: Map<number, Entry> = new Map();
  readonly #byHandle: Map<MemoryHandle, Entry> = new Map();
  #nextId = 1;

  /** The memory key of a handle: the same bytes until it is revoked. */
  keyOf(handle: MemoryHandle): Uint8Array {
    const known = this.#byHandle.get(handle);
    if (known !== undefined) return known.key;
    const id = this.#nextId++;
    const key = new Uint8Array(MEMORY_KEY_BYTES);
    new DataView(key.buffer).setBigUint64(0, BigInt(id), true);
    key.set(systemRandomBytes(SECRET_BYTES), MEMORY_KEY_BYTES - SECRET_BYTES);
    const entry = { id, handle, key };
    this.#byId.set(id, entry);
    this.#byHandle.set(handle, entry);
    return key;
  }

  /** Finds the memory for the key of a peer and an access; undefined if the key is malformed, stale or forged, or the access is not permitted. */
  find(bytes: Uint8Array, offset: number, access: number): MemoryHandle | undefined {
    if (offset + MEMORY_KEY_BYTES > bytes.byteLength) return undefined;
    // Ids begin at 1 and never get this large.
    if (bytes[offset + 6]! !== 0 || bytes[offset + 7]! !== 0) return undefined;
    let id = 0;
    for (let i = 5; i >= 0; i--) id = id * 256 + bytes[offset + i]!;
    const entry = this.#byId.get(id);
    if (entry === undefined) return undefined;
    // Compare in constant time, so that the duration reveals nothing about the secret.
    let difference = 0;
    for (let i = 0; i < MEMORY_KEY_BYTES; i++) difference |= entry.key[i]! ^ bytes[offset + i]!;
    const { handle } = entry;
    return difference === 0 && handle.mapped && (handle.access & access) === access ? handle : undefined;
  }

  /** Revokes the memory key of a handle. */
  revoke(handle: MemoryHandle): void {
    const entry = this.#byHandle.get(handle);
    if (entry === undefined) return;
    this.#byId.delete(entry.id);
    this.#byHandle.delete(handle);
  }
}

/** Registers memory for the duration of one operation. */
export type OperationRegistrar = Pick<MemoryDomain, 'memReg' | 'memDereg'>;

/** The bytes of host memory, mapped or not; undefined for other memory, and for mapped memory of another context or without all local accesses. */
export function plainBytesOf(local: LocalBuffer, context: object): Uint8Array | undefined {
  if (isBytes(local)) return local;
  return local instanceof MemoryHandle && (local.owner as object) === context ? local.plainBytes : undefined;
}
