/**
 * A remote key at its endpoint: the unpacked parts, and the plans for every operation on the memory, each created once. Also the layout of packed remote
 * keys.
 */

import { crc32 } from 'node:zlib';
import { accessWithout, deniedOf, REMOTE_ACCESS, type RemoteKeyPart } from '../../api/contract/memory.ts';
import { malformed as malformedBytes, PACKED_MARKS } from '../../api/memory/local.ts';
import { OwnedRemoteKey } from '../../api/memory/owned.ts';
import type { Operation } from '../../api/operation/call.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { isBytes } from '../../ucs/memory/bytes.ts';
import { type MemoryType, memoryTypeAt } from '../../ucs/memory/memory-type.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UctEndpoint } from '../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type { MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { MemoryPlace, Plan } from '../proto/selection.ts';

const OPERATIONS = 2;

/** The path of short puts or gets of host bytes to the memory of a key. */
export interface ShortPath {
  /** Maximum length for this path. */
  readonly bytesMax: number;
  readonly endpoint: UctEndpoint;
  readonly part: UctRemoteKey;
  readonly activity: { busy: boolean };
}

export class RemoteKey extends OwnedRemoteKey implements MemoryPlace {
  readonly sysDevice: number | undefined;
  /** The parts of the key, by memory domain index; undefined for a memory domain without a part. */
  readonly parts: readonly (UctRemoteKey | undefined)[];
  /** The key by which the peer's worker finds the memory; undefined if that worker cannot move the bytes. */
  readonly memoryKey: Uint8Array | undefined;
  /** Plans, by operation and place of the local memory (MemoryHandle.placeIndex, stagedPlaceIndex). */
  readonly #plans: (Plan | undefined)[][] = Array.from({ length: OPERATIONS }, () => []);
  /** The path of short puts of host bytes, once a plan has set it; checked first in each put. */
  shortPut: ShortPath | undefined = undefined;
  /** The same for mapped memory, which may have another plan. */
  shortPutMapped: ShortPath | undefined = undefined;
  /** The same for gets that end in their call, of host bytes and of mapped memory. */
  shortGet: ShortPath | undefined = undefined;
  /** Index of the lane with atomics on words of 32 and of 64 bits, once chosen; -1 for none. */
  atomicLane32: number | undefined = undefined;
  atomicLane64: number | undefined = undefined;

  constructor(
    owner: object,
    fields: RkeyFields,
    parts: readonly (UctRemoteKey | undefined)[],
    memoryKey: Uint8Array | undefined,
  ) {
    super(owner, fields);
    this.sysDevice = fields.sysDevice;
    this.parts = parts;
    this.memoryKey = memoryKey;
  }

  /** The existing plan for an operation and a place, if any. */
  plan(operation: Operation, placeIndex: number): Plan | undefined {
    return this.#plans[operation]![placeIndex];
  }

  keepPlan(operation: Operation, placeIndex: number, plan: Plan): void {
    this.#plans[operation]![placeIndex] = plan;
  }

  /** False if a transport knows that the memory was freed. */
  get live(): boolean {
    return this.parts.every((part) => part?.live !== false);
  }

  /** The remote bytes (ucp_rkey_ptr), if a transport has mapped them into this process and they may be read and written; otherwise undefined. */
  get bytes(): Uint8Array | undefined {
    if ((this.access & REMOTE_ACCESS) !== REMOTE_ACCESS) return undefined;
    return this.parts.find((part) => part?.bytes !== undefined)?.bytes;
  }

  protected override describeParts(): readonly RemoteKeyPart[] {
    return this.parts.flatMap((part) => {
      if (part === undefined) return [];
      const { mdName: md, byteLength, live = true } = part;
      return [{ md, byteLength, live, source: part.describe?.() }];
    });
  }

  protected override releaseParts(): void {
    this.shortPut = undefined;
    this.shortPutMapped = undefined;
    this.shortGet = undefined;
    for (const part of this.parts) part?.release();
  }
}

/** The error for the INVALID_ADDR of a transport: ranges were checked before, so the memory was released. */
export function staleKeyError(): UcxError {
  return new UcxError({
    code: 'ERR_RKEY_STALE',
    status: Status.INVALID_ADDR,
    message:
      'the memory of the operation no longer exists: the local memory was unmapped or detached, or the remote memory was unmapped, or the remote key was ' +
      'released; for remote memory, get a new remote key from its owner',
  });
}

/*
 * Layout of a packed remote key: a versioned header, one part for each memory domain and a checksum. It contains no descriptor, and no pointer that is
 * dereferenced here: memory domains check their parts.
 *
 * Little-endian: u32 magic, u8 version, u8 memory type, u8 part count, u8 denied accesses, u32 system device, u32 0, u64 address, u64 length; per part u8
 * name length, name, u8 key length, key; u32 CRC-32 of all preceding bytes.
 */

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
  /** Accesses of peers: bits of MemAccess for put and get. */
  readonly access: number;
  readonly parts: readonly RkeyPart[];
}

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
 * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM) with the violated rule
 */
export function unpackRkey(packed: Uint8Array): RkeyFields {
  if (!isBytes(packed)) throw malformed('is not a Uint8Array');
  if (packed.byteLength < HEADER_BYTES + CHECKSUM_BYTES)
    throw malformed(`is truncated: has only ${packed.byteLength} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const end = packed.byteLength - CHECKSUM_BYTES;
  if (view.getUint32(0, true) !== MAGIC) throw malformed('has a wrong magic number: not created by packRkey()');
  if (view.getUint8(4) !== VERSION)
    throw malformed(
      `has version ${view.getUint8(4)}, but this library supports only ${VERSION}: use the same version of gaudi-ucx at both ends`,
    );
  if (view.getUint32(end, true) !== crc32(packed.subarray(0, end))) throw malformed('has a wrong checksum');
  const memoryType = memoryTypeAt(view.getUint8(5));
  if (memoryType === undefined) throw malformed(`has an unknown memory type ${view.getUint8(5)}`);
  const access = accessWithout(view.getUint8(7));
  if (access === undefined) throw malformed(`has unknown access flags (${view.getUint8(7)})`);
  const device = view.getUint32(8, true);
  const byteLength = view.getBigUint64(24, true);
  if (byteLength > BigInt(Number.MAX_SAFE_INTEGER))
    throw malformed(`has an invalid memory length of ${byteLength} bytes`);
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
    if (at + 1 + length > end) throw malformed('is truncated');
    const field = packed.subarray(at + 1, at + 1 + length);
    at += 1 + length;
    return field;
  };
  for (let i = 0; i < count; i++) parts.push({ name: Buffer.from(take()).toString('ascii'), key: take().slice() });
  if (at !== end) throw malformed('has trailing bytes');
  return parts;
}

function malformed(rule: string): UcxError {
  return malformedBytes('remote key', rule);
}

/**
 * Packs one part. A memory domain that currently cannot publish keys, for lack of space in /dev/shm or of descriptors, is left out: peers use the other
 * parts.
 * @returns undefined if it is left out
 */
export function packPart(md: MemoryDomain, memory: MdMemory, log: Log | undefined): RkeyPart | undefined {
  const { name, rkeyPackedBytes } = md.attributes;
  const key = new Uint8Array(rkeyPackedBytes);
  try {
    md.mkeyPack(memory, key, 0);
  } catch (error) {
    if (!isUcxError(error) || !error.code.startsWith('ERR_SYSCALL_')) throw error;
    log?.warn(`remote key packed without a part for ${name}: ${error.message}`);
    return undefined;
  }
  return { name, key };
}
