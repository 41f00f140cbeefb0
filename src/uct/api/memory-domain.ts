/**
 * Memory domains and the components that open them: allocate, register, query, detect, pack keys. Types and capability records only.
 *
 * A memory domain (MD) owns a kind of memory access: the registration that a transport needs and the keys that peers use.
 */

import type { AnyConfigTable, Config } from '../../ucs/config/config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { MemoryTypeCache } from '../../ucs/memory/memory-type-cache.ts';
import type { RcacheCounters } from '../../ucs/rcache/options.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { ConnectionManager } from './connection-manager.ts';
import type { DeviceType, Iface, IfaceResource } from './iface.ts';
import type { MdMemory, RemoteKey } from './memory.ts';

/** What a memory domain can do, as bits (UCT_MD_FLAG_*). A flag that is set works, an operation that works has its flag. */
export const MdFlag = {
  /** The memory domain allocates memory. */
  ALLOC: 0x1,
  /** The memory domain registers memory. */
  REG: 0x2,
  /** Zero-copy operations need a memory handle for local memory. */
  NEED_MEMH: 0x4,
  /** Remote access needs a remote key. */
  NEED_RKEY: 0x8,
  /** Handles can be invalidated: remote keys of them stop working at once. */
  INVALIDATE: 0x10,
  /** Exports dma-bufs of memory that it allocated. */
  EXPORT_DMABUF: 0x20,
  /** Peers on this node can map memory that it allocates, and load and store it (UCT_MD_FLAG_RKEY_PTR). */
  RKEY_PTR: 0x40,
  /** Takes advice about registered and allocated memory. */
  ADVISE: 0x80,
  /** Registers memory by a dma-buf of it (UCT_MD_FLAG_REG_DMABUF). */
  REG_DMABUF: 0x100,
  /**
   * Host memory that it registers must have pages that the kernel can pin: transfers go by page, and not by loads and stores of this process. Memory that a
   * driver maps, as it does with some dma-bufs, has none (VM_PFNMAP).
   */
  PINS_PAGES: 0x200,
} as const;

/**
 * How memory is going to be used (uct_mem_advice_t). `will-need`: soon; its pages are made present, and what transfers need of it is prepared now.
 * `normal`: nothing special; what was prepared stays as long as it would anyway.
 */
export type MemoryAdvice = 'normal' | 'will-need';

/** A cost that grows linearly with the size: `overheadNs + byteLength * perByteNs`. */
export interface LinearCost {
  /** Constant part in nanoseconds. */
  readonly overheadNs: number;
  /** Nanoseconds per byte. */
  readonly perByteNs: number;
}

/** Attributes of a memory domain (uct_md_attr). Memory types are masks with bit n for type n. */
export interface MdAttributes {
  /** Name of the memory domain. */
  readonly name: string;
  /** Name of the component that opened it. */
  readonly component: string;
  /** Bits of {@link MdFlag}. */
  readonly flags: number;
  /** Types that it registers. */
  readonly registerMemoryTypes: number;
  /** Types that it allocates. */
  readonly allocateMemoryTypes: number;
  /** Types that the transports of this MD reach by themselves. */
  readonly accessMemoryTypes: number;
  /** Types that it detects from an address. */
  readonly detectMemoryTypes: number;
  /** Types that it exports as dma-bufs. */
  readonly dmabufMemoryTypes: number;
  /**
   * Types that it registers by a dma-buf: with {@link MdFlag.REG_DMABUF}, absent or 0 without. Memory of this process whose type is in
   * `registerMemoryTypes` is registered directly.
   */
  readonly registerDmabufMemoryTypes?: number;
  /** Types whose registrations are cached. */
  readonly cacheMemoryTypes: number;
  /** Estimated cost of a registration. */
  readonly registerCost: LinearCost;
  /** Bytes of a packed remote key. */
  readonly rkeyPackedBytes: number;
  /** Longest allocation in bytes. */
  readonly allocateBytesMax: number;
  /** Longest registration in bytes. */
  readonly registerBytesMax: number;
}

/** Host memory to register: the view itself keeps its ArrayBuffer alive as long as it is registered. */
export type HostBuffer = Uint8Array;

/**
 * Host memory that another library of this process owns, known by its address. Nothing keeps it alive: its owner must report
 * before it is unmapped (see {@link MemoryDomain.hostUnmapped}).
 */
export interface HostRange {
  /** Address of the first byte. */
  readonly address: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The bytes. Touching them after the memory was unmapped ends the process. */
  readonly bytes: Uint8Array;
}

