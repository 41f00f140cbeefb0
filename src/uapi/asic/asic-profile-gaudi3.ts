/**
 * The constants of gaudi3 (HL-325). Its queues belong to the driver: users move data by the PDMA channels, whose registers they map.
 *
 * No upstream kernel driver supports gaudi3. Source: gaudi3.c and gaudi3P.h of the vendor's driver (HabanaAI/drivers.accel.habanalabs.kernel), and
 * habanalabs_accel.h and specs_h9/gaudi3 of Intel_Gaudi3_Software. None of it has been tested on a card. NIC ports: docs.habana.ai, Network
 * Configuration (HLS-3).
 */

import { HL_SERVER_TYPE } from '../ioctl/device-status.ts';
import { type AddressRange, type AsicProfile, NO_USER_RESOURCE, type SyncManagerProfile } from './asic-profile.ts';
import { GAUDI3_ENGINE_CORES, GAUDI3_ENGINE_IDS } from './engine-ids.ts';
import { GAUDI3_PDMA_CHANNELS } from './pdma-channels.ts';
import {
  GAUDI3_CFG_BASE,
  GAUDI3_HD0_SYNC_MNGR_GLBL,
  GAUDI3_HD0_SYNC_MNGR_OBJS,
  GAUDI3_HDCORE_STRIDE,
  GAUDI3_HDCORES,
  GAUDI3_SYNC_GROUP_STRIDE,
  gaudi3UserBlocks,
} from './user-blocks-gaudi3.ts';

const SYNC_GROUPS = 2;
/** Sync objects, monitors and completion queues below are the driver's, in group 0 of hdcore 0. */
const FIRST_USER_OBJECT = 19;

/** The ranges in pages of 4 KiB and 2 MiB differ in bit 55. A kernel with pages of 64 KiB uses pages of 64 KiB and 16 MiB. */
const HOST_VA: AddressRange = { start: 0xff70000000000000n, end: 0xff70800000000000n };
const HOST_HUGE_VA: AddressRange = { start: 0xfff0000000000000n, end: 0xfff0800000000000n };
/** Bytes at the end of each range, reserved for ARCs. */
const HOST_ARC_BYTES = 0x80000000000n;

function reservedEnd({ end }: AddressRange): AddressRange {
  return { start: end - HOST_ARC_BYTES, end };
}

function syncManager(hdcore: number, group: number): SyncManagerProfile {
  const sobObj = GAUDI3_HD0_SYNC_MNGR_OBJS + hdcore * GAUDI3_HDCORE_STRIDE + group * GAUDI3_SYNC_GROUP_STRIDE;
  const firstUser = hdcore === 0 && group === 0 ? FIRST_USER_OBJECT : 0;
  return {
    name: `HD${hdcore}_${group}`,
    dcore: hdcore,
    group,
    sobObj,
    monPayAddrL: sobObj + 0x8000,
    monPayAddrH: sobObj + 0x9000,
    monPayData: sobObj + 0xa000,
    monArm: sobObj + 0xb000,
    monConfig: sobObj + 0xc000,
    monStatus: sobObj + 0xd000,
    cqDirect: group === 0 ? sobObj + 0xe000 : 0,
    firstUserSob: firstUser,
    firstUserMonitor: firstUser,
    firstUserCq: group === 0 ? firstUser : NO_USER_RESOURCE,
  };
}

const SYNC_MANAGERS: readonly SyncManagerProfile[] = Array.from({ length: GAUDI3_HDCORES * SYNC_GROUPS }, (_, index) =>
  syncManager(Math.floor(index / SYNC_GROUPS), index % SYNC_GROUPS),
);

