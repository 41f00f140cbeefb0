/**
 * The mapped memory of a context: allocates it or registers it with every memory domain that supports it, finds it by its bytes, packs remote keys, and
 * releases it.
 */

import {
  type AdviseOptions,
  accessOf,
  type MapParams,
  type MemoryInfo,
  noRemoteAccess,
  REMOTE_ACCESS,
} from '../../api/contract/memory.ts';
import { type MemoryOwner, OwnedMemory } from '../../api/memory/owned.ts';
import { type MemoryChange, memoryMap, memoryUnmap } from '../../ucs/debug/diagnostics.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { isBytes } from '../../ucs/memory/bytes.ts';
import { hasMemoryType, MEMORY_TYPE_COUNT, MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { checkOptions, isOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, isUcxError, statusError } from '../../ucs/type/error.ts';
import { isLackOfResources, Status } from '../../ucs/type/status.ts';
import type { DmabufMemory, HostDmabufs } from '../../uct/api/host-dmabufs.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import {
  type AllocateOptions,
  type HostRange,
  type LostDevice,
  MdFlag,
  MemAccess,
  type MemoryAdvice,
  type MemoryDomain,
  type RegistrationSource,
} from '../../uct/api/memory-domain.ts';
import type { OpenMd, Resources } from '../resources/resources.ts';
import { checkDmabuf, type DmabufMapParams, logUnregistered, registerByDmabuf, registerDmabuf } from './dmabuf.ts';
import { ExportedMemory, MEMORY_KEY_NAME, MemoryHandle, type OperationRegistrar } from './memory-handle.ts';
import type { MemoryTypes } from './memory-types.ts';
import { type MessageKey, makeMessageKey } from './message-keys.ts';
import { packPart, packRkey, type RkeyPart } from './remote-key.ts';

/** Maximum length of a Uint8Array. */
const HOST_BYTES_MAX = 2 ** 32;
/** Interval of checking whether transfers still use memory that was freed during them. */
const LOST_LOOK_NS = 1e6;
/** Lifetime of a packed remote key that lacks a part because of missing resources, which may be available later. */
const PARTIAL_KEY_NS = 1e9;

export interface MemoryMapOptions {
  /** The context that owns the handles. */
  readonly owner: MemoryOwner;
  readonly resources: Resources;
  readonly types: MemoryTypes;
  readonly clock: Clock;
  readonly log: Log;
  /** False if registrations for one operation must not outlive it (UCX_RCACHE_ENABLE=n). */
  readonly keepsRegistrations: boolean;
  /** Looks up host memory by its address, and checks it. */
  readonly hostRange: (address: number | bigint, byteLength: number) => HostRange;
  /** Host memory that is a dma-buf, or can be exported as one. */
  readonly hostDmabufs: HostDmabufs;
}

export class MemoryMap {
  readonly exported: ExportedMemory = new ExportedMemory();
  /** Register host buffers that are not mapped; by memory domain index. */
  readonly registrars: readonly OperationRegistrar[];
  readonly #options: MemoryMapOptions;
  readonly #resources: Resources;
  readonly #handles: Set<MemoryHandle> = new Set();
  /** Handles of foreign memory that was mapped by its address. */
  readonly #ranges: Set<MemoryHandle> = new Set();
  /** Handles whose memory was freed and that still have registrations. */
  readonly #lost: Set<MemoryHandle> = new Set();
  /** The memory domain that allocated the memory of a handle. */
  readonly #allocators: Map<MemoryHandle, OpenMd> = new Map();
  /** Host memory that is released with its handle and was not allocated by a memory domain. */
  readonly #hostMemories: Map<MemoryHandle, DmabufMemory> = new Map();
  /** Mapped host memory by ArrayBuffer; the last mapping wins. */
  readonly #byBuffer: WeakMap<ArrayBufferLike, MemoryHandle> = new WeakMap();
  #closed = false;

