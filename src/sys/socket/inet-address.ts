/**
 * Internet addresses: address string and port in TypeScript, struct sockaddr_in and sockaddr_in6 for the kernel. Callers resolve host names.
 *
 * Source: Linux `include/uapi/linux/in.h`, `in6.h`.
 */

import { isIPv4, isIPv6 } from 'node:net';
import { invalidParam } from '../../ucs/type/error.ts';
import { ifIndexToName, ifNameToIndex, inetNtop, inetPton } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';

/** Address families: `include/linux/socket.h`. */
export const AddressFamily = { INET: 2, INET6: 10 } as const;
export type AddressFamily = (typeof AddressFamily)[keyof typeof AddressFamily];

/** Size of the longest address: struct sockaddr_in6. */
export const SOCKADDR_BYTES_MAX = 28;

const SOCKADDR_IN_BYTES = 16;
const AT_PORT = 2;
const AT_ADDRESS4 = 4;
const AT_ADDRESS6 = 8;
const AT_SCOPE = 24;
/** Bytes before the IPv4 address in an IPv4-mapped one. */
const MAPPED_PREFIX_BYTES = 12;
const TEXT_BYTES = 64;
const PORT_MAX = 65_535;

/** Address of a socket: a numeric address and a port; link-local IPv6 addresses have a zone (`fe80::1%eth0`). */
export interface InetAddress {
  readonly address: string;
  readonly port: number;
}

let staging: ScratchBlock | undefined;

/** The family of a numeric address; undefined for any other string. */
export function familyOf(address: string): AddressFamily | undefined {
  if (isIPv4(address)) return AddressFamily.INET;
  return isIPv6(address) ? AddressFamily.INET6 : undefined;
}

/**
 * Writes the struct sockaddr of an address to the start of a block of at least {@link SOCKADDR_BYTES_MAX}; returns its length.
 * @throws UcxError ERR_INVALID_PARAM for a string that is not a numeric address, an unknown zone or a port outside 0 to 65535
 */
export function packSockaddr({ address, port }: InetAddress, { u8, view, address: at }: ScratchBlock): number {
  if (!Number.isInteger(port) || port < 0 || port > PORT_MAX) {
    throw invalidParam('port', `must be an integer from 0 to ${PORT_MAX}`, port);
  }
  const family = typeof address === 'string' ? familyOf(address) : undefined;
  if (family === undefined) throw invalidParam('address', 'must be a numeric IPv4 or IPv6 address', address);
  u8.fill(0, 0, SOCKADDR_BYTES_MAX);
  view.setUint16(0, family, true);
  view.setUint16(AT_PORT, port, false);
  if (family === AddressFamily.INET) {
    inetPton(family, address, at + AT_ADDRESS4);
    return SOCKADDR_IN_BYTES;
  }
  const [text = '', zone] = address.split('%');
  inetPton(family, text, at + AT_ADDRESS6);
  if (zone !== undefined) view.setUint32(AT_SCOPE, scopeOf(zone, address), true);
  return SOCKADDR_BYTES_MAX;
}

/** Whether a numeric IPv6 address stands for all addresses of the machine (`::`). */
export function isUnspecified(address: string): boolean {
  return addressBytes(address).every((byte) => byte === 0);
}

/**
 * Reads a struct sockaddr that the kernel wrote to the start of a block; undefined for another family. An IPv4-mapped address of an IPv6 socket is returned as
 * IPv4.
 */
export function unpackSockaddr({ view, address: at }: ScratchBlock): InetAddress | undefined {
  const family = view.getUint16(0, true);
  const port = view.getUint16(AT_PORT, false);
  if (family === AddressFamily.INET) return { address: textOf(family, at + AT_ADDRESS4), port };
  if (family !== AddressFamily.INET6) return undefined;
  if (isMapped(view)) return { address: textOf(AddressFamily.INET, at + AT_ADDRESS6 + MAPPED_PREFIX_BYTES), port };
  const scope = view.getUint32(AT_SCOPE, true);
  const text = textOf(family, at + AT_ADDRESS6);
  return { address: scope === 0 ? text : `${text}%${zoneOf(scope)}`, port };
}

/**
 * The bytes of a numeric address without its zone: 4 or 16.
 * @throws UcxError ERR_INVALID_PARAM for a string that is not a numeric address
 */
export function addressBytes(address: string): Uint8Array {
  const family = familyOf(address);
  if (family === undefined) throw invalidParam('address', 'must be a numeric IPv4 or IPv6 address', address);
  staging ??= allocateScratch(TEXT_BYTES);
  inetPton(family, address.split('%')[0]!, staging.address);
  return staging.u8.slice(0, family === AddressFamily.INET ? 4 : 16);
}

/** The string of an address of 4 or 16 bytes; undefined for any other number of bytes. */
export function addressText(bytes: Uint8Array): string | undefined {
  if (bytes.byteLength !== 4 && bytes.byteLength !== 16) return undefined;
  const block = allocateScratch(16);
  try {
    block.u8.set(bytes);
    return textOf(bytes.byteLength === 4 ? AddressFamily.INET : AddressFamily.INET6, block.address);
  } finally {
    block.free();
  }
}

/** Address and port as a string: `127.0.0.1:7`, `[::1]:7`. */
export function printAddress({ address, port }: InetAddress): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Whether a struct sockaddr_in6 has an IPv4-mapped address, ::ffff:0:0/96 (RFC 4291). */
function isMapped(view: DataView): boolean {
  const [high, middle, prefix] = [0, 4, 8].map((at) => view.getUint32(AT_ADDRESS6 + at, false));
  return high === 0 && middle === 0 && prefix === 0xffff;
}

function textOf(family: number, at: number): string {
  staging ??= allocateScratch(TEXT_BYTES);
  inetNtop(family, at, staging.address, TEXT_BYTES);
  const end = staging.u8.indexOf(0);
  return Buffer.from(staging.u8.subarray(0, end)).toString('latin1');
}

/** The number of a zone, given as the name of a network interface or as a number. */
function scopeOf(zone: string, address: string): number {
  const index = /^\d+$/.test(zone) ? Number(zone) : ifNameToIndex(zone);
  if (index === 0) throw invalidParam('address', 'must have a network interface of this machine as its zone', address);
  return index;
}

function zoneOf(scope: number): string {
  staging ??= allocateScratch(TEXT_BYTES);
  if (ifIndexToName(scope, staging.address) === 0) return String(scope);
  const end = staging.u8.indexOf(0);
  return Buffer.from(staging.u8.subarray(0, end)).toString('latin1');
}
