/**
 * Mapped memory of a context over libucp: host memory is registered with libucp, and all memory with the native transports, which check it and detect its
 * type.
 */

import type { Context } from '../../api/contract/context.ts';
import {
  type AdviseOptions,
  accessOf,
  type MapParams,
  type MemoryHandle,
  noRemoteAccess,
  REMOTE_ACCESS,
} from '../../api/contract/memory.ts';
import { OwnedMemory } from '../../api/memory/owned.ts';
import { ForeignMemory, isReadable, VIEW_LENGTH_MAX } from '../../sys/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { checkStatus, invalidParam, statusError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess, type MemoryAdvice } from '../../uct/api/memory-domain.ts';
import {
  UCP_MEM_ATTR,
  UCP_MEM_ATTR_FIELD,
  UCP_MEM_MAP,
  UCP_MEM_MAP_PARAM_FIELD,
  UCP_MEM_MAP_PARAMS,
  UCP_MEM_MAP_PROT,
  UCS_MEMORY_TYPE,
} from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { Libucp } from '../c/library.ts';
import { type DeviceAccess, UcpMemory } from './memory-handle.ts';
import { packRemoteKey } from './remote-key.ts';

const EXPORT_ID_BYTES = 6;

export interface MapOwner {
  readonly libucp: Libucp;
  readonly handle: number;
  readonly access: DeviceAccess;
  readonly log: Log;
}

export class MemoryMap {
  readonly #functions: LibucpFunctions;
  readonly #context: number;
  readonly #owner: MapOwner;
  readonly #native: Context;
  readonly #handles: Set<UcpMemory> = new Set();
  /**
   * Unmapped host memory of which peers have keys. libucp does not check the address of a put or get over tcp or cma, so nothing else may use these
   * addresses: pages that libucp had allocated are replaced by zero pages, which exist as long as this object.
   */
  readonly #revoked: Set<ArrayBufferLike> = new Set();
  /** Device memory by export id. */
  readonly #exported: Map<number, UcpMemory> = new Map();

  constructor(owner: MapOwner, native: Context) {
    this.#functions = owner.libucp.functions;
    this.#context = owner.handle;
    this.#owner = owner;
    this.#native = native;
  }

  /** See Context.memMap. */
  map(params: MapParams): UcpMemory {
    const isObject = typeof params === 'object' && params !== null;
    const access = accessOf(isObject ? params.protection : undefined);
    const isAllocated = isObject && 'allocate' in params;
    const { memoryType = MemoryType.HOST, shared = false } = isAllocated ? params : {};
    // The native context allocates memory that can be exported.
    const isOfLibucp = isAllocated && memoryType === MemoryType.HOST && shared === false;
    const memory = isOfLibucp ? this.#allocate(params.allocate, access) : this.#register(params, access);
    this.#handles.add(memory);
    if (memory.exportId !== 0) this.#exported.set(memory.exportId, memory);
    return memory;
  }

  /** See Context.memUnmap. */
  unmap(handle: MemoryHandle): void {
    const memory = this.#own(handle);
    if (memory.inFlight > 0) {
      const address = `0x${memory.address.toString(16)}`;
      throw statusError(
        Status.BUSY,
        `cannot unmap memory at ${address}: used by ${memory.inFlight} operations in progress; wait for them first`,
      );
    }
    this.#native.memUnmap(memory.nativeHandle);
    // The native transports cache registrations of pages; these pages return to libucp, and their addresses will be reused.
    if (memory.allocation !== undefined)
      this.#native.memoryUnmapped(memory.allocation.address, memory.allocation.byteLength);
    this.#forget(memory);
  }

