/**
 * ASIC profile: the constants of one Gaudi generation from the driver's property code, as one record, and two functions that compute the DRAM size and
 * base that a driver reports. For a card with disabled units (binning), other firmware
 * or a secured variant, the code changes a copy of the record.
 *
 * The records are in asic-profile-gaudi.ts, -gaudi2.ts and -gaudi3.ts. All addresses are device addresses, as bigint; sizes in bytes.
 */

import type { HlServerType } from '../ioctl/device-status.ts';
import type { PdmaChannels } from './pdma-channels.ts';
import type { QueueEntry } from './queues.ts';

/** The generations. */
export type AsicName = 'gaudi' | 'gaudi2' | 'gaudi3';

/** A range of addresses; `end` is the first address after it. */
export interface AddressRange {
  readonly start: bigint;
  readonly end: bigint;
}

/** Capabilities of the driver of a generation. Without a capability, its calls fail with the errno of the driver. */
export interface AsicCapabilities {
  /** Queues that accept the jobs of command submissions. Without them, a submission with jobs is EINVAL, and programs use {@link AsicProfile.channels}. */
  readonly submits: boolean;
  /** STAGED_SUBMISSION flags. */
  readonly staged: boolean;
  /** Waits with MULTI_CS. */
  readonly multiCs: boolean;
  /** SIGNAL and WAIT submissions. */
  readonly syncStream: boolean;
  /** CB CREATE with MAP. */
  readonly mappedKernelCb: boolean;
  /** A compute reset at every close. */
  readonly resetOnClose: boolean;
  /** Queues take user command buffers (USER_ALLOC_CB) only. */
  readonly userCbOnly: boolean;
  /** Device memory has virtual addresses. */
  readonly dramMmu: boolean;
  /** MEMORY MAP_BLOCK. */
  readonly mapBlock: boolean;
  /** Waits with INTERRUPT. */
  readonly userInterrupts: boolean;
  /** CS with ENGINE_CORE_COMMAND and ENGINES_COMMAND. */
  readonly engineCommands: boolean;
  /** MEMORY MAP of host memory without pinning it (on-demand paging). */
  readonly onDemandPaging: boolean;
  /** Numbers of hardware events (INFO HW_EVENTS and HW_EVENTS_AGGREGATE). */
  readonly eventStatistics: boolean;
  /** MEMORY REG_DMABUF_FD: the header of the vendor has it, and its public driver for gaudi3 does not. */
  readonly importDmabuf: boolean;
  /** Only the vendor's driver supports the generation. Its INFO and its close differ from Linux 6.12. */
  readonly vendorDriver: boolean;
  /** Number of requests that FW_GENERIC_REQ passes to the firmware. */
  readonly firmwareRequests: number;
  /** The vendor's driver reports the masks of the NIC ports in HW_IP_INFO. */
  readonly nicPortMasks: boolean;
}

/** Device memory (HBM). */
export interface DramProfile {
  /** First physical address. */
  readonly base: bigint;
  readonly size: bigint;
  /** Page size of an allocation that does not choose one. */
  readonly pageSize: bigint;
  /** Page sizes that an allocation may choose, powers of two; empty if the driver ignores the choice. */
  readonly pageSizes: readonly bigint[];
  /** Bytes from `base` that belong to driver and firmware. */
  readonly reservedSize: bigint;
  /** Which base INFO reports: the first physical byte of users, or the start of the addresses of the device MMU, which follow the physical ones. */
  readonly reportedBase: 'physicalUserBase' | 'dmmuStart';
  /** End of the address space of the device MMU; undefined without one. The driver uses only {@link dmmuRange} of it. */
  readonly dmmuEnd: bigint | undefined;
  /** Page size of the device MMU. Every page of device memory occupies a whole one. */
  readonly dmmuPageSize: bigint;
}

/** Ranges from which the driver allocates virtual addresses. */
export interface VaProfile {
  /** Host memory in 4 KiB pages. */
  readonly host: AddressRange;
  /** Host memory in 2 MiB pages; equal to `host` without a separate range. */
  readonly hostHuge: AddressRange;
  /** Ranges within those above that the driver allocates only for a hint. */
  readonly reservedHost: readonly AddressRange[];
  /** Ranges within the device memory range that the driver allocates only for a hint. */
  readonly reservedDram: readonly AddressRange[];
  /** Bits of a hint that select device memory in the device MMU. */
  readonly dramHintMask: bigint;
}

/** One block of sync objects and monitors. Register offsets are relative to the configuration base. */
export interface SyncManagerProfile {
  readonly name: string;
  /** `dcore_id` of INFO SYNC_MANAGER; gaudi3 calls it hdcore. */
  readonly dcore: number;
  /** Number among the managers of the dcore; the completion queues belong to the first one, and INFO reports that one. */
  readonly group: number;
  readonly sobObj: number;
  readonly monPayAddrL: number;
  readonly monPayAddrH: number;
  readonly monPayData: number;
  readonly monArm: number;
  /** 0 where the ASIC has none. */
  readonly monConfig: number;
  readonly monStatus: number;
  /** First of the registers whose stores append to a completion queue; 0 for none. */
  readonly cqDirect: number;
  /** First sync object and monitor that the user owns; 0 on every block that INFO does not restrict. */
  readonly firstUserSob: number;
  readonly firstUserMonitor: number;
  /** First completion queue of the user; {@link NO_USER_RESOURCE} for none. */
  readonly firstUserCq: number;
}

