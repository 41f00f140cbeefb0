/** Read access to the register blocks of an open card, as far as UCX_GAUDI_COPY_HW_BLOCK_ACCESS permits. */

import {
  Device,
  GaudiErrorCode,
  gaudiError,
  getHwBlock,
  type RegisterValue,
  readHwBlock,
  userBlockOf,
} from '../../../hlthunk/index.ts';
import type { ConfigValues } from '../../../ucs/config/config.ts';
import { checkMethods } from '../../../ucs/type/check-options.ts';
import { invalidParam, isUcxError } from '../../../ucs/type/error.ts';
import { GAUDI_COPY_CONFIG_TABLE } from './config.ts';

/** A block of the generation of a card, and whether the driver maps it. */
export interface RegisterBlock {
  /** Name in the kernel's headers, such as `NIC0_UMR0_0`. */
  readonly name: string;
  /** Address of the block on the card. */
  readonly address: bigint;
  /** Length in bytes as reported by the driver, or as in the headers if the driver does not map the block. */
  readonly byteLength: number;
  /** Number of registers with a name in public headers. */
  readonly registers: number;
  /** The reason why the driver does not map the block; undefined if it does. */
  readonly refusal: string | undefined;
}

/** The register blocks of one card. */
export class RegisterBlocks {
  readonly #device: Device;

  /**
   * @param device an open card; this object becomes invalid when it is closed
   * @throws UcxError ERR_INVALID_PARAM; ERR_GAUDI_PERMISSION_DENIED if the configuration forbids it
   */
  constructor(device: Device, config: ConfigValues) {
    if (!Device.isGenuine(device)) throw invalidParam('device', 'must be an open card', device);
    checkMethods('config', config, ['get']);
    if (config.get(GAUDI_COPY_CONFIG_TABLE).HW_BLOCK_ACCESS === 'no') {
      throw gaudiError(
        GaudiErrorCode.PERMISSION_DENIED,
        'register blocks are hidden by UCX_GAUDI_COPY_HW_BLOCK_ACCESS=n',
      );
    }
    this.#device = device;
  }

  /**
   * All blocks of the generation, each queried from the driver. If the generation has none, queries the first register, to obtain the reason from the driver.
   */
  list(): RegisterBlock[] {
    const { profile } = this.#device.info;
    const blocks = profile.userBlocks;
    if (blocks.length === 0) {
      const registers = { name: 'registers', address: profile.cfg.start, size: 0, registers: [] };
      return [this.#read(registers)];
    }
    return blocks.map((block) => this.#read(block));
  }

  /**
   * The registers of a block and their values.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a name that the generation does not have, and the errors of the driver
   */
  read(name: string): RegisterValue[] {
    return readHwBlock(this.#device, userBlockOf(this.#device, name));
  }

  #read(block: { name: string; address: bigint; size: number; registers: readonly unknown[] }): RegisterBlock {
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
