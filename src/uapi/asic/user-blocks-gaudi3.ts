/**
 * The register blocks of gaudi3 that users can map by MEMORY MAP_BLOCK.
 *
 * No upstream driver supports gaudi3. Source: gaudi3_user_mapped_*_init of gaudi3.c, and gaudi3_blocks_linux_driver.h, of the vendor's driver
 * (HabanaAI/drivers.accel.habanalabs.kernel). Blocks whose addresses were not collected are left out: the memories of 86 engine ARCs, between the schedulers
 * and the ARC farm, and the command blocks of 14 decoders, behind the PDMA channels. Their addresses are EINVAL, and the ids of later blocks differ from
 * those of a card.
 */

import type { BlockRegister, UserBlock } from './asic-profile.ts';
import { channelBlockA, GAUDI3_PDMA_CHANNELS, PDMA_FENCES, PdmaChannelA } from './pdma-channels.ts';
import { registerArray, userBlocksAt } from './user-blocks.ts';

/** Base of the configuration space of gaudi3. */
export const GAUDI3_CFG_BASE = 0x0300007ff0000000n;
/** Distance of the registers of one hdcore to those of the next one. */
export const GAUDI3_HDCORE_STRIDE = 0x400000;
/** Distance of the sync objects of the two groups of an hdcore. */
export const GAUDI3_SYNC_GROUP_STRIDE = 0x10000;
export const GAUDI3_HDCORES = 8;
/** Sync objects of group 0 of hdcore 0, and the completion queues of hdcore 0, from the base of the configuration space. */
export const GAUDI3_HD0_SYNC_MNGR_OBJS = 0xe380000;
export const GAUDI3_HD0_SYNC_MNGR_GLBL = 0xe3a0000;

const BLOCK_BYTES = 0x1000;
const SCHEDULER_DCCM_BYTES = 0x10000;
const ARC_FARM_BYTES = 0x2000;
/** Without the registers for secured and privileged code, which follow in the same 64 KiB. */
const SM_OBJS_BYTES = 0xf000;
const ARCS_PER_HDCORE = 2;
const ARC_STRIDE = 0x20000;
const HD0_ARC_FARM_ARC0_DCCM0 = 0xe310000;
const HD0_ARC_FARM_ARC0_ACP_ENG = 0xe30d000;
/** Inferred from the blocks of die 1, which are 0x800000 higher. */
const D0_CBC_USER = 0xc445000;
const D0_TIMESTAMP = 0xc489000;
const PDMA_CHANNELS = 24;

const block = userBlocksAt(GAUDI3_CFG_BASE);
const hdcores: readonly number[] = Array.from({ length: GAUDI3_HDCORES }, (_, hdcore) => hdcore);

/** Data, or registers whose names were not collected. */
const unnamed = (): BlockRegister[] => [];

/** Names and offsets of pdma_ch_a, pqm_ch_a and pdma_ctx_a. */
function channelRegisters(): BlockRegister[] {
  return Object.entries(PdmaChannelA).flatMap(([name, offset]) =>
    offset === PdmaChannelA.FENCE_INC || offset === PdmaChannelA.FENCE_CNT
      ? registerArray(name, offset, PDMA_FENCES)
      : [{ name, offset }],
  );
}

/** Of sob_objs_regs.h; the first number is the group. */
function syncObjects(group: number): BlockRegister[] {
  return [
    ...registerArray(`SOB_OBJ_${group}`, 0, 8192),
    ...registerArray(`MON_PAY_ADDRL_${group}`, 0x8000, 1024),
    ...registerArray(`MON_PAY_ADDRH_${group}`, 0x9000, 1024),
    ...registerArray(`MON_PAY_DATA_${group}`, 0xa000, 1024),
    ...registerArray(`MON_ARM_${group}`, 0xb000, 1024),
    ...registerArray(`MON_CONFIG_${group}`, 0xc000, 1024),
    ...registerArray(`MON_STATUS_${group}`, 0xd000, 1024),
    ...(group === 0 ? registerArray('CQ_DIRECT', 0xe000, 64) : []),
  ];
}

