/** Blocks of registers that the driver hands to users (MEMORY MAP_BLOCK): gaudi2 and later; gaudi refuses. */

import type { DriverMapping } from '../driver/port.ts';
import { HL_MEM_OP } from '../uapi/index.ts';
import { checkWord64 } from './argument-error.ts';
import type { CardFile, CardTarget } from './card-file.ts';

/** A block of registers. */
export class HwBlock {
  readonly #card: CardFile;
  readonly address: bigint;
  /** mmap cookie. */
  readonly handle: bigint;
  /** Bytes; only the whole block can be mapped. */
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
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS when it is none of the user's blocks; ERR_GAUDI_PERMISSION_DENIED on gaudi
 */
export function getHwBlock(target: CardTarget, address: bigint): HwBlock {
  checkWord64('address', address);
  const { card } = target;
  const input = { map_block_block_addr: address, op: HL_MEM_OP.MAP_BLOCK };
  const out = card.memory(input, `getHwBlock of 0x${address.toString(16)}`);
  return new HwBlock(card, address, out.block_handle, out.block_size);
}