/**
 * Device memory that the application owns, identified by its address, whole or a part of an allocation. Its owner may free it: the registration is stale from
 * then on.
 */
export interface DeviceRange {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** Address of the first byte on the device. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** System device that has the memory. */
  readonly sysDevice: number;
}

/** What can be registered: memory of others in each form, or memory that another memory domain of the context allocated. */
export type RegistrationSource = HostBuffer | HostRange | DeviceRange | MdMemory;

/** A device that is there and is not used. */
export interface LeftOut {
  /** Such as `gaudi1`. */
  readonly name: string;
  /** Why it is not used. */
  readonly reason: string;
}

/** A cache of registrations, as statistics and tests see it: plain numbers that change. */
export interface RegistrationCache {
  /** Such as `gaudi_copy`. */
  readonly name: string;
  /** The counters of ucs_rcache. */
  readonly counters: RcacheCounters;
  /** Registrations that are kept, in use or not. */
  readonly numRegions: number;
  /** Bytes of them. */
  readonly totalSize: number;
}

/** What memQuery and detect tell about an address (uct_md_mem_attr). */
export interface MemoryAttributes {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device that has the memory. */
  readonly sysDevice: number;
  /** Start and length of the whole allocation. */
  readonly baseAddress: bigint;
  /** Length of the whole allocation in bytes. */
  readonly allocLength: number;
}

/** A dma-buf of a piece of memory. */
export interface DmabufExport {
  /** A new descriptor that belongs to the caller, who closes it. */
  readonly fd: number;
  /** Byte of the dma-buf at which the queried address lies. */
  readonly offset: number;
}

/** Memory as it is registered by a dma-buf of it: memory of another device, of another process, or of a library. */
export interface DmabufRegion {
  /** The dma-buf, for the time of the call: code that needs it longer makes a duplicate. */
  readonly fd: number;
  /** Byte of the dma-buf at which the memory begins. */
  readonly offset: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** Address by which the first byte is named; it is not reachable there. A memory domain that gives the memory an address of its own does without. */
  readonly address: bigint;
  /** Kind of the memory behind the dma-buf. */
  readonly memoryType: MemoryType;
  /** The device that it belongs to, or that is to reach it; the first suitable one when undefined. */
  readonly sysDevice: number | undefined;
}

/** Options of an allocation. */
export interface AllocateOptions {
  /** Kind of memory to allocate. */
  readonly memoryType: MemoryType;
  /** System device that shall hold it; the first suitable one when undefined. */
  readonly sysDevice?: number;
  /** Asks for memory that can be exported without exposing neighbours. */
  readonly shared?: boolean;
}

