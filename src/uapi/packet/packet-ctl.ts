/**
 * Control words of QMAN packets: opcodes, sizes, bit fields, builders and field accessors for gaudi and gaudi2. Builders are for set-up: callers
 * compute a control word once and write it many times.
 *
 * Every packet begins with two 32-bit words: a value (or size, or configuration) at byte 0 and the control word at byte 4.
 * Source: drivers/accel/habanalabs/include/gaudi/gaudi_packets.h and gaudi2/gaudi2_packets.h, Linux 6.12; fields marked (hl-thunk)
 * are only in the packet headers of hl-thunk 1.10.
 */

/** The two packet formats. Gaudi3 has no packets that a user submits to the driver. */
export type PacketAsic = 'gaudi' | 'gaudi2';

/** Opcodes (PACKET_*). CB_LIST and the higher ones, except LOAD_AND_EXE, exist on gaudi2 only. */
export const PacketOpcode = {
  WREG_32: 0x1,
  WREG_BULK: 0x2,
  MSG_LONG: 0x3,
  MSG_SHORT: 0x4,
  CP_DMA: 0x5,
  REPEAT: 0x6,
  MSG_PROT: 0x7,
  FENCE: 0x8,
  LIN_DMA: 0x9,
  NOP: 0xa,
  STOP: 0xb,
  ARB_POINT: 0xc,
  WAIT: 0xd,
  CB_LIST: 0xe,
  LOAD_AND_EXE: 0xf,
  WRITE_ARC_STREAM: 0x10,
  LAST_READ_FROM_ARC: 0x11,
  WREG_64_SHORT: 0x12,
  WREG_64_LONG: 0x13,
} as const;

/** One of the values of {@link PacketOpcode}. */
export type PacketOpcode = (typeof PacketOpcode)[keyof typeof PacketOpcode];

/** Bit fields of the control word that every packet has. RB is the register barrier of gaudi and the switch bit of gaudi2. */
export const PacketCtl = {
  OPCODE_SHIFT: 24,
  OPCODE_MASK: 0x1f000000,
  EB: 0x20000000,
  RB: 0x40000000,
  MB: 0x80000000,
} as const;

/** Bit fields of the control word of MSG_LONG and MSG_SHORT. Op: 0 the value, 1 a timestamp. */
export const MsgCtl = {
  OFFSET_MASK: 0x0000ffff,
  OP_SHIFT: 20,
  OP_MASK: 0x00300000,
  BASE_SHIFT: 22,
  BASE_MASK: 0x00c00000,
} as const;

/** Bit fields of the control word of LIN_DMA on gaudi. LIN must be set. */
export const GaudiLinDmaCtl = {
  WRCOMP_EN: 0x1,
  /** (hl-thunk) */
  TRANSPOSE: 0x2,
  /** (hl-thunk) */
  DTYPE: 0x4,
  LIN: 0x8,
  MEMSET: 0x10,
  /** (hl-thunk) */
  COMPRESS: 0x20,
  /** (hl-thunk) */
  DECOMPRESS: 0x40,
  /** (hl-thunk) */
  CONTEXT_ID_SHIFT: 16,
} as const;

/** Bit fields of the control word of LIN_DMA on gaudi2. */
export const Gaudi2LinDmaCtl = {
  WRCOMP: 0x1,
  /** 0 none, 1 swaps in 16 bits, 2 in 32, 3 in 64. */
  ENDIAN_SHIFT: 1,
  ENDIAN_MASK: 0x6,
  MEMSET: 0x10,
  /** (hl-thunk) */
  BF16: 0x40,
  /** (hl-thunk) */
  FP16: 0x80,
  CONTEXT_ID_SHIFT: 8,
  CONTEXT_ID_MASK: 0x00ffff00,
} as const;

/**
 * Bit fields of the control word of WREG_32 and WREG_BULK (hl-thunk). REG (gaudi2, WREG_32): the value comes from the scalar register whose number is
 * in bits 0 and 1 of the first word.
 */
export const WregCtl = {
  REG: 0x20,
  OFFSET_SHIFT: 8,
  OFFSET_MASK: 0x00ffff00,
} as const;

/** Bit of the control word of CP_DMA: the upper command processor, not the lower one, runs the buffer; gaudi2 (hl-thunk). */
export const CP_DMA_UPPER_CP = 0x20;

/** Bit fields of the first word of REPEAT (hl-thunk). */
export const RepeatCfg = {
  /** Start of the loop when clear, end when set. */
  SORE: 0x1,
  OUTER: 0x2,
} as const;

/** Bit fields of the first word of FENCE. */
export const FenceCfg = {
  DEC_VAL_MASK: 0x0000000f,
  TARGET_VAL_SHIFT: 16,
  TARGET_VAL_MASK: 0x00ff0000,
  ID_SHIFT: 30,
} as const;

