/** What a block of registers for users is (MEMORY MAP_BLOCK). The blocks of a generation are in its profile. */

/** A register that a public header names. */
export interface BlockRegister {
  /** Without the name of the block. */
  readonly name: string;
  /** Byte of the block. */
  readonly offset: number;
}

/** A block of registers that MEMORY MAP_BLOCK hands out. */
export interface UserBlock {
  /** As the kernel's header has it, without prefix and suffix. */
  readonly name: string;
  readonly address: bigint;
  readonly size: number;
  /** By rising offset; empty for memory, and where no public header names them. */
  readonly registers: readonly BlockRegister[];
}
