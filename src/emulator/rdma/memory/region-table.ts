/** The memory regions of an emulated RDMA device: their keys, and the accesses that they permit. It copies nothing. */

import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { AccessFlag } from '../../../verbs/abi.ts';
import type { DmaMemory } from './dma-memory.ts';

/** A registered region. */
export interface Region {
  readonly key: number;
  /** The protection domain. */
  readonly pd: object;
  readonly memory: DmaMemory;
  /** Address of its first byte in work requests. */
  readonly iova: number;
  /** Bits of AccessFlag. */
  readonly access: number;
}

/** The regions. The local and the remote key of a region are the same number. */
export class RegionTable {
  readonly #regions: Map<number, Region> = new Map();

  get size(): number {
    return this.#regions.size;
  }

  add(region: Omit<Region, 'key'>): Region {
    let key: number;
    do key = Buffer.from(systemRandomBytes(4)).readUInt32LE();
    while (key === 0 || this.#regions.has(key));
    const added = { ...region, key };
    this.#regions.set(key, added);
    return added;
  }

  remove(region: Region): void {
    if (this.#regions.delete(region.key)) region.memory.release();
  }

  /** The region of a key, if it belongs to the protection domain, contains the range and permits the access. */
  find(pd: object, key: number, address: number, byteLength: number, access: number): Region | undefined {
    const region = this.#regions.get(key);
    if (region === undefined || region.pd !== pd || (region.access & access) !== access) return undefined;
    const from = address - region.iova;
    return from >= 0 && from + byteLength <= region.memory.byteLength ? region : undefined;
  }
}

/** Whether access flags are permitted: remote writes and atomic operations need local writes. */
export function isValidAccess(access: number): boolean {
  const known =
    AccessFlag.LOCAL_WRITE |
    AccessFlag.REMOTE_WRITE |
    AccessFlag.REMOTE_READ |
    AccessFlag.REMOTE_ATOMIC |
    AccessFlag.RELAXED_ORDERING;
  const writes = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC;
  return (access & ~known) === 0 && ((access & writes) === 0 || (access & AccessFlag.LOCAL_WRITE) !== 0);
}
