/** Makers of the register blocks of a profile: see {@link UserBlock}. */

import type { BlockRegister, UserBlock } from './asic-profile.ts';

/** Consecutive registers of one word each. */
export function registerArray(name: string, offset: number, count: number, first = 0): BlockRegister[] {
  return Array.from({ length: count }, (_, index) => ({
    name: `${name}_${first + index}`,
    offset: offset + index * 4,
  }));
}

/** Makes a block at an offset from the base of the configuration space. */
export type UserBlockMaker = (
  name: string,
  offset: number,
  size: number,
  registersOf: () => readonly BlockRegister[],
) => UserBlock;

/** Makes blocks whose registers are listed at the first access: a generation has tens of thousands, which few processes read. */
export function userBlocksAt(base: bigint): UserBlockMaker {
  return (name, offset, size, registersOf) => ({
    name,
    address: base + BigInt(offset),
    size,
    get registers() {
      return registersOf();
    },
  });
}