/** Predicate field of the control word of the packets that have one (hl-thunk; FENCE in the kernel's headers). 0: always. */
export const PREDICATE_MASK = 0x1f;

/** Bit of the first word of ARB_POINT that releases the arbiter; the lower bits are the priority (hl-thunk). */
export const ARB_POINT_RELEASE = 0x80000000;

/** Bits of the first word of LOAD_AND_EXE (DST in the kernel's headers, the others hl-thunk). */
export const LoadAndExeCfg = {
  /** Destination: scalars when set, predicates when clear. */
  DST: 0x001,
  /** Predicates are consecutive bits; gaudi2. */
  PMAP: 0x002,
  LOAD: 0x100,
  EXE: 0x200,
  /** Which half is executed: upper when set. */
  ETYPE: 0x400,
} as const;

/** The barriers that a packet waits for. */
export interface PacketBarriers {
  /** Wait until the engine is idle. */
  readonly engBarrier?: boolean | undefined;
  /** Wait for earlier register writes; the switch bit on gaudi2. */
  readonly regBarrier?: boolean | undefined;
  /** Wait for earlier messages. */
  readonly msgBarrier?: boolean | undefined;
}

/** Options of a LIN_DMA packet besides copying. */
export interface LinDmaOptions extends PacketBarriers {
  /** The source address field holds a 64-bit pattern that fills the destination. */
  readonly memset?: boolean | undefined;
  /** Write the completion message of the engine. */
  readonly wrComp?: boolean | undefined;
  /** Reverse the bytes of every element of 2, 4 or 8 bytes; gaudi2 only. */
  readonly swapBytes?: 2 | 4 | 8 | undefined;
}

/** Options of a MSG_LONG or MSG_SHORT packet. */
export interface MsgOptions extends PacketBarriers {
  /** Send a timestamp instead of the value. */
  readonly timestamp?: boolean | undefined;
}

/** A control word with opcode and barriers, unsigned. */
export function packetCtl(opcode: number, barriers: PacketBarriers = {}): number {
  let ctl = opcode << PacketCtl.OPCODE_SHIFT;
  if (barriers.engBarrier === true) ctl |= PacketCtl.EB;
  if (barriers.regBarrier === true) ctl |= PacketCtl.RB;
  if (barriers.msgBarrier === true) ctl |= PacketCtl.MB;
  return ctl >>> 0;
}

/** The control word of LIN_DMA. The direction is not in it: the addresses imply it. */
export function linDmaCtl(asic: PacketAsic, options: LinDmaOptions = {}): number {
  let ctl = packetCtl(PacketOpcode.LIN_DMA, options);
  if (asic === 'gaudi') ctl |= GaudiLinDmaCtl.LIN;
  if (options.memset === true) ctl |= GaudiLinDmaCtl.MEMSET; // the same bit as on gaudi2
  if (options.wrComp === true) ctl |= GaudiLinDmaCtl.WRCOMP_EN; // the same bit as on gaudi2
  if (options.swapBytes !== undefined) ctl |= Math.log2(options.swapBytes) << Gaudi2LinDmaCtl.ENDIAN_SHIFT;
  return ctl >>> 0;
}

/** The control word of MSG_LONG. */
export function msgLongCtl(options: MsgOptions = {}): number {
  return msgOp(packetCtl(PacketOpcode.MSG_LONG, options), options);
}

/**
 * The control word of MSG_SHORT, which writes to CP_MSG_BASE[base] + offset.
 * @param base 0 to 3
 * @param offset bytes, 0 to 0xFFFF
 */
export function msgShortCtl(base: number, offset: number, options: MsgOptions = {}): number {
  const ctl = packetCtl(PacketOpcode.MSG_SHORT, options);
  return msgOp(ctl | ((base & 3) << MsgCtl.BASE_SHIFT) | (offset & MsgCtl.OFFSET_MASK), options);
}

function msgOp(ctl: number, options: MsgOptions): number {
  return (options.timestamp === true ? ctl | (1 << MsgCtl.OP_SHIFT) : ctl) >>> 0;
}

/**
 * The control word of WREG_32.
 * @param registerOffset bytes from the engine's own register block, 0 to 0xFFFF
 */
export function wreg32Ctl(registerOffset: number, barriers: PacketBarriers = {}): number {
  return wregCtl(PacketOpcode.WREG_32, registerOffset, barriers);
}

/**
 * The control word of WREG_BULK.
 * @param registerOffset like {@link wreg32Ctl}: the first register
 */
export function wregBulkCtl(registerOffset: number, barriers: PacketBarriers = {}): number {
  return wregCtl(PacketOpcode.WREG_BULK, registerOffset, barriers);
}

function wregCtl(opcode: number, registerOffset: number, barriers: PacketBarriers): number {
  return (packetCtl(opcode, barriers) | ((registerOffset << WregCtl.OFFSET_SHIFT) & WregCtl.OFFSET_MASK)) >>> 0;
}

