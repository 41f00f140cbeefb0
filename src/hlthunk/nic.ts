/**
 * The NIC ports of a card, as far as the driver tells. Nothing is assumed from the generation: what an upstream kernel does not report
 * is undefined here. What a port of the generation is usually for, is in its AsicProfile.
 */

import type { CardTarget } from './card-file.ts';
import { getHwIpInfo, type HwIpInfo } from './device-info.ts';

/** Which ports there are. */
export interface NicPortsMasks {
  /** Bit n: port n is enabled. */
  readonly ports: bigint;
  /** Bit n: port n leads out of the server (scale-out). */
  readonly externalPorts: bigint;
}

/** One port. */
export interface NicPort {
  readonly port: number;
  readonly external: boolean;
  /** Undefined: no upstream kernel reports link states. */
  readonly linkUp: boolean | undefined;
}

/**
 * The port masks; undefined where the driver does not report them, as upstream kernels up to 6.12.
 *
 * The vendor's newest header names two fields of hl_info_hw_ip_info `nic_ports_mask` (offset 256) and `nic_ports_external_mask`
 * (264), which are `reserved4` and `reserved5`, always 0, in Linux 6.12.
 * @param info what getHwIpInfo returned, if it is at hand
 */
export function getNicPortsMasks(target: CardTarget, info: HwIpInfo = getHwIpInfo(target)): NicPortsMasks | undefined {
  return info.reserved4 === 0n ? undefined : { ports: info.reserved4, externalPorts: info.reserved5 };
}

/** The enabled ports by number; undefined where the driver does not report them. */
export function getNicPorts(target: CardTarget, info?: HwIpInfo): readonly NicPort[] | undefined {
  const masks = getNicPortsMasks(target, info);
  if (masks === undefined) return undefined;
  const ports: NicPort[] = [];
  for (let port = 0; port < 64; port++) {
    const bit = 1n << BigInt(port);
    if ((masks.ports & bit) === 0n) continue;
    ports.push({ port, external: (masks.externalPorts & bit) !== 0n, linkUp: undefined });
  }
  return ports;
}
