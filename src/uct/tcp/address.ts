/**
 * The address of a tcp interface: its id, its host, and its listening sockets. Addresses from peers are validated. Also the network interfaces of this
 * machine, and the selection of the address of a peer that one of them reaches: loopback and bridges are never used for a peer on another host.
 *
 * Layout, little-endian: u32 kind and version, u8 flags, u8 number of addresses, u16 port, 16 bytes boot id, u32 network namespace, 16 bytes interface id;
 * for each address u8 prefix bits, u8 length (4 or 16), the bytes.
 */

import { existsSync, readFileSync } from 'node:fs';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { addressBytes, addressText, bootId, networkNamespace } from '../../sys/index.ts';

/** Bytes of the id of an interface. A peer that sends this id knows the address of the interface: the id cannot be guessed. */
export const INTERFACE_ID_BYTES = 16;
/** Longest packed address. */
export const TCP_ADDRESS_BYTES_MAX = 255;

/** First bytes of addresses of this version. */
const ADDRESS_KIND = 0x0170_6374;
const IS_LOOPBACK = 1;
const AT_FLAGS = 4;
const AT_COUNT = 5;
const AT_PORT = 6;
const AT_BOOT = 8;
const BOOT_BYTES = 16;
const AT_NAMESPACE = 24;
const AT_ID = 28;
const HEADER_BYTES: number = AT_ID + INTERFACE_ID_BYTES;
/** Maximum number of addresses of one interface that fit in its packed address. */
const ADDRESSES_MAX = 8;

/** The fields of an address. */
export interface TcpAddress {
  readonly id: Uint8Array;
  readonly port: number;
  /** On the loopback device: reachable from its own host only. */
  readonly isLoopback: boolean;
  /** On this node: the same kernel and network namespace. */
  readonly isOwnNode: boolean;
  readonly addresses: readonly InterfaceAddress[];
}

/** Packs the address of an interface of this process. */
export function packTcpAddress(
  id: Uint8Array,
  port: number,
  isLoopback: boolean,
  addresses: readonly InterfaceAddress[],
): Uint8Array {
  // A link-local address is valid on its own link only, where other addresses serve as well.
  const published = addresses
    .filter(({ address }) => !address.includes('%') || addresses.length === 1)
    .slice(0, ADDRESSES_MAX);
  const packed = new Uint8Array(TCP_ADDRESS_BYTES_MAX);
  const view = new DataView(packed.buffer);
  view.setUint32(0, ADDRESS_KIND, true);
  view.setUint8(AT_FLAGS, isLoopback ? IS_LOOPBACK : 0);
  view.setUint8(AT_COUNT, published.length);
  view.setUint16(AT_PORT, port, true);
  packed.set(bootId(), AT_BOOT);
  view.setUint32(AT_NAMESPACE, networkNamespace(), true);
  packed.set(id, AT_ID);
  let at = HEADER_BYTES;
  for (const { address, prefixBits } of published) {
    const bytes = addressBytes(address);
    packed[at] = prefixBits;
    packed[at + 1] = bytes.byteLength;
    packed.set(bytes, at + 2);
    at += 2 + bytes.byteLength;
  }
  return packed.slice(0, at);
}

/** Unpacks an address; undefined if the bytes are not a valid address of this version. */
export function unpackTcpAddress(packed: Uint8Array): TcpAddress | undefined {
  if (!(packed instanceof Uint8Array) || packed.byteLength < HEADER_BYTES) return undefined;
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  if (view.getUint32(0, true) !== ADDRESS_KIND) return undefined;
  const addresses = readAddresses(packed, view.getUint8(AT_COUNT));
  if (addresses === undefined) return undefined;
  return {
    id: packed.slice(AT_ID, AT_ID + INTERFACE_ID_BYTES),
    port: view.getUint16(AT_PORT, true),
    isLoopback: (view.getUint8(AT_FLAGS) & IS_LOOPBACK) !== 0,
    isOwnNode: isOwnBoot(packed) && view.getUint32(AT_NAMESPACE, true) === networkNamespace(),
    addresses,
  };
}

function readAddresses(packed: Uint8Array, count: number): InterfaceAddress[] | undefined {
  const addresses: InterfaceAddress[] = [];
  let at = HEADER_BYTES;
  for (let i = 0; i < count; i++) {
    const length = packed[at + 1] ?? 0;
    const address = addressText(packed.subarray(at + 2, at + 2 + length));
    const prefixBits = packed[at]!;
    if (address === undefined || prefixBits > length * 8) return undefined;
    addresses.push({ address, family: length === 4 ? 4 : 6, prefixBits });
    at += 2 + length;
  }
  return at === packed.byteLength ? addresses : undefined;
}

function isOwnBoot(packed: Uint8Array): boolean {
  const own = bootId();
  for (let i = 0; i < BOOT_BYTES; i++) if (packed[AT_BOOT + i] !== own[i]) return false;
  return true;
}

/** Addresses and routes of this machine. */
export interface Routing {
  /** All addresses of this machine. */
  ownAddresses(): ReadonlySet<string>;
  /** The own address from which the kernel reaches an address; undefined without a route. */
  sourceAddressTo(address: string): string | undefined;
}

/** The address to connect to, or the reason why no address can be reached, as text for users. */
export type Reach = { readonly address: string } | { readonly reason: string };

/** Finds the address at which `device` reaches a peer. */
export function reachOf(device: NetworkInterface, peer: TcpAddress, routing: Routing): Reach {
  if (peer.addresses.length === 0 || peer.port === 0) return { reason: 'the peer does not listen' };
  if (peer.isOwnNode) return onOwnNode(device, peer);
  if (device.isLoopback) return { reason: 'the loopback device reaches peers on this host only' };
  if (peer.isLoopback) return { reason: 'the peer, on another host, listens on its loopback device only' };
  const own = routing.ownAddresses();
  const foreign = peer.addresses.filter(({ address }) => !own.has(address));
  if (foreign.length === 0) {
    const names = peer.addresses.map(({ address }) => address).join(', ');
    return { reason: `the address of the peer, on another host, is an address of this host too: ${names}` };
  }
  const able = preferred(device, foreign);
  if (able.length === 0) return { reason: `${device.name} and the peer have no address family in common` };
  const near = able.find((address) => device.addresses.some((own) => sameSubnet(own, address)));
  const found = near ?? able.find(({ address }) => isRoutedBy(device, address, routing));
  if (found !== undefined) return { address: found.address };
  return { reason: `no route through ${device.name} to ${able.map(({ address }) => address).join(', ')}` };
}

/** Within one host every address is reachable through loopback, whatever its device. */
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

/** An address of an interface. */
interface InterfaceAddress {
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

/** The interfaces with only the addresses of some families, in order of preference. Interfaces that have no such address are left out. */
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
