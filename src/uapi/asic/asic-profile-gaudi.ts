/**
 * The constants of gaudi (HL-205).
 *
 * Source: drivers/accel/habanalabs/gaudi/gaudi.c, gaudiP.h and include/gaudi, Linux 6.12; first sync objects from
 * drm/habanalabs_accel.h. NIC ports: docs.habana.ai, Distributed Training Overview (HLS-1).
 */

import { HL_SERVER_TYPE } from '../ioctl/device-status.ts';
import {
  type AddressRange,
  type AsicProfile,
  type FenceProfile,
  NO_USER_RESOURCE,
  type SyncManagerProfile,
} from './asic-profile.ts';
import { GAUDI_QUEUES, GaudiQueueBase, STREAMS_PER_QMAN } from './queues.ts';

/** First user sync object of the W_S block: the driver keeps 128 for collective wait and 16 for sync streams. */
export const GAUDI_FIRST_AVAILABLE_W_S_SYNC_OBJECT = 144;

/** First user monitor of the W_S block: the driver keeps 64 for collective wait and 8 for sync streams. */
export const GAUDI_FIRST_AVAILABLE_W_S_MONITOR = 72;

/** Bytes at the start of SRAM that the driver keeps. */
export const GAUDI_DRIVER_SRAM_RESERVED_SIZE_FROM_START = 0x80;

const SRAM_PHYSICAL_BASE = 0x7ff0000000n;
const SRAM_SIZE = 0x1400000n;
const W_S_SOB = 0x492000;
const E_N_SOB = 0x4f2000;
const MON_PAY_ADDRL_FROM_SOB = 0x2000;

// First half of the MMU's 0x1000000000000..0x3FF8000000000; the second half is the unused range for device memory.
const HOST_VA: AddressRange = { start: 0x1000000000000n, end: 0x27fc000000000n };

function syncManager(name: string, dcore: number, sobObj: number): SyncManagerProfile {
  const isWestSouth = sobObj === W_S_SOB;
  return {
    name,
    dcore,
    group: 0,
    sobObj,
    monPayAddrL: sobObj + MON_PAY_ADDRL_FROM_SOB,
    monPayAddrH: sobObj + 0x2800,
    monPayData: sobObj + 0x3000,
    monArm: sobObj + 0x3800,
    monConfig: 0,
    monStatus: sobObj + 0x4000,
    cqDirect: 0,
    firstUserSob: isWestSouth ? GAUDI_FIRST_AVAILABLE_W_S_SYNC_OBJECT : 0,
    firstUserMonitor: isWestSouth ? GAUDI_FIRST_AVAILABLE_W_S_MONITOR : 0,
    firstUserCq: NO_USER_RESOURCE,
  };
}

function fences(): readonly FenceProfile[] {
  const list: FenceProfile[] = [];
  for (let dma = 0; dma < 8; dma++) {
    const firstQueue = dma < 2 ? dma * STREAMS_PER_QMAN : GaudiQueueBase.DMA_2 + (dma - 2) * STREAMS_PER_QMAN;
    list.push({ qman: `DMA${dma}`, firstQueue, fence0: 0x508308 + dma * 0x20000 });
  }
  // The driver feeds the queues of MME_0 to the QMAN of MME2 and those of MME_1 to that of MME0.
  list.push({ qman: 'MME2', firstQueue: GaudiQueueBase.MME_0, fence0: 0x168308 });
  list.push({ qman: 'MME0', firstQueue: GaudiQueueBase.MME_0 + STREAMS_PER_QMAN, fence0: 0x68308 });
  for (let tpc = 0; tpc < 8; tpc++) {
    const firstQueue = GaudiQueueBase.TPC_0 + tpc * STREAMS_PER_QMAN;
    list.push({ qman: `TPC${tpc}`, firstQueue, fence0: 0xe08308 + tpc * 0x40000 });
  }
  return list;
}