/** Registers of the completion queues of a sync manager, relative to the configuration base; 4 bytes per queue. */
export interface CompletionQueueRegisters {
  readonly baseAddrL: number;
  readonly baseAddrH: number;
  readonly sizeLog2: number;
  readonly pi: number;
  readonly lbwAddrL: number;
  readonly lbwAddrH: number;
  readonly lbwData: number;
  readonly incMode: number;
  /** Whether a store to {@link SyncManagerProfile.cqDirect} sends the message of the queue; 0 if the ASIC has no such register. */
  readonly directLbwEn: number;
}

/** Bit fields of a monitor that differ between generations. */
export interface MonitorFields {
  /** MON_CONFIG: the number of writes minus 1. */
  readonly writesShift: number;
  readonly writesMask: number;
  /** A write to a sync object: sets it to 0; 0 if the ASIC has no such bit. */
  readonly zeroCounter: number;
  /** MON_CONFIG: sets the compared sync objects to 0 when the monitor fires; 0 if the ASIC has no such bit. */
  readonly autoZero: number;
  /** MON_STATUS of a monitor that is not armed. */
  readonly resetStatus: number;
  /** Whether the three monitors behind a long one are only its parts: they do not fire, and those whose MON_ARM is 0 are not compared. */
  readonly longHasParts: boolean;
}

/** Sync objects, monitors and completion queues. */
export interface SyncProfile {
  /** The managers by dcore. For a `dcore_id` below HL_MAX_DCORES without a manager, INFO returns 0, 0 and the first completion queue of the last manager. */
  readonly managers: readonly SyncManagerProfile[];
  readonly sobsPerManager: number;
  readonly monitorsPerManager: number;
  /** Of a dcore; 0 where the ASIC has none. */
  readonly cqsPerManager: number;
  readonly monitorFields: MonitorFields;
  /** Registers of the first manager; undefined if the ASIC has no completion queues. Other managers follow at multiples of `managerStride`. */
  readonly cqRegisters: CompletionQueueRegisters | undefined;
  /** Distance in bytes of the register blocks of one dcore to those of the next one. */
  readonly managerStride: number;
}

/** A QMAN's fence registers: writing v to `fence0 + 4 * stream` adds v to counter 0 of the stream; stream 4 is the lower CP. */
export interface FenceProfile {
  /** Engine as the driver names it, such as `DMA0` or `DCORE1_EDMA0`. */
  readonly qman: string;
  /** Id of the queue of stream 0; -1 when no queue id leads there. */
  readonly firstQueue: number;
  /** Offset of CP_FENCE0_RDATA_0 from the configuration base. */
  readonly fence0: number;
}

/** Interrupts of the user. */
export interface InterruptProfile {
  /** First user interrupt; 0xFFFF for none. */
  readonly firstUserInterrupt: number;
  readonly userInterruptCount: number;
  /** The interrupt that a TPC raises by an assertion; 0xFFFF for none. */
  readonly tpcInterrupt: number;
  /** Vector of the first decoder; the interrupt id of a decoder is its number. */
  readonly firstDecoderVector: number;
  /** Device address of the MSI-X doorbell: writing n raises interrupt n. Undefined if user code cannot write to it. */
  readonly msixDoorbell: bigint | undefined;
  /** Address in the host range that the driver maps to the doorbell, for engines that reach only virtual addresses; undefined for none. */
  readonly virtualDoorbell: bigint | undefined;
}

/** Numbers of engines. Masks have a bit for each engine that works on an unbinned card. */
export interface EngineProfile {
  readonly pdmaCount: number;
  readonly edmaCount: number;
  readonly edmaMask: number;
  readonly tpcCount: number;
  readonly tpcMask: bigint;
  readonly mmeCount: number;
  readonly mmeMasterSlaveMode: number;
  readonly nicCount: number;
  /** Ports by their use in the standard server of the generation. */
  readonly nicScaleUpPorts: number;
  readonly nicScaleOutPorts: number;
  /** Mask of the scale-out ports of that server; from the vendor's network configuration guide, in no kernel header. */
  readonly nicScaleOutMask: bigint;
  /** Speed of one port. */
  readonly nicGbitPerSecond: number;
  /** Decoders with an interrupt id, including those that are never enabled. */
  readonly decoderCount: number;
  readonly decoderMask: number;
  readonly rotatorMask: number;
  /** MMEs and scheduler ARCs as INFO reports them; 0 where its answer has no such field. */
  readonly mmeMask: number;
  readonly schedulerArcMask: number;
  /** Cores that an engine command can name; 0 without engine commands. */
  readonly coreCount: number;
  /** Engine ids: those of masks and records of INFO; 0 without engine commands. */
  readonly idCount: number;
  /** First id and number of the engines that ENGINES_COMMAND can name beside those of {@link AsicProfile.queues}. */
  readonly stallable: readonly IdRange[];
}

