/**
 * The constants of gaudi2 (HL-225).
 *
 * Source: drivers/accel/habanalabs/gaudi2/gaudi2.c, gaudi2P.h and include/gaudi2, Linux 6.12. Numbers computed by the driver's
 * property code (first sync object, monitor) are results for an unbinned card. NIC ports: docs.habana.ai, HLS-2.
 */

import { HL_SERVER_TYPE } from '../ioctl/device-status.ts';
import type { AsicProfile, FenceProfile, SyncManagerProfile } from './asic-profile.ts';
import { GAUDI2_ENGINE_CORES, GAUDI2_ENGINES } from './engine-ids.ts';
import { GAUDI2_QUEUES, Gaudi2QueueBase, STREAMS_PER_QMAN } from './queues.ts';
import { GAUDI2_CFG_BASE, GAUDI2_DCORE_STRIDE, GAUDI2_USER_BLOCKS } from './user-blocks-gaudi2.ts';

const DCORE0_SOB_OBJ_0 = 0x4100000;
const DCORE0_MON_PAY_ADDRL_0 = 0x4108000;
const EDMA_QUEUE_OF_DCORE: readonly number[] = [
  Gaudi2QueueBase.DCORE0_EDMA_0,
  Gaudi2QueueBase.DCORE1_EDMA_0,
  Gaudi2QueueBase.DCORE2_EDMA_0,
  Gaudi2QueueBase.DCORE3_EDMA_0,
];

function syncManager(dcore: number): SyncManagerProfile {
  const shift = dcore * GAUDI2_DCORE_STRIDE;
  return {
    name: `DCORE${dcore}`,
    dcore,
    group: 0,
    sobObj: DCORE0_SOB_OBJ_0 + shift,
    monPayAddrL: DCORE0_MON_PAY_ADDRL_0 + shift,
    monPayAddrH: 0x410a000 + shift,
    monPayData: 0x410c000 + shift,
    monArm: 0x410e000 + shift,
    monConfig: 0x4110000 + shift,
    monStatus: 0x4112000 + shift,
    cqDirect: 0,
    // 85 reserved sync objects and 125 reserved monitors, plus 2 objects and 1 monitor for each of the 164 sync-stream queues; all in dcore 0.
    firstUserSob: dcore === 0 ? 413 : 0,
    firstUserMonitor: dcore === 0 ? 289 : 0,
    firstUserCq: dcore === 0 ? 2 : 0,
  };
}

function fences(): readonly FenceProfile[] {
  const list: FenceProfile[] = [
    { qman: 'PDMA0', firstQueue: Gaudi2QueueBase.PDMA_0, fence0: 0x4c8a290 },
    { qman: 'PDMA1', firstQueue: Gaudi2QueueBase.PDMA_1, fence0: 0x4c9a290 },
  ];
  for (const [dcore, edmaQueue] of EDMA_QUEUE_OF_DCORE.entries()) pushDcoreFences(list, dcore, edmaQueue);
  return list;
}

/** Within a dcore the queues are those of two EDMA, one MME and six TPC QMANs, seven in dcore 0. */
function pushDcoreFences(list: FenceProfile[], dcore: number, edmaQueue: number): void {
  const shift = dcore * GAUDI2_DCORE_STRIDE;
  const mmeQueue = edmaQueue + 2 * STREAMS_PER_QMAN;
  list.push({ qman: `DCORE${dcore}_EDMA0`, firstQueue: edmaQueue, fence0: 0x41ca290 + shift });
  list.push({ qman: `DCORE${dcore}_EDMA1`, firstQueue: edmaQueue + STREAMS_PER_QMAN, fence0: 0x41da290 + shift });
  list.push({ qman: `DCORE${dcore}_MME`, firstQueue: mmeQueue, fence0: 0x40ca290 + shift });
  for (let tpc = 0; tpc < (dcore === 0 ? 7 : 6); tpc++) {
    const firstQueue = mmeQueue + (tpc + 1) * STREAMS_PER_QMAN;
    list.push({ qman: `DCORE${dcore}_TPC${tpc}`, firstQueue, fence0: 0x400a290 + tpc * 0x10000 + shift });
  }
}

