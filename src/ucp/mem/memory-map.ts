/**
 * The mapped memory of a context: allocated or registered with every memory domain that supports it, found by its bytes, packed as remote keys, and
 * released.
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
import { checkDmabuf, type DmabufMapParams, logRefusals, registerByDmabuf, registerDmabuf } from './dmabuf.ts';
import { ExportedMemory, MEMORY_KEY_NAME, MemoryHandle, type OperationRegistrar } from './memory-handle.ts';
import type { MemoryTypes } from './memory-types.ts';
import { type MessageKey, makeMessageKey } from './message-keys.ts';
import { packPart, packRkey, type RkeyPart } from './remote-key.ts';

/** Length of the longest Uint8Array. */
const HOST_BYTES_MAX = 2 ** 32;
/** Interval of checking whether transfers still use memory that was unmapped during them. */
const LOST_LOOK_NS = 1e6;
/** Time for which a remote key is kept that lacks a part because of missing resources, which may be available later. */
const PARTIAL_KEY_NS = 1e9;

/** The parts of a memory map. */
export interface MemoryMapOptions {
  /** The context, which owns the handles. */
  readonly owner: MemoryOwner;
  readonly resources: Resources;
  readonly types: MemoryTypes;
  readonly clock: Clock;
  readonly log: Log;
  /** False if registrations for one operation must not outlive it (UCX_RCACHE_ENABLE=n). */
  readonly keepsRegistrations: boolean;
  /** Returns host memory by its address, after checking it. */
  readonly hostRange: (address: number | bigint, byteLength: number) => HostRange;
  /** Host memory that is a dma-buf, or can be exported as one. */
  readonly hostDmabufs: HostDmabufs;
}

/** The mapped memory of one context. */
export class MemoryMap {
  readonly exported: ExportedMemory = new ExportedMemory();
  /** For host buffers that are not mapped, by the index of the memory domain. */
  readonly registrars: readonly OperationRegistrar[];
  readonly #options: MemoryMapOptions;
  readonly #resources: Resources;
  readonly #handles: Set<MemoryHandle> = new Set();
  /** Handles of foreign memory that was mapped by its address. */
  readonly #ranges: Set<MemoryHandle> = new Set();
  /** Handles whose memory was unmapped, as long as something of them is registered. */
  readonly #lost: Set<MemoryHandle> = new Set();
  /** The memory domain that allocated the memory of a handle. */
  readonly #allocators: Map<MemoryHandle, OpenMd> = new Map();
  /** Host memory that no memory domain allocated and that is released with its handle. */
  readonly #hostMemories: Map<MemoryHandle, DmabufMemory> = new Map();
  /** Mapped host memory by the identity of its ArrayBuffer; the last of several mappings of one. */
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

