/**
 * Memory domains and the components that open them: allocate, register, query, detect, pack keys.
 *
 * A memory domain (MD) provides one kind of memory access: the registration for a transport, and the keys for peers.
 */

import type { AnyConfigTable, ConfigValues } from '../../ucs/config/config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { MemoryTypeCache } from '../../ucs/memory/memory-type-cache.ts';
import type { RcacheCounters } from '../../ucs/rcache/options.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { ConnectionManager } from './connection-manager.ts';
import type { DeviceType, Iface, IfaceResource } from './iface.ts';
import type { ChannelTraffic, MdMemory, RemoteKey } from './memory.ts';

/** Capabilities of a memory domain as bits (UCT_MD_FLAG_*). A flag is set if and only if the operation works. */
export const MdFlag = {
  /** The memory domain allocates memory. */
  ALLOC: 0x1,
  /** The memory domain registers memory. */
  REG: 0x2,
  /** Zero-copy operations need a memory handle for local memory. */
  NEED_MEMH: 0x4,
  /** Remote access needs a remote key. */
  NEED_RKEY: 0x8,
  /** Handles can be invalidated, which invalidates their remote keys at once. */
  INVALIDATE: 0x10,
  /** Exports dma-bufs of memory that it has allocated. */
  EXPORT_DMABUF: 0x20,
  /** Peers on this node can map memory that it allocates, and access it by loads and stores (UCT_MD_FLAG_RKEY_PTR). */
  RKEY_PTR: 0x40,
  /** Accepts advice about registered and allocated memory. */
  ADVISE: 0x80,
  /** Registers memory by its dma-buf (UCT_MD_FLAG_REG_DMABUF). */
  REG_DMABUF: 0x100,
  /**
   * Host memory to register must have pages that the kernel can pin: transfers access pages, and do not use loads and stores of this process. Memory that a
   * driver maps, as for some dma-bufs, has none (VM_PFNMAP).
   */
  PINS_PAGES: 0x200,
  /**
   * Remote keys work without this process: peers can use them until the memory is deregistered, even after an endpoint was closed. Registering memory again
   * gives another key.
   */
  PUBLISHES_KEYS: 0x400,
} as const;

/**
 * Permitted uses of memory, as bits (UCT_MD_MEM_ACCESS_*). Transports whose device or frames check accesses enforce them for peers; the others leave the check
 * to the initiator.
 */
export const MemAccess = {
  /** Peers may put to it. */
  REMOTE_PUT: 0x20,
  /** Peers may get from it. */
  REMOTE_GET: 0x40,
  /** Peers may change words of it atomically. */
  REMOTE_ATOMIC: 0x80,
  /** Operations of this process may read it. */
  LOCAL_READ: 0x100,
  /** Operations of this process may write it. */
  LOCAL_WRITE: 0x200,
  /** All of these. */
  ALL: 0x3e0,
} as const;

/**
 * Intended use of memory (uct_mem_advice_t). `will-need`: soon, so its pages are backed and transfers of it are prepared now. `normal`: no particular use;
 * prepared state is kept as usual.
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
  /** Types that the transports of this MD access directly. */
  readonly accessMemoryTypes: number;
  /** Types that it detects from an address. */
  readonly detectMemoryTypes: number;
  /** Types that it exports as dma-bufs. */
  readonly dmabufMemoryTypes: number;
  /**
   * Types that it registers by a dma-buf, with {@link MdFlag.REG_DMABUF}; absent or 0 without. Memory of this process whose type is in `registerMemoryTypes`
   * is registered directly.
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

/** Host memory to register. The view keeps its ArrayBuffer alive while it is registered. */
export type HostBuffer = Uint8Array;

/**
 * Host memory of another library in this process, given by its address. The registration does not keep it mapped: its owner must report before it is
 * unmapped (see {@link MemoryDomain.hostUnmapped}).
 */
export interface HostRange {
  /** Address of the first byte. */
  readonly address: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The bytes. Accessing them after the memory was unmapped ends the process. */
  readonly bytes: Uint8Array;
}

/** Device memory of the application, given by its address: an allocation or a range of one. If its owner frees it, the registration is stale. */
export interface DeviceRange {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** Address of the first byte on the device. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** System device of the memory. */
  readonly sysDevice: number;
}

/** Memory that can be registered: host or device memory of others, or memory that another memory domain of the context has allocated. */
export type RegistrationSource = HostBuffer | HostRange | DeviceRange | MdMemory;

/** A device that exists but is not used. */
export interface LeftOut {
  /** Device name, such as `gaudi1`. */
  readonly name: string;
  /** The reason why it is not used. */
  readonly reason: string;
}

/** A cache of registrations for statistics and tests: plain numbers that change. */
export interface RegistrationCache {
  /** Name, such as `gaudi_copy`. */
  readonly name: string;
  /** The counters of ucs_rcache. */
  readonly counters: RcacheCounters;
  /** Number of registrations in the cache, in use or idle. */
  readonly numRegions: number;
  /** Total bytes of these registrations. */
  readonly totalSize: number;
}

