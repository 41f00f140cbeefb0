/**
 * The mapped memory of a context over libucp: host memory is registered with libucp, and all memory with the transports of the node, which check it and
 * detect its type.
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

/** The context that owns the memory. */
export interface MapOwner {
  readonly libucp: Libucp;
  /** The handle of libucp. */
  readonly handle: number;
  readonly access: DeviceAccess;
  readonly log: Log;
}

/** The memory. */
export class MemoryMap {
  readonly #functions: LibucpFunctions;
  readonly #context: number;
  readonly #owner: MapOwner;
  readonly #node: Context;
  readonly #handles: Set<UcpMemory> = new Set();
  /**
   * Host memory that was unmapped, and of which peers have keys: libucp does not check the address of a put or get over tcp or cma, so that nothing else may
   * use the addresses. What libucp has allocated is replaced by zero pages that exist as long as this.
   */
  readonly #revoked: Set<ArrayBufferLike> = new Set();
  /** Device memory by its export id. */
  readonly #exported: Map<number, UcpMemory> = new Map();

  constructor(owner: MapOwner, node: Context) {
    this.#functions = owner.libucp.functions;
    this.#context = owner.handle;
    this.#owner = owner;
    this.#node = node;
  }

  /** See Context.memMap. */
  map(params: MapParams): UcpMemory {
    const isObject = typeof params === 'object' && params !== null;
    const access = accessOf(isObject ? params.protection : undefined);
    const isAllocated = isObject && 'allocate' in params;
    const { memoryType = MemoryType.HOST, shared = false } = isAllocated ? params : {};
    // Memory that can be exported is allocated by the node.
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
      const place = `0x${memory.address.toString(16)}`;
      throw statusError(Status.BUSY, `unmap memory at ${place} that ${memory.inFlight} operations use`);
    }
    this.#node.memUnmap(memory.node);
    // The transports of the node cache pages; these return to libucp, and their addresses will be reused for other memory.
    if (memory.allocation !== undefined)
      this.#node.memoryUnmapped(memory.allocation.address, memory.allocation.byteLength);
    this.#forget(memory);
  }

  /** See Context.memAdvise. */
  advise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions): void {
    this.#node.memAdvise(this.check(handle).node, advice, options);
  }

  /** See Context.memoryUnmapped. */
  unmapped(address: number | bigint, byteLength: number): void {
    this.#node.memoryUnmapped(address, byteLength);
    for (const memory of this.#handles) if (memory.bytes !== undefined && !memory.mapped) this.#forget(memory);
  }

  /** See Context.packRkey. */
  packRkey(handle: MemoryHandle): Uint8Array {
    const memory = this.check(handle);
    if ((memory.access & REMOTE_ACCESS) === 0) throw noRemoteAccess(memory);
    memory.packed ??= packRemoteKey(this.#functions, this.#context, [memory, memory.access], this.#node);
    return memory.packed.slice();
  }

  /** A key for endpoints of this context to itself, which permits everything. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    return packRemoteKey(this.#functions, this.#context, [this.check(handle), MemAccess.ALL], this.#node);
  }

  /** The mapped memory, for snapshots. */
  get mapped(): ReadonlySet<UcpMemory> {
    return this.#handles;
  }

  /** The device memory with an export id. */
  exported(exportId: number): UcpMemory | undefined {
    return this.#exported.get(exportId);
  }

  /** Returns the handle, if it is mapped and belongs to this context. @throws UcxError ERR_INVALID_PARAM */
  check(handle: MemoryHandle): UcpMemory {
    const memory = this.#own(handle);
    if (!memory.mapped) throw memory.unmappedError();
    return memory;
  }

  /** Returns the handle of this context, also if its card has lost the memory. */
  #own(handle: MemoryHandle): UcpMemory {
    if (!(handle instanceof UcpMemory) || !this.#handles.has(handle)) OwnedMemory.refuse(this.#owner, handle);
    return handle;
  }

  /** Unmaps all memory; the context of the node is closed afterwards. No worker of libucp serves peers any more. */
  close(): void {
    for (const memory of this.#handles) this.#forget(memory);
    this.#revoked.clear();
  }

  /** Allocates host memory by libucp: its shared-memory transports reach it without a copy. */
  #allocate(byteLength: number, access: number): UcpMemory {
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
      throw invalidParam('allocate', 'must be a positive integer', byteLength);
    }
    // libucp exhausts the shared memory of the machine before it fails.
    if (byteLength > VIEW_LENGTH_MAX)
      throw invalidParam('allocate', 'must be at most 4 GiB of host memory', byteLength);
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
      const node = this.#node.memMap({ address: allocation.address, byteLength, memoryType: MemoryType.HOST });
      return new UcpMemory(this.#owner, node, { memh, allocation, exportId: 0, access });
    } catch (error) {
      allocation.close();
      throw error;
    }
  }

  /** Registers existing memory, which the node checks, maps or imports, or memory of a card. */
  #register(params: MapParams, access: number): UcpMemory {
    // The transports of the node get no protection: this engine checks what peers and the program may do.
    const { protection: _protection, ...source } = params ?? {};
    const node = this.#node.memMap(source as MapParams);
    if (node.bytes === undefined) {
      const memh = this.#owner.access.isDirect ? this.#registerDevice(node, access) : 0;
      return new UcpMemory(this.#owner, node, { memh, allocation: undefined, exportId: this.#newExportId(), access });
    }
    try {
      // libucp gets an address: it would copy a dma-buf without pages over some transports, and fail over others (cma, RDMA).
      if ('dmabuf' in source && !isReadable(Number(node.address), 1)) throw noPages();
      const memh = this.#ucpMap({ address: Number(node.address), byteLength: node.byteLength, access });
      return new UcpMemory(this.#owner, node, { memh, allocation: undefined, exportId: 0, access });
    } catch (error) {
      this.#node.memUnmap(node);
      throw error;
    }
  }

  /** Registers device memory; 0 if libucp does not accept it: it is then staged through host memory. */
  #registerDevice({ address, byteLength }: MemoryHandle, access: number): number {
    try {
      const { memoryType } = this.#owner.access;
      return this.#ucpMap({ address: Number(address), byteLength, access, memoryType });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.#owner.log.warn(`libucp does not take memory of a card, it goes through host memory: ${why}`);
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

  /** An unguessable number, exact as a Number. */
  #newExportId(): number {
    for (;;) {
      const id = Buffer.from(systemRandomBytes(EXPORT_ID_BYTES)).readUIntLE(0, EXPORT_ID_BYTES);
      if (id !== 0 && !this.#exported.has(id)) return id;
    }
  }
}

function noPages(): UcxError {
  const why = 'its exporter maps it without pages that the kernel can pin, which cma and RDMA of libucp need';
  return statusError(
    Status.UNSUPPORTED,
    `map a dma-buf of host memory over engine libucx (${why}): the engine native copies it`,
  );
}

/** Parameters of a mapping by libucp. */
export interface UcpMapping {
  readonly address: number;
  readonly byteLength: number;
  /** Bits of UCP_MEM_MAP. Default none. */
  readonly flags?: number;
  /** Number of the memory type in libucp. Default host. */
  readonly memoryType?: number;
  /** What the memory may be used for: bits of MemAccess. Default everything. */
  readonly access?: number;
}

/** The protection of libucp for access flags; undefined for all of them, because libucp has none that includes atomic operations. */
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

/** Maps memory with libucp, and returns its handle. @throws UcxError of ucp_mem_map */
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