  /** See Context.memAdvise. */
  advise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions): void {
    this.#native.memAdvise(this.check(handle).nativeHandle, advice, options);
  }

  /** See Context.memoryUnmapped. */
  unmapped(address: number | bigint, byteLength: number): void {
    this.#native.memoryUnmapped(address, byteLength);
    for (const memory of this.#handles) if (memory.bytes !== undefined && !memory.mapped) this.#forget(memory);
  }

  /** See Context.packRkey. */
  packRkey(handle: MemoryHandle): Uint8Array {
    const memory = this.check(handle);
    if ((memory.access & REMOTE_ACCESS) === 0) throw noRemoteAccess(memory);
    memory.packed ??= packRemoteKey(this.#functions, this.#context, [memory, memory.access], this.#native);
    return memory.packed.slice();
  }

  /** A key for endpoints of this context to itself, which permits every access. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    return packRemoteKey(this.#functions, this.#context, [this.check(handle), MemAccess.ALL], this.#native);
  }

  /** For snapshots. */
  get mapped(): ReadonlySet<UcpMemory> {
    return this.#handles;
  }

  exported(exportId: number): UcpMemory | undefined {
    return this.#exported.get(exportId);
  }

  /** Returns the handle, if it is mapped and belongs to this context. @throws UcxError ERR_INVALID_PARAM */
  check(handle: MemoryHandle): UcpMemory {
    const memory = this.#own(handle);
    if (!memory.mapped) throw memory.unmappedError();
    return memory;
  }

  /** Returns the handle, if it belongs to this context, also if its card has lost the memory. */
  #own(handle: MemoryHandle): UcpMemory {
    if (!(handle instanceof UcpMemory) || !this.#handles.has(handle)) OwnedMemory.refuse(this.#owner, handle);
    return handle;
  }

  /** Unmaps all memory. Call this when no worker of libucp serves peers any more, before the native context is closed. */
  close(): void {
    for (const memory of this.#handles) this.#forget(memory);
    this.#revoked.clear();
  }

  /** Allocates host memory by libucp: its shared-memory transports access it without a copy. */
  #allocate(byteLength: number, access: number): UcpMemory {
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
      throw invalidParam('allocate', 'must be a positive integer', byteLength);
    }
    // Checked here: libucp would exhaust the shared memory of the machine before it fails.
    if (byteLength > VIEW_LENGTH_MAX)
      throw invalidParam('allocate', 'must be at most 4 GiB for host memory', byteLength);
    const memh = this.#ucpMap({ address: 0, byteLength, access, flags: UCP_MEM_MAP.ALLOCATE });
    const unmap = (): void => this.#ucpUnmap(memh);
    let allocation: ForeignMemory;
    try {
      allocation = new ForeignMemory(this.#addressOf(memh), byteLength, unmap);
    } catch (error) {
      unmap();
      throw error;
    }
    try {
      const native = this.#native.memMap({ address: allocation.address, byteLength, memoryType: MemoryType.HOST });
      return new UcpMemory(this.#owner, native, { memh, allocation, exportId: 0, access });
    } catch (error) {
      allocation.close();
      throw error;
    }
  }

  /** Registers existing memory, which the native context checks, maps or imports, or memory of a card. */
  #register(params: MapParams, access: number): UcpMemory {
    // The native context gets no protection: this engine checks the accesses of peers and of the program.
    const { protection: _protection, ...source } = params ?? {};
    const native = this.#native.memMap(source as MapParams);
    if (native.bytes === undefined) {
      const memh = this.#owner.access.isDirect ? this.#registerDevice(native, access) : 0;
      return new UcpMemory(this.#owner, native, { memh, allocation: undefined, exportId: this.#newExportId(), access });
    }
    try {
      // libucp gets an address. For a dma-buf without pages, it would use a copy on some transports and fail on others (cma, RDMA).
      if ('dmabuf' in source && !isReadable(Number(native.address), 1)) throw noPages();
      const memh = this.#ucpMap({ address: Number(native.address), byteLength: native.byteLength, access });
      return new UcpMemory(this.#owner, native, { memh, allocation: undefined, exportId: 0, access });
    } catch (error) {
      this.#native.memUnmap(native);
      throw error;
    }
  }

  /** Registers device memory; returns 0 if libucp rejects it, so that it is staged through host memory. */
  #registerDevice({ address, byteLength }: MemoryHandle, access: number): number {
    try {
      const { memoryType } = this.#owner.access;
      return this.#ucpMap({ address: Number(address), byteLength, access, memoryType });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.#owner.log.warn(`libucp cannot register device memory, so it is staged through host memory: ${why}`);
      return 0;
    }
  }

  #ucpMap(mapping: UcpMapping): number {
    return mapByUcp(this.#functions, this.#context, mapping);
  }

  #ucpUnmap(memh: number): void {
    this.#functions.ucp_mem_unmap(this.#context, memh);
  }

  #addressOf(memh: number): number {
    using attributes = new Fields(UCP_MEM_ATTR);
    attributes.setU64('field_mask', UCP_MEM_ATTR_FIELD.ADDRESS);
    checkStatus(this.#functions.ucp_mem_query(memh, attributes.address), 'ucp_mem_query');
    return attributes.number('address');
  }

  #forget(memory: UcpMemory): void {
    const bytes = memory.allocation?.u8 ?? memory.bytes;
    if (memory.packed !== undefined && bytes !== undefined) this.#revoked.add(bytes.buffer);
    memory.retire();
    this.#handles.delete(memory);
    this.#exported.delete(memory.exportId);
    if (memory.allocation !== undefined) memory.allocation.close();
    else if (memory.memh !== 0) this.#ucpUnmap(memory.memh);
  }

  /** Unguessable, and below 2^53, so that it is exact as a Number. */
  #newExportId(): number {
    for (;;) {
      const id = Buffer.from(systemRandomBytes(EXPORT_ID_BYTES)).readUIntLE(0, EXPORT_ID_BYTES);
      if (id !== 0 && !this.#exported.has(id)) return id;
    }
  }
}

