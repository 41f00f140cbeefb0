/**
 * The register blocks of an open card for looking at, as far as UCX_GAUDI_COPY_HW_BLOCK_ACCESS lets a program. It writes no register.
 */

import {
  type Device,
  GaudiErrorCode,
  gaudiError,
  getHwBlock,
  type RegisterValue,
  readHwBlock,
  userBlockOf,
} from '../../../hlthunk/index.ts';
import type { Config } from '../../../ucs/config/config.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { GAUDI_COPY_CONFIG_TABLE } from './config.ts';

/** A block that the generation of a card has, and whether its driver hands it out. */
export interface RegisterBlock {
  /** Name of the kernel's headers, such as `NIC0_UMR0_0`. */
  readonly name: string;
  /** Address of the block on the card. */
  readonly address: bigint;
  /** Bytes as the driver says; as the headers say where it refuses. */
  readonly byteLength: number;
  /** Registers that public headers name. */
  readonly registers: number;
  /** Why the driver refuses; undefined when it does not. */
  readonly refusal: string | undefined;
}

/** The register blocks of one card. */
export class RegisterBlocks {
  readonly #device: Device;

  /**
   * @param device an open card; closing it ends this
   * @throws UcxError ERR_GAUDI_PERMISSION_DENIED where the configuration forbids it
   */
  constructor(device: Device, config: Config) {
    if (config.get(GAUDI_COPY_CONFIG_TABLE).HW_BLOCK_ACCESS === 'no') {
      throw gaudiError(
        GaudiErrorCode.PERMISSION_DENIED,
        'register blocks are hidden by UCX_GAUDI_COPY_HW_BLOCK_ACCESS=n',
      );
    }
    this.#device = device;
  }

  /** All blocks of the generation. Asks the driver about each; where there are none, about the first register, for its reason. */
  list(): RegisterBlock[] {
    const { profile } = this.#device.info;
    const blocks = profile.userBlocks;
    if (blocks.length === 0) {
      const registers = { name: 'registers', address: profile.cfg.start, size: 0, registers: [] };
      return [this.#look(registers)];
    }
    return blocks.map((block) => this.#look(block));
  }

  /**
   * The registers of a block and their values.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a name that the generation does not have; the refusal of the driver
   */
  read(name: string): RegisterValue[] {
    return readHwBlock(this.#device, userBlockOf(this.#device, name));
  }

  #look(block: { name: string; address: bigint; size: number; registers: readonly unknown[] }): RegisterBlock {
    const { name, address, size } = block;
    const registers = block.registers.length;
    try {
      const byteLength = getHwBlock(this.#device, address).size;
      return { name, address, byteLength, registers, refusal: undefined };
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return { name, address, byteLength: size, registers, refusal: error.message };
    }
  }
}
