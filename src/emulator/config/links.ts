/**
 * The links of a node: the connections between NIC ports of cards, and their states.
 *
 * HLS-2 (gaudi2) is wired like the real server. The wiring of the other servers is not public: there, a card has the same number of ports to every other
 * card, in the order of the module ids.
 */

import type { PortLink } from '../../driver/port.ts';
import { type AsicProfile, HL_SERVER_TYPE, HLS2_CARDS, type WiredPort, wiredPort } from '../../uapi/index.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** The properties of a card that links depend on. */
interface LinkedCard {
  readonly minor: number;
  readonly moduleId: number;
  readonly busId: string;
}

/** One port of one card. */
interface Port {
  readonly card: LinkedCard;
  readonly port: number;
  /** Undefined if the port is not connected, or connected to a device outside the server. */
  far: Port | undefined;
  readonly external: boolean;
  up: boolean;
}

/** Selects the links of a fault: the link of a port, or all links to another card. */
export interface LinkChoice {
  readonly port?: number | undefined;
  /** Minor of the other card. */
  readonly peer?: number | undefined;
}

/** The links of all cards of a node. */
export class LinkTable {
  /** By minor, then by port. */
  readonly #ports: readonly (readonly Port[])[];
  /** Minors of unplugged cards. */
  readonly #removed: Set<number> = new Set();

  /** @param absentLinks pairs of cards, by minor, whose links are down */
  constructor(profile: AsicProfile, cards: readonly LinkedCard[], absentLinks: readonly CardPair[]) {
    this.#ports = cards.map((card) => portsOf(profile, card));
    const byModule = new Map(cards.map((card, index) => [card.moduleId, this.#ports[index]!]));
    for (const port of this.#ports.flat()) {
      const far = port.external ? undefined : farEnd(profile, port.card.moduleId, port.port);
      port.far = far === undefined ? undefined : byModule.get(far.moduleId)?.[far.port];
      port.up = port.external || port.far !== undefined;
    }
    for (const [card, peer] of absentLinks) this.set(card, { peer }, false);
  }

  /** The ports of a card, by number. */
  of(minor: number): PortLink[] {
    return this.#ports[minor]!.map(({ port, up, far }) => {
      const peer = far === undefined ? undefined : { busId: far.card.busId, port: far.port };
      return { port, up, netdev: undefined, peer };
    });
  }

  /** Whether two cards reach each other's memory: over at least one link. A card always reaches its own. */
  isLinked(minor: number, other: number): boolean {
    if (minor === other) return true;
    return this.#ports[minor]!.some(({ far, up }) => up && far?.card.minor === other);
  }

  /** Connected ports of a card whose link is down. */
  down(minor: number): number[] {
    return this.#ports[minor]!.filter((link) => !link.up && hasLink(link)).map(({ port }) => port);
  }

  /** Unplugs a card: its links are down and cannot be brought up again. */
  unplug(minor: number): void {
    this.#removed.add(minor);
    for (const port of this.#ports[minor]!) {
      port.up = false;
      if (port.far !== undefined) port.far.up = false;
    }
  }

  /**
   * Brings links down or up, at both ends.
   * @returns the ports of the card whose links were set
   * @throws UcxError ERR_INVALID_PARAM for an unconnected port, for a card without a link to this one, if one of the two cards was unplugged, and unless
   * exactly one of `port` and `peer` is given
   */
  set(minor: number, { port, peer }: LinkChoice, up: boolean): number[] {
    if ((port === undefined) === (peer === undefined)) {
      const given = port === undefined ? undefined : `port ${port} and peer ${peer}`;
      throw invalidParam('link', 'must be selected either by port, or by peer for all links to that card', given);
    }
    const chosen = this.#ports[minor]!.filter((link) => {
      if (this.#isRemoved(link.card) || this.#isRemoved(link.far?.card)) return false;
      return port === undefined ? link.far?.card.minor === peer : link.port === port && hasLink(link);
    });
    if (chosen.length === 0 && port !== undefined) throw invalidParam('port', 'must be a port with a link', port);
    if (chosen.length === 0) throw invalidParam('peer', 'must be a different card of the node', peer);
    for (const link of chosen) {
      link.up = up;
      if (link.far !== undefined) link.far.up = up;
    }
    return chosen.map(({ port: number }) => number);
  }

