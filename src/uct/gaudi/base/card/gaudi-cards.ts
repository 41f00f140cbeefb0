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

/** What helps if other programs have the cards. */
export const BUSY_ADVICE = 'choose others by UCX_ACC_DEVICES or GAUDI_MAPPING_TABLE';

/** A card that could not be opened. */
interface Refusal {
  readonly card: MappedCard;
  readonly error: UcxError;
}

/** What the name of a card needs. */
type Labelled = Parameters<typeof cardLabel>[0];

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
  const refusals: Refusal[] = [];
  for (const card of mapped) {
    try {
      opened.push(openCard(node, card, log, clock));
    } catch (error) {
      if (!isUcxError(error)) throw error;
      if (choice.mappingTable !== undefined) {
        closeGaudiCards(opened);
        throw error.code === GaudiErrorCode.DEVICE_BUSY ? withAdvice(error) : error;
      }
      refusals.push({ card, error });
      onLeftOut(cardName(card.index), error);
    }
  }
  if (opened.length > 0) return opened;
  const missing = missingCards(choice, node);
  const reason = isEmpty && node.whyNoCards !== undefined ? ` (${node.whyNoCards()})` : '';
  const why = isEmpty
    ? `has no cards${reason}`
    : `has no cards but those that ${missing === undefined ? 'the configuration' : `the environment (${missing})`} excludes`;
  const refusal = allRefused(refusals);
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

/** The one error for cards of which none could be opened: that of a busy one, if there is one, with the reasons of all; undefined without refusals. */
function allRefused(refusals: readonly Refusal[]): UcxError | undefined {
  const shown = refusals.find(({ error }) => error.code === GaudiErrorCode.DEVICE_BUSY) ?? refusals.at(-1);
  if (shown === undefined || refusals.length === 1) return shown?.error;
  const { code, details } = shown.error;
  const reasons = new Map(refusals.map(({ card, error }) => [card, String(error.details['reason'] ?? error.message)]));
  const cards = refusals.map(({ card }) => card);
  const lines = cardLines(cards, (card) => reasons.get(card)!);
  return gaudiError(code as GaudiErrorCode, `open of ${lines.join('; ')}`, details, shown.error.cause);
}

/** The error of a card that another program has open, with advice for the user. */
function withAdvice({ code, status, message, details, cause }: UcxError): UcxError {
  return new UcxError({ code, status, message: `${message}; ${BUSY_ADVICE}`, details, cause });
}

function openCard(node: DriverNode, card: MappedCard, log: Log, clock: Clock): GaudiCard {
  const { index, busId, entry, absence } = card;
  if (absence !== undefined) {
    const details = { minor: card.minor, busId, reason: absence };
    throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `${cardLabel(card)}: ${absence}`, details);
  }
  const device = open(node, { busId }, { index, log: log.child(cardName(index)), dma: { clock } });
  log.debug(`${cardLabel(card)}, module ${entry?.moduleId ?? 'unknown'}`);
  return gaudiCard(index, device, true);
}

function gaudiCard(index: number, device: Device, isOwned: boolean): GaudiCard {
  return { index, device, landings: new Landings(device), isOwned, inFlight: 0 };
}

/**
 * Lines about cards. Cards with the same text share a line that has their indices: `cards 0-2, 5: in reset`; a single one has its full name.
 */
export function cardLines<T extends Labelled>(cards: readonly T[], textOf: (card: T) => string): string[] {
  const groups = new Map<string, T[]>();
  for (const card of cards) {
    const text = textOf(card);
    groups.set(text, [...(groups.get(text) ?? []), card]);
  }
  return [...groups].map(([text, group]) => `${groupLabel(group)}: ${text}`);
}

function groupLabel(group: readonly Labelled[]): string {
  const indices = group.flatMap(({ index }) => index ?? []);
  if (group.length === 1 || indices.length < group.length) return group.map(cardLabel).join(', ');
  return `cards ${rangesOf(indices)}`;
}

/** `0-2, 5`. */
function rangesOf(numbers: readonly number[]): string {
  const runs: { first: number; last: number }[] = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const run = runs.at(-1);
    if (run !== undefined && number === run.last + 1) run.last = number;
    else runs.push({ first: number, last: number });
  }
  return runs.map(({ first, last }) => (first === last ? String(first) : `${first}-${last}`)).join(', ');
}
