/** Mapped memory, the part that all engines share: owner, address and length, and whether it is still mapped. Engines add their registrations. */

import { type MemoryType, memoryTypeName } from '../../../ucs/memory/memory-type.ts';
import { argumentError, closedError, invalidParam, type UcxError } from '../../../ucs/type/error.ts';
import { showAs } from '../../../ucs/type/inspect.ts';
import { MemAccess } from '../../../uct/api/memory-domain.ts';
import type { CopyOptions, MemoryHandle, MemoryProtection, MemoryRange } from '../operation/memory.ts';
import type { MemoryCopier } from './memory-copier.ts';
import { protectionOf, refusedAccess } from './protection.ts';

/** Address and length of memory. */
export interface MemoryExtent {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
}

/** A context of the native engine, as the owner of memory. */
export interface MemoryOwner {
  /** Copies to and from the memory of the context. */
  readonly copier: MemoryCopier;
}

/** Mapped memory of the native engine. */
export type NativeMemory = OwnedMemory & { readonly owner: MemoryOwner };

/** Mapped memory. */
export abstract class OwnedMemory implements MemoryHandle {
  /** The context that mapped it. The first field, because it makes cloning fail before bytes are cloned. */
  readonly owner: object;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  readonly bytes: Uint8Array | undefined;
  /** What it may be used for: bits of MemAccess. */
  readonly access: number;
  #mapped = true;
  #lost: UcxError | undefined = undefined;

  constructor(owner: object, extent: MemoryExtent, bytes: Uint8Array | undefined, access: number) {
    this.owner = owner;
    this.memoryType = extent.memoryType;
    this.sysDevice = extent.sysDevice;
    this.address = extent.address;
    this.byteLength = extent.byteLength;
    this.bytes = bytes;
    this.access = access;
  }

  /** Whether a value is mapped memory, and not merely an object with the same properties. */
  static isGenuine(value: unknown): value is OwnedMemory {
    return typeof value === 'object' && value !== null && #mapped in value;
  }

  get mapped(): boolean {
    return this.#mapped && this.#lost === undefined;
  }

  /** The error for a use of memory that is not mapped. @param name of the handle in the message */
  unmappedError(name = 'memory'): UcxError {
    return this.#lost ?? closedError(name, 'unmapped');
  }

  /**
   * Refuses a handle that is not among those that a context has mapped.
   * @throws UcxError ERR_INVALID_PARAM that says why: not a handle, of another context, already unmapped
   */
  static refuse(owner: object, handle: unknown): never {
    if (!OwnedMemory.isGenuine(handle)) throw invalidParam('handle', 'must be a memory handle from memMap', handle);
    if (handle.owner !== owner)
      throw invalidParam('handle', 'must be mapped by this context, not by another one', handle);
    throw argumentError('handle', 'must be mapped', 'unmapped', 'the memory is already unmapped');
  }

  /** Marks the memory as lost, with the error for its uses; for the context. It can still be unmapped. */
  lose(error: UcxError): void {
    this.#lost ??= error;
  }

  get protection(): readonly MemoryProtection[] {
    return protectionOf(this.access);
  }

  view(): Uint8Array | undefined {
    if (!this.mapped) throw this.unmappedError();
    return this.bytes;
  }

  write(bytes: Uint8Array, options: MemoryRange = {}): Promise<void> {
    return this.#copied(MemAccess.LOCAL_WRITE, (memory, copier) => copier.write(memory, bytes, options));
  }

  read(target?: Uint8Array, options: MemoryRange = {}): Promise<Uint8Array> {
    return this.#copied(MemAccess.LOCAL_READ, (memory, copier) => copier.read(memory, target, options));
  }

  fill(value: number, options: MemoryRange = {}): Promise<void> {
    return this.#copied(MemAccess.LOCAL_WRITE, (memory, copier) => copier.fill(memory, value, options));
  }

  copyTo(other: MemoryHandle, options: CopyOptions = {}): Promise<void> {
    return this.#copied(MemAccess.LOCAL_READ, (memory, copier) => {
      if (!OwnedMemory.isGenuine(other)) throw invalidParam('other', 'must be a memory handle', other);
      if (other.owner !== this.owner) throw invalidParam('other', 'must be mapped by the same context', other);
      if (!other.mapped) throw other.unmappedError();
      other.requireAccess(MemAccess.LOCAL_WRITE);
      return copier.copy(memory, other.native, options);
    });
  }

  /** The same memory as a handle of the native engine. */
  protected abstract get native(): NativeMemory;

  async #copied<T>(access: number, run: (memory: NativeMemory, copier: MemoryCopier) => Promise<T>): Promise<T> {
    if (!this.mapped) throw this.unmappedError();
    this.requireAccess(access);
    const { native } = this;
    return await run(native, native.owner.copier);
  }

  /** Refuses an operation that the protection does not permit. @throws UcxError ERR_INVALID_PARAM */
  requireAccess(access: number, argument = 'memory'): void {
    if ((this.access & access) !== access) throw refusedAccess(argument, access, this.access);
  }

  /** Marks the handle as unmapped; for the context. */
  retire(): void {
    this.#mapped = false;
  }
}

showAs(OwnedMemory, 'MemoryHandle', ({ memoryType, sysDevice, byteLength, address, mapped, access }) => ({
  memoryType: memoryTypeName(memoryType),
  card: sysDevice,
  byteLength,
  address: `0x${address.toString(16)}`,
  protection: access === MemAccess.ALL ? undefined : protectionOf(access).join(', '),
  state: mapped ? 'mapped' : 'unmapped',
}));
