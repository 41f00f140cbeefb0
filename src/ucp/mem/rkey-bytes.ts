/**
 * The wire form of a remote key: a versioned header, one part per memory domain and a checksum. It carries no descriptor, and no pointer
 * that is dereferenced here: memory domains check their parts.
 *
 * Layout, little-endian: u32 magic, u8 version, u8 memory type, u8 part count, u8 denied accesses, u32 system device, u32 0, u64 address,
 * u64 length; per part u8 name length, name, u8 key length, key; u32 CRC-32 of everything before.
 */

import { crc32 } from 'node:zlib';
import { accessWithout, deniedOf } from '../../api/contract/memory.ts';
import { malformed as malformedBytes, PACKED_MARKS } from '../../api/memory/local.ts';
import { isBytes } from '../../ucs/memory/bytes.ts';
import { type MemoryType, memoryTypeAt } from '../../ucs/memory/memory-type.ts';
import type { UcxError } from '../../ucs/type/error.ts';

const MAGIC = PACKED_MARKS.native['remote key'];
const VERSION = 1;
const HEADER_BYTES = 32;
const CHECKSUM_BYTES = 4;
const NO_DEVICE = 0xffff_ffff;

/** The part of one memory domain. */
export interface RkeyPart {
  /** Name of the memory domain. */
  readonly name: string;
  readonly key: Uint8Array;
}

/** The fields of a remote key. */
export interface RkeyFields {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  /** What peers may do with the memory: bits of MemAccess for put and get. */
  readonly access: number;
  readonly parts: readonly RkeyPart[];
}

/** Writes a remote key. */
export function packRkey(fields: RkeyFields): Uint8Array {
  const names = fields.parts.map(({ name }) => Buffer.from(name, 'ascii'));
  const partBytes = fields.parts.reduce((sum, { key }, i) => sum + 2 + names[i]!.byteLength + key.byteLength, 0);
  const packed = new Uint8Array(HEADER_BYTES + partBytes + CHECKSUM_BYTES);
  const view = new DataView(packed.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint8(4, VERSION);
  view.setUint8(5, fields.memoryType);
  view.setUint8(6, fields.parts.length);
  view.setUint8(7, deniedOf(fields.access));
  view.setUint32(8, fields.sysDevice ?? NO_DEVICE, true);
  view.setBigUint64(16, fields.address, true);
  view.setBigUint64(24, BigInt(fields.byteLength), true);
  let at = HEADER_BYTES;
  for (const [i, { key }] of fields.parts.entries()) {
    const name = names[i]!;
    packed[at] = name.byteLength;
    packed.set(name, at + 1);
    at += 1 + name.byteLength;
    packed[at] = key.byteLength;
    packed.set(key, at + 1);
    at += 1 + key.byteLength;
  }
  view.setUint32(at, crc32(packed.subarray(0, at)), true);
  return packed;
}

/**
 * Reads a remote key.
 * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM) that says what is wrong
 */
export function unpackRkey(packed: Uint8Array): RkeyFields {
  if (!isBytes(packed)) throw malformed('is no Uint8Array');
  if (packed.byteLength < HEADER_BYTES + CHECKSUM_BYTES) throw malformed(`has only ${packed.byteLength} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const end = packed.byteLength - CHECKSUM_BYTES;
  if (view.getUint32(0, true) !== MAGIC) throw malformed('does not begin as one from packRkey');
  if (view.getUint8(4) !== VERSION) throw malformed(`has version ${view.getUint8(4)}, this library reads ${VERSION}`);
  if (view.getUint32(end, true) !== crc32(packed.subarray(0, end))) throw malformed('has a wrong checksum');
  const memoryType = memoryTypeAt(view.getUint8(5));
  if (memoryType === undefined) throw malformed(`names memory type ${view.getUint8(5)}`);
  const access = accessWithout(view.getUint8(7));
  if (access === undefined) throw malformed(`denies accesses that this library does not know (${view.getUint8(7)})`);
  const device = view.getUint32(8, true);
  const byteLength = view.getBigUint64(24, true);
  if (byteLength > BigInt(Number.MAX_SAFE_INTEGER)) throw malformed(`stands for ${byteLength} bytes`);
  return {
    memoryType,
    sysDevice: device === NO_DEVICE ? undefined : device,
    address: view.getBigUint64(16, true),
    byteLength: Number(byteLength),
    access,
    parts: readParts(packed, view.getUint8(6), end),
  };
}

function readParts(packed: Uint8Array, count: number, end: number): RkeyPart[] {
  const parts: RkeyPart[] = [];
  let at = HEADER_BYTES;
  const take = (): Uint8Array => {
    const length = packed[at]!;
    if (at + 1 + length > end) throw malformed('is cut off');
    const field = packed.subarray(at + 1, at + 1 + length);
    at += 1 + length;
    return field;
  };
  for (let i = 0; i < count; i++) parts.push({ name: Buffer.from(take()).toString('ascii'), key: take().slice() });
  if (at !== end) throw malformed('has bytes behind its end');
  return parts;
}

function malformed(rule: string): UcxError {
  return malformedBytes('remote key', rule);
}