  constructor(options: MemoryMapOptions) {
    this.#options = options;
    this.#resources = options.resources;
    this.registrars = options.resources.mds.map(({ md }) => (options.keepsRegistrations ? md : passingRegistrar(md)));
  }

  /** See Context.memMap. */
  map(params: MapParams): MemoryHandle {
    const isObject = typeof params === 'object' && params !== null && isOptions(params);
    if (!isObject || !('buffer' in params || 'allocate' in params || 'address' in params || 'dmabuf' in params)) {
      throw invalidParam('params', 'must be { buffer }, { address, byteLength }, { dmabuf } or { allocate }', params);
    }
    const access = accessOf(params.protection);
    let handle: MemoryHandle;
    if ('buffer' in params) handle = this.#mapBuffer(params.buffer, access);
    else if ('address' in params) handle = this.#mapAddress(params, access);
    else if ('dmabuf' in params) handle = this.#mapDmabuf(params, access);
    else handle = this.#allocate(params, access);
    this.#handles.add(handle);
    if (handle.bytes !== undefined) this.#byBuffer.set(handle.bytes.buffer, handle);
    if (memoryMap.hasSubscribers) memoryMap.publish(changeOf(handle));
    return handle;
  }

  /** The mapped memory, for snapshots. */
  get mapped(): ReadonlySet<MemoryHandle> {
    return this.#handles;
  }

  /** The mapped memory that contains a byte array. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined {
    const handle = this.#byBuffer.get(bytes.buffer);
    if (handle?.bytes === undefined || !handle.mapped) return undefined;
    const from = bytes.byteOffset - handle.bytes.byteOffset;
    return from >= 0 && from + bytes.byteLength <= handle.byteLength ? handle : undefined;
  }

  /** False if the ArrayBuffer of a byte array contains mapped memory that denies this access to peers. */
  permits({ buffer }: Uint8Array, access: number): boolean {
    const handle = this.#byBuffer.get(buffer);
    return handle === undefined || !handle.mapped || (handle.access & access) === access;
  }

  /** See Context.memUnmap. */
  unmap(handle: MemoryHandle): void {
    this.#check(handle);
    const allocator = this.#allocators.get(handle);
    const hostMemory = this.#hostMemories.get(handle);
    const isFreed = allocator !== undefined || hostMemory !== undefined;
    // Check before anything changes: memory in use stays mapped as a whole.
    const used = handle.mdMemory.find(
      (part) => (part?.inFlight ?? 0) > 0 && (isFreed || !isHeldElsewhere(handle, part)),
    );
    if (used !== undefined) {
      throw statusError(
        Status.BUSY,
        `cannot unmap memory at 0x${handle.address.toString(16)}: used by ${used.inFlight} transfers in flight; wait for them first`,
      );
    }
    handle.revokeMessageKeys();
    this.#deregister(handle, allocator, isFreed);
    if (allocator !== undefined) allocator.md.memFree(handle.mdMemory[allocator.index]!);
    hostMemory?.close();
    this.#forget(handle);
  }