/** Gaudi: physical device memory, external and internal queues, kernel command buffers copied at submission. */
export const GAUDI_PROFILE: AsicProfile = {
  name: 'gaudi',
  pciDeviceId: 0x1000,
  otherPciDeviceIds: [0x1001, 0x1010, 0x1011],
  deviceTypes: { 4096: 'GAUDI' },
  cardName: 'HL205',
  serverType: HL_SERVER_TYPE.GAUDI_HLS1,
  pllCount: 10,
  dieCount: 1,
  sram: {
    start: SRAM_PHYSICAL_BASE + BigInt(GAUDI_DRIVER_SRAM_RESERVED_SIZE_FROM_START),
    end: SRAM_PHYSICAL_BASE + SRAM_SIZE,
  },
  sramIsCache: false,
  cfg: { start: 0x7ffc000000n, end: 0x8000000000n },
  dram: {
    base: 0n,
    size: 0x800000000n,
    pageSize: 0x200000n,
    pageSizes: [],
    reservedSize: 0x20000000n,
    reportedBase: 'physicalUserBase',
    dmmuEnd: undefined,
    dmmuPageSize: 0x200000n,
  },
  va: { host: HOST_VA, hostHuge: HOST_VA, reservedHost: [], reservedDram: [], dramHintMask: 0n },
  queues: GAUDI_QUEUES,
  channels: undefined,
  maxPendingCs: 16384,
  numOfEvents: 663,
  sync: {
    managers: [
      syncManager('W_S', 0, W_S_SOB),
      syncManager('W_N', 1, 0x4d2000),
      syncManager('E_N', 2, E_N_SOB),
      syncManager('E_S', 3, 0x4b2000),
    ],
    sobsPerManager: 2048,
    monitorsPerManager: 512,
    cqsPerManager: 0,
    monitorFields: {
      writesShift: 0,
      writesMask: 0,
      zeroCounter: 0,
      autoZero: 0,
      resetStatus: 0,
      longHasParts: false,
    },
    cqRegisters: undefined,
    managerStride: 0x20000,
  },
  fences: fences(),
  fenceStrides: [0, 0x14, 0x28, 0x3c],
  arbCfgFromFence0: 0x6f8,
  cpMsgBase: [E_N_SOB + MON_PAY_ADDRL_FROM_SOB, E_N_SOB, W_S_SOB + MON_PAY_ADDRL_FROM_SOB, W_S_SOB],
  interrupts: {
    firstUserInterrupt: NO_USER_RESOURCE,
    userInterruptCount: 0,
    tpcInterrupt: NO_USER_RESOURCE,
    firstDecoderVector: 0,
    msixDoorbell: undefined,
    virtualDoorbell: undefined,
  },
  engines: {
    pdmaCount: 2,
    edmaCount: 6,
    edmaMask: 0, // the driver leaves the mask of INFO at 0 before gaudi2
    tpcCount: 8,
    tpcMask: 0xffn,
    mmeCount: 4,
    mmeMasterSlaveMode: 0,
    nicCount: 10,
    nicScaleUpPorts: 7,
    nicScaleOutPorts: 3,
    nicScaleOutMask: 0x302n, // ports 1, 8, 9
    nicGbitPerSecond: 100,
    decoderCount: 0,
    decoderMask: 0,
    rotatorMask: 0,
    mmeMask: 0,
    schedulerArcMask: 0,
    coreCount: 0,
    idCount: 0,
    stallable: [],
  },
  userBlocks: [],
  defaultCsTimeoutSeconds: 600,
  capabilities: {
    submits: true,
    staged: true,
    multiCs: true,
    syncStream: true,
    mappedKernelCb: false,
    resetOnClose: false,
    userCbOnly: false,
    dramMmu: false,
    mapBlock: false,
    userInterrupts: false,
    engineCommands: false,
    onDemandPaging: false,
    eventStatistics: true,
    nicPortMasks: true,
    importDmabuf: true,
    vendorDriver: false,
    firmwareRequests: 1,
  },
};
