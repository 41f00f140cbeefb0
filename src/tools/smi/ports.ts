/** The output of `smi -n`: the network ports of the cards, in the form of hl-smi. */

import type { NicPort } from '../../hlthunk/index.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { UNKNOWN } from './queries.ts';
import type { SmiCard } from './smi-card.ts';

/** Views of ports for `-n`: states of the links, or places that the ports lead to. */
export const PORT_VIEWS = ['link', 'ports'] as const;
/** One of them. */
export type PortView = (typeof PORT_VIEWS)[number];

const PORTS_MAX = 64;

/** State of a link. */
export function linkText({ linkUp }: NicPort): string {
  if (linkUp === undefined) return UNKNOWN;
  return linkUp ? 'UP' : 'DOWN';
}

/** Where a port leads: to a card of the server, or out of it. */
export function sideText({ external }: NicPort): string {
  return external ? 'external' : 'internal';
}

/** Reads the argument of `-n`. @throws UcxError ERR_INVALID_PARAM */
export function readPortView(text: string): PortView {
  const view = PORT_VIEWS.find((name) => name === text);
  if (view === undefined) throw invalidParam('-n', `must be one of ${PORT_VIEWS.join(', ')}`, text);
  return view;
}

/** Reads the argument of `-P`: numbers with commas between them. @throws UcxError ERR_INVALID_PARAM */
export function readPorts(text: string): ReadonlySet<number> {
  const words = text.split(',');
  if (words.every((word) => /^\d{1,2}$/.test(word) && Number(word) < PORTS_MAX)) return new Set(words.map(Number));
  throw invalidParam('-P', `must be ports from 0 to ${PORTS_MAX - 1} with commas between them`, text);
}

/**
 * A line for each port, under the bus id of its card where there are several.
 * @param chosen ports to print; by default all, or with `link`, as hl-smi, those that lead to other cards
 */
export function portLines(
  cards: readonly SmiCard[],
  view: PortView,
  chosen: ReadonlySet<number> | undefined,
): readonly string[] {
  return cards.flatMap(({ busId, ports }) => {
    const isShown = (each: NicPort): boolean => chosen?.has(each.port) ?? (view === 'ports' || !each.external);
    const lines = ports
      ?.filter(isShown)
      .map((each) => `port ${String(each.port).padStart(2)}:\t${view === 'link' ? linkText(each) : sideText(each)}`);
    return [...(cards.length > 1 ? [busId] : []), ...(lines ?? [`ports:\t${UNKNOWN}`])];
  });
}
