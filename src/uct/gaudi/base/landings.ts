/**
 * Landings, bounce buffers for reads from a card: pinned memory of this library to which the card writes bytes for an ArrayBuffer of the program. During a
 * DMA transfer a program can transfer such a buffer elsewhere (structuredClone, postMessage, resize), and the collector may then reuse its memory, so the
 * card must never write to it directly. At the end of the transfer the bytes are copied if the buffer is still attached. Memory that only its owner can unmap
 * does not need a landing.
 */

import type { Device, HostMapping } from '../../../hlthunk/index.ts';
import { type MappedMemory, mapAnonymous } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';

/** Maximum bytes of landings in use; beyond it transfers wait. A single transfer may exceed it. */
const IN_USE_BYTES_MAX: number = 256 * 2 ** 20;
/** Maximum bytes kept for later transfers. */
const IDLE_BYTES_MAX: number = 64 * 2 ** 20;
const IDLE_MAX = 32;
/** Lengths of landings are multiples of this. */
const GRANULE_BYTES = 65_536;

/** Destination of the copy from a landing. */
export interface LandingTarget {
  readonly bytes: Uint8Array;
  /** False after the buffer was detached. */
  readonly attached: boolean;
}

/** A landing and its transfer. */
export class Landing {
  readonly mapping: HostMapping;
  readonly memory: MappedMemory;
  target: LandingTarget | undefined = undefined;
  /** Offset in the target. */
  offset = 0;
  byteLength = 0;
  completion: Completion | undefined = undefined;
  /** The mapping of the target, which counts the transfer as in flight. */
  held: HostMapping | undefined = undefined;

  constructor(memory: MappedMemory, mapping: HostMapping) {
    this.memory = memory;
    this.mapping = mapping;
  }

  /** Copies the bytes to the target; INVALID_ADDR if it was detached. */
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
   * Returns a landing for bytes whose destination is `target` at `offset`.
   * @param held the mapping of the target in this card, which cannot be unmapped until the transfer has ended
   * @returns undefined while too many bytes are in use
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

  /** Returns a landing to the pool. */
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

  /** Releases all memory. Transfers must have ended. */
  close(): void {
    while (this.#idle.length > 0) this.#release(0);
  }

  /** The most recently used landing that is long enough and at most twice as long, or one granule. */
  #takeIdle(byteLength: number): Landing | undefined {
    const most = Math.max(GRANULE_BYTES, 2 * byteLength);
    const at = this.#idle.findLastIndex(({ memory }) => memory.byteLength >= byteLength && memory.byteLength <= most);
    if (at < 0) return undefined;
    const landing = this.#idle.splice(at, 1)[0]!;
    this.#idleBytes -= landing.memory.byteLength;
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
    const landing = this.#idle.splice(at, 1)[0]!;
    this.#idleBytes -= landing.memory.byteLength;
    // The mapping is not live after the card was closed, which drops all mappings.
    if (landing.mapping.live) landing.mapping.unmap();
    landing.memory.close();
  }
}