/** Gaudi2: device memory behind an MMU with 768 MiB pages, hardware queues that take user command buffers only. */
export const GAUDI2_PROFILE: AsicProfile = {
  name: 'gaudi2',
  pciDeviceId: 0x1020,
  otherPciDeviceIds: [],
  deviceTypes: { 4128: 'GAUDI2' },
  cardName: 'HL225',
  serverType: HL_SERVER_TYPE.GAUDI2_HLS2,
  pllCount: 12,
  dieCount: 1,
  sram: { start: 0x1000fffffd000000n, end: 0x1001000000000000n },
  sramIsCache: false,
  cfg: { start: GAUDI2_CFG_BASE, end: 0x1000008000000000n },
  dram: {
    base: 0x1001000000000000n,
    size: 0x1800000000n, // 6 stacks of 16 GiB
    pageSize: 0x30000000n, // 8 MiB in each of 6 stacks, times 16: a TLB workaround of the driver
    pageSizes: [],
    reservedSize: 0x30000000n,
    reportedBase: 'dmmuStart',
    dmmuEnd: 0x1002000000000000n,
    dmmuPageSize: 0x40000000n,
  },
  va: {
    host: { start: 0xfff0000000000000n, end: 0xfff0800000000000n },
    hostHuge: { start: 0xfff0800000000000n, end: 0xfff1000000000000n },
    reservedHost: [
      { start: 0xfff077ffffff0000n, end: 0xfff0800000000000n }, // virtual MSI-X doorbell and ARC
      { start: 0xfff0f80000000000n, end: 0xfff1000000000000n },
    ],
    reservedDram: [{ start: 0x1001500000000000n, end: 0x1001700000000000n }],
    dramHintMask: 0xffffffffffffn,
  },
  queues: GAUDI2_QUEUES,
  channels: undefined,
  maxPendingCs: 64,
  numOfEvents: 1329,
  sync: {
    managers: [0, 1, 2, 3].map(syncManager),
    sobsPerManager: 8192,
    monitorsPerManager: 2048,
    cqsPerManager: 64,
    monitorFields: {
      writesShift: 5,
      writesMask: 3,
      zeroCounter: 0,
      autoZero: 0,
      resetStatus: 0,
      longHasParts: false,
    },
    cqRegisters: {
      baseAddrL: 0x411e050,
      baseAddrH: 0x411e150,
      sizeLog2: 0x411e250,
      pi: 0x411e350,
      lbwAddrL: 0x411e550,
      lbwAddrH: 0x411e650,
      lbwData: 0x411e750,
      incMode: 0x411e850,
      directLbwEn: 0,
    },
    managerStride: GAUDI2_DCORE_STRIDE,
  },
  fences: fences(),
  fenceStrides: [0, 0x14, 0x28, 0x3c], // the driver uses FENCE2; 1 and 3 are inferred from the even spacing of gaudi
  arbCfgFromFence0: 0x214,
  cpMsgBase: [DCORE0_MON_PAY_ADDRL_0, DCORE0_SOB_OBJ_0],
  // 128 MSI-X in Linux 6.12; Linux 6.1 uses 512 and gives the user 448 to 511. The interrupt of the TPCs follows those of the events, the decoders, the completions
  // and the NIC ports (enum gaudi2_irq_num).
  interrupts: {
    firstUserInterrupt: 48,
    userInterruptCount: 64,
    tpcInterrupt: 46,
    firstDecoderVector: 0,
    msixDoorbell: 0x1000007ffcc17000n,
    virtualDoorbell: 0xfff077ffffff0000n,
  },
  engines: {
    pdmaCount: 2,
    edmaCount: 8,
    edmaMask: 0xff,
    tpcCount: 25,
    tpcMask: 0x1ffffffn,
    mmeCount: 4,
    mmeMasterSlaveMode: 1,
    nicCount: 24,
    nicScaleUpPorts: 21,
    nicScaleOutPorts: 3,
    nicScaleOutMask: 0xc00100n, // ports 8, 22, 23
    nicGbitPerSecond: 100,
    decoderCount: 10,
    decoderMask: 0x3ff,
    rotatorMask: 3,
    mmeMask: 0,
    schedulerArcMask: 0,
    coreCount: GAUDI2_ENGINE_CORES,
    idCount: GAUDI2_ENGINES,
    stallable: [],
  },
  userBlocks: GAUDI2_USER_BLOCKS,
  defaultCsTimeoutSeconds: 30,
  capabilities: {
    submits: true,
    staged: false,
    multiCs: false,
    syncStream: true,
    mappedKernelCb: true,
    resetOnClose: true,
    userCbOnly: true,
    dramMmu: true,
    mapBlock: true,
    userInterrupts: true,
    engineCommands: true,
    onDemandPaging: false,
    eventStatistics: true,
    nicPortMasks: true,
    importDmabuf: true,
    vendorDriver: false,
    firmwareRequests: 1,
  },
};
