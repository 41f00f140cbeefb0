/**
 * The memory regions of a memory domain. Those for its own transfers are cached, and permit peers nothing; memory that its transfers only read has
 * regions of its own instead, because the cached ones permit writing. A key for peers has regions of its own, of its bytes alone, which end with it, so
 * that peers cannot access memory that the program has deregistered.
 */

import { addressOf, Errno, isSyscallError, PAGE_SIZE, type SyscallError } from '../../../sys/index.ts';
import type { Rcache } from '../../../ucs/rcache/rcache.ts';
import type { RcacheRegion } from '../../../ucs/rcache/region.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { AccessFlag } from '../../../verbs/abi.ts';
import type { MemoryRegion } from '../../../verbs/port.ts';
import {
  type ComponentServices,
  type LinearCost,
  MemAccess,
  type RegistrationSource,
} from '../../api/memory-domain.ts';
import { hostBytesOf, openHostCache, RawRange } from '../../base/host/memory.ts';
import { IB_CONFIG_TABLE, type IbConfig } from './config.ts';
import type { IbDevice } from './ib-device.ts';
import { IB_NAME } from './ib-memory.ts';
import { IbRegions } from './ib-regions.ts';

/** Access to cached regions: no peer has a key of them. */
const LOCAL: number = accessFlags(MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE);
/** Estimates of UCX: finding a registration (RCACHE_OVERHEAD=auto), and making one. */
const CACHED_NS = 60;
const REGISTER_NS = 16_000;
const REGISTER_NS_PER_BYTE = 0.06;

/** The registrations. */
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
   * Registers host memory with access of its own, uncached.
   * @param access bits of MemAccess
   * @throws SyscallError see {@link acquire}
   */
  expose(bytes: Uint8Array, access: number): IbRegions {
    const address = addressOf(bytes);
    const { byteLength } = bytes;
    const iova = address % PAGE_SIZE;
    return this.onDevices(iova, ({ pd }) => pd.regMr(address, byteLength, iova, accessFlags(access)));
  }

  /** Registers with every device. If one has no room, idle registrations are evicted first. */
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

/** Whether a device has no room for a memory region, or the process may not pin more. */
function isFull(error: unknown): boolean {
  return isSyscallError(error, Errno.ENOMEM) || isSyscallError(error, Errno.EAGAIN);
}
