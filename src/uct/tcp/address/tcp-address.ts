/**
 * The address of a tcp interface: its id, its node, and its listening sockets. Addresses from peers are validated.
 *
 * Layout, little-endian: u32 kind and version, u8 flags, u8 number of addresses, u16 port, 16 bytes boot id, u32 network namespace, 16 bytes
 * interface id; for each address u8 prefix bits, u8 length (4 or 16), the bytes.
 */

import { addressBytes, addressText, bootId, networkNamespace } from '../../../sys/index.ts';
import type { InterfaceAddress } from './network-interfaces.ts';

/** Bytes of the id of an interface. A peer that sends it has the address of the interface. */
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
/** Maximum number of addresses of one interface in its packed address; more do not fit. */
const ADDRESSES_MAX = 8;

/** The fields of an address. */
export interface TcpAddress {
  readonly id: Uint8Array;
  readonly port: number;
  /** On the loopback device: reachable from its own node only. */
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
