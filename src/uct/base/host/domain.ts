/**
 * Base class of memory domains for host memory: registration costs nothing, and memory types are not detected. Also the attributes of interfaces that access
 * only host memory, on both sides.
 */

import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import { closedError, invalidParam, statusError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  type AmLimits,
  type Iface,
  type IfaceAttributes,
  type IfaceResource,
  type RmaLimits,
  ZCOPY_TRACKING_NS,
} from '../../api/iface.ts';
import type { MdMemory, RemoteKey } from '../../api/memory.ts';
import type {
  AllocateOptions,
  DmabufExport,
  MdAttributes,
  MemoryAdvice,
  MemoryAttributes,
  MemoryDomain,
  RegisterOptions,
  RegistrationSource,
} from '../../api/memory-domain.ts';
import { checkAddress, checkKeyTarget } from '../checks.ts';
import { type ClosableIface, OpenIfaces } from '../iface.ts';
import {
  checkAdvice,
  checkDeregister,
  type DeregisterOptions,
  HostMemory,
  hostBytesOf,
  IOV_MAX,
  prefault,
  registeredAccess,
} from './memory.ts';

export abstract class HostDomain implements MemoryDomain {
  abstract readonly attributes: MdAttributes;
  abstract readonly resources: readonly IfaceResource[];
  readonly #name: string;
  readonly #live: Set<HostMemory> = new Set();
  readonly #ifaces: OpenIfaces<ClosableIface> = new OpenIfaces();
  readonly #isPackable: (bytes: Uint8Array) => boolean;
  #generation = 0;
  #closed = false;

  /** @param isPackable whether registered memory can have keys */
  constructor(name: string, isPackable: (bytes: Uint8Array) => boolean) {
    this.#name = name;
    this.#isPackable = isPackable;
  }

  abstract memAlloc(byteLength: number, options: AllocateOptions): HostMemory;
  abstract rkeyUnpack(packed: Uint8Array): RemoteKey;
  /** Writes the key of `memory`, the same bytes every time. */
  protected abstract packKey(memory: HostMemory, target: Uint8Array, offset: number): void;
  /** Invalidates the keys of `memory`; no effect on memory without keys. */
  protected abstract revokeKey(memory: HostMemory): void;
  protected abstract makeIface(resource: IfaceResource): ClosableIface;

  memFree(memory: MdMemory): void {
    const own = this.#own(memory);
    if (own.allocation === undefined) throw invalidParam('memory', 'must come from memAlloc', own.address);
    if (own.inFlight > 0)
      throw statusError(Status.BUSY, `memFree: ${own.inFlight} transfers use the memory: wait for them first`);
    this.#retire(own);
    own.allocation.close();
  }

  memReg(source: RegistrationSource, options?: RegisterOptions): HostMemory {
    this.checkOpen();
    const access = registeredAccess(options);
    // Registering memory of this domain again gives another key.
    const known = source instanceof HostMemory ? this.#own(source) : undefined;
    const bytes = known?.bytes ?? hostBytesOf(source);
    const packable = known?.packable ?? this.#isPackable(bytes);
    return this.own({ bytes, allocation: undefined, packable, access });
  }

