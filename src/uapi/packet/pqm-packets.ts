/**
 * Packets of the PDMA channels of gaudi3: opcodes, control bits, sizes, and the encoders of those that hlthunk writes.
 *
 * Source: gaudi3_pqm_packets.h (specs_h9) and pqm_packets.cpp (synapse) of Intel_Gaudi3_Software. The control word is the second one, with the opcode in bits
 * 24 to 28 and the predicate in bits 0 to 4. None of it has been tested on a card.
 */

/** Opcodes. */
export const PqmOpcode = {
  WREG_32: 0x1,
  WREG_BULK: 0x2,
  MSG_LONG: 0x3,
  MSG_SHORT: 0x4,
  FENCE: 0x8,
  LIN_PDMA: 0x9,
  NOP: 0xa,
  STOP: 0xb,
  WAIT: 0xd,
  WREG_64_SHORT: 0x12,
  WREG_64_LONG: 0x13,
  CH_WREG_32: 0x14,
  CH_WREG_BULK: 0x15,
  CH_WREG_64_SHORT: 0x16,
  CH_WREG_64_LONG: 0x17,
} as const;

/** Bits of the control word of LIN_PDMA. */
export const LinPdmaCtl = {
  /** Number of write completions; the vendor's software uses at most one. */
  WRCOMP_MASK: 0x3,
  ENDIAN_SHIFT: 2,
  ENDIAN_MASK: 0xc,
  /** The source words are a pattern of 64 bits. */
  MEMSET: 0x10,
  /** Waits for a fence before the transfer. */
  FENCE: 0x20,
  /** The high word of the completion address is in a register, and not in the packet. */
  WRCOMP_HIGH_IN_REGISTER: 0x40,
  /** Bits 7, 9 and 10: further completions, and addresses of which a part is in registers. How they work is not public. */
  UNKNOWN_MASK: 0x680,
  /** Must be set. */
  COMMIT: 0x800,
  /** The transfer advances the completion counter. */
  ADVANCE_COUNTER: 0x1000,
  /** Host to device. */
  TO_DEVICE: 0x2000,
} as const;

/** Bit of the first word of NOP: waits for the effects of earlier messages. */
export const PQM_NOP_BARRIER = 0x1;

/** Bytes of a LIN_PDMA without write completion and fence. */
export const LIN_PDMA_BYTES = 24;

/** Bytes of a LIN_PDMA with one write completion: address, data, and the word of the fence. */
export const LIN_PDMA_COMPLETION_BYTES = 40;

/** Bytes of a LIN_PDMA with a fence but no write completion. */
export const LIN_PDMA_FENCE_BYTES = 32;

/** Bytes of the shortest packets. */
export const PQM_SHORT_BYTES = 8;

/** Maximum number of bytes that one LIN_PDMA moves. */
export const LIN_PDMA_MAX_BYTES = 0xffff_ffff;

const OPCODE_SHIFT = 24;

/** The control word of a NOP, which fills the end of a ring. */
export const PQM_NOP_CTL: number = PqmOpcode.NOP << OPCODE_SHIFT;

/**
 * The control word of a LIN_PDMA that copies.
 * @param toDevice from host memory to device memory
 * @param signals whether it advances the completion counter
 */
export function linPdmaCtl(toDevice: boolean, signals: boolean): number {
  // inc_context_id (bit 8) as the vendor's software sets it.
  const always = (PqmOpcode.LIN_PDMA << OPCODE_SHIFT) | LinPdmaCtl.COMMIT | 0x100;
  return always | (toDevice ? LinPdmaCtl.TO_DEVICE : 0) | (signals ? LinPdmaCtl.ADVANCE_COUNTER : 0);
}

/** Opcode of a packet by its control word. */
export function pqmOpcode(ctl: number): number {
  return (ctl >>> OPCODE_SHIFT) & 0x1f;
}

/**
 * Bytes of a packet by its first two words; 0 for an unknown opcode. WREG_BULK and CH_WREG_BULK include their values of 64 bits (inferred).
 */
export function pqmPacketBytes(value: number, ctl: number): number {
  switch (pqmOpcode(ctl)) {
    case PqmOpcode.LIN_PDMA:
      return linPdmaBytes(ctl);
    case PqmOpcode.MSG_LONG:
    case PqmOpcode.WREG_64_LONG:
    case PqmOpcode.CH_WREG_64_LONG:
      return 2 * PQM_SHORT_BYTES;
    case PqmOpcode.WREG_BULK:
    case PqmOpcode.CH_WREG_BULK:
      return PQM_SHORT_BYTES + (value & 0xffff) * 8;
    case PqmOpcode.WREG_32:
    case PqmOpcode.MSG_SHORT:
    case PqmOpcode.FENCE:
    case PqmOpcode.NOP:
    case PqmOpcode.STOP:
    case PqmOpcode.WAIT:
    case PqmOpcode.WREG_64_SHORT:
    case PqmOpcode.CH_WREG_32:
    case PqmOpcode.CH_WREG_64_SHORT:
      return PQM_SHORT_BYTES;
    default:
      return 0;
  }
}

function linPdmaBytes(ctl: number): number {
  if ((ctl & LinPdmaCtl.WRCOMP_MASK) !== 0) return LIN_PDMA_COMPLETION_BYTES;
  return (ctl & LinPdmaCtl.FENCE) === 0 ? LIN_PDMA_BYTES : LIN_PDMA_FENCE_BYTES;
}