  /** See Context.memAdvise. */
  advise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions): void {
    this.#check(handle);
    checkOptions(options, 'options', ['offset', 'byteLength']);
    const { offset = 0 } = options;
    if (!Number.isSafeInteger(offset) || offset < 0) {
      throw invalidParam('offset', 'must be a non-negative integer', offset);
    }
    const { byteLength = handle.byteLength - offset } = options;
    for (const [index, part] of handle.mdMemory.entries()) {
      if (part === undefined) continue;
      const { md } = this.#resources.mds[index]!;
      if ((md.attributes.flags & MdFlag.ADVISE) !== 0) md.memAdvise(part, advice, offset, byteLength);
    }
  }

  /** See Context.memoryUnmapped. */
  unmapped(address: number | bigint, byteLength: number): void {
    const start = typeof address === 'bigint' ? Number(address) : address;
    if (!Number.isSafeInteger(start) || start < 0) {
      throw invalidParam('address', 'must be a non-negative safe integer or bigint', address);
    }
    if (!Number.isSafeInteger(byteLength) || byteLength < 1) {
      throw invalidParam('byteLength', 'must be a positive integer', byteLength);
    }
    for (const { md } of this.#resources.mds) md.hostUnmapped?.(start, byteLength);
    for (const handle of this.#ranges) {
      const first = Number(handle.address);
      if (first < start + byteLength && start < first + handle.byteLength) this.#lose(handle);
    }
  }

  /** Revokes all access to memory of a device that was lost. The memory stays registered with the device until it is unmapped. */
  loseDevice({ sysDevice, error }: LostDevice): void {
    for (const handle of this.#handles) {
      if (handle.sysDevice !== sysDevice) continue;
      handle.lose(error);
      handle.revokeMessageKeys();
      for (const [index, part] of handle.mdMemory.entries()) {
        const { md } = this.#resources.mds[index]!;
        // Another device registered the dma-buf of the memory: peers may access the memory through that device.
        if (part === undefined || hasMemoryType(md.attributes.registerMemoryTypes, handle.memoryType)) continue;
        handle.dropPart(index);
        md.memDereg(part, { force: true });
      }
    }
  }

  /** See Context.packRkey. */
  packRkey(handle: MemoryHandle): Uint8Array {
    return this.packedRkeyOf(handle).slice();
  }

  /** The cached key itself: callers must not change it. */
  packedRkeyOf(handle: MemoryHandle): Uint8Array {
    this.#check(handle);
    if (!handle.mapped) throw handle.unmappedError();
    if ((handle.access & REMOTE_ACCESS) === 0) throw noRemoteAccess(handle);
    const { clock } = this.#options;
    // Reading the clock costs more than the rest of this call, so only incomplete keys have a time limit.
    const isFinal = handle.packAgainNs === Number.POSITIVE_INFINITY;
    if (handle.packed === undefined || (!isFinal && handle.packAgainNs <= clock.nowNs())) {
      const { packed, isWhole } = this.#pack(handle, handle.access);
      handle.packed = packed;
      handle.packAgainNs = isWhole ? Number.POSITIVE_INFINITY : clock.nowNs() + PARTIAL_KEY_NS;
    }
    return handle.packed;
  }

  /** Creates a key for the messages of one connection; it is revoked with the memory. */
  makeMessageKey(handle: MemoryHandle): MessageKey {
    this.#check(handle);
    if (!handle.mapped) throw handle.unmappedError();
    const { mds } = this.#resources;
    const allocator = this.#allocators.get(handle)?.index;
    return makeMessageKey({ mds, log: this.#options.log, allocator }, handle);
  }

  /** Packs a key for endpoints of this context to itself, which permits all accesses. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    if ((handle.access & REMOTE_ACCESS) === REMOTE_ACCESS) return this.packRkey(handle);
    this.#check(handle);
    if (!handle.mapped) throw handle.unmappedError();
    return this.#pack(handle, MemAccess.ALL).packed;
  }

  /** Closes all handles, and notifies observers. The memory domains, which are closed next, free and deregister the memory. */
  close(): void {
    this.#closed = true;
    for (const handle of this.#handles) this.#forget(handle);
    this.#lost.clear();
  }

  #mapBuffer(buffer: Uint8Array, access: number): MemoryHandle {
    if (!isBytes(buffer)) throw invalidParam('buffer', 'must be a Uint8Array or Buffer', buffer);
    return this.#register('buffer', buffer, { bytes: buffer, access });
  }

  #mapAddress(params: Extract<MapParams, { readonly address: number | bigint }>, access: number): MemoryHandle {
    const { address, byteLength, memoryType, sysDevice } = params;
    if (memoryType !== undefined) checkMemoryType(memoryType);
    if (memoryType !== MemoryType.HOST) {
      const place = sysDevice === undefined ? { address, byteLength } : { address, byteLength, sysDevice };
      const found = this.#options.types.query(place);
      if (memoryType !== undefined && memoryType !== found.memoryType) {
        const rule = `must be ${memoryTypeName(found.memoryType)}, the type of the memory at 0x${address.toString(16)}`;
        throw invalidParam('memoryType', rule, memoryTypeName(memoryType));
      }
      if (found.memoryType !== MemoryType.HOST) return this.#mapDevice(BigInt(address), byteLength, found, access);
    }
    const range = this.#options.hostRange(address, byteLength);
    const handle = this.#register('address', range, { bytes: range.bytes, access });
    this.#ranges.add(handle);
    return handle;
  }

  /** Registers device memory of the application with every memory domain that can; memory domains of other devices register its dma-buf, if possible. */
  #mapDevice(address: bigint, byteLength: number, { memoryType, sysDevice }: MemoryInfo, access: number): MemoryHandle {
    const range = { address, byteLength, memoryType, sysDevice: sysDevice ?? -1 };
    const memory = this.#registerWithAll(range, memoryType, access);
    const first = memory.find((part) => part !== undefined);
    if (first === undefined) {
      const rule = `must be in memory that a transport of this context can register (gaudi-ucx info -d), but is in ${memoryTypeName(memoryType)} memory`;
      throw invalidParam('address', rule, address);
    }
    const { parts, registrationErrors } = registerByDmabuf(this.#resources.mds, this.#options, first, access);
    for (const [index, part] of parts) memory[index] = part;
    return new MemoryHandle(this.#options.owner, first, undefined, { parts: memory, access, registrationErrors });
  }

  #mapDmabuf(params: DmabufMapParams, access: number): MemoryHandle {
    const { memoryType = MemoryType.HOST, sysDevice } = params;
    checkMemoryType(memoryType);
    const range = checkDmabuf(params);
    const { owner, hostDmabufs, log } = this.#options;
    if (memoryType === MemoryType.HOST) return this.#registerHost('dmabuf', hostDmabufs.map(range), access);
    const { mds } = this.#resources;
    const { first, parts, registrationErrors } = registerDmabuf(mds, range, { memoryType, sysDevice, access });
    logUnregistered(mds, log, first.address, registrationErrors);
    return new MemoryHandle(owner, first, undefined, { parts, access, registrationErrors });
  }

  /** Registers host memory that is released with its handle. */
  #registerHost(argument: string, memory: DmabufMemory, access: number): MemoryHandle {
    const { bytes, isPinnable } = memory;
    try {
      const handle = this.#register(argument, bytes, { bytes, access, isPinnable });
      this.#hostMemories.set(handle, memory);
      return handle;
    } catch (error) {
      memory.close();
      throw error;
    }
  }

  #register(
    argument: string,
    source: RegistrationSource,
    { bytes, access, isPinnable = true }: HostMemoryParams,
  ): MemoryHandle {
    const takes = ({ md }: OpenMd): boolean => isPinnable || (md.attributes.flags & MdFlag.PINS_PAGES) === 0;
    const memory = this.#registerWithAll(source, MemoryType.HOST, access, takes);
    const first = memory.find((part) => part !== undefined);
    if (first === undefined)
      throw invalidParam(
        argument,
        'must be memory that a transport of this context can register (gaudi-ucx info -d)',
        bytes,
      );
    return new MemoryHandle(this.#options.owner, first, bytes, { parts: memory, access });
  }

  #allocate(params: Extract<MapParams, { readonly allocate: number }>, access: number): MemoryHandle {
    const { allocate, memoryType = MemoryType.HOST, sysDevice, shared } = params;
    if (!Number.isSafeInteger(allocate) || allocate <= 0) {
      throw invalidParam('allocate', 'must be a positive integer', allocate);
    }
    checkMemoryType(memoryType);
    if (memoryType === MemoryType.HOST && allocate > HOST_BYTES_MAX) {
      throw invalidParam('allocate', 'must be at most 4 GiB for host memory', allocate);
    }
    if (shared !== undefined && typeof shared !== 'boolean') throw invalidParam('shared', 'must be a boolean', shared);
    if (shared === true && memoryType === MemoryType.HOST) {
      return this.#registerHost('allocate', this.#options.hostDmabufs.allocate(allocate), access);
    }
    const options = {
      memoryType,
      access,
      ...(sysDevice === undefined ? {} : { sysDevice }),
      ...(shared === undefined ? {} : { shared }),
    };
    const { allocator, memory } = allocateWithAny(this.#resources.allocatorsOf(memoryType), allocate, options);
    const handle = this.#registerAllocated(allocator, memory, access);
    this.#allocators.set(handle, allocator);
    return handle;
  }

  /** @param access the access that the key permits */
  #pack(handle: MemoryHandle, access: number): { readonly packed: Uint8Array; readonly isWhole: boolean } {
    let isWhole = true;
    const parts: RkeyPart[] = handle.mdMemory.flatMap((memory, index) => {
      if (memory === undefined || memory.packable === false) return [];
      const part = packPart(this.#resources.mds[index]!.md, memory, this.#options.log);
      if (part === undefined) isWhole = false;
      return part ?? [];
    });
    // Peers use the memory key to request that this worker moves memory that none of their transports reaches. Without it, such operations fail at once.
    if (handle.limitation === undefined) parts.push({ name: MEMORY_KEY_NAME, key: this.exported.keyOf(handle) });
    const { memoryType, sysDevice, address, byteLength } = handle;
    return { packed: packRkey({ memoryType, sysDevice, address, byteLength, access, parts }), isWhole };
  }

  /** Registers allocated memory with the other memory domains; frees it if that fails. */
  #registerAllocated(owner: OpenMd, memory: MdMemory, access: number): MemoryHandle {
    const { owner: context } = this.#options;
    try {
      const parts = this.#registerWithAll(memory.bytes ?? memory, memory.memoryType, access, (open) => open !== owner);
      parts[owner.index] = memory;
      const byDmabuf = registerByDmabuf(this.#resources.mds, this.#options, memory, access);
      for (const [index, part] of byDmabuf.parts) parts[index] = part;
      const { registrationErrors } = byDmabuf;
      return new MemoryHandle(context, memory, memory.bytes, { parts, access, registrationErrors });
    } catch (error) {
      owner.md.memFree(memory);
      throw error;
    }
  }

  /** Registers memory with every memory domain that can and for which `isMeant` is true; all or nothing. */
  #registerWithAll(
    source: RegistrationSource,
    memoryType: MemoryType,
    access: number,
    isMeant: (open: OpenMd) => boolean = () => true,
  ): (MdMemory | undefined)[] {
    const parts: (MdMemory | undefined)[] = [];
    try {
      for (const open of this.#resources.mds) {
        const { flags, registerMemoryTypes } = open.md.attributes;
        const takesType = (flags & MdFlag.REG) !== 0 && hasMemoryType(registerMemoryTypes, memoryType);
        parts.push(takesType && isMeant(open) ? open.md.memReg(source, { access }) : undefined);
      }
      return parts;
    } catch (error) {
      for (const [index, part] of parts.entries()) {
        if (part !== undefined) this.#resources.mds[index]!.md.memDereg(part);
      }
      throw error;
    }
  }

  /** Deregisters from the last memory domain to the first: if the one with transfers in flight fails, nothing has changed yet. */
  #deregister(handle: MemoryHandle, allocator: OpenMd | undefined, isFreed: boolean): void {
    for (const [index, part] of [...handle.mdMemory.entries()].reverse()) {
      if (part === undefined || index === allocator?.index) continue;
      // Memory that is freed next must not stay in a registration cache.
      this.#resources.mds[index]!.md.memDereg(part, { invalidate: isFreed });
    }
  }

  /** Closes a handle whose memory was freed. It is deregistered later, because this may run inside any callback. */
  #lose(handle: MemoryHandle): void {
    this.#forget(handle);
    for (const [index, part] of handle.mdMemory.entries()) {
      const { md } = this.#resources.mds[index]!;
      if (part !== undefined && md.hostUnmapped === undefined) md.memDereg(part);
    }
    if (this.#lost.size === 0) this.#options.clock.setTimer(0, () => this.#releaseLost());
    this.#lost.add(handle);
  }

  /** Deregisters freed memory that no transfer uses any more. */
  #releaseLost(): void {
    if (this.#closed) return;
    for (const handle of this.#lost) {
      if (handle.mdMemory.some((part) => (part?.inFlight ?? 0) > 0)) continue;
      this.#lost.delete(handle);
      for (const [index, part] of handle.mdMemory.entries()) {
        const { md } = this.#resources.mds[index]!;
        if (part?.live === true) md.memDereg(part, { force: true });
      }
    }
    if (this.#lost.size > 0) this.#options.clock.setTimer(LOST_LOOK_NS, () => this.#releaseLost());
  }

  #forget(handle: MemoryHandle): void {
    this.#allocators.delete(handle);
    this.#hostMemories.delete(handle);
    this.#handles.delete(handle);
    this.#ranges.delete(handle);
    this.exported.revoke(handle);
    handle.retire();
    if (memoryUnmap.hasSubscribers) memoryUnmap.publish(changeOf(handle));
  }

  #check(handle: MemoryHandle): void {
    if (!this.#handles.has(handle)) OwnedMemory.refuse(this.#options.owner, handle);
  }
}

