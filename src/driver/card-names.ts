/**
 * The names of cards in messages and tools: logical index, device node and bus id. An index belongs to a bus id and stays reserved for it while the card is
 * removed.
 */

import { checkOptions, checkString } from '../ucs/type/check-options.ts';
import { invalidParam } from '../ucs/type/error.ts';
import type { CardEntry, DriverNode } from './port.ts';

/** A present or removed card of a node. Cards whose device node is in another container, or that have another driver, do not belong to the node. */
export interface NamedCard {
  /** Logical index, as in the device name `gaudi0`; undefined for a card that GAUDI_MAPPING_TABLE omits. */
  readonly index: number | undefined;
  /** Number in /dev/accel/accelN, or its last number if it was removed; undefined if it never had one. */
  readonly minor: number | undefined;
  /** PCI address, such as `0000:3b:00.0`. */
  readonly busId: string;
  /** Undefined for a card without a device node. */
  readonly entry: CardEntry | undefined;
  /** The reason why there is no device node, such as `removed`; undefined if there is one. */
  readonly absence: string | undefined;
}

/** Methods of the node that are used here. */
type Cards = Pick<DriverNode, 'cards' | 'absentCards'>;

/** State of a card without a device node: the node is in another container, or the card has another driver. */
const NOT_OF_THIS_NODE = 'no device node';

/**
 * All cards of a node by logical index: the order of the bus ids, which is that of hl-smi.
 * @throws UcxError ERR_INVALID_PARAM unless `node` is a driver node
 */
export function namedCards(node: Cards): (NamedCard & { readonly index: number })[] {
  if (typeof node?.cards !== 'function') throw invalidParam('node', 'must be a driver node', node);
  const present = node.cards().map((entry) => ({ minor: entry.minor, busId: entry.busId, entry, absence: undefined }));
  const absent = (node.absentCards?.() ?? []).filter(({ state }) => state !== NOT_OF_THIS_NODE);
  const removed = absent.map(({ minor, busId, state }) => ({ minor, busId, entry: undefined, absence: state }));
  const sorted = [...present, ...removed].sort((left, right) => (left.busId < right.busId ? -1 : 1));
  return sorted.map((card, index) => ({ ...card, index }));
}

/** The logical index of a card of a node. */
export function indexOf(node: Cards, { busId }: Pick<NamedCard, 'busId'>): number | undefined {
  return namedCards(node).find((card) => card.busId === busId)?.index;
}

/** The name of a card: `card 0 (accel2, 0000:33:00.0)`. @throws UcxError ERR_INVALID_PARAM */
export function cardLabel(card: Pick<NamedCard, 'index' | 'minor' | 'busId'>): string {
  checkOptions(card, 'card');
  const { index, minor, busId } = card;
  checkString('card.busId', busId);
  checkNumber('card.index', index);
  checkNumber('card.minor', minor);
  const device = minor === undefined ? '' : `accel${minor}, `;
  return `card${index === undefined ? '' : ` ${index}`} (${device}${busId})`;
}

function checkNumber(argument: string, value: number | undefined): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= 0)) return;
  throw invalidParam(argument, 'must be an integer of 0 or more', value);
}
