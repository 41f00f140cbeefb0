/**
 * The links of a card's NIC ports, from the network interfaces that the vendor's drivers (habanalabs, hbl_en) create for them: interfaces of the
 * card's PCI device whose `dev_port` is the port. The upstream driver creates none. Derived from the sources of these drivers; not tested on hardware.
 */

import type { PortLink } from '../port.ts';
import { type Roots, readText } from './discovery.ts';
import type { SystemCalls } from './system-calls.ts';

const PORT_MAX = 63;

/** The links by port; undefined if the card has no network interface. */
export function readPortLinks(calls: SystemCalls, { sysRoot }: Roots, busId: string): PortLink[] | undefined {
  const folder = `${sysRoot}/bus/pci/devices/${busId}/net`;
  const links: PortLink[] = [];
  for (const netdev of calls.namesIn(folder)) {
    const port = readText(calls, `${folder}/${netdev}/dev_port`).text;
    if (port === undefined || !/^\d{1,2}$/.test(port) || Number(port) > PORT_MAX) continue;
    // An interface that is down returns EINVAL for its carrier: it has no usable link.
    const up = readText(calls, `${folder}/${netdev}/carrier`).text === '1';
    links.push({ port: Number(port), up, netdev, peer: undefined });
  }
  return links.length === 0 ? undefined : links.sort((left, right) => left.port - right.port);
}
