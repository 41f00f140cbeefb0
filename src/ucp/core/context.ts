/**
 * A context: the opened memory domains of a program, its configuration, and the memory mapped with them. Workers communicate, contexts own.
 */

import type { Clock } from '../../ucs/clock.ts';
import type { Config } from '../../ucs/config.ts';
import { closedError, invalidParam, isUcxError, statusError } from '../../ucs/error.ts';
import type { Log } from '../../ucs/log.ts';
import { hasMemoryType, MEMORY_TYPE_COUNT, MemoryType } from '../../ucs/memory-type.ts';
import { Status } from '../../ucs/status.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import { type AllocateOptions, type Component, MdFlag, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import { ExportedMemory, MEMORY_KEY_NAME } from '../mem/exported-memory.ts';
import { type MemMapParams, MemoryHandle } from '../mem/memory-handle.ts';
import { RemoteKey } from '../mem/remote-key.ts';
import { packRkey, type RkeyPart, unpackRkey } from '../mem/rkey-bytes.ts';
import { UCP_CONFIG_TABLE } from './config.ts';
import type { UnpackOptions } from './protocol-host.ts';
import type { Connection } from './request.ts';
import { type OpenMd, Resources } from './resources.ts';
import { Worker, type WorkerContext } from './worker.ts';
import type { SignalFd } from './worker-event.ts';

/** Bounds of UCX_RNDV_FRAG_SIZE. */
const FRAGMENT_BYTES_MIN = 65_536;
const FRAGMENT_BYTES_MAX = 16 * 2 ** 20;
const FRAGMENTS_MIN = 2;

/** What a context is made of. */
export interface ContextParams {
  readonly components: readonly Component[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** True when the Gaudi cards are emulated: every figure obtained with them must say so. */
  readonly emulated: boolean;
  /** Makes an eventfd, for workers. */
  readonly newSignal: () => SignalFd;
  /** Runs when the context is closed, after everything else: releases what the composition root opened for it. */
  readonly onClose: () => void;
}

/** A context. */
export class Context implements WorkerContext {
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly emulated: boolean;
  readonly resources: Resources;
  readonly progressSpinNs: number;
  readonly keepaliveNs: number;
  readonly rendezvousThreshold: number;
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  readonly exported: ExportedMemory = new ExportedMemory();
  readonly #newSignal: () => SignalFd;
  readonly #handles: Set<MemoryHandle> = new Set();
  /** The memory domain that allocated the memory of a handle. */
  readonly #allocators: Map<MemoryHandle, OpenMd> = new Map();
  /** Mapped host memory by the identity of its ArrayBuffer; of several mappings of one the last. */
  readonly #byBuffer: WeakMap<ArrayBufferLike, MemoryHandle> = new WeakMap();
  readonly #workers: Set<Worker> = new Set();
  readonly #onClose: () => void;
  #closed = false;
  #closing: Promise<void> | undefined;

  /**
   * Opens all memory domains that UCX_TLS allows.
   * @throws UcxError: see Resources
   */
  constructor(params: ContextParams) {
    this.config = params.config;
    this.log = params.log;
    this.clock = params.clock;
    this.emulated = params.emulated;
    const config = params.config.get(UCP_CONFIG_TABLE);
    this.progressSpinNs = config.PROGRESS_SPIN;
    this.keepaliveNs = config.KEEPALIVE_INTERVAL;
    this.rendezvousThreshold = config.RNDV_THRESH === 'auto' ? Number.POSITIVE_INFINITY : config.RNDV_THRESH;
    this.fragmentBytes = checkFragmentBytes(config.RNDV_FRAG_SIZE);
    this.fragmentCount = checkFragmentCount(config.RNDV_FRAG_ALLOC_COUNT);
    this.#newSignal = params.newSignal;
    this.resources = new Resources(params);
    this.#onClose = params.onClose;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get mds(): readonly OpenMd[] {
    return this.resources.mds;
  }

  /** Makes a worker. */
  worker(): Worker {
    this.#checkOpen();
    const worker = new Worker(this);
    this.#workers.add(worker);
    return worker;
  }

  /**
   * Allocates memory or registers a host buffer (ucp_mem_map).
   * @throws UcxError ERR_INVALID_PARAM that names the argument and its rule; NO_MEMORY; ERR_UNSUPPORTED with the reason when no transport
   *   serves the memory type
   */
  memMap(params: MemMapParams): MemoryHandle {
    this.#checkOpen();
    if (typeof params !== 'object' || params === null || !('buffer' in params || 'allocate' in params)) {
      throw invalidParam('params', 'must be { buffer } or { allocate }', params);
    }
    const handle = 'buffer' in params ? this.#register(params.buffer) : this.#allocate(params);
    this.#handles.add(handle);
    if (handle.bytes !== undefined) this.#byBuffer.set(handle.bytes.buffer, handle);
    return handle;
  }

