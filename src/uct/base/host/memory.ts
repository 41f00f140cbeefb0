/**
 * Host memory of memory domains: memory that the domain allocated, a registered buffer of the program, or memory of another library in this process, which is
 * given by its address. Also the checks of its options, zero-copy lists of it, prefaulting of its pages, and the registration cache of a domain.
 */

import {
  addressOf,
  isMapped,
  MadviseAdvice,
  type MappedMemory,
  madvise,
  PAGE_SIZE,
  VIEW_LENGTH_MAX,
  viewAt,
} from '../../../sys/index.ts';
import { isBytes, isResizable } from '../../../ucs/memory/bytes.ts';
import { MEMORY_TYPE_NAMES, MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { RcacheConfig, Registrar } from '../../../ucs/rcache/options.ts';
import { Rcache } from '../../../ucs/rcache/rcache.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import { checkFlag, checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam, outsideOf, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { IovEntry } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import {
  type AllocateOptions,
  type ComponentServices,
  type HostRange,
  MemAccess,
  type MemoryAdvice,
  type RegisterOptions,
  type RegistrationSource,
} from '../../api/memory-domain.ts';
import { checkSysDevice, isInBytes, isInside } from '../checks.ts';
import type { Segment } from '../key/segment.ts';

/** Memory that a domain allocated: private, or a segment that others map. */
export type HostAllocation = MappedMemory | Segment;

export interface HostMemoryParams {
  readonly mdName: string;
  readonly bytes: Uint8Array;
  readonly generation: number;
  /** Present if the memory domain allocated it. */
  readonly allocation: HostAllocation | undefined;
  readonly packable: boolean;
  /** Bits of MemAccess. */
  readonly access: number;
}

/** Host memory of one memory domain. */
export class HostMemory implements MdMemory {
  readonly mdName: string;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  /** The address as a number, for system calls. */
  readonly location: number;
  readonly bytes: Uint8Array;
  readonly generation: number;
  readonly allocation: HostAllocation | undefined;
  readonly packable: boolean;
  /** Permitted uses: bits of MemAccess. */
  readonly access: number;
  /** Number of transfers in flight, if the transport counts them. */
  inFlight = 0;
  live = true;

  constructor({ mdName, bytes, generation, allocation, packable, access }: HostMemoryParams) {
    this.mdName = mdName;
    this.location = allocation?.address ?? addressOf(bytes);
    this.bytes = bytes;
    this.generation = generation;
    this.allocation = allocation;
    this.packable = packable;
    this.access = access;
  }

  get address(): bigint {
    return BigInt(this.location);
  }

  /** 0 if it is a registered buffer that was detached. */
  get byteLength(): number {
    return this.bytes.byteLength;
  }
}

/** Upper bound of user addresses of x86-64. */
const ADDRESS_END = 2 ** 47;

/** A range of host memory. Created by {@link hostRange}. */
export class RawRange implements HostRange {
  readonly address: number;
  readonly byteLength: number;
  readonly bytes: Uint8Array;

  constructor(address: number, byteLength: number) {
    this.address = address;
    this.byteLength = byteLength;
    this.bytes = new Uint8Array(viewAt(address, byteLength));
  }
}

/**
 * Creates a range of host memory from its address.
 * @param address of the first byte, below 2^47
 * @param byteLength 1 to 4 GiB, the maximum length of a view
 * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that is not mapped in this process
 */
export function hostRange(address: number | bigint, byteLength: number): HostRange {
  const place = typeof address === 'bigint' ? Number(address) : address;
  if (!(Number.isSafeInteger(place) && place > 0 && place < ADDRESS_END)) {
    throw invalidParam('address', 'must be a user address below 2^47', address);
  }
  if (!(Number.isSafeInteger(byteLength) && byteLength > 0 && byteLength <= VIEW_LENGTH_MAX)) {
    throw invalidParam('byteLength', `must be an integer from 1 to ${VIEW_LENGTH_MAX}`, byteLength);
  }
  if (place + byteLength <= ADDRESS_END && isMapped(place, byteLength)) return new RawRange(place, byteLength);
  throw new UcxError({
    code: 'ERR_INVALID_ADDR',
    status: Status.INVALID_ADDR,
    message: `[0x${place.toString(16)}, +${byteLength}) is not mapped in this process`,
  });
}

