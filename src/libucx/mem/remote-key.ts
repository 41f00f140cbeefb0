/**
 * Remote keys of the engine over libucp: a key of libucp for host memory, a key of the transports of the node, for memory of cards on the same
 * machine and for host memory of the same process, and the export id by which the owner finds memory of a card. Worker addresses and remote keys of
 * this engine: the bytes of libucp unchanged, if it reaches the memory, so that programs in other languages can use them, followed by the part of this
 * library and a checksum.
 * libucp reads addresses and keys without their length.
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
import { identityOf, ownPlace, PLACE_BYTES, ProcessPlace, segmentsOf, whileThere } from './key-segments.ts';
import type { LocalBuffer, LocalMemory, UcpMemory } from './memory-handle.ts';

/**
 * 9 bytes of zeros, u8 memory type, u8 denied accesses, 5 bytes of zeros, u64 address, u64 length, u64 export id of device memory, u64 identity of the
 * files of libucp's segments, the place of the owner; then the key of the node, which host memory has if there are cards. The first zeros are what a plain UCX program reads of memory that libucp does not reach: a key without
 * memory domains (u64), of host memory (u8). It unpacks; no bytes exist that libucp refuses without risk (1.13: it releases parts that it has not unpacked).
 */
const FIELD = { MEMORY_TYPE: 9, DENIED: 10, ADDRESS: 16, LENGTH: 24, EXPORT_ID: 32, FILES: 40, PLACE: 48 } as const;
const FIELDS_BYTES = FIELD.PLACE + PLACE_BYTES;

/** The fields of a key. */
export interface KeyFields {
  readonly memoryType: MemoryType;
  readonly address: bigint;
  readonly byteLength: number;
  /** What peers may do with the memory: bits of MemAccess for put and get. */
  readonly access: number;
  /** 0 for host memory. */
  readonly exportId: number;
  /** Where its owner runs; undefined for a key from a program that does not use this library. */
  readonly place: ProcessPlace | undefined;
  /** See identityOf. */
  readonly files: bigint;
  readonly ucx: Uint8Array;
  readonly node: Uint8Array;
}

/** The remote key of mapped memory, and the access that it says to permit. Throws UcxError of ucp_rkey_pack. */
export function packRemoteKey(
  functions: LibucpFunctions,
  context: number,
  [memory, access]: readonly [UcpMemory, number],
  node: Context,
): Uint8Array {
  const hasNodeKey = memory.exportId !== 0 || node.query().memoryTypes.includes(MemoryType.GAUDI);
  const nodeKey = hasNodeKey ? node.packRkey(memory.node) : new Uint8Array(0);
  const own = new Uint8Array(FIELDS_BYTES + nodeKey.byteLength);
  const view = new DataView(own.buffer);
  view.setUint8(FIELD.MEMORY_TYPE, memory.memoryType);
  view.setUint8(FIELD.DENIED, deniedOf(access));
  view.setBigUint64(FIELD.ADDRESS, memory.address, true);
  view.setBigUint64(FIELD.LENGTH, BigInt(memory.byteLength), true);
  view.setBigUint64(FIELD.EXPORT_ID, BigInt(memory.exportId), true);
  own.set(ownPlace(), FIELD.PLACE);
  own.set(nodeKey, FIELDS_BYTES);
  const ucx = memory.memh !== 0 ? packUcx(functions, context, memory.memh) : new Uint8Array(0);
  view.setBigUint64(FIELD.FILES, identityOf(segmentsOf(ucx)) ?? 0n, true);
  return packEnvelope({ ucx, own }, 'remote key');
}

/** The remote key of libucp for a memory handle. Throws UcxError of ucp_rkey_pack. */
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
 * Parses a key, of this engine unless `raw` is given.
 * @param raw properties of the memory of a key from a program that does not use this library
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
    place: undefined,
    files: 0n,
    ucx,
    node: new Uint8Array(0),
  };
}

function parse(packed: Uint8Array): KeyFields {
  const { ucx, own } = unpackEnvelope(packed, 'remote key');
  if (own.byteLength < FIELDS_BYTES) throw malformed('remote key', `has ${own.byteLength} bytes of fields`);
  const view = new DataView(own.buffer, own.byteOffset, own.byteLength);
  const memoryType = view.getUint8(FIELD.MEMORY_TYPE);
  if (memoryType >= MEMORY_TYPE_COUNT) throw malformed('remote key', `is of memory type ${memoryType}`);
  const byteLength = Number(view.getBigUint64(FIELD.LENGTH, true));
  const exportId = Number(view.getBigUint64(FIELD.EXPORT_ID, true));
  if (!Number.isSafeInteger(byteLength) || !Number.isSafeInteger(exportId)) {
    throw malformed('remote key', 'has a length or a number beyond 2^53');
  }
  const denied = view.getUint8(FIELD.DENIED);
  const access = accessWithout(denied);
  if (access === undefined) throw malformed('remote key', `denies unknown accesses (${denied})`);
  const hasUcx = ucx.byteLength > 0;
  const isHost = memoryType === MemoryType.HOST;
  if ((isHost && !hasUcx) || isHost !== (exportId === 0)) {
    throw malformed('remote key', 'has not the part that its memory type asks for');
  }
  return {
    memoryType: memoryType as MemoryType,
    address: view.getBigUint64(FIELD.ADDRESS, true),
    byteLength,
    access,
    exportId,
    place: new ProcessPlace(own.subarray(FIELD.PLACE, FIELDS_BYTES)),
    files: view.getBigUint64(FIELD.FILES, true),
    ucx,
    node: own.subarray(FIELDS_BYTES),
  };
}

