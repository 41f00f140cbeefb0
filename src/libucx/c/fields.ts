/** C structs in scratch memory, accessed by member name. Only for cold paths: creating and querying objects. */

import { allocateScratch, type InetAddress, type ScratchBlock, textAt, unpackSockaddr } from '../../sys/index.ts';
import type { AbiStruct } from './abi.ts';

const SOCKADDR_STORAGE_BYTES = 128;

/** A struct, initially zero. Free it after the call of libucp has returned. */
export class Fields<F extends Readonly<Record<string, number>>> implements Disposable {
  readonly block: ScratchBlock;
  readonly #at: F;

  constructor(struct: AbiStruct<F>) {
    this.block = allocateScratch(struct.size);
    this.#at = struct.at;
  }

  get address(): number {
    return this.block.address;
  }

  setU32(member: keyof F, value: number): this {
    this.block.view.setUint32(this.#at[member]!, value, true);
    return this;
  }

  /** Sets a 64-bit number or an address. */
  setU64(member: keyof F, value: number | bigint): this {
    this.block.view.setBigUint64(this.#at[member]!, BigInt(value), true);
    return this;
  }

  u64(member: keyof F): bigint {
    return this.block.view.getBigUint64(this.#at[member]!, true);
  }

  /** Reads an address, or a number below 2^53. */
  number(member: keyof F): number {
    return Number(this.u64(member));
  }

  /** Reads the C string that a member points to. */
  text(member: keyof F): string {
    return textAt(this.number(member));
  }

  /** The address in a member of type `sockaddr_storage`; undefined if libucp has set none. */
  inetAddress(member: keyof F): InetAddress | undefined {
    using address = allocateScratch(SOCKADDR_STORAGE_BYTES);
    const at = this.#at[member]!;
    address.u8.set(this.block.u8.subarray(at, at + SOCKADDR_STORAGE_BYTES));
    return unpackSockaddr(address);
  }

  [Symbol.dispose](): void {
    this.block.free();
  }
}

/** Eight bytes of memory for an output parameter: a handle or a number. */
export class OutValue implements Disposable {
  readonly block: ScratchBlock = allocateScratch(8);

  get address(): number {
    return this.block.address;
  }

  get value(): number {
    return Number(this.block.view.getBigUint64(0, true));
  }

  get int(): number {
    return this.block.view.getInt32(0, true);
  }

  [Symbol.dispose](): void {
    this.block.free();
  }
}
