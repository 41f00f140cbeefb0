/** Mapped memory of a context: the result of memMap, usable as local memory of every operation and as the origin of remote keys. */

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

/** A key that ends with the memory, or before. */
export interface RevocableKey {
  revoke(): void;
}

/** What memory domains have of the memory of a handle. */
interface HandleParts {
  /** The memory in each memory domain, by index. */
  readonly parts: readonly (MdMemory | undefined)[];
  /** Bits of MemAccess. */
  readonly access: number;
  /** Why memory domains have none. */
  readonly refusals?: ReadonlyMap<number, string>;
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
    { parts, access, refusals = NONE }: HandleParts,
  ) {
    super(owner, memory, bytes, access);
    this.#parts = [...parts];
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

/*
 * The memory of a context for which remote keys were packed, as workers find it when a peer asks them to move bytes. The keys of
 * transports are the memory domains' own.
 *
 * A memory key is 24 bytes: u64 id, 16 bytes secret.
 */

/** Name of the part of a remote key that holds the memory key. */
export const MEMORY_KEY_NAME = 'ucp';
/** Bytes of a memory key. */
export const MEMORY_KEY_BYTES = 24;
const SECRET_BYTES = 16;

interface Entry {
  readonly id: number;
  readonly handle: MemoryHandle;
  readonly key: Uint8Array;
}

/** The exported memory of one context. */
export class ExportedMemory {
  readonly #byId: Map<number, Entry> = new Map();
  readonly #byHandle: Map<MemoryHandle, Entry> = new Map();
  #nextId = 1;

  /** The key of memory: the same bytes until it is revoked. */
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

  /** The memory behind a key that a peer sent, for an access of it; undefined for a key that is malformed, stale or forged, and for other memory. */
  find(bytes: Uint8Array, offset: number, access: number): MemoryHandle | undefined {
    if (offset + MEMORY_KEY_BYTES > bytes.byteLength) return undefined;
    // Of an id this large there is no memory: the numbers begin at 1.
    if (bytes[offset + 6]! !== 0 || bytes[offset + 7]! !== 0) return undefined;
    let id = 0;
    for (let i = 5; i >= 0; i--) id = id * 256 + bytes[offset + i]!;
    const entry = this.#byId.get(id);
    if (entry === undefined) return undefined;
    // In constant time, so that the duration tells a forger nothing about the secret.
    let difference = 0;
    for (let i = 0; i < MEMORY_KEY_BYTES; i++) difference |= entry.key[i]! ^ bytes[offset + i]!;
    const { handle } = entry;
    return difference === 0 && handle.mapped && (handle.access & access) === access ? handle : undefined;
  }

  /** Revokes the key of memory. */
  revoke(handle: MemoryHandle): void {
    const entry = this.#byHandle.get(handle);
    if (entry === undefined) return;
    this.#byId.delete(entry.id);
    this.#byHandle.delete(handle);
  }
}

/** Registers memory for the duration of one operation. */
export type OperationRegistrar = Pick<MemoryDomain, 'memReg' | 'memDereg'>;

/** Bytes of host memory, mapped or not; undefined for other memory, and for mapped memory of another context or without every local access. */
export function plainBytesOf(local: LocalBuffer, context: object): Uint8Array | undefined {
  if (isBytes(local)) return local;
  return local instanceof MemoryHandle && (local.owner as object) === context ? local.plainBytes : undefined;
}