/** The first word of FENCE: wait until counter `id` (0 to 3) is at least `target` (0 to 255), then subtract `decrement` (0 to 15). */
export function fenceCfg(id: number, target: number, decrement: number): number {
  const wait = ((target << FenceCfg.TARGET_VAL_SHIFT) & FenceCfg.TARGET_VAL_MASK) | (decrement & FenceCfg.DEC_VAL_MASK);
  return ((id << FenceCfg.ID_SHIFT) | wait) >>> 0;
}

/** The opcode of a control word; may be a number that {@link PacketOpcode} lacks. */
export function packetOpcode(ctl: number): number {
  return (ctl >>> PacketCtl.OPCODE_SHIFT) & 0x1f;
}

/** Whether the packet waits for its engine. */
export function packetEngBarrier(ctl: number): boolean {
  return (ctl & PacketCtl.EB) !== 0;
}

/** Whether the packet waits for earlier messages. */
export function packetMsgBarrier(ctl: number): boolean {
  return (ctl & PacketCtl.MB) !== 0;
}

const HAS_PREDICATE: ReadonlySet<number> = new Set([
  PacketOpcode.WREG_32,
  PacketOpcode.WREG_BULK,
  PacketOpcode.MSG_LONG,
  PacketOpcode.MSG_PROT,
  PacketOpcode.CP_DMA,
  PacketOpcode.REPEAT,
  PacketOpcode.FENCE,
  PacketOpcode.ARB_POINT,
  PacketOpcode.CB_LIST,
  PacketOpcode.LOAD_AND_EXE,
]);

/** Whether a packet has a predicate, in {@link PREDICATE_MASK} of its control word (hl-thunk). MSG_SHORT and LIN_DMA have other fields there. */
export function hasPredicate(opcode: number): boolean {
  return HAS_PREDICATE.has(opcode);
}

/** The predicate register that decides whether the packet executes; 0: always. */
export function packetPredicate(ctl: number): number {
  return ctl & PREDICATE_MASK;
}

/** Whether a LIN_DMA fills memory with a pattern. The bit is the same on gaudi and gaudi2. */
export function linDmaMemset(ctl: number): boolean {
  return (ctl & GaudiLinDmaCtl.MEMSET) !== 0;
}

/** Whether a LIN_DMA writes the engine's completion message. The bit is the same on gaudi and gaudi2. */
export function linDmaWrComp(ctl: number): boolean {
  return (ctl & GaudiLinDmaCtl.WRCOMP_EN) !== 0;
}

/** The operation of a message packet: 0 sends its value, 1 a timestamp. */
export function msgOperation(ctl: number): number {
  return (ctl & MsgCtl.OP_MASK) >>> MsgCtl.OP_SHIFT;
}

/** The CP_MSG_BASE register of a MSG_SHORT, 0 to 3. */
export function msgShortBase(ctl: number): number {
  return (ctl & MsgCtl.BASE_MASK) >>> MsgCtl.BASE_SHIFT;
}

/** The offset in bytes of a MSG_SHORT from its base. */
export function msgShortOffset(ctl: number): number {
  return ctl & MsgCtl.OFFSET_MASK;
}

/** The register of a WREG_32, or the first one of a WREG_BULK, in bytes from the engine's register block. */
export function wregOffset(ctl: number): number {
  return (ctl & WregCtl.OFFSET_MASK) >>> WregCtl.OFFSET_SHIFT;
}

/** Bytes of the elements whose byte order a LIN_DMA of gaudi2 reverses: 2, 4 or 8; 1 for none. */
export function linDmaSwapBytes(ctl: number): number {
  return 1 << ((ctl & Gaudi2LinDmaCtl.ENDIAN_MASK) >>> Gaudi2LinDmaCtl.ENDIAN_SHIFT);
}

/** The counter of a FENCE, from its first word. */
export function fenceId(cfg: number): number {
  return cfg >>> FenceCfg.ID_SHIFT;
}

/** The value that a FENCE waits for, from its first word. */
export function fenceTarget(cfg: number): number {
  return (cfg & FenceCfg.TARGET_VAL_MASK) >>> FenceCfg.TARGET_VAL_SHIFT;
}

/** What a FENCE subtracts, from its first word. */
export function fenceDecrement(cfg: number): number {
  return cfg & FenceCfg.DEC_VAL_MASK;
}

/** The priority of an ARB_POINT, from its first word: 8 bits on gaudi, 24 on gaudi2. */
export function arbPointPriority(asic: PacketAsic, cfg: number): number {
  return asic === 'gaudi' ? cfg & 0xff : cfg & 0xffffff;
}

/** Whether an ARB_POINT releases the arbiter, from its first word. */
export function arbPointRelease(cfg: number): boolean {
  return (cfg & ARB_POINT_RELEASE) !== 0;
}
