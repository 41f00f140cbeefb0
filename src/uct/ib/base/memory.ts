/**
 * Memory of the ib memory domain, registered with every device. Regions for its transfers are cached and give peers no access; memory that transfers only read
 * has separate regions, because the cached ones permit writing. A key for peers has separate regions too, exactly of its bytes and released with the memory,
 * so that peers cannot access memory that the program has deregistered.
 */

import { addressOf, Errno, isSyscallError, PAGE_SIZE, type SyscallError } from '../../../sys/index.ts';
import type { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { Rcache } from '../../../ucs/rcache/rcache.ts';
import type { RcacheRegion } from '../../../ucs/rcache/region.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { AccessFlag } from '../../../verbs/abi.ts';
import type { MemoryRegion } from '../../../verbs/port.ts';
import type { MdMemory } from '../../api/memory.ts';
import {
  type ComponentServices,
  type LinearCost,
  MemAccess,
  type RegistrationSource,
} from '../../api/memory-domain.ts';
import { hostBytesOf, openHostCache, RawRange } from '../../base/host/memory.ts';
import { IB_CONFIG_TABLE, IB_NAME, type IbConfig } from './config.ts';
import type { IbDevice } from './device.ts';

export interface IbMemoryParams {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  readonly bytes: Uint8Array | undefined;
  readonly generation: number;
  /** Address of the first byte in work requests of this process. */
  readonly iova: number;
  /** By the index of the device: keys of this process. */
  readonly lkeys: Uint32Array;
  /** Permitted uses: bits of MemAccess. */
  readonly access: number;
  /** Its regions in the cache; undefined for memory with separate regions. */
  readonly cached?: RcacheRegion<IbRegions>;
  /** Its regions for transfers of this process that only read it, outside the cache. */
  readonly readOnly?: IbRegions;
  /** Regions of the keys of peers; undefined until the first key is packed. */
  readonly exposed?: IbRegions;
  /** Releases memory that the memory domain has allocated; undefined for other memory. */
  readonly free?: () => void;
}

/** Registered memory. */
export class IbMemory implements MdMemory {
  readonly mdName: string = IB_NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly bytes: Uint8Array | undefined;
  readonly generation: number;
  readonly packable: boolean = true;
  readonly iova: number;
  /** By the index of the device. */
  readonly lkeys: Uint32Array;
  /** Permitted uses: bits of MemAccess. */
  readonly access: number;
  /** Its regions in the cache; undefined for memory with separate regions. */
  readonly cached: RcacheRegion<IbRegions> | undefined;
  /** Its regions for transfers of this process that only read it, outside the cache. */
  readonly readOnly: IbRegions | undefined;
  /** Regions of the keys of peers; undefined until the first key is packed. */
  exposed: IbRegions | undefined;
  readonly free: (() => void) | undefined;
  inFlight = 0;
  live = true;
  readonly registeredBytes: number;
  #end: (() => void) | undefined = undefined;

  constructor(params: IbMemoryParams) {
    this.memoryType = params.memoryType;
    this.sysDevice = params.sysDevice;
    this.address = params.address;
    this.bytes = params.bytes;
    this.generation = params.generation;
    this.iova = params.iova;
    this.lkeys = params.lkeys;
    this.access = params.access;
    this.cached = params.cached;
    this.readOnly = params.readOnly;
    this.exposed = params.exposed;
    this.free = params.free;
    this.registeredBytes = params.byteLength;
  }

  /** 0 if it is a registered buffer that was detached. */
  get byteLength(): number {
    return this.bytes === undefined ? this.registeredBytes : this.bytes.byteLength;
  }

  /** Whether its buffer was detached. */
  get isDetached(): boolean {
    return this.bytes !== undefined && this.bytes.byteLength !== this.registeredBytes;
  }

  /** Ends the regions of the keys of peers. */
  hide(): void {
    this.exposed?.close();
    this.exposed = undefined;
  }

  /** Ends the use by a transfer. */
  unuse(): void {
    this.inFlight -= 1;
    if (this.inFlight === 0) this.#end?.();
  }

  /** Prevents new uses. @param end ends the registrations: now, or when the last transfer has ended */
  retire(end: () => void): void {
    this.live = false;
    if (this.inFlight === 0) end();
    else this.#end = end;
  }
}

/** Access to cached regions: no peer has a key of them. */
const LOCAL: number = accessFlags(MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE);
/** Estimates of UCX: finding a registration (RCACHE_OVERHEAD=auto), and making one. */
const CACHED_NS = 60;
const REGISTER_NS = 16_000;
const REGISTER_NS_PER_BYTE = 0.06;

/** The registrations of a memory domain. */
export class IbRegistry {
  readonly rcache: Rcache<IbRegions>;
  /** False if every registration ends with its use (UCX_IB_RCACHE=n). */
  readonly isCaching: boolean;
  readonly #devices: readonly IbDevice[];
  readonly #overhead: IbConfig['RCACHE_OVERHEAD'];
  /** The error of a device for the last registration for the cache. */
  #refusal: SyscallError | undefined = undefined;

  constructor(devices: readonly IbDevice[], services: ComponentServices) {
    const config = services.config.get(IB_CONFIG_TABLE);
    this.#devices = devices;
    this.isCaching = config.RCACHE !== 'no';
    this.#overhead = config.RCACHE_OVERHEAD;
    const register = (start: number, byteLength: number): IbRegions | Status => this.#register(start, byteLength);
    const deregister = (regions: IbRegions): void => regions.close();
    this.rcache = openHostCache({ name: IB_NAME, config, wholeBytesMax: 0, register, deregister }, services);
  }

  /** Estimated cost of using host memory that is not registered. */
  get cost(): LinearCost {
    if (!this.isCaching) return { overheadNs: REGISTER_NS, perByteNs: REGISTER_NS_PER_BYTE };
    return { overheadNs: this.#overhead === 'auto' ? CACHED_NS : this.#overhead, perByteNs: 0 };
  }

  /**
   * Host memory for transfers of this process; each call needs one {@link release}.
   * @throws UcxError ERR_INVALID_PARAM, ERR_INVALID_ADDR; SyscallError ENOMEM of the device, after all idle registrations were ended
   */
  acquire(source: RegistrationSource): { readonly bytes: Uint8Array; readonly region: RcacheRegion<IbRegions> } {
    const bytes = hostBytesOf(source);
    const { rcache } = this;
    const region =
      source instanceof RawRange
        ? rcache.acquireRange(source.address, source.byteLength)
        : rcache.acquire(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const refusal = this.#refusal;
    this.#refusal = undefined;
    if (typeof region === 'number') throw refusal ?? statusError(region, 'register host memory');
    return { bytes, region };
  }

  release(region: RcacheRegion<IbRegions>): void {
    this.rcache.release(region);
  }

  /** Removes the registrations of the memory of a region, so that no later use finds them. */
  invalidate(region: RcacheRegion<IbRegions>): void {
    const { rcache } = this;
    if (region.owner !== undefined) rcache.invalidate(region.owner);
    else if (region.valid) {
      rcache.unmapped(region.start, region.byteLength);
      rcache.progress();
    }
  }

  /**
   * Registers host memory in separate regions, outside the cache.
   * @param access bits of MemAccess
   * @throws SyscallError see {@link acquire}
   */
  expose(bytes: Uint8Array, access: number): IbRegions {
    const address = addressOf(bytes);
    const { byteLength } = bytes;
    const iova = address % PAGE_SIZE;
    return this.onDevices(iova, ({ pd }) => pd.regMr(address, byteLength, iova, accessFlags(access)));
  }

  /** Registers memory with every device. If a device has no free regions, idle registrations are evicted first. */
  onDevices(iova: number, register: (device: IbDevice) => MemoryRegion): IbRegions {
    for (;;) {
      try {
        return this.#tryOnDevices(iova, register);
      } catch (error) {
        if (!isFull(error) || !this.rcache.evictIdle()) throw error;
      }
    }
  }

  #tryOnDevices(iova: number, register: (device: IbDevice) => MemoryRegion): IbRegions {
    return new IbRegions(
      iova,
      this.#devices.map((device) => () => register(device)),
    );
  }

  #register(start: number, byteLength: number): IbRegions | Status {
    const iova = start % PAGE_SIZE;
    try {
      const regions = this.#tryOnDevices(iova, ({ pd }) => pd.regMr(start, byteLength, iova, LOCAL));
      this.#refusal = undefined;
      return regions;
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      this.#refusal = error;
      return isFull(error) ? Status.NO_MEMORY : error.status;
    }
  }
}

/**
 * The flags of a region for access flags of UCT. Local reads need none; devices write for peers only where they may write at all (ibv_reg_mr: remote writes
 * and atomic operations require local writes).
 */
export function accessFlags(access: number): number {
  const writes = MemAccess.LOCAL_WRITE | MemAccess.REMOTE_PUT | MemAccess.REMOTE_ATOMIC;
  return (
    AccessFlag.RELAXED_ORDERING |
    ((access & writes) === 0 ? 0 : AccessFlag.LOCAL_WRITE) |
    ((access & MemAccess.REMOTE_PUT) === 0 ? 0 : AccessFlag.REMOTE_WRITE) |
    ((access & MemAccess.REMOTE_GET) === 0 ? 0 : AccessFlag.REMOTE_READ) |
    ((access & MemAccess.REMOTE_ATOMIC) === 0 ? 0 : AccessFlag.REMOTE_ATOMIC)
  );
}

/** Whether a device has no free memory regions, or the process may not pin more memory. */
function isFull(error: unknown): boolean {
  return isSyscallError(error, Errno.ENOMEM) || isSyscallError(error, Errno.EAGAIN);
}

/** Memory regions of the same bytes, one with every device of a memory domain. */
export class IbRegions {
  /** Address of the first byte in work requests: its offset in its page. */
  readonly iova: number;
  /** By the index of the device. */
  readonly lkeys: Uint32Array;
  /** By the index of the device. */
  readonly rkeys: Uint32Array;
  readonly #regions: readonly MemoryRegion[];

  /**
   * Registers with every device, or with none.
   * @param registers functions that register with one device each
   * @throws the error of a device
   */
  constructor(iova: number, registers: readonly (() => MemoryRegion)[]) {
    const regions: MemoryRegion[] = [];
    try {
      for (const register of registers) regions.push(register());
    } catch (error) {
      for (const region of regions) region.close();
      throw error;
    }
    this.iova = iova;
    this.lkeys = Uint32Array.from(regions, ({ lkey }) => lkey);
    this.rkeys = Uint32Array.from(regions, ({ rkey }) => rkey);
    this.#regions = regions;
  }

  close(): void {
    for (const region of this.#regions) region.close();
  }
}
