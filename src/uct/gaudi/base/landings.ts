/**
 * Where a card writes bytes for an ArrayBuffer of the program. A program can give such a buffer away while a transfer is on its way (structuredClone,
 * postMessage, resize), and the collector may then give its memory to anyone: the card must never write there by itself. So it writes into a landing, pinned
 * memory of our own, and the bytes are copied at the end if the buffer is still there. Memory that only its owner can unmap needs none.
 */

import type { Device, HostMapping } from '../../../hlthunk/index.ts';
import { type MappedMemory, mapAnonymous } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';

/** Bytes of landings in use; beyond it transfers wait. One transfer alone may be longer. */
const IN_USE_BYTES_MAX: number = 256 * 2 ** 20;
/** What is kept for the next transfers. */
const IDLE_BYTES_MAX: number = 64 * 2 ** 20;
const IDLE_MAX = 32;
/** Landings are multiples of it. */
const GRANULE_BYTES = 65_536;

/** Host memory, as far as bytes are copied into it. */
export interface LandingTarget {
  readonly bytes: Uint8Array;
  /** False once the buffer was detached. */
  readonly attached: boolean;
}

/** One landing, and the transfer that it is for. */
export class Landing {
  readonly mapping: HostMapping;
  readonly memory: MappedMemory;
  target: LandingTarget | undefined = undefined;
  /** Byte of the target. */
  offset = 0;
  byteLength = 0;
  completion: Completion | undefined = undefined;
  /** The registration of the target, which counts the transfer. */
  held: HostMapping | undefined = undefined;

  constructor(memory: MappedMemory, mapping: HostMapping) {
    this.memory = memory;
    this.mapping = mapping;
  }

  /** Copies the bytes to where they belong; INVALID_ADDR where that is gone. */
  deliver(): Status {
    const { target, offset, byteLength } = this;
    if (target === undefined || !target.attached) return Status.INVALID_ADDR;
    target.bytes.set(this.memory.u8.subarray(0, byteLength), offset);
    return Status.OK;
  }
}

/** The landings of one card. */
export class Landings {
  readonly #device: Device;
  readonly #idle: Landing[] = [];
  #idleBytes = 0;
  #inUseBytes = 0;

  constructor(device: Device) {
    this.#device = device;
  }

  /**
   * A landing for bytes that belong into `target` at `offset`.
   * @param held the mapping of the target in this card: it cannot be given back until the end
   * @returns undefined while too much is in use
   * @throws UcxError ERR_GAUDI_OUT_OF_MEMORY and others of hostMemoryMap; SyscallError ENOMEM
   */
  take(target: LandingTarget, held: HostMapping, offset: number, byteLength: number): Landing | undefined {
    if (this.#inUseBytes > 0 && this.#inUseBytes + byteLength > IN_USE_BYTES_MAX) return undefined;
    const landing = this.#takeIdle(byteLength) ?? this.#make(byteLength);
    this.#inUseBytes += landing.memory.byteLength;
    held.retain();
    landing.held = held;
    landing.target = target;
    landing.offset = offset;
    landing.byteLength = byteLength;
    return landing;
  }

  /** Takes a landing back. */
  give(landing: Landing): void {
    landing.held?.release();
    landing.held = undefined;
    landing.target = undefined;
    landing.completion = undefined;
    const { byteLength } = landing.memory;
    this.#inUseBytes -= byteLength;
    this.#idle.push(landing);
    this.#idleBytes += byteLength;
    while (this.#idleBytes > IDLE_BYTES_MAX || this.#idle.length > IDLE_MAX) this.#release(0);
  }

  /** Gives all memory back. No transfer is on its way. */
  close(): void {
    while (this.#idle.length > 0) this.#release(0);
  }

  /** The one that was used last of those that fit without wasting more than half. */
  #takeIdle(byteLength: number): Landing | undefined {
    const most = Math.max(GRANULE_BYTES, 2 * byteLength);
    const at = this.#idle.findLastIndex(({ memory }) => memory.byteLength >= byteLength && memory.byteLength <= most);
    if (at < 0) return undefined;
    const [landing] = this.#idle.splice(at, 1);
    this.#idleBytes -= landing!.memory.byteLength;
    return landing;
  }

  #make(byteLength: number): Landing {
    const memory = mapAnonymous(Math.ceil(byteLength / GRANULE_BYTES) * GRANULE_BYTES);
    try {
      return new Landing(memory, this.#device.hostMemoryMap(memory.address, memory.byteLength));
    } catch (error) {
      memory.close();
      throw error;
    }
  }

  #release(at: number): void {
    const [landing] = this.#idle.splice(at, 1);
    this.#idleBytes -= landing!.memory.byteLength;
    // A card that is closed has dropped its mappings.
    if (landing!.mapping.live) landing!.mapping.unmap();
    landing!.memory.close();
  }
}
