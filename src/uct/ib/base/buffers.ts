/** Registered memory of an interface, in slots of one length: for received messages, and for bytes that are copied before they are sent. */

import { type MappedMemory, mapAnonymous } from '../../../sys/index.ts';
import { AccessFlag } from '../../../verbs/abi.ts';
import type { MemoryRegion } from '../../../verbs/port.ts';
import type { IbDevice } from './ib-device.ts';

/** The slots. */
export class Buffers {
  readonly slotBytes: number;
  readonly count: number;
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  readonly lkey: number;
  readonly #memory: MappedMemory;
  readonly #region: MemoryRegion;
  readonly #free: Int32Array;
  #numFree: number;

  /** @throws SyscallError ENOMEM */
  constructor({ pd }: IbDevice, count: number, slotBytes: number) {
    this.slotBytes = slotBytes;
    this.count = count;
    this.#memory = mapAnonymous(count * slotBytes);
    this.bytes = this.#memory.u8;
    this.words = new Int32Array(this.#memory.buffer, 0, (count * slotBytes) / 4);
    const { address, byteLength } = this.#memory;
    try {
      this.#region = pd.regMr(address, byteLength, address, AccessFlag.LOCAL_WRITE);
    } catch (error) {
      this.#memory.close();
      throw error;
    }
    this.lkey = this.#region.lkey;
    this.#free = Int32Array.from({ length: count }, (_, i) => count - 1 - i);
    this.#numFree = count;
  }

  get numFree(): number {
    return this.#numFree;
  }

  /** Takes a slot; -1 if there is none. */
  take(): number {
    if (this.#numFree === 0) return -1;
    this.#numFree -= 1;
    return this.#free[this.#numFree]!;
  }

  give(slot: number): void {
    this.#free[this.#numFree] = slot;
    this.#numFree += 1;
  }

  /** Address of a slot, for work requests. */
  addressOf(slot: number): number {
    return this.#memory.address + slot * this.slotBytes;
  }

  close(): void {
    this.#region.close();
    this.#memory.close();
  }
}
