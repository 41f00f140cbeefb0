/**
 * A packed worker address: the id of the worker and the addresses of its interfaces.
 *
 * Layout, little-endian: u32 magic, u8 version, u8 entry count, u16 flags, 16 bytes worker id; per entry u8 length and bytes of each of transport, device
 * and address; with flag 1 u8 length and bytes of a name; u32 CRC-32 of all preceding bytes.
 */

import { crc32 } from 'node:zlib';
import { malformed as malformedBytes, PACKED_MARKS } from '../../api/memory/local.ts';
import { isBytes } from '../../ucs/memory/bytes.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

const MAGIC = PACKED_MARKS.native['worker address'];
const VERSION = 3;
const HEADER_BYTES = 24;
const CHECKSUM_BYTES = 4;
const AT_FLAGS = 6;
const AT_ID = 8;
/** Flag: a name follows the entries. */
const HAS_NAME = 1;
/** Maximum length of a name: its length is one byte. */
const NAME_BYTES_MAX = 255;
/** Flag: only the program of the worker progresses it. */
const IS_MANUAL = 2;
/** Length of a worker id. */
export const WORKER_ID_BYTES = 16;
/** Maximum length of a worker address. */
export const WORKER_ADDRESS_BYTES_MAX = 8192;
const ENTRIES_MAX = 255;

/** The address of one interface of a worker. */
export interface AddressEntry {
  readonly transport: string;
  readonly device: string;
  readonly address: Uint8Array;
}

/** The fields of a worker address. */
export interface WorkerAddress {
  /** Unique among all workers at all times. */
  readonly id: Uint8Array;
  /** True if only the program progresses the worker. */
  readonly isManual: boolean;
  readonly entries: readonly AddressEntry[];
  /** Human-readable name (UCX_ADDRESS_DEBUG_INFO). */
  readonly name?: string | undefined;
}

export function packWorkerAddress({ id, isManual, entries, name }: WorkerAddress): Uint8Array {
  const fields: Uint8Array[] = entries.flatMap(({ transport, device, address }) => [
    Buffer.from(transport, 'ascii'),
    Buffer.from(device, 'ascii'),
    address,
  ]);
  if (name !== undefined) fields.push(Buffer.from(name).subarray(0, NAME_BYTES_MAX));
  const byteLength = fields.reduce((sum, field) => sum + 1 + field.byteLength, HEADER_BYTES + CHECKSUM_BYTES);
  if (entries.length > ENTRIES_MAX || byteLength > WORKER_ADDRESS_BYTES_MAX) {
    throw new UcxError({
      code: 'ERR_ADDRESS_TOO_LONG',
      status: Status.EXCEEDS_LIMIT,
      message: `worker address of ${entries.length} interfaces has ${byteLength} bytes, which exceeds ${WORKER_ADDRESS_BYTES_MAX}: restrict the interfaces with UCX_TLS or UCX_NET_DEVICES`,
    });
  }
  const packed = new Uint8Array(byteLength);
  const view = new DataView(packed.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint8(4, VERSION);
  view.setUint8(5, entries.length);
  view.setUint16(AT_FLAGS, (name === undefined ? 0 : HAS_NAME) | (isManual ? IS_MANUAL : 0), true);
  packed.set(id, AT_ID);
  let at = HEADER_BYTES;
  for (const field of fields) {
    packed[at] = field.byteLength;
    packed.set(field, at + 1);
    at += 1 + field.byteLength;
  }
  view.setUint32(at, crc32(packed.subarray(0, at)), true);
  return packed;
}

/**
 * Reads a worker address.
 * @throws UcxError ERR_ADDRESS_MALFORMED (INVALID_PARAM) with the violated rule
 */
export function unpackWorkerAddress(packed: Uint8Array): WorkerAddress {
  if (!isBytes(packed)) throw malformed('is not a Uint8Array');
  const { byteLength } = packed;
  if (byteLength < HEADER_BYTES + CHECKSUM_BYTES) throw malformed(`is truncated: has only ${byteLength} bytes`);
  if (byteLength > WORKER_ADDRESS_BYTES_MAX) throw malformed(`has ${byteLength} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, byteLength);
  const end = byteLength - CHECKSUM_BYTES;
  if (view.getUint32(0, true) !== MAGIC) throw malformed('has a wrong magic number: not created by worker.address()');
  if (view.getUint8(4) !== VERSION)
    throw malformed(
      `has version ${view.getUint8(4)}, but this library supports only ${VERSION}: use the same version of gaudi-ucx at both ends`,
    );
  if (view.getUint32(end, true) !== crc32(packed.subarray(0, end))) throw malformed('has a wrong checksum');
  const flags = view.getUint16(AT_FLAGS, true);
  return {
    id: packed.slice(AT_ID, AT_ID + WORKER_ID_BYTES),
    isManual: (flags & IS_MANUAL) !== 0,
    ...readFields(packed, view.getUint8(5), (flags & HAS_NAME) !== 0, end),
  };
}

function readFields(
  packed: Uint8Array,
  count: number,
  hasName: boolean,
  end: number,
): Pick<WorkerAddress, 'entries' | 'name'> {
  const entries: AddressEntry[] = [];
  let at = HEADER_BYTES;
  const take = (): Uint8Array => {
    const length = at < end ? packed[at]! : Number.POSITIVE_INFINITY;
    if (at + 1 + length > end) throw malformed('is truncated');
    const field = packed.slice(at + 1, at + 1 + length);
    at += 1 + length;
    return field;
  };
  for (let i = 0; i < count; i++) {
    const transport = Buffer.from(take()).toString('ascii');
    const device = Buffer.from(take()).toString('ascii');
    entries.push({ transport, device, address: take() });
  }
  const name = hasName ? Buffer.from(take()).toString() : undefined;
  if (at !== end) throw malformed('has trailing bytes');
  return name === undefined ? { entries } : { entries, name };
}

function malformed(rule: string): UcxError {
  return malformedBytes('worker address', rule);
}