  /** The mapped memory that host bytes are of; for protocols. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined {
    const handle = this.#byBuffer.get(bytes.buffer);
    if (handle?.bytes === undefined || !handle.mapped) return undefined;
    const from = bytes.byteOffset - handle.bytes.byteOffset;
    return from >= 0 && from + bytes.byteLength <= handle.byteLength ? handle : undefined;
  }

  /**
   * Unmaps memory, and frees it if memMap allocated it (ucp_mem_unmap). Its remote keys stop working.
   * @throws UcxError BUSY while transfers use it, ERR_INVALID_PARAM for a handle that is unmapped or of another context
   */
  memUnmap(handle: MemoryHandle): void {
    if (!this.#handles.has(handle)) throw invalidParam('handle', 'must be mapped by this context', handle?.address);
    const allocator = this.#allocators.get(handle);
    // Memory in use stays mapped as a whole.
    const used = handle.mdMemory.find((part) => (part?.inFlight ?? 0) > 0);
    if (used !== undefined) {
      throw statusError(
        Status.BUSY,
        `unmap memory at 0x${handle.address.toString(16)} that ${used.inFlight} transfers use`,
      );
    }
    this.#deregister(handle, allocator);
    if (allocator !== undefined) allocator.md.memFree(handle.mdMemory[allocator.index]!);
    this.#allocators.delete(handle);
    this.#handles.delete(handle);
    this.exported.revoke(handle);
    handle.retire();
  }

  /** The remote key of mapped memory: bytes to be sent to a peer (ucp_rkey_pack). */
  packRkey(handle: MemoryHandle): Uint8Array {
    if (!this.#handles.has(handle)) throw invalidParam('handle', 'must be mapped by this context', handle?.address);
    handle.packed ??= this.#pack(handle);
    return handle.packed.slice();
  }

  /** Unpacks a remote key for the lanes of a connection; for endpoints. */
  unpackRkey(packed: Uint8Array, connection: Connection, options: UnpackOptions = {}): RemoteKey {
    this.#checkOpen();
    const fields = unpackRkey(packed);
    const used = new Set(connection.lanes.map(({ md }) => md.index));
    const parts: (UctRemoteKey | undefined)[] = [];
    try {
      for (const { md, index } of this.resources.mds) {
        const part = used.has(index) ? fields.parts.find(({ name }) => name === md.attributes.name) : undefined;
        parts.push(part === undefined ? undefined : unpackPart(md, part.key));
      }
    } catch (error) {
      for (const part of parts) part?.release();
      throw error;
    }
    const memoryKey =
      options.messages === false ? undefined : fields.parts.find(({ name }) => name === MEMORY_KEY_NAME)?.key;
    return new RemoteKey(connection, fields, parts, memoryKey);
  }

  /** Allocates host memory that every transport reaches; for staging. */
  allocateHost(byteLength: number): MemoryHandle {
    return this.memMap({ allocate: byteLength });
  }

  newSignal(): SignalFd {
    return this.#newSignal();
  }

  /** Closes workers, memory and memory domains. Idempotent, never fails. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Forgets a closed worker. */
  forget(worker: Worker): void {
    this.#workers.delete(worker);
  }

  async #close(): Promise<void> {
    for (const worker of this.#workers) await worker.close();
    this.#closed = true;
    for (const handle of this.#handles) handle.retire();
    this.#handles.clear();
    this.#allocators.clear();
    // The memory domains end what is still on its way, then free and deregister all memory themselves.
    this.resources.close();
    this.#onClose();
  }

  #register(buffer: Uint8Array): MemoryHandle {
    if (!(buffer instanceof Uint8Array)) throw invalidParam('buffer', 'must be a Uint8Array or Buffer', buffer);
    const memory = this.#registerWithAll(buffer, MemoryType.HOST, undefined);
    const first = memory.find((part) => part !== undefined);
    if (first === undefined)
      throw invalidParam('buffer', 'must be memory that an open memory domain registers', buffer);
    return new MemoryHandle(this, first, buffer, memory);
  }

  #allocate(params: Extract<MemMapParams, { readonly allocate: number }>): MemoryHandle {
    const { allocate, memoryType = MemoryType.HOST, sysDevice, shared } = params;
    if (!Number.isSafeInteger(allocate) || allocate <= 0) {
      throw invalidParam('allocate', 'must be a positive integer', allocate);
    }
    if (!Number.isInteger(memoryType) || memoryType < 0 || memoryType >= MEMORY_TYPE_COUNT) {
      throw invalidParam('memoryType', 'must be a memory type', memoryType);
    }
    const options = {
      memoryType,
      ...(sysDevice === undefined ? {} : { sysDevice }),
      ...(shared === undefined ? {} : { shared }),
    };
    const { allocator, memory } = allocateWithAny(this.resources.allocatorsOf(memoryType), allocate, options);
    const parts = this.#registerAllocated(allocator, memory);
    const handle = new MemoryHandle(this, memory, memory.bytes, parts);
    this.#allocators.set(handle, allocator);
    return handle;
  }

  #pack(handle: MemoryHandle): Uint8Array {
    const parts: RkeyPart[] = handle.mdMemory.flatMap((memory, index) => {
      if (memory === undefined || memory.packable === false) return [];
      const { md } = this.resources.mds[index]!;
      const key = new Uint8Array(md.attributes.rkeyPackedBytes);
      md.mkeyPack(memory, key, 0);
      return [{ name: md.attributes.name, key }];
    });
    parts.push({ name: MEMORY_KEY_NAME, key: this.exported.keyOf(handle) });
    const { memoryType, sysDevice, address, byteLength } = handle;
    return packRkey({ memoryType, sysDevice, address, byteLength, parts });
  }