  #isRemoved(card: LinkedCard | undefined): boolean {
    return card !== undefined && this.#removed.has(card.minor);
  }
}

/** Whether the port is connected, to a card or outside the server. */
function hasLink({ far, external }: Port): boolean {
  return external || far !== undefined;
}

function portsOf({ engines }: AsicProfile, card: LinkedCard): Port[] {
  return Array.from({ length: engines.nicCount }, (_, port) => {
    const external = (engines.nicScaleOutMask & (1n << BigInt(port))) !== 0n;
    return { card, port, far: undefined, external, up: false };
  });
}

function farEnd(profile: AsicProfile, moduleId: number, port: number): WiredPort | undefined {
  if (profile.name === 'gaudi2') return wiredPort(HL_SERVER_TYPE.GAUDI2_HLS2, moduleId, port);
  const { nicCount, nicScaleOutMask, nicScaleUpPorts } = profile.engines;
  const scaleUp = Array.from({ length: nicCount }, (_, number) => number).filter(
    (number) => (nicScaleOutMask & (1n << BigInt(number))) === 0n,
  );
  const perPeer = nicScaleUpPorts / (HLS2_CARDS - 1);
  const position = scaleUp.indexOf(port);
  const others = (self: number): number[] =>
    Array.from({ length: HLS2_CARDS }, (_, id) => id).filter((id) => id !== self);
  const peer = others(moduleId)[Math.floor(position / perPeer)]!;
  const back = others(peer).indexOf(moduleId) * perPeer + (position % perPeer);
  return { moduleId: peer, port: scaleUp[back]! };
}

/** Two cards by minor. Initially all cards of a node are linked, except for the absent pairs. */
export type CardPair = readonly [number, number];

const SYNTAX = 'must be full, or ^ followed by the pairs of cards without a link, such as ^0-1,2-5';
const PAIR = /^(\d{1,2})-(\d{1,2})$/;

/**
 * Checks pairs against the cards of a node.
 * @throws UcxError ERR_INVALID_PARAM for a card that does not exist, or a pair of a card with itself
 */
export function checkLinks(absentLinks: readonly CardPair[], cards: number): void {
  if (!Array.isArray(absentLinks)) throw invalidParam('absentLinks', 'must be an array of pairs', absentLinks);
  for (const pair of absentLinks) {
    const known =
      Array.isArray(pair) &&
      pair.length === 2 &&
      pair.every((minor) => Number.isInteger(minor) && minor >= 0 && minor < cards);
    if (!known || pair[0] === pair[1]) {
      throw invalidParam('absentLinks', `must be pairs of two different cards from 0 to ${cards - 1}`, pair);
    }
  }
}

/**
 * Parses `full` or `^0-1,2-5`: all links except those between cards 0 and 1, and 2 and 5.
 * @returns the absent pairs
 * @throws UcxError ERR_INVALID_PARAM
 */
export function parseLinks(text: string): CardPair[] {
  checkString('links', text);
  if (text === 'full') return [];
  if (!text.startsWith('^')) throw invalidParam('links', SYNTAX, text);
  return text
    .slice(1)
    .split(',')
    .map((part) => {
      const match = PAIR.exec(part.trim());
      if (match === null) throw invalidParam('links', SYNTAX, text);
      return [Number(match[1]), Number(match[2])] as const;
    });
}

/** The inverse of {@link parseLinks}. */
export function printLinks(absentLinks: readonly CardPair[]): string {
  return absentLinks.length === 0 ? 'full' : `^${absentLinks.map((pair) => pair.join('-')).join(',')}`;
}
