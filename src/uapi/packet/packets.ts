/**
 * QMAN packets: their sizes, and hot-path encoders that write into the words of a command buffer without allocation. Control words are computed beforehand
 * by packet-ctl.ts.
 *
 * Encoders take the index of the first 32-bit word and return the index after the packet. 64-bit values are two words, low first. A negative or large
 * number in a word is stored modulo 2^32, as a Uint32Array does.
 */

import { PacketOpcode } from './packet-ctl.ts';

/** Bytes of LIN_DMA. */
export const LIN_DMA_BYTES = 24;

/** Bytes of MSG_LONG and MSG_PROT. */
export const MSG_LONG_BYTES = 16;

/** Bytes of CP_DMA. */
export const CP_DMA_BYTES = 16;

/** Bytes of the shortest packets: NOP, FENCE, MSG_SHORT, WREG_32, REPEAT, STOP, ARB_POINT, WAIT. */
export const SHORT_PACKET_BYTES = 8;

/** Maximum number of bytes that one LIN_DMA moves: its size is a 32-bit field. */
export const LIN_DMA_MAX_BYTES = 0xffffffff;

/** Word of a packet that holds the value, size or configuration. */
export const PACKET_VALUE_WORD = 0;

/** Word of a packet that holds the control word. */
export const PACKET_CTL_WORD = 1;

const BYTES_OF_OPCODE: Uint8Array = buildSizes();

function buildSizes(): Uint8Array {
  const sizes = new Uint8Array(32);
  for (const opcode of Object.values(PacketOpcode)) sizes[opcode] = SHORT_PACKET_BYTES;
  sizes[PacketOpcode.MSG_LONG] = MSG_LONG_BYTES;
  sizes[PacketOpcode.MSG_PROT] = MSG_LONG_BYTES;
  sizes[PacketOpcode.CP_DMA] = CP_DMA_BYTES;
  sizes[PacketOpcode.LIN_DMA] = LIN_DMA_BYTES;
  sizes[PacketOpcode.CB_LIST] = 24;
  sizes[PacketOpcode.LOAD_AND_EXE] = 16;
  sizes[PacketOpcode.WREG_64_LONG] = 16;
  // The driver has no struct for it, and its interpretation by the hardware is not public: treated as an unknown packet.
  sizes[PacketOpcode.LAST_READ_FROM_ARC] = 0;
  return sizes;
}

/**
 * Bytes of a packet by opcode; 0 for an opcode that no ASIC has. WREG_BULK gives its 8 bytes of header: {@link wregBulkBytes}
 * adds the values.
 */
export function packetBytes(opcode: number): number {
  return BYTES_OF_OPCODE[opcode] ?? 0;
}

/** Bytes of a whole WREG_BULK; `size64` is the low 16 bits of its first word, a count of 64-bit values. */
export function wregBulkBytes(firstWord: number): number {
  return SHORT_PACKET_BYTES + (firstWord & 0xffff) * 8;
}

/**
 * Writes a LIN_DMA: copies `tsize` bytes, or fills them with the 64-bit pattern in the source words (memset bit of `ctl`).
 * @param tsize bytes, 0 to `LIN_DMA_MAX_BYTES`
 */
export function writeLinDma(
  words: Uint32Array,
  index: number,
  ctl: number,
  tsize: number,
  srcLo: number,
  srcHi: number,
  dstLo: number,
  dstHi: number,
): number {
  words[index] = tsize;
  words[index + 1] = ctl;
  words[index + 2] = srcLo;
  words[index + 3] = srcHi;
  words[index + 4] = dstLo;
  words[index + 5] = dstHi;
  return index + 6;
}

/** Writes a MSG_LONG: stores the 32-bit `value` at an address. */
export function writeMsgLong(
  words: Uint32Array,
  index: number,
  ctl: number,
  value: number,
  addrLo: number,
  addrHi: number,
): number {
  words[index] = value;
  words[index + 1] = ctl;
  words[index + 2] = addrLo;
  words[index + 3] = addrHi;
  return index + 4;
}

/** Writes a CP_DMA: the lower CP fetches and runs `tsize` bytes of packets. */
export function writeCpDma(
  words: Uint32Array,
  index: number,
  ctl: number,
  tsize: number,
  srcLo: number,
  srcHi: number,
): number {
  return writeMsgLong(words, index, ctl, tsize, srcLo, srcHi);
}

/** Writes a packet of two words: the value, size or configuration, then the control word. */
export function writeShortPacket(words: Uint32Array, index: number, ctl: number, value: number): number {
  words[index] = value;
  words[index + 1] = ctl;
  return index + 2;
}

/** Writes a MSG_SHORT: stores the 32-bit `value` at the base and offset of `ctl`. */
export function writeMsgShort(words: Uint32Array, index: number, ctl: number, value: number): number {
  return writeShortPacket(words, index, ctl, value);
}

/** Writes a WREG_32: stores `value` in the engine's register that `ctl` names. */
export function writeWreg32(words: Uint32Array, index: number, ctl: number, value: number): number {
  return writeShortPacket(words, index, ctl, value);
}

/** Writes a FENCE; `cfg` comes from fenceCfg. */
export function writeFence(words: Uint32Array, index: number, ctl: number, cfg: number): number {
  return writeShortPacket(words, index, ctl, cfg);
}

/** Writes an ARB_POINT; `cfg` is the priority, or ARB_POINT_RELEASE. */
export function writeArbPoint(words: Uint32Array, index: number, ctl: number, cfg: number): number {
  return writeShortPacket(words, index, ctl, cfg);
}

/** Writes a NOP. */
export function writeNop(words: Uint32Array, index: number, ctl: number): number {
  return writeShortPacket(words, index, ctl, 0);
}

/** Writes a LOAD_AND_EXE; `cfg` is made of the bits of LoadAndExeCfg. */
export function writeLoadAndExe(
  words: Uint32Array,
  index: number,
  ctl: number,
  cfg: number,
  srcLo: number,
  srcHi: number,
): number {
  return writeMsgLong(words, index, ctl, cfg, srcLo, srcHi);
}

/** Writes a CB_LIST of gaudi2: reads the 32-bit word at the index address, and runs the table entry with that index, a CP_DMA packet. */
export function writeCbList(
  words: Uint32Array,
  index: number,
  ctl: number,
  [indexLo, indexHi]: readonly [number, number],
  [tableLo, tableHi]: readonly [number, number],
): number {
  return writeLinDma(words, index, ctl, 0, indexLo, indexHi, tableLo, tableHi);
}