function noPages(): UcxError {
  const why = 'its exporter provides no pages that the kernel can pin for cma and RDMA';
  return statusError(
    Status.UNSUPPORTED,
    `cannot map a dma-buf of host memory with engine libucx (${why}; engine native copies it)`,
  );
}

/** Parameters of ucp_mem_map. */
export interface UcpMapping {
  readonly address: number;
  readonly byteLength: number;
  /** Bits of UCP_MEM_MAP. Default none. */
  readonly flags?: number;
  /** Memory type in the numbering of libucp. Default host. */
  readonly memoryType?: number;
  /** Permitted accesses: bits of MemAccess. Default all. */
  readonly access?: number;
}

/** The libucp protection for access flags; undefined for all of them, because no libucp protection includes atomic operations. */
export function protOf(access: number): number | undefined {
  if (access === MemAccess.ALL) return undefined;
  const { LOCAL_READ, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = UCP_MEM_MAP_PROT;
  return (
    ((access & MemAccess.LOCAL_READ) === 0 ? 0 : LOCAL_READ) |
    ((access & MemAccess.LOCAL_WRITE) === 0 ? 0 : LOCAL_WRITE) |
    ((access & MemAccess.REMOTE_GET) === 0 ? 0 : REMOTE_READ) |
    ((access & MemAccess.REMOTE_PUT) === 0 ? 0 : REMOTE_WRITE)
  );
}

/** Maps memory with libucp, and returns the handle. @throws UcxError of ucp_mem_map */
export function mapByUcp(functions: LibucpFunctions, context: number, mapping: UcpMapping): number {
  const { address, byteLength, flags = 0, memoryType = UCS_MEMORY_TYPE.HOST, access = MemAccess.ALL } = mapping;
  const { ADDRESS, LENGTH, FLAGS, PROT, MEMORY_TYPE } = UCP_MEM_MAP_PARAM_FIELD;
  using params = new Fields(UCP_MEM_MAP_PARAMS);
  using memh = new OutValue();
  const isHost = memoryType === UCS_MEMORY_TYPE.HOST;
  const prot = protOf(access);
  params.setU64('field_mask', ADDRESS | LENGTH | FLAGS | (prot === undefined ? 0 : PROT) | (isHost ? 0 : MEMORY_TYPE));
  params.setU32('memory_type', memoryType);
  params.setU64('address', address).setU64('length', byteLength).setU32('flags', flags);
  params.setU32('prot', prot ?? 0);
  const status = functions.ucp_mem_map(context, params.address, memh.address);
  checkStatus(status, `ucp_mem_map of ${byteLength} bytes`);
  return memh.value;
}