  /** Registers allocated memory with the other memory domains; a failure frees it again. */
  #registerAllocated(owner: OpenMd, memory: MdMemory): (MdMemory | undefined)[] {
    try {
      const parts = this.#registerWithAll(memory.bytes ?? memory, memory.memoryType, owner);
      parts[owner.index] = memory;
      return parts;
    } catch (error) {
      owner.md.memFree(memory);
      throw error;
    }
  }

  /** Registers memory with every memory domain that can, but `except`; all or nothing. */
  #registerWithAll(
    source: Uint8Array | MdMemory,
    memoryType: MemoryType,
    except: OpenMd | undefined,
  ): (MdMemory | undefined)[] {
    const parts: (MdMemory | undefined)[] = [];
    try {
      for (const open of this.resources.mds) {
        const { flags, registerMemoryTypes } = open.md.attributes;
        const takesType = (flags & MdFlag.REG) !== 0 && hasMemoryType(registerMemoryTypes, memoryType);
        parts.push(takesType && open !== except ? open.md.memReg(source) : undefined);
      }
      return parts;
    } catch (error) {
      for (const [index, part] of parts.entries()) {
        if (part !== undefined) this.resources.mds[index]!.md.memDereg(part);
      }
      throw error;
    }
  }

  /** The last memory domain first: the one with transfers on their way refuses before anything has changed. */
  #deregister(handle: MemoryHandle, allocator: OpenMd | undefined): void {
    for (const [index, part] of [...handle.mdMemory.entries()].reverse()) {
      if (part === undefined || index === allocator?.index) continue;
      // Memory that is freed next must not stay in a registration cache.
      this.resources.mds[index]!.md.memDereg(part, { invalidate: allocator !== undefined });
    }
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('context');
  }
}

/** One part of a remote key; undefined for memory that its memory domain cannot reach from here. */
function unpackPart(md: MemoryDomain, key: Uint8Array): UctRemoteKey | undefined {
  try {
    return md.rkeyUnpack(key);
  } catch (error) {
    if (isUcxError(error) && error.status === Status.UNREACHABLE) return undefined;
    throw error;
  }
}

function checkFragmentBytes(value: number): number {
  if (value >= FRAGMENT_BYTES_MIN && value <= FRAGMENT_BYTES_MAX) return value;
  throw invalidParam('UCX_RNDV_FRAG_SIZE', `must be from ${FRAGMENT_BYTES_MIN} to ${FRAGMENT_BYTES_MAX}`, value);
}

function checkFragmentCount(value: number): number {
  if (value >= FRAGMENTS_MIN) return value;
  throw invalidParam(
    'UCX_RNDV_FRAG_ALLOC_COUNT',
    `must be at least ${FRAGMENTS_MIN}: one to send, one to receive`,
    value,
  );
}

/** Allocates with the first memory domain that has the memory; the last one's refusal is thrown. */
function allocateWithAny(
  allocators: readonly OpenMd[],
  byteLength: number,
  options: AllocateOptions,
): { readonly allocator: OpenMd; readonly memory: MdMemory } {
  for (const [index, allocator] of allocators.entries()) {
    try {
      return { allocator, memory: allocator.md.memAlloc(byteLength, options) };
    } catch (error) {
      // Shared memory may be small, in containers above all: memory that peers cannot map is better than none.
      const isFull = isUcxError(error) && error.status === Status.NO_MEMORY;
      if (!isFull || index === allocators.length - 1) throw error;
    }
  }
  throw statusError(Status.UNSUPPORTED, 'allocate');
}
