/** The memories of an operation: user memory of any type and host scratch memory, and copies between them. Callers check the ranges. */

import type { ClosableContext } from '../../../api/awaited/context.ts';
import type { Endpoint } from '../../../api/contract/endpoint.ts';
import { type LocalMemory, PUT_ACCESSES, type RemoteKey } from '../../../api/contract/memory.ts';
import type { Request, RequestParams } from '../../../api/contract/request.ts';
import { OwnedMemory } from '../../../api/memory/owned.ts';
import { copyBytes, moveBytes } from '../../../ucs/memory/bytes.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Region } from '../../schedule/schedule.ts';

/** Memory of an operation, from an offset on. */
export interface Bound {
  readonly memory: LocalMemory;
  /** Offset in the memory at which the regions of its space begin. */
  readonly offset: number;
  /** The bytes of host memory, from `offset` on; undefined for device memory. */
  readonly bytes: Uint8Array | undefined;
}

/** A range of memory: where a region is. */
export interface Place {
  readonly memory: LocalMemory;
  readonly offset: number;
  readonly byteLength: number;
  /** The range of host memory; undefined for device memory. */
  readonly bytes: Uint8Array | undefined;
}

const NO_BYTES = new Uint8Array(0);

/** Packed keys of mapped memory. A packed key does not change while the memory is mapped. */
const PACKED: WeakMap<OwnedMemory, Uint8Array> = new WeakMap();

/** Binds memory to an operation, from an offset on. */
export function bind(memory: LocalMemory, offset: number, byteLength: number): Bound {
  const bytes = memory instanceof Uint8Array ? memory : memory.bytes;
  return { memory, offset, bytes: partOf(bytes, offset, byteLength) };
}

/**
 * Finds the memory of a region.
 * @throws UcxError ERR_INVALID_ADDR if the program has detached, shrunk or unmapped the memory since it was bound
 */
export function placeOf({ memory, offset, bytes }: Bound, region: Region): Place {
  const { byteLength } = region;
  const place = { memory, offset: offset + region.offset, byteLength, bytes };
  if (!isAccessible(place))
    throw statusError(Status.INVALID_ADDR, 'cannot use memory that was detached or unmapped while the operation ran');
  return { ...place, bytes: partOf(bytes, region.offset, byteLength) };
}

/** False once the program has detached, shrunk or unmapped the memory. */
export function isAccessible({ memory, offset, byteLength }: Place): boolean {
  return memory instanceof Uint8Array ? memory.byteLength >= offset + byteLength : memory.mapped;
}

/** A range of bytes; undefined if they are detached. */
function partOf(bytes: Uint8Array | undefined, offset: number, byteLength: number): Uint8Array | undefined {
  return bytes !== undefined && byteLength === 0 ? NO_BYTES : bytes?.subarray(offset, offset + byteLength);
}

/** True if both are the same range. */
export function areSame(one: Place, other: Place): boolean {
  return one.byteLength === other.byteLength && distance(one, other) === 0;
}

/** True if the two ranges overlap. */
export function doOverlap(one: Place, other: Place): boolean {
  const gap = one.byteLength === 0 || other.byteLength === 0 ? undefined : distance(one, other);
  return gap !== undefined && gap < one.byteLength && -gap < other.byteLength;
}

/** Distance of the starts of two ranges in bytes; undefined if they are in different memories. */
function distance(one: Place, other: Place): number | undefined {
  if (one.bytes !== undefined) {
    return one.bytes.buffer === other.bytes?.buffer ? other.bytes.byteOffset - one.bytes.byteOffset : undefined;
  }
  if (one.memory instanceof Uint8Array || other.memory instanceof Uint8Array || other.bytes !== undefined)
    return undefined;
  if (one.memory === other.memory) return other.offset - one.offset;
  if (one.memory.sysDevice !== other.memory.sysDevice) return undefined;
  return Number(other.memory.address - one.memory.address) + other.offset - one.offset;
}

/** The packed remote key of memory to which peers can put; undefined for other memory, and for bytes that are not mapped. */
export function packedKeyOf(memory: LocalMemory): Uint8Array | undefined {
  if (!OwnedMemory.isGenuine(memory) || (memory.access & PUT_ACCESSES.remoteAccess) === 0) return undefined;
  let packed = PACKED.get(memory);
  if (packed === undefined) {
    packed = (memory.owner as ClosableContext).packRkey(memory);
    PACKED.set(memory, packed);
  }
  return packed;
}

/** Copies between memories of one rank. Copies from or to device memory use an endpoint of the worker to itself. */
export class LocalCopies {
  readonly #toItself: () => Endpoint;
  readonly #keys: Map<LocalMemory, RemoteKey> = new Map();

  constructor(toItself: () => Endpoint) {
    this.#toItself = toItself;
  }

  /** Copies host memory synchronously; the ranges may overlap. */
  copyHost(from: Uint8Array, to: Uint8Array): void {
    if (from.buffer === to.buffer) moveBytes(to, 0, from, 0, from.byteLength);
    else copyBytes(to, 0, from, 0, from.byteLength);
  }

  /** Starts a copy from or to device memory. */
  startCopy(from: Place, to: Place, params: RequestParams): Status | Request {
    const endpoint = this.#toItself();
    const { byteLength } = from;
    if (to.bytes === undefined) {
      return endpoint.putNbx(from.memory, from.offset, byteLength, this.#keyOf(to.memory), to.offset, params);
    }
    return endpoint.getNbx(to.memory, to.offset, byteLength, this.#keyOf(from.memory), from.offset, params);
  }

  /** Starts a flush: it ends when all earlier copies are visible in memory. */
  startFlush(params: RequestParams): Status | Request {
    return this.#toItself().flushNbx(params);
  }

  /** Releases the remote keys when the operation has ended. */
  release(): void {
    for (const key of this.#keys.values()) key.release();
    this.#keys.clear();
  }

  #keyOf(memory: LocalMemory): RemoteKey {
    let key = this.#keys.get(memory);
    if (key === undefined) {
      const handle = memory as OwnedMemory;
      key = this.#toItself().unpackRkey((handle.owner as ClosableContext).packOwnRkey(handle));
      this.#keys.set(memory, key);
    }
    return key;
  }
}
