/** The network interfaces of this machine that have an address, as the system reports them now. It opens none. */

import { existsSync, readFileSync } from 'node:fs';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';

/** An address of an interface. */
export interface InterfaceAddress {
  /** Numeric; link-local IPv6 with its zone. */
  readonly address: string;
  readonly family: 4 | 6;
  readonly prefixBits: number;
}

/** A network interface that is up. */
export interface NetworkInterface {
  readonly name: string;
  /** IPv4 first, link-local IPv6 last. */
  readonly addresses: readonly InterfaceAddress[];
  readonly isLoopback: boolean;
  readonly isBridge: boolean;
  /** Undefined if the device does not report it. */
  readonly bytesPerSecond: number | undefined;
}

const BYTES_PER_MEGABIT = 125_000;

/** All network interfaces by name, loopback last. */
export function listNetworkInterfaces(): NetworkInterface[] {
  const found: NetworkInterface[] = [];
  for (const [name, entries = []] of Object.entries(networkInterfaces())) {
    const addresses = entries.map((entry) => addressOf(name, entry));
    found.push({
      name,
      addresses: addresses.sort((left, right) => rank(left) - rank(right)),
      isLoopback: entries.every(({ internal }) => internal),
      isBridge: existsSync(`/sys/class/net/${name}/bridge`),
      bytesPerSecond: speedOf(name),
    });
  }
  const byName = (left: NetworkInterface, right: NetworkInterface): number =>
    left.name.localeCompare(right.name, 'en', { numeric: true });
  return found.sort((left, right) => Number(left.isLoopback) - Number(right.isLoopback) || byName(left, right));
}

/** The interfaces with only the addresses of some families, in order of preference; without interfaces that have none left. */
export function withFamilies(
  interfaces: readonly NetworkInterface[],
  families: readonly (4 | 6)[],
): readonly NetworkInterface[] {
  const chosen = interfaces.map((each) => ({
    ...each,
    addresses: families.flatMap((family) => each.addresses.filter((address) => address.family === family)),
  }));
  return chosen.filter(({ addresses }) => addresses.length > 0);
}

/** All addresses of this machine. */
export function ownAddresses(): ReadonlySet<string> {
  const entries = Object.entries(networkInterfaces());
  return new Set(entries.flatMap(([name, each = []]) => each.map((entry) => addressOf(name, entry).address)));
}

function addressOf(name: string, { address, family, cidr, scopeid }: NetworkInterfaceInfo): InterfaceAddress {
  const isLocal = family === 'IPv6' && (scopeid ?? 0) !== 0;
  const prefixBits = Number(cidr?.split('/')[1] ?? 0);
  return { address: isLocal ? `${address}%${name}` : address, family: family === 'IPv4' ? 4 : 6, prefixBits };
}

function rank({ family, address }: InterfaceAddress): number {
  if (family === 4) return 0;
  return address.includes('%') ? 2 : 1;
}

function speedOf(name: string): number | undefined {
  try {
    const megabits = Number(readFileSync(`/sys/class/net/${name}/speed`, 'latin1'));
    return megabits > 0 ? megabits * BYTES_PER_MEGABIT : undefined;
  } catch {
    // EINVAL for a device without a link, such as loopback.
    return undefined;
  }
}