/** A range of ids. */
export interface IdRange {
  readonly first: number;
  readonly count: number;
}

/** The constants of one generation. */
export interface AsicProfile {
  readonly name: AsicName;
  /** PCI vendor id is always {@link PCI_VENDOR_HABANALABS}. */
  readonly pciDeviceId: number;
  /** Other PCI device ids of the generation: secured parts and variants. */
  readonly otherPciDeviceIds: readonly number[];
  /** Names in sysfs (`device_type`) of the PCI device ids that are known here. */
  readonly deviceTypes: Readonly<Record<number, string>>;
  readonly cardName: string;
  /** One of HL_SERVER_TYPE: the standard server of the generation. */
  readonly serverType: HlServerType;
  /** Number of PLLs; their indices start at 0. */
  readonly pllCount: number;
  /** Dies, each of which has a clock. */
  readonly dieCount: number;
  /** On-die memory as the user sees it, without the range that the driver keeps. */
  readonly sram: AddressRange;
  /** Whether the driver uses the SRAM as a cache: INFO reports a size of 0, and users have none. */
  readonly sramIsCache: boolean;
  /** Configuration space: the registers. */
  readonly cfg: AddressRange;
  readonly dram: DramProfile;
  readonly va: VaProfile;
  /** The queues by id; empty on gaudi3. */
  readonly queues: readonly QueueEntry[];
  /** The PDMA channels that users program; undefined where the driver has queues. */
  readonly channels: PdmaChannels | undefined;
  /** Submissions in flight; a power of two. 0 on gaudi3. */
  readonly maxPendingCs: number;
  readonly numOfEvents: number;
  readonly sync: SyncProfile;
  readonly fences: readonly FenceProfile[];
  /** Distance of CP_FENCE1_RDATA_0 to CP_FENCE3_RDATA_0 from CP_FENCE0_RDATA_0; entry 0 is 0. */
  readonly fenceStrides: readonly number[];
  /** Distance of a QMAN's ARB_CFG_0 from its CP_FENCE0_RDATA_0. */
  readonly arbCfgFromFence0: number;
  /** Offsets from the configuration base that the CP_MSG_BASE registers of the DMA queues hold, for MSG_SHORT. */
  readonly cpMsgBase: readonly number[];
  readonly interrupts: InterruptProfile;
  readonly engines: EngineProfile;
  /** The blocks with addresses in public headers; a driver may know more. */
  readonly userBlocks: readonly UserBlock[];
  /** Seconds after which a submission has timed out. */
  readonly defaultCsTimeoutSeconds: number;
  readonly capabilities: AsicCapabilities;
}

/** PCI vendor id of Habana Labs. */
export const PCI_VENDOR_HABANALABS = 0x1da3;

/** Value of first CQ and first interrupt where the ASIC has none (USHRT_MAX). */
export const NO_USER_RESOURCE = 0xffff;

/**
 * The DRAM size that INFO reports for `size` bytes of physical DRAM: whole pages of the unreserved range.
 * @param size bytes; a card may have less than its profile
 */
export function reportedDramSize(dram: DramProfile, size: bigint): bigint {
  if (size <= dram.reservedSize) return 0n;
  const user = size - dram.reservedSize;
  return user - (user % dram.pageSize);
}

/** The DRAM base that INFO reports for `size` bytes of physical DRAM: see {@link DramProfile.reportedBase}. */
export function reportedDramBase(dram: DramProfile, size: bigint): bigint {
  if (dram.reportedBase === 'physicalUserBase') return dram.base + dram.reservedSize;
  const pages = (size + dram.pageSize - 1n) / dram.pageSize;
  return dram.base + pages * dram.pageSize;
}

/**
 * The range of device addresses of `size` bytes of physical DRAM. Its length is the number of pages of the device MMU between its start and `dmmuEnd`, times
 * `pageSize` (gaudi2_set_dram_properties, Linux 6.12). Undefined without a device MMU.
 */
export function dmmuRange(dram: DramProfile, size: bigint): AddressRange | undefined {
  if (dram.dmmuEnd === undefined) return undefined;
  const start = reportedDramBase(dram, size);
  return { start, end: start + ((dram.dmmuEnd - start) / dram.dmmuPageSize) * dram.pageSize };
}

/* Type of a register block for users (MEMORY MAP_BLOCK). The blocks of a generation are in its profile. */
/** A register that a public header names. */
export interface BlockRegister {
  /** Name of the register without the name of the block. */
  readonly name: string;
  /** Byte offset in the block. */
  readonly offset: number;
}

/** A block of registers that MEMORY MAP_BLOCK maps for users. */
export interface UserBlock {
  /** Name in the kernel's header, without prefix and suffix. */
  readonly name: string;
  readonly address: bigint;
  readonly size: number;
  /** Registers in ascending order of their offsets; empty for memory, and if no public header names them. */
  readonly registers: readonly BlockRegister[];
}
