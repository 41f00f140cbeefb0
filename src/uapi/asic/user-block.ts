/** Type of a register block for users (MEMORY MAP_BLOCK). The blocks of a generation are in its profile. */

/** A register that a public header names. */
export interface BlockRegister {
  /** Name of the register without the name of the block. */
  readonly name: string;
  /** Byte offset in the block. */
  readonly offset: number;
}

/** A block of registers that MEMORY MAP_BLOCK hands out. */
export interface UserBlock {
  /** Name in the kernel's header, without prefix and suffix. */
  readonly name: string;
  readonly address: bigint;
  readonly size: number;
  /** Registers in ascending order of their offsets; empty for memory, and if no public header names them. */
  readonly registers: readonly BlockRegister[];
}