/** An open memory domain. Control-path calls throw UcxError; none is used per transfer. */
export interface MemoryDomain {
  /** Attributes of the memory domain; constant. */
  readonly attributes: MdAttributes;
  /**
   * Allocates memory.
   * @param byteLength positive integer up to `allocateBytesMax`
   * @throws UcxError NO_MEMORY, INVALID_PARAM, UNSUPPORTED
   */
  memAlloc(byteLength: number, options: AllocateOptions): MdMemory;
  /** Frees what memAlloc returned; refused with BUSY while transfers use it. A second free is INVALID_PARAM. */
  memFree(memory: MdMemory): void;
  /**
   * Registers host memory, or memory that another memory domain of this context allocated, of the types in `registerMemoryTypes`.
   * Registering the same bytes again shares the mapping.
   * @throws UcxError INVALID_PARAM for a resizable, detached or empty buffer, or memory of a type that is not registered here; NO_MEMORY;
   *   INVALID_ADDR for a range of addresses that is not mapped
   */
  memReg(source: RegistrationSource): MdMemory;
  /**
   * Registers memory of a type in `registerDmabufMemoryTypes` by its dma-buf (uct_md_mem_reg_v2 with UCT_MD_MEM_REG_FIELD_DMABUF_FD and _OFFSET); absent
   * without {@link MdFlag.REG_DMABUF}. memDereg undoes it. The descriptor stays the caller's, who may close it afterwards.
   * @throws UcxError UNSUPPORTED where device or driver cannot, whatever the flag says of the memory domain; INVALID_PARAM for what is no dma-buf of
   *   such memory, a closed descriptor and a range that the dma-buf does not have; NO_MEMORY
   */
  memRegDmabuf?(region: DmabufRegion): MdMemory;
  /**
   * Undoes one memReg. A second call is INVALID_PARAM; BUSY where transfers on their way would lose their memory.
   * @param options.invalidate the memory itself goes away: no cached registration of it may stay, and no transfer may touch it
   * @param options.force never refuse: the transfers on their way keep their memory alive themselves
   */
  memDereg(memory: MdMemory, options?: { readonly invalidate?: boolean; readonly force?: boolean }): void;
  /**
   * Says how a range of registered or allocated memory is going to be used.
   * @throws UcxError UNSUPPORTED without {@link MdFlag.ADVISE}; INVALID_PARAM for memory that is not of this MD or a range outside it; what
   *   preparing the memory throws
   */
  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void;
  /**
   * Takes the report that host memory was unmapped, or is about to be: nothing that is kept about it is used again. May be called from
   * inside any callback; what is kept is given back later. Absent where nothing is kept.
   */
  hostUnmapped?(address: number, byteLength: number): void;
  /** The caches of registrations that are this MD's; absent where it has none. */
  readonly caches?: readonly RegistrationCache[];
  /**
   * Describes the allocation that contains `[address, address + byteLength)`.
   * @param sysDevice the device, when several have memory at that address
   * @throws UcxError INVALID_ADDR when no allocation of this MD contains the range, or when several do
   */
  memQuery(address: bigint, byteLength: number, sysDevice?: number): MemoryAttributes;
  /**
   * A dma-buf of `[address, address + byteLength)`: every call makes a descriptor of its own, and exports the allocation once.
   * @throws UcxError like {@link memQuery}; UNSUPPORTED where the card cannot export
   */
  memExportDmabuf(address: bigint, byteLength: number, sysDevice?: number): DmabufExport;
  /** Like memQuery, but undefined for memory that is not of this MD. */
  detectMemoryType(address: bigint, byteLength: number, sysDevice?: number): MemoryAttributes | undefined;
  /** Writes the remote key of `memory`: `rkeyPackedBytes` at `offset` of `target`. */
  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void;
  /**
   * Reads a remote key.
   * @throws UcxError INVALID_PARAM for a malformed one, INVALID_ADDR for one that is stale, revoked or forged
   */
  rkeyUnpack(packed: Uint8Array): RemoteKey;
  /** The transport devices of this MD. */
  readonly resources: readonly IfaceResource[];
  /** Opens the interface of one resource. */
  openIface(resource: IfaceResource): Iface;
  /** What the memory domain has done and holds: a node of class `uct_md`. */
  stats(): StatsNode;
  /** Devices that it would serve and that did not open, such as cards in use by others; absent where it has no devices. */
  readonly leftOut?: readonly LeftOut[];
  /**
   * Resolves, and never rejects, when no transfer of this memory domain is on its way that closing does not end by itself. Called before {@link close}; absent
   * where there is none.
   */
  drain?(): Promise<void>;
  /** Releases everything. Idempotent; interfaces are closed first. */
  close(): void;
}

/** What a component gets from its context. */
export interface ComponentServices {
  /** Receives the messages. */
  readonly log: Log;
  /** Source of time. */
  readonly clock: Clock;
  /** The configuration of the program; the component takes its own table out of it. */
  readonly config: Config;
  /** Whether the program wants a device: a component opens no other one. Absent where it wants all. */
  readonly isDeviceAllowed?: (type: DeviceType, device: string) => boolean;
  /** What is known about memory that is not host memory: the allocator of such memory enters it before its address is used. */
  readonly memoryTypes?: MemoryTypeCache;
}

/** A family of memory domains and transports: the unit that is plugged in. */
export interface Component {
  /** Name of the component. */
  readonly name: string;
  /** The transports that its memory domain may have, with the names under which users choose them. */
  readonly transports: readonly { readonly name: string; readonly aliases: readonly string[] }[];
  /** The component's fields of the configuration. */
  readonly configTable: AnyConfigTable | undefined;
  /**
   * What the absence of its device means, where users have named its transports beside others: undefined for a failure, as nothing else does
   * its work; otherwise others do, and there is a warning: `named` for one in that case only, `always` for one on every machine.
   */
  readonly absenceWarning?: 'named' | 'always';
  /**
   * Opens the memory domain of this machine.
   * @throws UcxError NO_DEVICE where the machine has nothing for it, and whatever makes its devices unusable
   */
  openMd(services: ComponentServices): MemoryDomain;
  /** Makes a connection manager; absent where the component has none (UCT_MD_FLAG_SOCKADDR). */
  openConnectionManager?(services: ComponentServices): ConnectionManager;
}
