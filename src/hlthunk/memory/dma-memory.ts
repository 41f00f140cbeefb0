/**
 * Memory that a card can access, for DMA transfers: a device address, a length, and the number of transfers that use it. The base class of host mappings,
 * blocks of device memory and imported dma-bufs, which own further resources.
 */

import { joinBig } from '../../ucs/type/int64.ts';
import type { CardFile } from '../base/card-file.ts';
import { GaudiErrorCode, gaudiError, invalidArgument } from '../base/gaudi-error.ts';

/** A range of device addresses. */
export interface CardRange {
  readonly card: CardFile;
  readonly address: bigint;
  readonly byteLength: number;
}

/** A range of device addresses of one card. */
export abstract class DmaMemory {
  /** The open card whose address space the range is in. */
  readonly card: CardFile;
  /** Low word of the device address of the first byte, as a signed 32-bit number. */
  readonly low: number;
  /** High word of the device address, as a signed 32-bit number. */
  readonly high: number;
  /** Bytes. */
  readonly byteLength: number;
  /** False once the range was released or its device was closed. */
  live = true;
  /** Number of transfers that use the range at present. */
  inFlight = 0;
  readonly #generation: number;

  constructor(card: CardFile, low: number, high: number, byteLength: number) {
    this.card = card;
    this.low = low;
    this.high = high;
    this.byteLength = byteLength;
    this.#generation = nextGeneration();
  }

  /** Whether a value is a range made by this class, rather than an object that imitates one: its count prevents the release of memory. */
  static isGenuine(value: unknown): value is DmaMemory {
    return typeof value === 'object' && value !== null && #generation in value;
  }

  /** Unique in this process: distinguishes this range from a later one at the same address. */
  get generation(): number {
    return this.#generation;
  }

  /** The device address of the first byte, unsigned. Cold: allocates a bigint. */
  get address(): bigint {
    return joinBig(this.low, this.high);
  }

  /** Counts a transfer that uses the range, which cannot be released meanwhile. */
  retain(): void {
    this.inFlight += 1;
  }

  /** Undoes {@link retain}. */
  release(): void {
    this.inFlight -= 1;
  }
}

/**
 * Checks that a range may be released.
 * @param card the expected card
 * @param name of the argument in errors: block, mapping
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a range of another card, and for a range that was released before; ERR_GAUDI_DEVICE_BUSY while a transfer uses
 *   it
 */
export function checkUnused(memory: DmaMemory, card: CardFile, name: string): void {
  if (!DmaMemory.isGenuine(memory) || memory.card !== card) {
    throw invalidArgument(name, `must be memory of ${card.name}`, foreignName(memory));
  }
  if (!memory.live) throw invalidArgument(name, 'must not be released twice', memory.address);
  if (memory.inFlight === 0) return;
  const address = `0x${memory.address.toString(16)}`;
  throw gaudiError(
    GaudiErrorCode.DEVICE_BUSY,
    `${name} at ${address} of ${memory.card.name} has ${memory.inFlight} transfers in flight: wait for them first`,
    { address, inFlight: memory.inFlight },
  );
}

/** Describes memory that does not belong to the card, for errors: the name of its card, if it has one. */
export function foreignName(memory: unknown): unknown {
  return DmaMemory.isGenuine(memory) ? memory.card.name : memory;
}

let lastGeneration = 0;

/** A number that differs from those of all earlier ranges, mappings and arenas of this process. */
export function nextGeneration(): number {
  lastGeneration += 1;
  return lastGeneration;
}