interface HostMemoryParams {
  readonly bytes: Uint8Array;
  /** Bits of MemAccess. */
  readonly access: number;
  /** False for memory without pages that a driver can pin. Default true. */
  readonly isPinnable?: boolean;
}

function checkMemoryType(memoryType: MemoryType): void {
  if (Number.isInteger(memoryType) && memoryType >= 0 && memoryType < MEMORY_TYPE_COUNT) return;
  throw invalidParam('memoryType', 'must be a memory type', memoryType);
}

/** The report of a memory change to observers. */
function changeOf({ memoryType, sysDevice, address, byteLength }: MemoryHandle): MemoryChange {
  return { memoryType: memoryTypeName(memoryType), device: sysDevice, address, byteLength };
}

/** True if the registration that transfers use has other users than the handle. */
function isHeldElsewhere({ mdMemory }: MemoryHandle, part: MdMemory | undefined): boolean {
  const region = part?.region;
  if (region === undefined) return false;
  return region.references > mdMemory.filter((other) => other?.region === region).length;
}

/** A registrar whose registrations do not stay in the cache. */
function passingRegistrar(md: MemoryDomain): OperationRegistrar {
  return {
    memReg: (source, options) => md.memReg(source, options),
    memDereg: (memory, options) => md.memDereg(memory, { ...options, invalidate: true }),
  };
}

/** Allocates with the first memory domain that has memory; throws the last error if all fail. */
function allocateWithAny(
  allocators: readonly OpenMd[],
  byteLength: number,
  options: AllocateOptions,
): { readonly allocator: OpenMd; readonly memory: MdMemory } {
  for (const [index, allocator] of allocators.entries()) {
    try {
      return { allocator, memory: allocator.md.memAlloc(byteLength, options) };
    } catch (error) {
      // Shared memory may be limited, above all in containers, and needs a descriptor: memory that peers cannot map is better than none.
      const isLacking = isUcxError(error) && isLackOfResources(error.status);
      if (!isLacking || index === allocators.length - 1) throw error;
    }
  }
  throw statusError(Status.UNSUPPORTED, 'allocate');
}