/**
 * Returns the bytes of host memory to register.
 * @throws UcxError as {@link checkHostBuffer}
 */
export function hostBytesOf(source: RegistrationSource): Uint8Array {
  if (source instanceof RawRange) return source.bytes;
  checkHostBuffer('buffer', source);
  return source;
}

/**
 * Checks a buffer that is to be registered as a whole.
 * @throws UcxError ERR_INVALID_PARAM that names the rule: a Uint8Array, not empty or detached, not resizable or growable, and not a small Buffer from Node's
 * pool, because registering the pool would expose its other Buffers
 */
export function checkHostBuffer(argument: string, buffer: unknown): asserts buffer is Uint8Array {
  if (!isBytes(buffer)) throw invalidParam(argument, 'must be a Uint8Array or Buffer', buffer);
  if (isResizable(buffer.buffer)) {
    throw invalidParam(argument, 'must not be in a resizable ArrayBuffer, whose memory can be released', buffer);
  }
  if (buffer.byteLength === 0) throw invalidParam(argument, 'must not be empty or detached', buffer.byteLength);
  if (isPooled(buffer)) {
    throw invalidParam(
      argument,
      'must not be in the pool of small Buffers: use Buffer.allocUnsafeSlow',
      buffer.byteLength,
    );
  }
}

/** Bytes of the pool before a program changes `Buffer.poolSize`; in Node.js 26 somewhat more than that value. */
const POOL_BYTES = Buffer.allocUnsafe(1).buffer.byteLength;

/** Whether a Buffer is a slice of the pool from which Node allocates small Buffers. */
function isPooled(buffer: Uint8Array): boolean {
  return (
    Buffer.isBuffer(buffer) &&
    (buffer.buffer.byteLength === POOL_BYTES || buffer.buffer.byteLength === Buffer.poolSize) &&
    buffer.byteLength < buffer.buffer.byteLength
  );
}

/** An entry that has passed {@link checkIov}. */
export interface HostIovEntry extends IovEntry {
  readonly memory: HostMemory;
}

/** Maximum number of entries of a list. */
export const IOV_MAX = 16;

/**
 * Checks a list and returns its total bytes.
 * @throws UcxError ERR_INVALID_PARAM for too many entries, memory of another domain, released memory, and ranges outside
 */
export function checkIov(iov: readonly IovEntry[], mdName: string): number {
  if (iov.length > IOV_MAX) throw invalidParam('iov', `must have at most ${IOV_MAX} entries`, iov.length);
  let total = 0;
  for (let i = 0; i < iov.length; i++) {
    const { memory, offset, byteLength } = iov[i]!;
    if (!(memory instanceof HostMemory) || memory.mdName !== mdName) {
      throw invalidParam('iov', `must hold memory of memory domain ${mdName}`, memory?.mdName);
    }
    if (!memory.live || !isInBytes(offset, byteLength, memory.bytes)) {
      const place = `${byteLength} at ${offset}`;
      throw invalidParam('iov', `must be inside memory of ${memory.byteLength} bytes that is not freed`, place);
    }
    total += byteLength;
  }
  return total;
}

const ALLOCATE_OPTIONS: readonly (keyof AllocateOptions)[] = ['memoryType', 'sysDevice', 'shared', 'access'];
const REGISTER_OPTIONS: readonly (keyof RegisterOptions)[] = ['access'];
const DEREGISTER_OPTIONS: readonly (keyof DeregisterOptions)[] = ['invalidate', 'force'];

/** Options of memDereg. */
export interface DeregisterOptions {
  readonly invalidate?: boolean;
  readonly force?: boolean;
}

/**
 * The access flags of an allocation.
 * @param memoryType the only type that the memory domain allocates
 * @throws UcxError ERR_INVALID_PARAM
 */
