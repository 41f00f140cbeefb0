/**
 * The PDMA channels of gaudi3, which user code programs through mapped register blocks: where their blocks are, and the registers in them.
 *
 * No upstream driver supports gaudi3. Source: gaudi3.c and gaudi3_blocks_linux_driver.h of the vendor's driver (HabanaAI/drivers.accel.habanalabs.kernel), and
 * specs_h9/gaudi3/asic_reg_structs of Intel_Gaudi3_Software. None of it has been tested on a card.
 */

/** Register blocks of a group of channels, as offsets from the configuration base. The blocks of a group's channels follow each other. */
export interface PdmaGroup {
  /** Block A of the first channel, which MAP_BLOCK maps: the ring, the completion counter, the fences. */
  readonly blockA: number;
  /** Block B of the first channel: errors and protection. Only packets reach it. */
  readonly blockB: number;
  /** The common block of the group: the bases of MSG_SHORT. */
  readonly common: number;
}

/** The PDMA channels of a generation. Channel n is channel `n % perGroup` of group `n / perGroup`. */
export interface PdmaChannels {
  readonly groups: readonly PdmaGroup[];
  readonly perGroup: number;
  /** Bit n is set if users have channel n (`pdma_user_owned_ch_mask` of INFO). */
  readonly userMask: number;
  /** Engine id of channel 0 in idle masks and fault records. */
  readonly firstEngineId: number;
  /** Bytes of a block. */
  readonly blockBytes: number;
}

const DIE_STRIDE = 0x80_0000;
const GROUP_STRIDE = 0x2_0000;

function groupAt(first: number): PdmaGroup {
  return { blockA: first, blockB: first + 0x6000, common: first + 0xc000 };
}

/** Two groups of six channels on each of two dies; the driver keeps channel 23. */
export const GAUDI3_PDMA_CHANNELS: PdmaChannels = {
  groups: [0, GROUP_STRIDE, DIE_STRIDE, DIE_STRIDE + GROUP_STRIDE].map((offset) => groupAt(0xc54_0000 + offset)),
  perGroup: 6,
  userMask: 0x7f_ffff,
  firstEngineId: 120,
  blockBytes: 0x1000,
};

/** Offset of block A of a channel from the configuration base. */
export function channelBlockA({ groups, perGroup, blockBytes }: PdmaChannels, channel: number): number {
  return groups[Math.floor(channel / perGroup)]!.blockA + (channel % perGroup) * blockBytes;
}

/** Offset of block B of a channel from the configuration base. */
export function channelBlockB({ groups, perGroup, blockBytes }: PdmaChannels, channel: number): number {
  return groups[Math.floor(channel / perGroup)]!.blockB + (channel % perGroup) * blockBytes;
}

/** Registers of block A, as byte offsets (pqm_ch_a, pdma_ctx_a and pdma_ch_a registers). */
export const PdmaChannelA = {
  /** Predicates of the command processor; reset 1. */
  CP_PRED: 0x1b0,
  /** Mode of submission: {@link RING_IN_MEMORY}. A write clears base, size, PI and CI of the ring. */
  DESC_SUBMIT_FIFO_CFG: 0x1b4,
  /** Four registers: a write of n adds n to a fence counter. */
  FENCE_INC: 0x1cc,
  /** Four fence counters of 14 bits. */
  FENCE_CNT: 0x1dc,
  /** Device address of the ring. */
  MSQ_BASE_H: 0x1ec,
  MSQ_BASE_L: 0x1f0,
  /** Bytes of the ring, a power of two, minus 1. */
  MSQ_SIZE: 0x1f4,
  /** Bytes submitted, not reduced modulo the size. */
  MSQ_PI: 0x1f8,
  /** Bytes consumed. */
  MSQ_CI: 0x1fc,
  SRC_BASE_LO: 0x300,
  DST_BASE_LO: 0x304,
  SRC_BASE_HI: 0x308,
  DST_BASE_HI: 0x30c,
  WR_COMP0_ADDR_LO: 0x310,
  WR_COMP0_DATA: 0x314,
  /** Reset 0x0300007f: the high word of all registers. */
  WR_COMP0_ADDR_HI: 0x318,
  /** Control of a single transfer that registers describe; COMMIT starts it. */
  CTRL_MAIN: 0x33c,
  DST_TSIZE_0: 0x344,
  IDX: 0x39c,
  COMMIT: 0x3a4,
  /** {@link EcmpltnCfg} */
  ECMPLTN_Q_CH_CFG: 0x400,
  /** Device address of the completion counter, 64 bits in memory. */
  ECMPLTN_Q_BASE_LO: 0x404,
  ECMPLTN_Q_BASE_HI: 0x408,
  /** Bytes of the queue: 8 for one counter. */
  ECMPLTN_Q_SIZE: 0x40c,
  /** A write of PAYLD to this address follows each completion, such as an interrupt id to the MSI-X doorbell. */
  ECMPLTN_Q_LBW_ADDR_L: 0x418,
  ECMPLTN_Q_LBW_ADDR_H: 0x41c,
  ECMPLTN_Q_LBW_PAYLD: 0x420,
} as const;

/** Value of DESC_SUBMIT_FIFO_CFG: packets are in a cyclic queue in memory. */
export const RING_IN_MEMORY = 1;

/** Bits of ECMPLTN_Q_CH_CFG. */
export const EcmpltnCfg = {
  ENABLE: 0x1,
  /** Completions count in a word of memory. */
  COUNTER: 0x2,
  LBW_WRITE: 0x4,
} as const;

/** Largest ring in bytes. */
export const PDMA_RING_BYTES_MAX: number = 2 ** 30;

/** Fence counters of a channel. */
export const PDMA_FENCES = 4;

/** Largest value of a fence counter. */
export const PDMA_FENCE_MAX = 0x3fff;

/** Registers of the common block of a group, as byte offsets. */
export const PdmaCommon = {
  /** Eight addresses of 64 bits, which MSG_SHORT adds its offset to. */
  CP_MSG_BASE_ADDR: 0x100,
} as const;

/** Number of message bases of a group. */
export const PDMA_MESSAGE_BASES = 8;
