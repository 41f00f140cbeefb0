/**
 * PCI locations of the cards and RDMA devices of an emulated node, and identities of the cards: by default those of an HLS-2 class server, or from the
 * options.
 */

import { addressOfPath, parsePciAddress, printPciAddress } from '../../ucs/sys/topology.ts';
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

/** The eight cards by minor: two behind each of four switches. */
const PCI_PATHS: readonly string[] = [
  'pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0',
  'pci0000:17/0000:17:01.0/0000:18:00.0/0000:1a:00.0',
  'pci0000:31/0000:31:01.0/0000:32:00.0/0000:33:00.0',
  'pci0000:31/0000:31:01.0/0000:32:00.0/0000:34:00.0',
  'pci0000:99/0000:99:01.0/0000:9a:00.0/0000:9b:00.0',
  'pci0000:99/0000:99:01.0/0000:9a:00.0/0000:9c:00.0',
  'pci0000:b1/0000:b1:01.0/0000:b2:00.0/0000:b3:00.0',
  'pci0000:b1/0000:b1:01.0/0000:b2:00.0/0000:b4:00.0',
];

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
  if (!Number.isInteger(count) || count < 0 || count > PCI_PATHS.length) {
    throw invalidParam('count', `must be an integer from 0 to ${PCI_PATHS.length}`, count);
  }
  if (!Array.isArray(identities) || identities.length > count) {
    throw invalidParam('identities', `must have at most one entry for each of the ${count} cards`, identities);
  }
  const own = PCI_PATHS.slice(0, count).map((path) => printPciAddress(addressOfPath(path)));
  const given = assigned(identities.map(checked), own);
  const modules = freeModules(count, given);
  return own.map((ownBusId, minor) => {
    const { busId = ownBusId, moduleId = modules.shift()!, numaNode } = given[minor] ?? {};
    const pciPath = pathOf(busId);
    return { minor, busId, pciPath, moduleId, numaNode: numaNode ?? numaNodeOf(pciPath, minor) };
  });
}

/** Locations of RDMA devices: two behind each switch, next to the cards. */
export function nicPlacesOf(count: number): readonly Pick<CardPlace, 'pciPath' | 'numaNode'>[] {
  return PCI_PATHS.slice(0, count).map((path, index) => {
    const card = addressOfPath(path);
    const folder = path.slice(0, path.lastIndexOf('/'));
    return {
      pciPath: `${folder}/${printPciAddress({ ...card, bus: card.bus + 2 })}`,
      numaNode: numaNodeOf(path, index),
    };
  });
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

/** The socket of the root bridge of a card; for a card with a separate root bridge, that of the minor in the default server. */
function numaNodeOf(pciPath: string, minor: number): number {
  const place = PCI_PATHS.indexOf(pciPath);
  return (place < 0 ? minor : place) < PCI_PATHS.length / NUMA_NODES ? 0 : 1;
}

/** PCI path of a device: that of the default server for a known address, otherwise below a separate root bridge. */
function pathOf(busId: string): string {
  const known = PCI_PATHS.find((path) => printPciAddress(addressOfPath(path)) === busId);
  return known ?? `pci${busId.slice(0, busId.lastIndexOf(':'))}/${busId}`;
}