export function allocatedAccess(options: AllocateOptions, memoryType: MemoryType, mdName: string): number {
  checkOptions(options, 'options', ALLOCATE_OPTIONS);
  if (options.memoryType !== memoryType) {
    const rule = `must be ${MEMORY_TYPE_NAMES[memoryType]} in memory domain ${mdName}`;
    throw invalidParam('memoryType', rule, options.memoryType);
  }
  checkSysDevice(options.sysDevice);
  checkFlag('shared', options.shared);
  return checkAccess(options.access);
}

/** The access flags of a registration. @throws UcxError ERR_INVALID_PARAM */
export function registeredAccess(options: RegisterOptions = {}): number {
  checkOptions(options, 'options', REGISTER_OPTIONS);
  return checkAccess(options.access);
}

/** @throws UcxError ERR_INVALID_PARAM */
export function checkDeregister(options: DeregisterOptions): void {
  checkOptions(options, 'options', DEREGISTER_OPTIONS);
  checkFlag('invalidate', options.invalidate);
  checkFlag('force', options.force);
}

/** Checks access flags; all by default. @throws UcxError ERR_INVALID_PARAM */
export function checkAccess(access: number = MemAccess.ALL): number {
  if (Number.isInteger(access) && access > 0 && (access & ~MemAccess.ALL) === 0) return access;
  throw invalidParam('access', 'must be bits of MemAccess', access);
}

/** @throws UcxError ERR_INVALID_PARAM for an unknown advice, or a range that is empty or outside the memory */
export function checkAdvice(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
  if (advice !== 'normal' && advice !== 'will-need') {
    throw invalidParam('advice', "must be 'normal' or 'will-need'", advice);
  }
  if (!(isInside(offset, byteLength, memory.byteLength) && byteLength > 0)) {
    if (!Number.isSafeInteger(offset) || offset < 0) {
      throw invalidParam('offset', 'must be an integer of 0 or more', offset);
    }
    const isBeyond = offset > memory.byteLength;
    if (!isBeyond && (!Number.isSafeInteger(byteLength) || byteLength < 1)) {
      throw invalidParam('byteLength', 'must be an integer of 1 or more', byteLength);
    }
    throw outsideOf('memory', 'byteLength', { offset, byteLength, size: memory.byteLength });
  }
}

/**
 * Backs the pages of host memory, writable, as their first access would. Errors are ignored: the first access reports them. Kernels before 5.14 do not have
 * the call.
 */
export function prefault(address: number, byteLength: number): void {
  const start = address - (address % PAGE_SIZE);
  madvise(start, address + byteLength - start, MadviseAdvice.POPULATE_WRITE);
}

/** The options of a cache that the memory domain sets. */
export interface HostCacheOptions<R extends object> extends Omit<Registrar<R>, 'addressOf'> {
  /** Name in statistics. */
  readonly name: string;
  readonly config: RcacheConfig;
  /** Bytes of the longest ArrayBuffer that is registered as a whole; of longer ones only the used pages are. */
  readonly wholeBytesMax: number;
}

/** Creates the cache. */
export function openHostCache<R extends object>(
  { name, config, wholeBytesMax, register, deregister }: HostCacheOptions<R>,
  { log, clock }: Pick<ComponentServices, 'log' | 'clock'>,
): Rcache<R> {
  return new Rcache({
    name,
    registrar: { addressOf: (owner) => addressOf(new Uint8Array(owner)), register, deregister },
    maxRegions: config.RCACHE_MAX_REGIONS,
    maxSize: config.RCACHE_MAX_SIZE,
    maxUnreleased: config.RCACHE_MAX_UNRELEASED,
    wholeBytesMax,
    onError: (error) => log.error(`registration cache: ${String(error)}`),
    defer: (task) => {
      clock.setTimer(0, task);
    },
  });
}

/** Its counters and levels. */
export function cacheStats(name: string, cache: Rcache<object>): StatsNode {
  const levels = { num_regions: cache.numRegions, total_size: cache.totalSize };
  return statsNode('ucs_rcache', name, { ...cache.counters, ...levels });
}