/** Gaudi3: 128 GiB of HBM behind an MMU, channels instead of command submission. */
export const GAUDI3_PROFILE: AsicProfile = {
  name: 'gaudi3',
  pciDeviceId: 0x1060,
  otherPciDeviceIds: [0x1063],
  deviceTypes: { 4192: 'GAUDI3', 4195: 'GAUDI3 HL-338' },
  cardName: 'HL325', // inferred: the name of the board in the spelling of the older cards
  serverType: HL_SERVER_TYPE.GAUDI3_HLS3_FULL_OAM_3PORTS_SCALE_OUT,
  pllCount: 14,
  dieCount: 2,
  sram: { start: 0x0200fffffa000000n, end: 0x0201000000000000n },
  sramIsCache: true, // the default of the driver: all of it caches HBM
  cfg: { start: GAUDI3_CFG_BASE, end: 0x0300008000000000n },
  dram: {
    base: 0x0201000000000000n,
    size: 0x2000000000n,
    pageSize: 0x2000000n,
    pageSizes: [0x2000000n, 0x40000000n],
    reservedSize: 0xc000000n, // firmware, page tables of the MMU, trace buffers
    reportedBase: 'dmmuStart',
    dmmuEnd: 0x0202000000000000n,
    dmmuPageSize: 0x2000000n,
  },
  va: {
    host: HOST_VA,
    hostHuge: HOST_HUGE_VA,
    reservedHost: [HOST_VA, HOST_HUGE_VA].map(reservedEnd),
    reservedDram: [{ start: 0x0201e00000000000n, end: 0x0202000000000000n }], // for ARCs
    dramHintMask: 0xffffffffffffn,
  },
  queues: [], // max_queues is 1: the queue of the CPU, which is the driver's
  channels: GAUDI3_PDMA_CHANNELS,
  maxPendingCs: 0,
  numOfEvents: 0,
  sync: {
    managers: SYNC_MANAGERS,
    sobsPerManager: 8192,
    monitorsPerManager: 1024,
    cqsPerManager: 64,
    monitorFields: {
      writesShift: 24,
      writesMask: 0xf,
      zeroCounter: 1 << 28,
      autoZero: 1 << 20,
      resetStatus: 0x200,
      longHasParts: true,
    },
    cqRegisters: {
      baseAddrL: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x50,
      baseAddrH: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x150,
      sizeLog2: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x250,
      pi: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x350,
      lbwAddrL: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x450,
      lbwAddrH: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x550,
      lbwData: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x650,
      incMode: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x750,
      directLbwEn: GAUDI3_HD0_SYNC_MNGR_GLBL + 0x850,
    },
    managerStride: GAUDI3_HDCORE_STRIDE,
  },
  fences: [],
  fenceStrides: [],
  arbCfgFromFence0: 0,
  cpMsgBase: [],
  // Users get MSI-X vectors 71 to 326 of 1024; decoders 3 to 18 (gaudi3P.h).
  interrupts: {
    firstUserInterrupt: 71,
    userInterruptCount: 256,
    tpcInterrupt: NO_USER_RESOURCE,
    firstDecoderVector: 3,
    msixDoorbell: 0x0300007ffc417000n,
    virtualDoorbell: undefined, // channels write to registers at their device addresses
  },
  engines: {
    pdmaCount: 24, // channels: 4 groups of 6
    edmaCount: 8,
    edmaMask: 0xff,
    tpcCount: 64,
    tpcMask: 0xffffffffffffffffn,
    mmeCount: 8,
    mmeMasterSlaveMode: 0,
    nicCount: 24,
    nicScaleUpPorts: 21,
    nicScaleOutPorts: 3,
    nicScaleOutMask: 0xc00100n, // ports 8, 22, 23 (assumed to be those of gaudi2)
    nicGbitPerSecond: 200,
    decoderCount: 16,
    decoderMask: 0x7f7f, // the last one of each die is always off, as is its last rotator
    rotatorMask: 0x77,
    mmeMask: 0xff,
    schedulerArcMask: 0xffff,
    coreCount: GAUDI3_ENGINE_CORES,
    idCount: GAUDI3_ENGINE_IDS.SIZE,
    stallable: [
      { first: GAUDI3_ENGINE_IDS.EDMA, count: 8 },
      { first: GAUDI3_ENGINE_IDS.MME, count: 8 },
      { first: GAUDI3_ENGINE_IDS.TPC, count: 64 },
    ],
  },
  userBlocks: gaudi3UserBlocks(GAUDI3_PDMA_CHANNELS.userMask),
  defaultCsTimeoutSeconds: 30, // the driver's general default
  capabilities: {
    submits: false,
    staged: false, // inferred: gaudi3.c does not set it
    multiCs: false,
    syncStream: false,
    mappedKernelCb: true,
    resetOnClose: true, // inferred: the default of reset_upon_device_release from gaudi2 on
    userCbOnly: true,
    dramMmu: true,
    mapBlock: true,
    userInterrupts: true,
    engineCommands: true,
    onDemandPaging: true,
    eventStatistics: false,
    importDmabuf: false,
    vendorDriver: true,
    firmwareRequests: 4,
    nicPortMasks: false, // the ports belong to another kernel module; older drivers report them
  },
};

/**
 * The profile under a driver that gives users other channels: older ones keep channel 0, and not 23.
 * @param userMask bit n for channel n
 */
export function gaudi3WithChannels(userMask: number): AsicProfile {
  const channels = { ...GAUDI3_PDMA_CHANNELS, userMask };
  return { ...GAUDI3_PROFILE, channels, userBlocks: gaudi3UserBlocks(userMask) };
}