const completionQueues = (): BlockRegister[] => [
  { name: 'CQ_SEC_PROT', offset: 0x34 },
  ...registerArray('CQ_BASE_ADDR_L', 0x50, 64),
  ...registerArray('CQ_BASE_ADDR_H', 0x150, 64),
  ...registerArray('CQ_SIZE_LOG2', 0x250, 64),
  ...registerArray('CQ_PI', 0x350, 64),
  ...registerArray('LBW_ADDR_L', 0x450, 64),
  ...registerArray('LBW_ADDR_H', 0x550, 64),
  ...registerArray('LBW_DATA', 0x650, 64),
  ...registerArray('CQ_INC_MODE', 0x750, 64),
  ...registerArray('DIRECT_LBW_EN', 0x850, 64),
];

/** Of cbc_user_regs.h: ranges of host memory that the card caches. */
const hostCache = (): BlockRegister[] => [
  ...registerArray('RANGE_EN', 0, 4),
  ...registerArray('RANGE_MIN_LO', 0x10, 4),
  ...registerArray('RANGE_MIN_HI', 0x20, 4),
  ...registerArray('RANGE_MAX_LO', 0x30, 4),
  ...registerArray('RANGE_MAX_HI', 0x40, 4),
  ...registerArray('INVALID_EN', 0x100, 5),
  ...registerArray('INVALID_CTRL', 0x120, 5),
  ...registerArray('INVALID_STATUS', 0x140, 5),
  ...registerArray('LBW_ADDR', 0x200, 5),
  ...registerArray('LBW_DATA', 0x220, 5),
];

function ofArcs(name: string, offset: number, size: number): UserBlock[] {
  return hdcores.flatMap((hdcore) =>
    Array.from({ length: ARCS_PER_HDCORE }, (_, arc) =>
      block(
        `HD${hdcore}_ARC_FARM_ARC${arc}_${name}`,
        offset + hdcore * GAUDI3_HDCORE_STRIDE + arc * ARC_STRIDE,
        size,
        unnamed,
      ),
    ),
  );
}

/** Block A of every channel of users. */
function channels(userMask: number): UserBlock[] {
  const { groups, perGroup } = GAUDI3_PDMA_CHANNELS;
  const groupsPerDie = groups.length / 2;
  return Array.from({ length: PDMA_CHANNELS }, (_, channel) => channel)
    .filter((channel) => (userMask & (1 << channel)) !== 0)
    .map((channel) => {
      const group = Math.floor(channel / perGroup);
      const name = `D${Math.floor(group / groupsPerDie)}_SPDMA${group % groupsPerDie}_CH${channel % perGroup}_A`;
      return block(name, channelBlockA(GAUDI3_PDMA_CHANNELS, channel), BLOCK_BYTES, channelRegisters);
    });
}

function objects(hdcore: number, group: number): UserBlock {
  const offset = GAUDI3_HD0_SYNC_MNGR_OBJS + hdcore * GAUDI3_HDCORE_STRIDE + group * GAUDI3_SYNC_GROUP_STRIDE;
  return block(`HD${hdcore}_SYNC_MNGR_OBJS_${group}`, offset, SM_OBJS_BYTES, () => syncObjects(group));
}

/** The driver keeps group 0 and the completion queues of hdcore 0. */
function syncManagers(): UserBlock[] {
  return hdcores.flatMap((hdcore) => {
    if (hdcore === 0) return [objects(hdcore, 1)];
    const glbl = GAUDI3_HD0_SYNC_MNGR_GLBL + hdcore * GAUDI3_HDCORE_STRIDE;
    const queues = block(`HD${hdcore}_SYNC_MNGR_GLBL`, glbl, BLOCK_BYTES, completionQueues);
    return [objects(hdcore, 0), objects(hdcore, 1), queues];
  });
}

/** All blocks, in the order of the driver's ids. @param userMask the channels of users */
export function gaudi3UserBlocks(userMask: number): readonly UserBlock[] {
  return [
    ...ofArcs('DCCM', HD0_ARC_FARM_ARC0_DCCM0, SCHEDULER_DCCM_BYTES),
    ...ofArcs('ACP_ENG', HD0_ARC_FARM_ARC0_ACP_ENG, ARC_FARM_BYTES),
    ...channels(userMask),
    block('D0_CBC_USER', D0_CBC_USER, BLOCK_BYTES, hostCache),
    ...syncManagers(),
    block('D0_TIMESTAMP', D0_TIMESTAMP, BLOCK_BYTES, unnamed),
  ];
}
