/**
 * The constants of gaudi3 (HL-325), for INFO and MEMORY only: kernel queue ids, which submissions need, do not exist.
 *
 * No upstream kernel driver supports gaudi3. Sizes and physical bases are from Intel's public gaudi3.h; values marked as assumed
 * have no source and follow gaudi2. NIC ports: docs.habana.ai, Network Configuration (HLS-3).
 */

import { type AsicProfile, NO_USER_RESOURCE } from './asic-profile.ts';
import { GAUDI3_PDMA_CHANNELS } from './pdma-channels.ts';

/** Gaudi3: 128 GiB of HBM, no command submission. */
export const GAUDI3_PROFILE: AsicProfile = {
  name: 'gaudi3',
  pciDeviceId: 0x1060,
  otherPciDeviceIds: [0x1061, 0x1062],
  cardName: 'HL325', // assumed: the spelling of the older cards
  sram: { start: 0x0200fffff0000000n, end: 0x0200fffff6000000n },
  cfg: { start: 0x0300007ff0000000n, end: 0x0300008000000000n },
  dram: {
    base: 0x0201000000000000n,
    size: 0x2000000000n,
    pageSize: 0x2000000n, // 32 MiB: one of the three sizes the hardware offers; which one is the default is assumed
    reservedSize: 0x2000000n, // assumed: one page
    reportedBase: 'dmmuStart',
    dmmuEnd: 0x0202000000000000n, // assumed
    dmmuPageSize: 0x2000000n, // assumed
  },
  va: {
    host: { start: 0xfff0000000000000n, end: 0xfff0800000000000n }, // assumed
    hostHuge: { start: 0xfff0800000000000n, end: 0xfff1000000000000n }, // assumed
    reservedHost: [],
    reservedDram: [],
    dramHintMask: 0xffffffffffffn,
  },
  queues: [],
  channels: GAUDI3_PDMA_CHANNELS,
  maxPendingCs: 0,
  numOfEvents: 0, // unknown: no source here
  sync: {
    managers: [],
    sobsPerManager: 0,
    monitorsPerManager: 0,
    cqsPerManager: 0,
    cqRegisters: undefined,
    managerStride: 0,
  },
  fences: [],
  fenceStrides: [],
  arbCfgFromFence0: 0,
  cpMsgBase: [],
  interrupts: {
    firstUserInterrupt: NO_USER_RESOURCE,
    userInterruptCount: 0,
    tpcInterrupt: NO_USER_RESOURCE,
    msixDoorbell: undefined,
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
    decoderCount: 14,
    rotatorCount: 8,
  },
  userBlocks: [],
  defaultCsTimeoutSeconds: 30, // the driver's general default
  capabilities: {
    submits: false,
    staged: false,
    multiCs: false,
    syncStream: false,
    mappedKernelCb: false,
    resetOnClose: true, // assumed
    userCbOnly: true,
    dramMmu: true,
    mapBlock: false,
    userInterrupts: false,
    engineCommands: false,
  },
};
