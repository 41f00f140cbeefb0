/** A reservation of encapsulated signals, as returned by reserveEncapsSignals. Reserving and waiting are in signals.ts. */

import { invalidArgument } from '../base/argument-error.ts';
import type { CardFile } from '../base/card-file.ts';

/** Signals of a queue, to be raised by packets of the program. */
export class EncapsSignals {
  readonly #card: CardFile;
  /** The driver's id of the reservation. */
  readonly id: number;
  /** Offset of the sync object from the base of the card's registers (cfg.start of its profile): packets add to it. */
  readonly sobBaseAddrOffset: number;
  /** Value of the sync object after the first signal that follows the reservation. At `count - 1`, all reserved signals have been raised. */
  readonly count: number;
  /** False once a submission has consumed the reservation, or it was released. */
  live = true;

  constructor(card: CardFile, id: number, sobBaseAddrOffset: number, count: number) {
    this.#card = card;
    this.id = id;
    this.sobBaseAddrOffset = sobBaseAddrOffset;
    this.count = count;
  }

  /** Whether a value is a reservation made by this class, not an object that imitates one. */
  static isGenuine(value: unknown): value is EncapsSignals {
    return typeof value === 'object' && value !== null && #card in value;
  }

  /** The open file of the card. */
  get card(): CardFile {
    return this.#card;
  }
}

/** Throws ERR_GAUDI_INVALID_PARAMS unless it is a live reservation of the card. */
export function checkReserved(argument: string, signals: EncapsSignals, card: CardFile): void {
  if (!EncapsSignals.isGenuine(signals) || signals.card !== card) {
    const shown = EncapsSignals.isGenuine(signals) ? signals.card.name : signals;
    throw invalidArgument(argument, `must be signals reserved on ${card.name}`, shown);
  }
  if (!signals.live) throw invalidArgument(argument, 'must not have been used or given back', signals.id);
}
