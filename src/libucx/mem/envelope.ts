/**
 * Worker addresses and remote keys of this engine: the bytes of libucp unchanged, so that programs in other languages can use them, followed by the part of
 * this library and a checksum. libucp reads addresses and keys without their length.
 */

import { crc32 } from 'node:zlib';
import {
  checkPackedAddress,
  checkPackedKey,
  malformed,
  PACKED_MARKS,
  type PackedKind,
} from '../../api/memory/local.ts';

/** The last four bytes, little-endian. */
const MAGICS = PACKED_MARKS.libucx;
const VERSION = 2;
/** After the two parts: their lengths, the version, a checksum over all previous bytes, the magic. */
const TAIL_BYTES = 20;
/** Maximum length of a parsed address or key. */
const BYTES_MAX = 65_536;

/** The parts of an address or key. */
export interface Envelope {
  /** The bytes of libucp; empty if it has none. */
  readonly ucx: Uint8Array;
  /** The part of this library. */
  readonly own: Uint8Array;
}

/** Options which declare that the bytes are from a program that does not use this library. */
const RAW_OPTION: Readonly<Record<PackedKind, string>> = {
  'worker address': 'option rawAddress',
  'remote key': 'option raw',
};

/** Packs both parts. */
export function packEnvelope({ ucx, own }: Envelope, kind: PackedKind): Uint8Array {
  const at = ucx.byteLength + own.byteLength;
  const packed = new Uint8Array(at + TAIL_BYTES);
  const view = new DataView(packed.buffer);
  packed.set(ucx);
  packed.set(own, ucx.byteLength);
  view.setUint32(at, ucx.byteLength, true);
  view.setUint32(at + 4, own.byteLength, true);
  view.setUint32(at + 8, VERSION, true);
  view.setUint32(at + 12, crc32(packed.subarray(0, at + 12)), true);
  view.setUint32(at + 16, MAGICS[kind], true);
  return packed;
}

/**
 * Unpacks both parts.
 * @throws UcxError ERR_ADDRESS_MALFORMED, ERR_RKEY_MALFORMED with the violated rule
 */
export function unpackEnvelope(packed: Uint8Array, kind: PackedKind): Envelope {
  const { byteLength } = checkBytes(packed, kind);
  if (byteLength < TAIL_BYTES) throw malformed(kind, `has only ${byteLength} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, byteLength);
  const at = byteLength - TAIL_BYTES;
  if (view.getUint32(at + 16, true) !== MAGICS[kind]) {
    throw malformed(kind, `does not end as one of the engine libucx (of another UCX program: ${RAW_OPTION[kind]})`);
  }
  const version = view.getUint32(at + 8, true);
  if (version !== VERSION) throw malformed(kind, `has version ${version}, this library reads ${VERSION}`);
  if (view.getUint32(at + 12, true) !== crc32(packed.subarray(0, at + 12))) {
    throw malformed(kind, 'has a checksum that does not match');
  }
  const [ucx, own] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
  if (ucx + own !== at) throw malformed(kind, `has parts of ${ucx} and ${own} bytes in ${at}`);
  return { ucx: packed.subarray(0, ucx), own: packed.subarray(ucx, at) };
}

/**
 * Checks bytes of libucp from another program.
 * @throws UcxError ERR_ADDRESS_MALFORMED, ERR_RKEY_MALFORMED for invalid bytes
 */
export function rawBytes(packed: Uint8Array, kind: PackedKind): Envelope {
  if (checkBytes(packed, kind).byteLength === 0) throw malformed(kind, 'is empty');
  return { ucx: packed, own: new Uint8Array(0) };
}

function checkBytes(packed: Uint8Array, kind: PackedKind): Uint8Array {
  if (kind === 'worker address') checkPackedAddress(packed, 'libucx');
  else checkPackedKey(packed, 'libucx');
  const { byteLength } = packed;
  if (byteLength > BYTES_MAX) throw malformed(kind, `has ${byteLength} bytes`);
  return packed;
}
