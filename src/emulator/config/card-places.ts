/**
 * PCI locations of the cards and RDMA devices of an emulated node, and identities of the cards: by default those of an HLS-2 class server, or from the
 * options.
 */

import { parsePciAddress, printPciAddress } from '../../ucs/sys/topology.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** Location of a card in its machine. */
export interface CardPlace {
  readonly minor: number;
  readonly busId: string;
  readonly moduleId: number;
  readonly numaNode: number;
  readonly pciPath: string;
}

/** Identity of a card; omitted fields have their default. */
export interface CardIdentity {
  /** PCI address: `0000:33:00.0`. */
  readonly busId?: string | undefined;
  /** Position on the baseboard, 0 to 7. It determines the wiring of the ports. */
  readonly moduleId?: number | undefined;
  /** NUMA node of the card. */
  readonly numaNode?: number | undefined;
}

/**
 * Bus of the root of each PCIe switch, in the order of the minors. Behind the root port is the upstream port of the switch, behind that its downstream ports, one
 * for each device; the buses are numbered as firmware does it, depth first.
 */
const SWITCH_ROOTS: readonly number[] = [0x16, 0x30, 0x98, 0xb0];
/** The downstream ports of a switch: those of two cards, then those of two RDMA devices. */
const CARD_PORTS = 2;
const PORTS = 4;
/** Buses from the root to the first device behind a downstream port. */
const BUSES_ABOVE = 3;
const CARD_COUNT: number = SWITCH_ROOTS.length * CARD_PORTS;

/** Module ids of the cards by minor. As in real servers, the order differs. */
const MODULE_IDS: readonly number[] = [3, 2, 1, 0, 7, 6, 5, 4];
/** Number of CPU sockets of the server. */
const NUMA_NODES = 2;
const NUMA_NODE_MAX = 1023;

/**
 * Returns the locations of the cards. The first four locations are on one socket; a node with fewer cards uses the module ids of the first locations.
 * @param identities an identity whose bus id is the default bus id of a card applies to that card; the others apply to the remaining cards, in order
 * @throws UcxError ERR_INVALID_PARAM for more identities than cards, invalid identities, and duplicate bus ids or module ids
 */
export function placesOf(count: number, identities: readonly CardIdentity[]): readonly CardPlace[] {
  if (!Number.isInteger(count) || count < 0 || count > CARD_COUNT) {
    throw invalidParam('count', `must be an integer from 0 to ${CARD_COUNT}`, count);
  }
  if (!Array.isArray(identities) || identities.length > count) {
    throw invalidParam('identities', `must have at most one entry for each of the ${count} cards`, identities);
  }
  const own = Array.from({ length: count }, (_, minor) => busIdOfPort(minor, 0));
  const given = assigned(identities.map(checked), own);
  const modules = freeModules(count, given);
  const places = own.map((ownBusId, minor) => {
    const { busId = ownBusId, moduleId = modules.shift()!, numaNode } = given[minor] ?? {};
    return { minor, busId, pciPath: pathOf(busId), moduleId, numaNode: numaNode ?? numaNodeOf(busId, minor) };
  });
  checkBuses(places);
  return places;
}

/** Locations of RDMA devices: two behind each switch, next to the cards. */
export function nicPlacesOf(count: number): readonly Pick<CardPlace, 'pciPath' | 'numaNode'>[] {
  return Array.from({ length: count }, (_, index) => {
    const busId = busIdOfPort(index, CARD_PORTS);
    return { pciPath: pathOf(busId), numaNode: numaNodeOf(busId, index) };
  });
}

/** Address of a device behind a port for cards or for RDMA devices of the default server. @param first the first of these ports of a switch */
function busIdOfPort(index: number, first: number): string {
  const root = SWITCH_ROOTS[Math.floor(index / CARD_PORTS)]!;
  return printPciAddress({ domain: 0, bus: root + BUSES_ABOVE + first + (index % CARD_PORTS), device: 0, fn: 0 });
}