  memDereg(memory: MdMemory, options: DeregisterOptions = {}): void {
    const own = this.#own(memory);
    checkDeregister(options);
    if (own.allocation !== undefined) throw invalidParam('memory', 'must come from memReg', own.address);
    if (own.inFlight > 0 && options.force !== true) {
      throw statusError(Status.BUSY, `memDereg: ${own.inFlight} transfers use the memory: wait for them first`);
    }
    this.#retire(own);
  }

  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    const own = this.#own(memory);
    checkAdvice(own, advice, offset, byteLength);
    if (advice === 'will-need') prefault(own.location + offset, byteLength);
  }

  memQuery(address: bigint): MemoryAttributes {
    throw notDetected(this.#name, 'memQuery', address);
  }

  memExportDmabuf(address: bigint): DmabufExport {
    throw notDetected(this.#name, 'memExportDmabuf', address);
  }

  detectMemoryType(): undefined {
    return undefined;
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    const own = this.#own(memory);
    if (!own.packable) {
      throw unsupported(
        `mkeyPack: memory domain ${this.#name} can pack keys only for memory of memAlloc, not for registered memory`,
      );
    }
    checkKeyTarget(target, offset, this.attributes.rkeyPackedBytes);
    this.packKey(own, target, offset);
  }

  openIface(resource: IfaceResource): Iface {
    this.checkOpen();
    if (!this.resources.includes(resource)) {
      throw invalidParam('resource', 'must be an entry of `resources` of this memory domain', resource);
    }
    return this.#ifaces.add(this.makeIface(resource));
  }

  stats(): StatsNode {
    return statsNode('uct_md', this.#name, { memory_handles: this.#live.size });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#ifaces.close();
    for (const memory of this.#live) {
      this.#retire(memory);
      memory.allocation?.close();
    }
  }

  protected checkOpen(): void {
    if (this.#closed) throw closedError(`memory domain ${this.#name}`);
  }

  /** Adds memory to the tracker. */
  protected own(params: Pick<HostMemory, 'bytes' | 'allocation' | 'packable' | 'access'>): HostMemory {
    this.#generation += 1;
    const memory = new HostMemory({ ...params, mdName: this.#name, generation: this.#generation });
    this.#live.add(memory);
    return memory;
  }

  #own(memory: MdMemory): HostMemory {
    if (!(memory instanceof HostMemory) || memory.mdName !== this.#name) {
      throw invalidParam('memory', `must be of memory domain ${this.#name}`, memory);
    }
    if (!this.#live.has(memory)) {
      throw invalidParam('memory', 'has been freed, or belongs to another context', memory.address);
    }
    return memory;
  }

  #retire(memory: HostMemory): void {
    memory.live = false;
    this.revokeKey(memory);
    this.#live.delete(memory);
  }
}

/** The error for an unsupported operation of a memory domain. */
export function unsupported(message: string): UcxError {
  return new UcxError({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED, message });
}

/** The error for a query of memory in a memory domain that does not detect memory. Throws UcxError ERR_INVALID_PARAM for an invalid address. */
export function notDetected(domain: string, call: string, address: bigint): UcxError {
  checkAddress(address);
  const what = `memory domain ${domain} does not detect memory, so the type of the memory at 0x${address.toString(16)} is unknown`;
  return unsupported(`${call}: ${what}`);
}

/** Attributes that differ between these interfaces. */
export interface HostIfaceParams {
  readonly resource: IfaceResource;
  /** Bits of IfaceFlag. */
  readonly flags: number;
  /** Limit of short put and get; 0 if they are missing. */
  readonly shortBytesMax: number;
  readonly am: AmLimits;
  readonly latencyNs: number;
  readonly overheadNs: number;
  /** Undefined if zero-copy operations cost only their tracking. */
  readonly zcopyOverheadNs?: number;
  /** Bytes per second. */
  readonly bandwidth: number;
  readonly ifaceAddressBytes: number;
  readonly errorHandling: readonly string[];
}

export function hostIfaceAttributes(params: HostIfaceParams): IfaceAttributes {
  const { resource, flags, shortBytesMax, am, latencyNs, overheadNs, bandwidth, ifaceAddressBytes, errorHandling } =
    params;
  const limits: RmaLimits = {
    shortBytesMax,
    zcopyBytesMin: 0,
    zcopyBytesMax: Number.MAX_SAFE_INTEGER,
    iovMax: IOV_MAX,
  };
  const host = memoryTypeBit(MemoryType.HOST);
  return {
    resource,
    flags,
    put: limits,
    get: limits,
    am,
    localMemoryTypes: host,
    remoteMemoryTypes: host,
    requiredMemoryTypes: 0,
    reachesOtherDevices: false,
    performance: {
      latencyNs,
      overheadNs,
      zcopyOverheadNs: params.zcopyOverheadNs ?? ZCOPY_TRACKING_NS,
      hostToDevice: 0,
      deviceToHost: 0,
      deviceToDevice: 0,
      hostToHost: bandwidth,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes,
    endpointAddressBytes: 0,
    errorHandling,
  };
}