/** Where the blocks of an arena of device memory are. */
export interface DeviceMemoryMap {
  /** Length of the arena in bytes. */
  readonly byteLength: number;
  /** Number of blocks. */
  readonly blocks: number;
  /** The arena as cells of equal length: the fraction of each that belongs to blocks, in percent; 0 only for a free cell, 100 only for a full one. */
  readonly usedPercent: readonly number[];
}

/** Device memory of a card. */
export interface DeviceMemoryMaps {
  /** Name of the card for users: `card 0 (accel2, 0000:33:00.0)`. */
  readonly label: string;
  /** Its module on the base board; undefined for other accelerators. */
  readonly moduleId?: number;
  /** Its arenas, in the order of their allocation. */
  readonly arenas: readonly DeviceMemoryMap[];
}

/** Attributes of memory from memQuery and detectMemoryType (uct_md_mem_attr). */
export interface MemoryAttributes {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device of the memory. */
  readonly sysDevice: number;
  /** Start address of the whole allocation. */
  readonly baseAddress: bigint;
  /** Length of the whole allocation in bytes. */
  readonly allocLength: number;
}

/** A dma-buf of a range of memory. */
export interface DmabufExport {
  /** A new descriptor, which the caller owns and closes. */
  readonly fd: number;
  /** Offset of the queried address in the dma-buf. */
  readonly offset: number;
  /** Closes the descriptor, once: in worker threads without the warning of Node.js that `fs.closeSync` prints there. */
  close(): void;
}

/** Memory to register by its dma-buf: memory of another device, of another process, or of a library. */
export interface DmabufRegion {
  /** The dma-buf. It must be open during the call; the memory domain duplicates it if it needs it longer. */
  readonly fd: number;
  /** Offset of the memory in the dma-buf. */
  readonly offset: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** Address that identifies the first byte; the memory is not accessible at it. Ignored by a memory domain that assigns another address. */
  readonly address: bigint;
  /** Kind of the memory behind the dma-buf. */
  readonly memoryType: MemoryType;
  /** The device that owns it or has to access it; the first suitable one if undefined. */
  readonly sysDevice: number | undefined;
  /** Bits of {@link MemAccess}. Default all. */
  readonly access?: number | undefined;
}

/** Options of a registration. */
export interface RegisterOptions {
  /** Bits of {@link MemAccess}. Default all. */
  readonly access?: number | undefined;
}

/** Options of an allocation. */
export interface AllocateOptions extends RegisterOptions {
  /** Kind of memory to allocate. */
  readonly memoryType: MemoryType;
  /** System device for the allocation; the first suitable one if undefined. */
  readonly sysDevice?: number | undefined;
  /** Requests memory that can be exported without exposing other allocations. */
  readonly shared?: boolean | undefined;
}

