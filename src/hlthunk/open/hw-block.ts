/**
 * Register blocks that the driver maps for users (MEMORY MAP_BLOCK), and their contents: gaudi2 and later; gaudi rejects the call. The profile of the
 * generation lists the blocks; the driver decides which of them it maps.
 */

import type { DriverMapping } from '../../driver/port.ts';
import { HL_MEM_OP, type UserBlock } from '../../uapi/index.ts';
import { type CardFile, type CardTarget, cardOf } from '../base/card-file.ts';
import { checkObject, checkText, checkWord64, invalidArgument } from '../base/gaudi-error.ts';
import { checkDevice, type Device } from './device.ts';

const WORD_BYTES = 4;

/** A register and its value. */
export interface RegisterValue {
  /** Byte offset in the block. */
  readonly offset: number;
  /** Undefined for a word of a block whose registers are not named in public headers. */
  readonly name: string | undefined;
  /** Unsigned 32 bits. */
  readonly value: number;
}

/** A block of registers. */
export class HwBlock {
  readonly #card: CardFile;
  /** Address of the block on the card. */
  readonly address: bigint;
  /** mmap cookie. */
  readonly handle: bigint;
  /** Size in bytes; only the whole block can be mapped. */
  readonly size: number;

  constructor(card: CardFile, address: bigint, handle: bigint, size: number) {
    this.#card = card;
    this.address = address;
    this.handle = handle;
    this.size = size;
  }

  /**
   * Maps the block. Its `close` removes the mapping; closing the device does too.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS, ERR_GAUDI_OUT_OF_MEMORY
   */
  map(): DriverMapping {
    const card = this.#card;
    const mapping = card.mmap(this.size, this.handle, `map of the block at 0x${this.address.toString(16)}`);
    const { address, byteLength, buffer } = mapping;
    return { address, byteLength, buffer, close: () => card.unmap(mapping) };
  }
}

/**
 * The block of registers at a device address.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS if it is not a block for users; ERR_GAUDI_PERMISSION_DENIED on gaudi
 */
export function getHwBlock(target: CardTarget, address: bigint): HwBlock {
  checkWord64('address', address);
  const card = cardOf(target);
  const input = { map_block_block_addr: address, op: HL_MEM_OP.MAP_BLOCK };
  const out = card.memory(input, `getHwBlock of 0x${address.toString(16)}`);
  return new HwBlock(card, address, out.block_handle, out.block_size);
}

/**
 * Finds a block by its name in the kernel's headers, such as `NIC0_UMR0_0`, in upper or lower case.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a name that this generation does not have
 */
export function userBlockOf(device: Device, name: string): UserBlock {
  checkDevice(device);
  checkText('name', name);
  const { profile } = device.info;
  const found = profile.userBlocks.find((block) => block.name === name.toUpperCase());
  if (found === undefined) throw invalidArgument('name', `must be a register block of ${profile.name}`, name);
  return found;
}

/**
 * Reads the registers of a block: those named in public headers, or every word of a block without such names. The block is mapped during the call. Does not
 * write.
 * @throws UcxError as {@link getHwBlock} and {@link HwBlock.map}
 */
export function readHwBlock(device: Device, block: UserBlock): RegisterValue[] {
  checkDevice(device);
  checkBlock(block);
  const mapping = getHwBlock(device, block.address).map();
  try {
    const words = new Uint32Array(mapping.buffer, 0, mapping.byteLength / WORD_BYTES);
    const at = (offset: number): number => words[offset / WORD_BYTES]!;
    if (block.registers.length === 0) {
      return Array.from(words, (value, index) => ({ offset: index * WORD_BYTES, name: undefined, value }));
    }
    return block.registers.map(({ name, offset }) => ({ offset, name, value: at(offset) }));
  } finally {
    mapping.close();
  }
}

function checkBlock(block: UserBlock): void {
  checkObject('block', block);
  if (!Array.isArray(block.registers)) throw invalidArgument('block.registers', 'must be an array', block.registers);
  for (const register of block.registers) checkObject('block.registers', register);
}
