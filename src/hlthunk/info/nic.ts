/**
 * The NIC ports of a card, as reported by the driver. Values that an upstream kernel does not report are undefined; the AsicProfile of the generation
 * has the usual purpose of each port.
 */

import type { DriverNode } from '../../driver/port.ts';
import { wiredPort } from '../../uapi/index.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import {
  checkMethods,
  checkObject,
  checkText,
  checkWord32,
  checkWord64,
  invalidArgument,
} from '../base/gaudi-error.ts';
import { getHwIpInfo, type HwIpInfo } from './device-info.ts';

/** Masks of the existing ports. */
export interface NicPortsMasks {
  /** Bit n: port n is enabled. */
  readonly ports: bigint;
  /** Bit n: port n leads out of the server (scale-out). */
  readonly externalPorts: bigint;
}

/** The far end of a port. */
export interface NicPeer {
  /** The card at the far end; undefined if it is not on this node. */
  readonly busId: string | undefined;
  /** Port number at the far end. */
  readonly port: number;
}

/** One port. */
export interface NicPort {
  /** Port number, from 0. */
  readonly port: number;
  /** True if it leads out of the server (scale-out). */
  readonly external: boolean;
  /** Undefined if the node does not report it: upstream kernels do not report link states. */
  readonly linkUp: boolean | undefined;
  /** The far end; undefined for a port that leads out of the server, or if neither the node nor the wiring of the server determines it. */
  readonly peer: NicPeer | undefined;
  /** False for a port wired to an empty slot; undefined if the far end is not known. A port that leads out of the server counts as connected. */
  readonly connected: boolean | undefined;
  /** Network interface of the port, if any. */
  readonly netdev: string | undefined;
}

/** The links from one card to another. */
export interface CardLinks {
  /** Number of links. */
  readonly total: number;
  /** Number of links that are not known to be down. */
  readonly up: number;
}

/**
 * The port masks; undefined if the driver does not report them, which is the case for upstream kernels up to 6.12.
 *
 * The vendor's newest header names two fields of hl_info_hw_ip_info `nic_ports_mask` (offset 256) and `nic_ports_external_mask`
 * (264), which are `reserved4` and `reserved5`, always 0, in Linux 6.12.
 * @param info result of getHwIpInfo, if available
 */
export function getNicPortsMasks(target: CardTarget, info: HwIpInfo = getHwIpInfo(target)): NicPortsMasks | undefined {
  cardOf(target);
  checkObject('info', info);
  checkWord64('info.reserved4', info.reserved4);
  checkWord64('info.reserved5', info.reserved5);
  return info.reserved4 === 0n ? undefined : { ports: info.reserved4, externalPorts: info.reserved5 };
}

/**
 * The enabled ports by number; undefined if the driver does not report them.
 * @param node the node of the card, which provides link states and far ends; if omitted, they are undefined
 */
export function getNicPorts(
  target: CardTarget,
  info: HwIpInfo = getHwIpInfo(target),
  node?: DriverNode,
): readonly NicPort[] | undefined {
  const masks = getNicPortsMasks(target, info);
  checkWord32('info.serverType', info.serverType);
  checkWord32('info.moduleId', info.moduleId);
  if (node !== undefined) checkMethods('node', node, ['cards']);
  if (masks === undefined) return undefined;
  const links = node?.links?.(cardOf(target).minor) ?? [];
  const cards = node?.cards() ?? [];
  const ports: NicPort[] = [];
  for (let port = 0; port < 64; port++) {
    const bit = 1n << BigInt(port);
    if ((masks.ports & bit) === 0n) continue;
    const link = links.find((candidate) => candidate.port === port);
    const far = node === undefined ? undefined : wiredPort(info.serverType, info.moduleId, port);
    const wired = far && { busId: cards.find(({ moduleId }) => moduleId === far.moduleId)?.busId, port: far.port };
    const external = (masks.externalPorts & bit) !== 0n;
    const peer = external ? undefined : (link?.peer ?? wired);
    const connected = external ? true : peer && peer.busId !== undefined;
    ports.push({ port, external, linkUp: link?.up, peer, connected, netdev: link?.netdev });
  }
  return ports;
}

/** The links from a card to another one, given by its bus id; undefined if the far ends are not known. */
export function linksBetween(ports: readonly NicPort[], busId: string): CardLinks | undefined {
  if (!Array.isArray(ports)) throw invalidArgument('ports', 'must be an array', ports);
  for (const port of ports) checkObject('ports', port);
  checkText('busId', busId);
  if (ports.every(({ peer }) => peer === undefined)) return undefined;
  const links = ports.filter(({ peer }) => peer?.busId === busId);
  return { total: links.length, up: links.filter(({ linkUp }) => linkUp !== false).length };
}
