/**
 * Selection of the address of a peer that a network interface of this machine reaches, if any. Loopback and bridges are never selected for a peer on
 * another node. The routing table is queried through a parameter.
 */

import { addressBytes } from '../../../sys/index.ts';
import type { InterfaceAddress, NetworkInterface } from './network-interfaces.ts';
import type { TcpAddress } from './tcp-address.ts';

/** Addresses and routes of this machine. */
export interface Routing {
  /** All addresses of this machine. */
  ownAddresses(): ReadonlySet<string>;
  /** The own address from which the kernel reaches an address; undefined without a route. */
  sourceAddressTo(address: string): string | undefined;
}

/** The address to connect to, or the reason why there is none, as text for users. */
export type Reach = { readonly address: string } | { readonly reason: string };

/** Finds the address at which `device` reaches a peer. */
export function reachOf(device: NetworkInterface, peer: TcpAddress, routing: Routing): Reach {
  if (peer.addresses.length === 0 || peer.port === 0) return { reason: 'the peer does not listen' };
  if (peer.isOwnNode) return onOwnNode(device, peer);
  if (device.isLoopback) return { reason: 'the loopback device reaches peers on this node only' };
  if (peer.isLoopback) return { reason: 'the peer, on another node, listens on its loopback device only' };
  const own = routing.ownAddresses();
  const foreign = peer.addresses.filter(({ address }) => !own.has(address));
  if (foreign.length === 0) {
    const names = peer.addresses.map(({ address }) => address).join(', ');
    return { reason: `the address of the peer, on another node, is an address of this node too: ${names}` };
  }
  const able = preferred(device, foreign);
  if (able.length === 0) return { reason: `${device.name} and the peer have no address family in common` };
  const near = able.find((address) => device.addresses.some((own) => sameSubnet(own, address)));
  const found = near ?? able.find(({ address }) => isRoutedBy(device, address, routing));
  if (found !== undefined) return { address: found.address };
  return { reason: `no route through ${device.name} to ${able.map(({ address }) => address).join(', ')}` };
}

/** Within one node every address is reachable through loopback, whatever its device. */
function onOwnNode(device: NetworkInterface, peer: TcpAddress): Reach {
  const [found] = preferred(device, peer.addresses);
  return found === undefined
    ? { reason: `${device.name} and the peer have no address family in common` }
    : { address: found.address };
}

/** The addresses whose families the device has, in its order of families. */
function preferred(device: NetworkInterface, addresses: readonly InterfaceAddress[]): readonly InterfaceAddress[] {
  const families = new Set(device.addresses.map(({ family }) => family));
  return [...families].flatMap((family) => addresses.filter((address) => address.family === family));
}

function isRoutedBy(device: NetworkInterface, address: string, routing: Routing): boolean {
  const source = routing.sourceAddressTo(address);
  return source !== undefined && device.addresses.some((own) => own.address === source);
}

/** Whether both addresses are in the network of the first. */
export function sameSubnet(own: InterfaceAddress, other: InterfaceAddress): boolean {
  if (own.family !== other.family || own.prefixBits === 0) return false;
  const [left, right] = [addressBytes(own.address), addressBytes(other.address)];
  for (let bit = 0; bit < own.prefixBits; bit += 8) {
    const mask = own.prefixBits - bit >= 8 ? 0xff : (0xff << (8 - (own.prefixBits - bit))) & 0xff;
    if (((left[bit >> 3]! ^ right[bit >> 3]!) & mask) !== 0) return false;
  }
  return true;
}