  /** The mapped memory that contains host bytes. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined {
    const handle = this.#byBuffer.get(bytes.buffer);
    if (handle?.bytes === undefined || !handle.mapped) return undefined;
    const from = bytes.byteOffset - handle.bytes.byteOffset;
    return from >= 0 && from + bytes.byteLength <= handle.byteLength ? handle : undefined;
  }

  /** False if the ArrayBuffer of host bytes contains mapped memory that denies this access to peers. */
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
    // Memory in use stays mapped as a whole: asked before anything changes.
    const used = handle.mdMemory.find(
      (part) => (part?.inFlight ?? 0) > 0 && (isFreed || !isHeldElsewhere(handle, part)),
    );
    if (used !== undefined) {
      throw statusError(
        Status.BUSY,
        `unmap memory at 0x${handle.address.toString(16)} that ${used.inFlight} transfers use`,
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
      throw invalidParam('offset', 'must be an integer of 0 or more', offset);
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
      throw invalidParam('address', 'must be a safe integer or bigint of 0 or more', address);
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

  /** Revokes all access to the memory of a device that has lost it. It stays registered with the device until it is unmapped. */
  loseDevice({ sysDevice, error }: LostDevice): void {
    for (const handle of this.#handles) {
      if (handle.sysDevice !== sysDevice) continue;
      handle.lose(error);
      handle.revokeMessageKeys();
      for (const [index, part] of handle.mdMemory.entries()) {
        const { md } = this.#resources.mds[index]!;
        // Another device has registered its dma-buf, and peers may access the memory through that device.
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

  /** The kept key itself: not to be changed. */
  packedRkeyOf(handle: MemoryHandle): Uint8Array {
    this.#check(handle);
    if (!handle.mapped) throw handle.unmappedError();
    if ((handle.access & REMOTE_ACCESS) === 0) throw noRemoteAccess(handle);
    const { clock } = this.#options;
    // Reading the clock costs more than the rest of this call: only a key that may get more parts needs it.
    const isFinal = handle.packAgainNs === Number.POSITIVE_INFINITY;
    if (handle.packed === undefined || (!isFinal && handle.packAgainNs <= clock.nowNs())) {
      const { packed, isWhole } = this.#pack(handle, handle.access);
      handle.packed = packed;
      handle.packAgainNs = isWhole ? Number.POSITIVE_INFINITY : clock.nowNs() + PARTIAL_KEY_NS;
    }
    return handle.packed;
  }

  /** A key for the messages of one connection; it is revoked with the memory. */
  makeMessageKey(handle: MemoryHandle): MessageKey {
    this.#check(handle);
    if (!handle.mapped) throw handle.unmappedError();
    const { mds } = this.#resources;
    const allocator = this.#allocators.get(handle)?.index;
    return makeMessageKey({ mds, log: this.#options.log, allocator }, handle);
  }

  /** A key for endpoints of this context to itself, which permits everything. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    if ((handle.access & REMOTE_ACCESS) === REMOTE_ACCESS) return this.packRkey(handle);
    this.#check(handle);
    if (!handle.mapped) throw handle.unmappedError();
    return this.#pack(handle, MemAccess.ALL).packed;
  }

  /** Retires all handles, and tells observers; the memory domains, which are closed next, free and deregister the memory themselves. */
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
        const rule = `must be ${memoryTypeName(found.memoryType)}: that is what lies at 0x${address.toString(16)}`;
        throw invalidParam('memoryType', rule, memoryTypeName(memoryType));
      }
      if (found.memoryType !== MemoryType.HOST) return this.#mapDevice(BigInt(address), byteLength, found, access);
    }
    const range = this.#options.hostRange(address, byteLength);
    const handle = this.#register('address', range, { bytes: range.bytes, access });
    this.#ranges.add(handle);
    return handle;
  }

  /** Registers device memory of the application with every memory domain that can; the others reach it by a dma-buf, or not at all. */
  #mapDevice(address: bigint, byteLength: number, { memoryType, sysDevice }: MemoryInfo, access: number): MemoryHandle {
    const range = { address, byteLength, memoryType, sysDevice: sysDevice ?? -1 };
    const memory = this.#registerWithAll(range, memoryType, access);
    const first = memory.find((part) => part !== undefined);
    if (first === undefined) {
      const rule = `must be of memory that an open memory domain registers, and is of ${memoryTypeName(memoryType)} memory`;
      throw invalidParam('address', rule, address);
    }
    const { parts, refusals } = registerByDmabuf(this.#resources.mds, this.#options, first, access);
    for (const [index, part] of parts) memory[index] = part;
    return new MemoryHandle(this.#options.owner, first, undefined, { parts: memory, access, refusals });
  }

  #mapDmabuf(params: DmabufMapParams, access: number): MemoryHandle {
    const { memoryType = MemoryType.HOST, sysDevice } = params;
    checkMemoryType(memoryType);
    const range = checkDmabuf(params);
    const { owner, hostDmabufs, log } = this.#options;
    if (memoryType === MemoryType.HOST) return this.#registerHost('dmabuf', hostDmabufs.map(range), access);
    const { mds } = this.#resources;
    const { first, parts, refusals } = registerDmabuf(mds, range, { memoryType, sysDevice, access });
    logRefusals(mds, log, first.address, refusals);
    return new MemoryHandle(owner, first, undefined, { parts, access, refusals });
  }

  /** Registers host memory that goes with its handle. */
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
    if (first === undefined) throw invalidParam(argument, 'must be memory that an open memory domain registers', bytes);
    return new MemoryHandle(this.#options.owner, first, bytes, { parts: memory, access });
  }

  #allocate(params: Extract<MapParams, { readonly allocate: number }>, access: number): MemoryHandle {
    const { allocate, memoryType = MemoryType.HOST, sysDevice, shared } = params;
    if (!Number.isSafeInteger(allocate) || allocate <= 0) {
      throw invalidParam('allocate', 'must be a positive integer', allocate);
    }
    checkMemoryType(memoryType);
    if (memoryType === MemoryType.HOST && allocate > HOST_BYTES_MAX) {
      throw invalidParam('allocate', 'must be at most 4 GiB of host memory', allocate);
    }
    if (shared !== undefined && typeof shared !== 'boolean')
      throw invalidParam('shared', 'must be true or false', shared);
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
    // By the memory key, peers ask this worker to move memory that none of their transports reaches. Without it, their operations fail at once.
    if (handle.limitation === undefined) parts.push({ name: MEMORY_KEY_NAME, key: this.exported.keyOf(handle) });
    const { memoryType, sysDevice, address, byteLength } = handle;
    return { packed: packRkey({ memoryType, sysDevice, address, byteLength, access, parts }), isWhole };
  }

  /** Registers allocated memory with the other memory domains; a failure frees it again. */
  #registerAllocated(owner: OpenMd, memory: MdMemory, access: number): MemoryHandle {
    const { owner: context } = this.#options;
    try {
      const parts = this.#registerWithAll(memory.bytes ?? memory, memory.memoryType, access, (open) => open !== owner);
      parts[owner.index] = memory;
      const byDmabuf = registerByDmabuf(this.#resources.mds, this.#options, memory, access);
      for (const [index, part] of byDmabuf.parts) parts[index] = part;
      const { refusals } = byDmabuf;
      return new MemoryHandle(context, memory, memory.bytes, { parts, access, refusals });
    } catch (error) {
      owner.md.memFree(memory);
      throw error;
    }
  }

  /** Registers memory with every memory domain that can, of those that `isMeant` names; all or nothing. */
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

  /** The last memory domain first: the one with transfers in flight refuses before anything has changed. */
  #deregister(handle: MemoryHandle, allocator: OpenMd | undefined, isFreed: boolean): void {
    for (const [index, part] of [...handle.mdMemory.entries()].reverse()) {
      if (part === undefined || index === allocator?.index) continue;
      // Memory that is freed next must not stay in a registration cache.
      this.#resources.mds[index]!.md.memDereg(part, { invalidate: isFreed });
    }
  }

  /** Retires a handle whose memory is gone. It is deregistered later, because this may run inside any callback. */
  #lose(handle: MemoryHandle): void {
    this.#forget(handle);
    for (const [index, part] of handle.mdMemory.entries()) {
      const { md } = this.#resources.mds[index]!;
      if (part !== undefined && md.hostUnmapped === undefined) md.memDereg(part);
    }
    if (this.#lost.size === 0) this.#options.clock.setTimer(0, () => this.#releaseLost());
    this.#lost.add(handle);
  }

  /** Deregisters lost memory that no transfer uses any more. */
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

/** Host memory to register. */
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

/** The report about a handle to observers. */
function changeOf({ memoryType, sysDevice, address, byteLength }: MemoryHandle): MemoryChange {
  return { memoryType: memoryTypeName(memoryType), device: sysDevice, address, byteLength };
}

/** Whether the registration that transfers use has other users than the handle. */
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

/** Allocates with the first memory domain that has memory; throws the error of the last one if all refuse. */
function allocateWithAny(
  allocators: readonly OpenMd[],
  byteLength: number,
  options: AllocateOptions,
): { readonly allocator: OpenMd; readonly memory: MdMemory } {
  for (const [index, allocator] of allocators.entries()) {
    try {
      return { allocator, memory: allocator.md.memAlloc(byteLength, options) };
    } catch (error) {
      // Shared memory may be small, in containers above all, and needs a descriptor: memory that peers cannot map is better than none.
      const isLacking = isUcxError(error) && isLackOfResources(error.status);
      if (!isLacking || index === allocators.length - 1) throw error;
    }
  }
  throw statusError(Status.UNSUPPORTED, 'allocate');
}