function checked(identity: CardIdentity): CardIdentity {
  if (typeof identity !== 'object' || identity === null) throw invalidParam('identities', 'must be objects', identity);
  const { busId, moduleId, numaNode } = identity;
  checkNumber('moduleId', moduleId, MODULE_IDS.length - 1);
  checkNumber('numaNode', numaNode, NUMA_NODE_MAX);
  return { busId: busId === undefined ? undefined : printPciAddress(parsePciAddress(busId)), moduleId, numaNode };
}

function checkNumber(field: string, value: number | undefined, max: number): void {
  if (value === undefined || (Number.isInteger(value) && value >= 0 && value <= max)) return;
  throw invalidParam(`identities.${field}`, `must be an integer from 0 to ${max}`, value);
}

/** Assigns identities to cards, by minor. */
function assigned(identities: readonly CardIdentity[], own: readonly string[]): (CardIdentity | undefined)[] {
  for (const field of ['busId', 'moduleId'] as const) {
    const values = identities.map((identity) => identity[field]).filter((value) => value !== undefined);
    const twice = values.find((value, index) => values.indexOf(value) !== index);
    if (twice !== undefined) throw invalidParam(`identities.${field}`, 'must be unique', twice);
  }
  const given: (CardIdentity | undefined)[] = own.map((busId) => identities.find((each) => each.busId === busId));
  for (const identity of identities) {
    if (!given.includes(identity)) given[given.indexOf(undefined)] = identity;
  }
  return given;
}

/** Unused module ids for the cards without one, in the order of their minors. */
function freeModules(count: number, given: readonly (CardIdentity | undefined)[]): number[] {
  const taken = given.map((identity) => identity?.moduleId);
  const usual = MODULE_IDS.filter((moduleId) => moduleId < count);
  const others = MODULE_IDS.filter((moduleId) => moduleId >= count);
  return [...usual, ...others].filter((moduleId) => !taken.includes(moduleId));
}

/** Index of the switch that has a bus, also as one between its root port and its devices; -1 for a bus elsewhere. */
function switchOf(busId: string): number {
  const { domain, bus } = parsePciAddress(busId);
  return domain > 0 ? -1 : SWITCH_ROOTS.findIndex((root) => bus >= root && bus < root + BUSES_ABOVE + PORTS);
}

/** The socket of the switch of a card; for a card elsewhere, that of the minor in the default server. */
function numaNodeOf(busId: string, minor: number): number {
  const found = switchOf(busId);
  const index = found < 0 ? Math.floor(minor / CARD_PORTS) : found;
  return index < SWITCH_ROOTS.length / NUMA_NODES ? 0 : 1;
}

/** PCI path of a device: behind the downstream port that has its bus, otherwise below a separate root bridge, as in a virtual machine. */
function pathOf(busId: string): string {
  const { domain, bus } = parsePciAddress(busId);
  const root = SWITCH_ROOTS[switchOf(busId)];
  const port = root === undefined ? -1 : bus - root - BUSES_ABOVE;
  if (root === undefined || port < 0) return `pci${busId.slice(0, busId.lastIndexOf(':'))}/${busId}`;
  const bridges = [
    { bus: root, device: 1 },
    { bus: root + 1, device: 0 },
    { bus: root + 2, device: port },
  ].map((bridge) => printPciAddress({ domain, fn: 0, ...bridge }));
  const [first] = bridges;
  return [`pci${first!.slice(0, first!.lastIndexOf(':'))}`, ...bridges, busId].join('/');
}

/** A bus between a root port and the devices behind its switch has only the ports of that switch. */
function checkBuses(places: readonly CardPlace[]): void {
  const bridgesOf = ({ pciPath }: CardPlace): string[] => pciPath.split('/').slice(1, -1);
  const switches = new Set(places.filter((place) => bridgesOf(place).length > 0).map(({ busId }) => switchOf(busId)));
  const between = places.find((place) => bridgesOf(place).length === 0 && switches.has(switchOf(place.busId)));
  if (between !== undefined)
    throw invalidParam(
      'identities.busId',
      'must not be on a bus between the root port and the switch of another card',
      between.busId,
    );
}