/** The endpoint of a key. */
export interface KeyOwner {
  readonly handle: number;
  /** Whether addresses of cards are passed to libucp here. */
  readonly isDirect: boolean;
  /** The key for the transports of the node; undefined if they do not reach the peer. */
  unpackNodeKey(packed: Uint8Array): RemoteKey | undefined;
  /** Called when a key has been released. */
  forgetKey(key: RemoteKey): void;
}

/** An unpacked remote key. */
export class UcpRemoteKey extends OwnedRemoteKey {
  declare readonly owner: KeyOwner;
  /** The key of libucp; 0 for device memory that is unknown to it at either end. */
  readonly handle: number;
  /** The address for libucp. */
  readonly remoteAddress: number;
  /** Export id of device memory; 0 for host memory. */
  readonly exportId: number;
  /** The packed key for the transports of the node until it is unpacked; for host memory when it is first asked for. */
  #packedNode: Uint8Array;
  #node: RemoteKey | undefined;
  /** Always undefined: libucp would unmap them while they are read. */
  readonly bytes: undefined = undefined;
  /** Cached queries of the transports of the node: queried operations and kinds of local memory, and supported ones; see device/paths.ts. */
  nodeAsked = 0;
  nodeReaches = 0;
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
    if (fields.place?.hasEnded === true) throw stale(`its owner, process ${fields.place.process.pid}, has ended`);
    this.handle = isKnown ? unpackNear(functions, owner.handle, fields) : 0;
    // Copied: the program may reuse the bytes that it has passed.
    this.#packedNode = fields.node.slice();
    if (fields.exportId !== 0) this.#node = this.node;
  }

  /** The key for the transports of the node; undefined if they do not reach the memory. */
  get node(): RemoteKey | undefined {
    if (this.#packedNode.byteLength > 0) {
      const packed = this.#packedNode;
      this.#packedNode = new Uint8Array(0);
      this.#node = this.owner.unpackNodeKey(packed);
    }
    return this.#node;
  }

  get sysDevice(): number | undefined {
    // An object that inherits from a key is no key.
    return #node in this ? this.#node?.sysDevice : undefined;
  }

  get live(): boolean {
    return this.#node?.live ?? true;
  }

  protected override describeParts(): readonly RemoteKeyPart[] {
    const { byteLength, live } = this;
    const own = this.handle === 0 ? [] : [{ md: 'libucp', byteLength, live, source: undefined }];
    return [...own, ...(this.#node?.describe() ?? [])];
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
    this.#node?.release();
  }
}

/** Unpacks the key of libucp in a key of this engine, whose segments of shared memory must exist. Throws UcxError ERR_RKEY_STALE; of ucp_ep_rkey_unpack. */
function unpackNear(functions: LibucpFunctions, ep: number, { ucx, place, files }: KeyFields): number {
  const unpack = (): number => unpackUcx(functions, ep, ucx);
  if (place?.isNear !== true) return unpack();
  const segments = segmentsOf(ucx);
  const handle = whileThere(place.sharesSegments ? segments : { ...segments, ids: [] }, files, unpack);
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

/** Unpacks a key of libucp at an endpoint, and returns its handle. Throws UcxError of ucp_ep_rkey_unpack. */
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

/** A put or get between memory and a key of this engine, without the endpoint. */
export interface Move extends LocalRange<LocalMemory>, RemoteRange<UcpRemoteKey> {}

/** The arguments of an operation. */
export type UcxCall = Call<object, LocalBuffer, UcpRemoteKey>;

/** The arguments of a put or get whose local memory is no list. */
export function moveOf(call: UcxCall, rkey: RemoteKey, remoteOffset: number): Move {
  call.rkey = rkey as UcpRemoteKey;
  call.remoteOffset = remoteOffset;
  return call as UcxCall & Move;
}

/** The last four bytes, little-endian. */
const MAGICS = PACKED_MARKS.libucx;
const VERSION = 4;
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

/** The parts of a worker address. */
export interface AddressFields {
  readonly ucx: Uint8Array;
  /** The address for the transports of the node. */
  readonly node: Uint8Array;
  readonly place: ProcessPlace;
}

/** Packs a worker address of this process. */
export function packAddress({ ucx, node }: Omit<AddressFields, 'place'>): Uint8Array {
  return packEnvelope({ ucx, own: Buffer.concat([ownPlace(), node]) }, 'worker address');
}

/** Unpacks a worker address. @throws UcxError ERR_ADDRESS_MALFORMED with the violated rule */
export function unpackAddress(packed: Uint8Array): AddressFields {
  const { ucx, own } = unpackEnvelope(packed, 'worker address');
  if (own.byteLength < PLACE_BYTES) throw malformed('worker address', `has ${own.byteLength} bytes of fields`);
  return { ucx, node: own.subarray(PLACE_BYTES), place: new ProcessPlace(own.subarray(0, PLACE_BYTES)) };
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