/** An open memory domain. Its calls belong to the control path and throw UcxError; the data path does not use them. */
export interface MemoryDomain {
  /** Attributes of the memory domain, which are constant. */
  readonly attributes: MdAttributes;
  /**
   * Allocates memory.
   * @param byteLength positive integer up to `allocateBytesMax`
   * @throws UcxError NO_MEMORY, INVALID_PARAM, UNSUPPORTED
   */
  memAlloc(byteLength: number, options: AllocateOptions): MdMemory;
  /** Frees memory of memAlloc; BUSY while transfers use it, INVALID_PARAM if it was freed before. */
  memFree(memory: MdMemory): void;
  /**
   * Registers host memory, or memory that another memory domain of this context allocated, of the types in `registerMemoryTypes`.
   * Two registrations of the same bytes share the mapping, if both have {@link MemAccess.LOCAL_WRITE}.
   * @throws UcxError INVALID_PARAM for a resizable, detached or empty buffer, or memory of a type that this MD does not register; NO_MEMORY; INVALID_ADDR
   * for a range of addresses that is not mapped
   */
  memReg(source: RegistrationSource, options?: RegisterOptions): MdMemory;
  /**
   * Registers memory of a type in `registerDmabufMemoryTypes` by its dma-buf (uct_md_mem_reg_v2 with UCT_MD_MEM_REG_FIELD_DMABUF_FD and _OFFSET); absent
   * without {@link MdFlag.REG_DMABUF}. memDereg ends the registration. The caller keeps the descriptor, and may close it afterwards.
   * @throws UcxError UNSUPPORTED if device or driver do not support it, also with the flag of the memory domain; INVALID_PARAM for a descriptor that is
   * closed or not a dma-buf of such memory, and a range outside the dma-buf; NO_MEMORY
   */
  memRegDmabuf?(region: DmabufRegion): MdMemory;
  /**
   * Ends one memReg. INVALID_PARAM for a second call; BUSY if transfers in flight would lose their memory.
   * @param options.invalidate the memory will be unmapped: no cached registration of it may remain, and no transfer may access it
   * @param options.force never returns BUSY: the transfers in flight keep their memory alive themselves
   */
  memDereg(
    memory: MdMemory,
    options?: { readonly invalidate?: boolean | undefined; readonly force?: boolean | undefined },
  ): void;
  /**
   * Advises on the intended use of a range of registered or allocated memory.
   * @throws UcxError UNSUPPORTED without {@link MdFlag.ADVISE}; INVALID_PARAM for memory of another MD or a range outside it; errors of preparing the memory
   */
  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void;
  /**
   * Reports that host memory was unmapped, or will be: cached state about it is not used again. May be called inside any callback; the state is released
   * later. Absent if the MD caches nothing.
   */
  hostUnmapped?(address: number, byteLength: number): void;
  /** The registration caches of this MD; absent if it has none. */
  readonly caches?: readonly RegistrationCache[];
  /**
   * Describes the allocation that contains `[address, address + byteLength)`.
   * @param sysDevice the device, if several have memory at that address
   * @throws UcxError INVALID_ADDR if no allocation of this MD contains the range, or several do
   */
  memQuery(address: bigint, byteLength: number, sysDevice?: number): MemoryAttributes;
  /**
   * Exports `[address, address + byteLength)` as a dma-buf: every call creates a descriptor; the allocation is exported once.
   * @throws UcxError like {@link memQuery}; UNSUPPORTED if the card cannot export
   */
  memExportDmabuf(address: bigint, byteLength: number, sysDevice?: number): DmabufExport;
  /** Like memQuery, but returns undefined for memory of other MDs. */
  detectMemoryType(address: bigint, byteLength: number, sysDevice?: number): MemoryAttributes | undefined;
  /** Packs the remote key of `memory` into `target`: `rkeyPackedBytes` bytes at `offset`. */
  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void;
  /**
   * Unpacks a remote key.
   * @throws UcxError INVALID_PARAM if it is malformed, INVALID_ADDR if it is stale, revoked or forged
   */
  rkeyUnpack(packed: Uint8Array): RemoteKey;
  /** The transport devices of this MD. */
  readonly resources: readonly IfaceResource[];
  /** Opens the interface of one resource. */
  openIface(resource: IfaceResource): Iface;
  /** Statistics and current state: a node of class `uct_md`. */
  stats(): StatsNode;
  /** The cards by their names, and where their blocks of memory are; absent if the MD allocates none. Cells are bounded. */
  deviceMemoryMaps?(): ReadonlyMap<string, DeviceMemoryMaps>;
  /** The channels between cards; absent if it has none. */
  readonly channels?: readonly ChannelTraffic[];
  /** Devices of the MD that could not be opened, such as cards in use by others, or have become unusable since; absent if it has no devices. */
  readonly leftOut?: readonly LeftOut[];
  /**
   * Resolves when all transfers of this memory domain have ended, except those that {@link close} ends; never rejects. Called before {@link close};
   * absent if {@link close} ends all transfers.
   */
  drain?(): Promise<void>;
  /** Releases all resources. Idempotent. Interfaces must be closed first. */
  close(): void;
}

/** Services that a context provides to its components. */
export interface ComponentServices {
  /** Destination of log messages. */
  readonly log: Log;
  /** Source of time. */
  readonly clock: Clock;
  /** The configuration of the program, from which the component reads its own table. */
  readonly config: ConfigValues;
  /** Whether the program selects a device: a component opens no others. Absent if all are selected. */
  readonly isDeviceAllowed?: ((type: DeviceType, device: string) => boolean) | undefined;
  /** Known memory other than host memory. Its allocator adds it before its address is used. */
  readonly memoryTypes?: MemoryTypeCache | undefined;
  /** Called once for a device whose memory is lost while it is open, such as a card that is reset; uses of the memory fail from then on. */
  readonly onDeviceLost?: ((device: LostDevice) => void) | undefined;
}

/** A device whose memory is lost. */
export interface LostDevice {
  /** Name of the device for users. */
  readonly name: string;
  /** System device of the memory. */
  readonly sysDevice: number;
  /** The error for uses of the memory. */
  readonly error: UcxError;
}

/** A family of memory domains and transports that is registered as a unit. */
export interface Component {
  /** Name of the component. */
  readonly name: string;
  /** The transports of its memory domain, with the names by which users select them. */
  readonly transports: readonly { readonly name: string; readonly aliases: readonly string[] }[];
  /** The configuration table of the component. */
  readonly configTable: AnyConfigTable | undefined;
  /** Whether other transports can replace it: missing devices are then not an error if the program has selected its transports together with others. */
  readonly isReplaceable?: boolean;
  /** Whether missing devices cause a warning even if the program has not selected its transports. */
  readonly isAbsenceWarned?: boolean;
  /** Statuses of openMd, besides NO_DEVICE, with which a context is created without the component: its devices exist but cannot be used now. */
  readonly unusableStatuses?: readonly Status[];
  /**
   * Whether the program requires its devices by a setting other than UCX_TLS: without them no context is created. By default it is created without the
   * component.
   */
  readonly isRequired?: boolean;
  /**
   * Opens the memory domain of this machine.
   * @throws UcxError NO_DEVICE if the machine has no devices for it; one of {@link unusableStatuses}; other errors, with which no context is created
   */
  openMd(services: ComponentServices): MemoryDomain;
  /** Creates a connection manager; absent if the component has none (UCT_MD_FLAG_SOCKADDR). */
  openConnectionManager?(services: ComponentServices): ConnectionManager;
}
