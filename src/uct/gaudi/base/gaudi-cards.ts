/**
 * The cards of one program: chosen by the environment or detected, and all opened at once, so that a card that cannot be used is
 * known at the start and not at the first transfer.
 */

import { type Device, type DriverNode, GaudiErrorCode, gaudiError, open } from '../../../hlthunk/index.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { isUcxError, UcxError } from '../../../ucs/type/error.ts';
import { type CardChoice, chosenCards } from './card-choice.ts';
import { Landings } from './landings.ts';
import type { MappedCard } from './mapping-table.ts';

/** An open card under its logical index. */
export interface GaudiCard {
  /** Logical index: the name of the card towards users, and its system device. */
  readonly index: number;
  readonly device: Device;
  readonly landings: Landings;
  /** False for a device that the application has opened, and closes. */
  readonly isOwned: boolean;
  /** Transfers of the context that are on their way. */
  inFlight: number;
}

/** Where the cards come from. */
export interface GaudiCardsOptions {
  readonly node: DriverNode;
  /** What the environment says. */
  readonly choice: CardChoice;
  readonly log: Log;
  readonly clock: Clock;
  /** Told of a card that does not open, without a mapping table. */
  readonly onLeftOut: (name: string, error: UcxError) => void;
  /** Whether the program wants the card with this name; absent where it wants all. */
  readonly isWanted?: ((name: string) => boolean) | undefined;
}

/** The device name of a card towards users. */
export function cardName(index: number): string {
  return `gaudi${index}`;
}

/**
 * Opens the cards.
 *
 * With a mapping table every card in it must open. Without one, a card that another process has open is left out, as long as one opens.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE; ERR_INVALID_PARAM for another list of cards that is none; ERR_GAUDI_DEVICE_NOT_FOUND without any card; the refusal of the card otherwise
 */
export function openGaudiCards(options: GaudiCardsOptions): GaudiCard[] {
  const { node, choice, log, clock, isWanted, onLeftOut } = options;
  const entries = node.cards();
  if (node.lostReason !== undefined) throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, node.lostReason);
  const all = chosenCards(choice, entries);
  const mapped = isWanted === undefined ? all : all.filter(({ index }) => isWanted(cardName(index)));
  const opened: GaudiCard[] = [];
  let refusal: UcxError | undefined;
  for (const card of mapped) {
    try {
      opened.push(openCard(node, card, log, clock));
    } catch (error) {
      if (!isUcxError(error)) throw error;
      if (choice.mappingTable !== undefined) {
        closeGaudiCards(opened);
        throw error.code === GaudiErrorCode.DEVICE_BUSY ? withAdvice(error) : error;
      }
      refusal = error;
      onLeftOut(cardName(card.index), error);
    }
  }
  if (opened.length > 0) return opened;
  const reason = entries.length === 0 && node.whyNoCards !== undefined ? ` (${node.whyNoCards()})` : '';
  const why = entries.length === 0 ? `has no cards${reason}` : 'has no cards but those that the configuration excludes';
  if (refusal?.code === GaudiErrorCode.DEVICE_BUSY) throw withAdvice(refusal);
  throw refusal ?? gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `the ${node.kind} node ${why}`);
}

/**
 * The cards of devices that the application has opened: their indices are their places in the list.
 * @param isWanted as in {@link GaudiCardsOptions}
 */
export function borrowedCards(devices: readonly Device[], isWanted: GaudiCardsOptions['isWanted']): GaudiCard[] {
  const cards = devices.map((device, index) => gaudiCard(index, device, false));
  return isWanted === undefined ? cards : cards.filter(({ index }) => isWanted(cardName(index)));
}

/** Closes cards, the last opened first; those of the application stay open. */
export function closeGaudiCards(cards: readonly GaudiCard[]): void {
  for (const { device, landings, isOwned } of [...cards].reverse()) {
    if (isOwned) device.close();
    landings.close();
  }
}

/** The refusal of a card that another program has, and what the user can do about it. */
function withAdvice({ code, status, message, details, cause }: UcxError): UcxError {
  const advice = 'choose others by UCX_ACC_DEVICES or GAUDI_MAPPING_TABLE';
  return new UcxError({ code, status, message: `${message}; ${advice}`, details, cause });
}

function openCard(node: DriverNode, { index, card }: MappedCard, log: Log, clock: Clock): GaudiCard {
  const device = open(node, { busId: card.busId }, { log: log.child(cardName(index)), dma: { clock } });
  log.debug(`card ${index}: ${card.busId}, module ${card.moduleId ?? 'unknown'}`);
  return gaudiCard(index, device, true);
}

function gaudiCard(index: number, device: Device, isOwned: boolean): GaudiCard {
  return { index, device, landings: new Landings(device), isOwned, inFlight: 0 };
}
