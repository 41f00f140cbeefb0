/**
 * The cards of one program: selected by the environment or detected, and all opened at once, so that an unusable card is reported at the start and not at
 * the first transfer.
 */

import {
  cardLabel,
  type Device,
  type DriverNode,
  GaudiErrorCode,
  gaudiError,
  open,
} from '../../../../hlthunk/index.ts';
import type { Log } from '../../../../ucs/debug/log.ts';
import type { Clock } from '../../../../ucs/sys/clock.ts';
import { isUcxError, UcxError } from '../../../../ucs/type/error.ts';
import { type CardChoice, chosenCards, missingCards } from './card-choice.ts';
import { Landings } from './landings.ts';
import type { MappedCard } from './mapping-table.ts';

/** An open card under its logical index. */
export interface GaudiCard {
  /** Logical index: part of the device name for users, and the system device. */
  readonly index: number;
  readonly device: Device;
  readonly landings: Landings;
  /** False for a device that the application has opened and will close. */
  readonly isOwned: boolean;
  /** Number of transfers of the context in flight. */
  inFlight: number;
}

/** Selection and opening of cards. */
export interface GaudiCardsOptions {
  readonly node: DriverNode;
  /** The selection by the environment. */
  readonly choice: CardChoice;
  readonly log: Log;
  readonly clock: Clock;
  /** Called for a card that cannot be opened, unless there is a mapping table. */
  readonly onLeftOut: (name: string, error: UcxError) => void;
  /** Whether the program uses the card with this name; absent if it uses all. */
  readonly isWanted?: ((name: string) => boolean) | undefined;
}

/** The device name of a card for users. */
export function cardName(index: number): string {
  return `gaudi${index}`;
}

/**
 * Opens the cards.
 *
 * With a mapping table every card in it must open. Without one, a card that another process has open is skipped, as long as one opens.
 * @throws UcxError ERR_GAUDI_MAPPING_TABLE; ERR_INVALID_PARAM for an invalid list of cards; ERR_GAUDI_DEVICE_NOT_FOUND without any card; otherwise the error
 * of opening the card
 */
export function openGaudiCards(options: GaudiCardsOptions): GaudiCard[] {
  const { node, choice, log, clock, isWanted, onLeftOut } = options;
  const isEmpty = node.cards().length === 0;
  if (node.lostReason !== undefined) throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, node.lostReason);
  const all = chosenCards(choice, node);
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
  const missing = missingCards(choice, node);
  const reason = isEmpty && node.whyNoCards !== undefined ? ` (${node.whyNoCards()})` : '';
  const why = isEmpty
    ? `has no cards${reason}`
    : `has no cards but those that ${missing === undefined ? 'the configuration' : `the environment (${missing})`} excludes`;
  if (refusal?.code === GaudiErrorCode.DEVICE_BUSY) throw withAdvice(refusal);
  throw refusal ?? gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `the ${node.kind} node ${why}`);
}

/**
 * The cards for devices that the application has opened. Their indices are their positions in the list.
 * @param isWanted as in {@link GaudiCardsOptions}
 */
export function borrowedCards(devices: readonly Device[], isWanted: GaudiCardsOptions['isWanted']): GaudiCard[] {
  const cards = devices.map((device, index) => gaudiCard(index, device, false));
  return isWanted === undefined ? cards : cards.filter(({ index }) => isWanted(cardName(index)));
}

/** Closes cards in reverse order of opening. Cards of the application stay open. */
export function closeGaudiCards(cards: readonly GaudiCard[]): void {
  for (const { device, landings, isOwned } of [...cards].reverse()) {
    if (isOwned) device.close();
    landings.close();
  }
}

/**
 * Calls `onLost` once when the driver reports that it resets the card: its memory is lost until the card is closed and opened again.
 * @returns a function that ends watching
 */
export function watchResets({ device }: GaudiCard, onLost: (error: UcxError) => void): () => void {
  const { card, events } = device;
  if (!events.supported) return () => {};
  const subscription = events.register(() => {
    const { lostReason } = card;
    if (lostReason === undefined) return;
    subscription.close();
    onLost(card.lostError(lostReason));
  });
  return () => subscription.close();
}

/** The error of a card that another program has open, with advice for the user. */
function withAdvice({ code, status, message, details, cause }: UcxError): UcxError {
  const advice = 'choose others by UCX_ACC_DEVICES or GAUDI_MAPPING_TABLE';
  return new UcxError({ code, status, message: `${message}; ${advice}`, details, cause });
}

function openCard(node: DriverNode, card: MappedCard, log: Log, clock: Clock): GaudiCard {
  const { index, busId, entry, absence } = card;
  if (absence !== undefined) {
    const details = { minor: card.minor, busId };
    throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `${cardLabel(card)}: ${absence}`, details);
  }
  const device = open(node, { busId }, { index, log: log.child(cardName(index)), dma: { clock } });
  log.debug(`${cardLabel(card)}, module ${entry?.moduleId ?? 'unknown'}`);
  return gaudiCard(index, device, true);
}

function gaudiCard(index: number, device: Device, isOwned: boolean): GaudiCard {
  return { index, device, landings: new Landings(device), isOwned, inFlight: 0 };
}
