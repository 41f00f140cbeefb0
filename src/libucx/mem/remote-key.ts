/**
 * Remote keys and worker addresses of the libucx engine. A remote key has a libucp key for host memory, a native key for memory of cards on the same machine
 * and for host memory of the same process, and the export id by which the owner finds device memory. The libucp bytes come first, unchanged (programs in
 * other languages can use them), followed by the part of this library and a checksum. libucp parses addresses and keys without knowing their length, so it
 * ignores the bytes behind its own.
 */

import { crc32 } from 'node:zlib';
import type { Context } from '../../api/contract/context.ts';
import type { RawRemoteMemory } from '../../api/contract/endpoint.ts';
import {
  type Accesses,
  accessWithout,
  deniedOf,
  REMOTE_ACCESS,
  type RemoteKey,
  type RemoteKeyPart,
} from '../../api/contract/memory.ts';
import {
  checkLocal,
  checkPackedAddress,
  checkPackedKey,
  type LocalRange,
  malformed,
  PACKED_MARKS,
  type PackedKind,
} from '../../api/memory/local.ts';
import { checkRemote, OwnedRemoteKey, type RemoteRange } from '../../api/memory/owned.ts';
import type { Call } from '../../api/operation/call.ts';
import { addressOf, allocateScratch, memcpy } from '../../sys/index.ts';
import { MEMORY_TYPE_COUNT, MemoryType } from '../../ucs/memory/memory-type.ts';
import { checkStatus, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { OutValue } from '../c/fields.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { identityOf, LOCATION_BYTES, ownLocation, ProcessLocation, segmentsOf, whileThere } from './key-segments.ts';
import type { LocalBuffer, LocalMemory, UcpMemory } from './memory-handle.ts';

/**
 * 9 zero bytes, u8 memory type, u8 denied accesses, 5 zero bytes, u64 address, u64 length, u64 export id of device memory, u64 identity of the files of
 * libucp's segments, the location of the owner; then the native key, which host memory has if there are cards. If libucp does not know the memory, a plain
 * UCX program parses the first zero bytes as a key of host memory (u8) without memory domains (u64), which it can unpack. No other bytes are safe: libucp
 * 1.13 releases key components that it has not unpacked.
 */
const FIELD = { MEMORY_TYPE: 9, DENIED: 10, ADDRESS: 16, LENGTH: 24, EXPORT_ID: 32, FILES: 40, LOCATION: 48 } as const;
const FIELDS_BYTES = FIELD.LOCATION + LOCATION_BYTES;

export interface KeyFields {
  readonly memoryType: MemoryType;
  readonly address: bigint;
  readonly byteLength: number;
  /** What peers may do with the memory: bits of MemAccess for put and get. */
  readonly access: number;
  /** 0 for host memory. */
  readonly exportId: number;
  /** Location of the owner; undefined for a key of a program that does not use this library. */
  readonly location: ProcessLocation | undefined;
  /** See identityOf. */
  readonly files: bigint;
  readonly ucx: Uint8Array;
  readonly native: Uint8Array;
}

/** Packs the remote key of mapped memory, with the permitted accesses. Throws UcxError of ucp_rkey_pack. */
export function packRemoteKey(
  functions: LibucpFunctions,
  context: number,
  [memory, access]: readonly [UcpMemory, number],
  native: Context,
): Uint8Array {
  const hasNativeKey = memory.exportId !== 0 || native.query().memoryTypes.includes(MemoryType.GAUDI);
  const nativeKey = hasNativeKey ? native.packRkey(memory.nativeHandle) : new Uint8Array(0);
  const own = new Uint8Array(FIELDS_BYTES + nativeKey.byteLength);
  const view = new DataView(own.buffer);
  view.setUint8(FIELD.MEMORY_TYPE, memory.memoryType);
  view.setUint8(FIELD.DENIED, deniedOf(access));
  view.setBigUint64(FIELD.ADDRESS, memory.address, true);
  view.setBigUint64(FIELD.LENGTH, BigInt(memory.byteLength), true);
  view.setBigUint64(FIELD.EXPORT_ID, BigInt(memory.exportId), true);
  own.set(ownLocation(), FIELD.LOCATION);
  own.set(nativeKey, FIELDS_BYTES);
  const ucx = memory.memh !== 0 ? packUcx(functions, context, memory.memh) : new Uint8Array(0);
  view.setBigUint64(FIELD.FILES, identityOf(segmentsOf(ucx)) ?? 0n, true);
  return packEnvelope({ ucx, own }, 'remote key');
}

/** The libucp key of a memory handle. Throws UcxError of ucp_rkey_pack. */
export function packUcx(functions: LibucpFunctions, context: number, memh: number): Uint8Array {
  using buffer = new OutValue();
  using size = new OutValue();
  checkStatus(functions.ucp_rkey_pack(context, memh, buffer.address, size.address), 'ucp_rkey_pack');
  const bytes = new Uint8Array(size.value);
  memcpy(addressOf(bytes), buffer.value, bytes.byteLength);
  functions.ucp_rkey_buffer_release(buffer.value);
  return bytes;
}

/**
 * Parses a key, which is one of this engine unless `raw` is given.
 * @param raw properties of the memory, for a key of a program that does not use this library
 * @throws UcxError ERR_RKEY_MALFORMED
 */
export function readRemoteKey(packed: Uint8Array, raw: RawRemoteMemory | undefined): KeyFields {
  if (raw === undefined) return parse(packed);
  const { ucx } = rawBytes(packed, 'remote key');
  const { address, byteLength } = raw;
  return {
    memoryType: MemoryType.HOST,
    address: BigInt(address),
    byteLength,
    access: REMOTE_ACCESS,
    exportId: 0,
    location: undefined,
    files: 0n,
    ucx,
    native: new Uint8Array(0),
  };
}

function parse(packed: Uint8Array): KeyFields {
  const { ucx, own } = unpackEnvelope(packed, 'remote key');
  if (own.byteLength < FIELDS_BYTES)
    throw malformed('remote key', `has ${own.byteLength} bytes after the libucp part, fewer than ${FIELDS_BYTES}`);
  const view = new DataView(own.buffer, own.byteOffset, own.byteLength);
  const memoryType = view.getUint8(FIELD.MEMORY_TYPE);
  if (memoryType >= MEMORY_TYPE_COUNT) throw malformed('remote key', `has unknown memory type ${memoryType}`);
  const byteLength = Number(view.getBigUint64(FIELD.LENGTH, true));
  const exportId = Number(view.getBigUint64(FIELD.EXPORT_ID, true));
  if (!Number.isSafeInteger(byteLength) || !Number.isSafeInteger(exportId)) {
    throw malformed('remote key', 'has a length or an export id above 2^53');
  }
  const denied = view.getUint8(FIELD.DENIED);
  const access = accessWithout(denied);
  if (access === undefined) throw malformed('remote key', `denies unknown accesses (${denied})`);
  const hasUcx = ucx.byteLength > 0;
  const isHost = memoryType === MemoryType.HOST;
  if ((isHost && !hasUcx) || isHost !== (exportId === 0)) {
    throw malformed('remote key', 'lacks the component for its memory type');
  }
  return {
    memoryType: memoryType as MemoryType,
    address: view.getBigUint64(FIELD.ADDRESS, true),
    byteLength,
    access,
    exportId,
    location: new ProcessLocation(own.subarray(FIELD.LOCATION, FIELDS_BYTES)),
    files: view.getBigUint64(FIELD.FILES, true),
    ucx,
    native: own.subarray(FIELDS_BYTES),
  };
}

/** The endpoint that a key belongs to. */
export interface KeyOwner {
  readonly handle: number;
  /** Whether device addresses are passed to libucp. */
  readonly isDirect: boolean;
  /** The native key; undefined if the native transports do not reach the peer. */
  unpackNativeKey(packed: Uint8Array): RemoteKey | undefined;
  /** Called after a key was released. */
  forgetKey(key: RemoteKey): void;
}

/** An unpacked remote key. */
export class UcpRemoteKey extends OwnedRemoteKey {
  declare readonly owner: KeyOwner;
  /** The libucp key; 0 for device memory that libucp does not know at either end. */
  readonly handle: number;
  /** The address for libucp. */
  readonly remoteAddress: number;
  /** Export id of device memory; 0 for host memory. */
  readonly exportId: number;
  /** The packed native key until it is unpacked; for host memory at the first use. */
  #packedNative: Uint8Array;
  #native: RemoteKey | undefined;
  /** Always undefined: libucp could unmap the memory while it is read. */
  readonly bytes: undefined = undefined;
  /** Cached queries of the native transports: bit sets of the queried operations and kinds of local memory, and of the supported ones; see device/paths.ts. */
  nativeQueried = 0;
  nativeSupported = 0;
  /** Number of operations in flight that use it. */
  #inFlight = 0;
  readonly #functions: LibucpFunctions;

  /** @throws UcxError ERR_RKEY_STALE; of ucp_ep_rkey_unpack, such as UNREACHABLE */
  constructor(functions: LibucpFunctions, owner: KeyOwner, fields: KeyFields) {
    super(owner, fields);
    this.#functions = functions;
    this.exportId = fields.exportId;
    this.remoteAddress = Number(fields.address);
    const isKnown = fields.exportId === 0 || (owner.isDirect && fields.ucx.byteLength > 0);
    if (fields.location?.hasEnded === true) throw stale(`its owner, process ${fields.location.process.pid}, has ended`);
    this.handle = isKnown ? unpackNear(functions, owner.handle, fields) : 0;
    // Copied: the program may overwrite the packed key.
    this.#packedNative = fields.native.slice();
    if (fields.exportId !== 0) this.#native = this.native;
  }

  /** The native key; undefined if the native transports do not reach the memory. */
  get native(): RemoteKey | undefined {
    if (this.#packedNative.byteLength > 0) {
      const packed = this.#packedNative;
      this.#packedNative = new Uint8Array(0);
      this.#native = this.owner.unpackNativeKey(packed);
    }
    return this.#native;
  }

  get sysDevice(): number | undefined {
    // `this` may be an object that inherits from a key, such as a proxy, without its private fields.
    return #native in this ? this.#native?.sysDevice : undefined;
  }

  get live(): boolean {
    return this.#native?.live ?? true;
  }

  protected override describeParts(): readonly RemoteKeyPart[] {
    const { byteLength, live } = this;
    const own = this.handle === 0 ? [] : [{ md: 'libucp', byteLength, live, source: undefined }];
    return [...own, ...(this.#native?.describe() ?? [])];
  }

  /** Keeps both keys for an operation until {@link unpin}: libucp reads its key until its request has ended. */
  pin(): void {
    this.#inFlight += 1;
  }

  unpin(): void {
    this.#inFlight -= 1;
    if (this.released) this.#destroyUnused();
  }

  protected override releaseParts(): void {
    this.#destroyUnused();
    this.owner.forgetKey(this);
  }

  #destroyUnused(): void {
    if (this.#inFlight > 0) return;
    if (this.handle !== 0) this.#functions.ucp_rkey_destroy(this.handle);
    this.#native?.release();
  }
}

/**
 * Unpacks the libucp part of a key of this engine, after a check that its shared-memory segments exist. Throws UcxError ERR_RKEY_STALE; of
 * ucp_ep_rkey_unpack.
 */
function unpackNear(functions: LibucpFunctions, ep: number, { ucx, location, files }: KeyFields): number {
  const unpack = (): number => unpackUcx(functions, ep, ucx);
  if (location?.isNear !== true) return unpack();
  const segments = segmentsOf(ucx);
  const handle = whileThere(location.sharesSegments ? segments : { ...segments, ids: [] }, files, unpack);
  if (handle === undefined) throw stale('its owner has unmapped the memory, or has ended');
  return handle;
}

function stale(rule: string): UcxError {
  return new UcxError({
    code: 'ERR_RKEY_STALE',
    status: Status.INVALID_ADDR,
    message: `remote key is stale: ${rule}`,
    details: { rule },
  });
}

/** Unpacks a libucp key at an endpoint, and returns its handle. Throws UcxError of ucp_ep_rkey_unpack. */
export function unpackUcx(functions: LibucpFunctions, ep: number, ucx: Uint8Array): number {
  // Aligned, and followed by zeros: libucp reads as many bytes as the key specifies.
  using block = allocateScratch(ucx.byteLength + FIELDS_BYTES);
  using rkey = new OutValue();
  block.u8.set(ucx);
  checkStatus(functions.ucp_ep_rkey_unpack(ep, block.address, rkey.address), 'ucp_ep_rkey_unpack');
  return rkey.value;
}

/**
 * Checks both sides of a put, get or explanation; see checkLocal and checkRemote.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function checkSides(
  context: object,
  endpoint: KeyOwner,
  { ownAccess, remoteAccess }: Accesses,
  sides: LocalRange & RemoteRange,
): void {
  checkLocal(context, sides, ownAccess);
  checkRemote(endpoint, sides, remoteAccess);
}

/** The memory ranges of a put or get. */
export interface Move extends LocalRange<LocalMemory>, RemoteRange<UcpRemoteKey> {}

export type UcxCall = Call<object, LocalBuffer, UcpRemoteKey>;

/** The ranges of a put or get whose local memory is not a list. */
export function moveOf(call: UcxCall, rkey: RemoteKey, remoteOffset: number): Move {
  call.rkey = rkey as UcpRemoteKey;
  call.remoteOffset = remoteOffset;
  return call as UcxCall & Move;
}

/** The last four bytes, little-endian. */
const MAGICS = PACKED_MARKS.libucx;
const VERSION = 4;
/** The tail after the two parts: their lengths, the version, a checksum over all previous bytes, the magic. */
const TAIL_BYTES = 20;
/** Limit for the length of addresses and keys that are parsed. */
const BYTES_MAX = 65_536;

/** The parts of an address or key. */
export interface Envelope {
  /** The libucp bytes; empty if there are none. */
  readonly ucx: Uint8Array;
  /** The bytes of this library. */
  readonly own: Uint8Array;
}

/** The options that declare bytes from a program that does not use this library. */
const RAW_OPTION: Readonly<Record<PackedKind, string>> = {
  'worker address': 'option rawAddress',
  'remote key': 'option raw',
};

export interface AddressFields {
  readonly ucx: Uint8Array;
  /** The native address. */
  readonly native: Uint8Array;
  readonly location: ProcessLocation;
}

/** Packs a worker address of this process. */
export function packAddress({ ucx, native }: Omit<AddressFields, 'location'>): Uint8Array {
  return packEnvelope({ ucx, own: Buffer.concat([ownLocation(), native]) }, 'worker address');
}

/** @throws UcxError ERR_ADDRESS_MALFORMED with the violated rule */
export function unpackAddress(packed: Uint8Array): AddressFields {
  const { ucx, own } = unpackEnvelope(packed, 'worker address');
  if (own.byteLength < LOCATION_BYTES)
    throw malformed('worker address', `has ${own.byteLength} bytes after the libucp part`);
  return { ucx, native: own.subarray(LOCATION_BYTES), location: new ProcessLocation(own.subarray(0, LOCATION_BYTES)) };
}

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
  if (byteLength < TAIL_BYTES) throw malformed(kind, `has only ${byteLength} of at least ${TAIL_BYTES} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, byteLength);
  const at = byteLength - TAIL_BYTES;
  if (view.getUint32(at + 16, true) !== MAGICS[kind]) {
    throw malformed(
      kind,
      `does not end with the magic of engine libucx (if it is from another UCX program, ${RAW_OPTION[kind]})`,
    );
  }
  const version = view.getUint32(at + 8, true);
  if (version !== VERSION)
    throw malformed(
      kind,
      `has version ${version}, but this library supports ${VERSION}: use the same version of gaudi-ucx at both ends`,
    );
  if (view.getUint32(at + 12, true) !== crc32(packed.subarray(0, at + 12))) {
    throw malformed(kind, 'has a wrong checksum');
  }
  const [ucx, own] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
  if (ucx + own !== at) throw malformed(kind, `has parts of ${ucx} and ${own} bytes, but ${at} bytes in total`);
  return { ucx: packed.subarray(0, ucx), own: packed.subarray(ucx, at) };
}

/**
 * Checks the length of bytes from another program that uses libucp.
 * @throws UcxError ERR_ADDRESS_MALFORMED, ERR_RKEY_MALFORMED
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
