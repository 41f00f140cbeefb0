/** The component posix and its memory domain: host memory in segments, which peers on this host attach. */

import { statfsSync } from 'node:fs';
import { VIEW_LENGTH_MAX } from '../../../sys/index.ts';
import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import { isUcxError, UcxError } from '../../../ucs/type/error.ts';
import { joinWords } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import { DeviceType, type IfaceResource } from '../../api/iface.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type MdAttributes,
  MdFlag,
  type RegisterOptions,
  type RegistrationSource,
} from '../../api/memory-domain.ts';
import { checkServices, isInside } from '../../base/checks.ts';
import { allocatedAccess, HostMemory } from '../../base/host/memory.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import type { PublishedKey } from '../../base/key/rkey-table-reader.ts';
import { isLackOfResources, Segment, SegmentCache, type SegmentOptions, scavenge } from '../../base/key/segment.ts';
import { SEGMENT_NAME_BYTES } from '../../base/key/segment-name.ts';
import { TableDomain } from '../base/table-domain.ts';
import { POSIX_CONFIG_TABLE, type PosixConfig, ringGeometry, segmentOptions } from './config.ts';
import { POSIX_NAME, PosixKey } from './endpoint.ts';
import { PosixIface } from './iface.ts';
import { DIRECTORY_BYTES, ringBytes } from './layout.ts';

/** Other names of the transport. */
const POSIX_ALIASES: readonly string[] = ['shm', 'sm', 'mm'];

/** Words of a payload: name of the segment, then offset of the memory in it. */
const NAME_WORDS = SEGMENT_NAME_BYTES / 4;
const PAYLOAD_WORDS = NAME_WORDS + 2;
const HOST: number = memoryTypeBit(MemoryType.HOST);

const RESOURCE: IfaceResource = {
  transport: POSIX_NAME,
  aliases: POSIX_ALIASES,
  device: 'memory',
  deviceType: DeviceType.SHM,
  sysDevice: undefined,
};

export class PosixMd extends TableDomain {
  readonly resources: readonly IfaceResource[] = [RESOURCE];
  readonly attributes: MdAttributes = {
    name: POSIX_NAME,
    component: POSIX_NAME,
    flags:
      MdFlag.ALLOC |
      MdFlag.REG |
      MdFlag.NEED_RKEY |
      MdFlag.INVALIDATE |
      MdFlag.RKEY_PTR |
      MdFlag.ADVISE |
      MdFlag.PUBLISHES_KEYS,
    registerMemoryTypes: HOST,
    allocateMemoryTypes: HOST,
    accessMemoryTypes: HOST,
    detectMemoryTypes: 0,
    dmabufMemoryTypes: 0,
    cacheMemoryTypes: 0,
    registerCost: { overheadNs: 0, perByteNs: 0 },
    rkeyPackedBytes: RKEY_TABLE_KEY_BYTES,
    allocateBytesMax: VIEW_LENGTH_MAX,
    registerBytesMax: Number.MAX_SAFE_INTEGER,
  };
  readonly #services: ComponentServices;
  /** Segments of peers. One that its owner has freed is unmapped when its last key is released. */
  readonly #segments: SegmentCache;
  /** The segments of memory that has keys. */
  readonly #segmentOf: WeakMap<HostMemory, Segment> = new WeakMap();
  readonly #folder: string;
  readonly #segmentOptions: SegmentOptions;
  /** Whether the lack of space for a ring was logged: each connection would repeat it. */
  #hasWarned = false;

  /** @throws UcxError NO_DEVICE if /dev/shm cannot be used, ERR_CONFIG_VALUE */
  constructor(services: ComponentServices) {
    const config = services.config.get(POSIX_CONFIG_TABLE);
    super(POSIX_NAME, () => false, segmentOptions(config));
    this.#services = services;
    this.#folder = config.DIR;
    this.#segmentOptions = segmentOptions(config);
    this.#segments = new SegmentCache(0, config.DIR);
    checkPosixFolder(config);
    const removed = scavenge(config.DIR);
    if (removed > 0) services.log.debug(`removed ${removed} shared-memory files of processes that have ended`);
  }

  memAlloc(byteLength: number, options: AllocateOptions): HostMemory {
    this.checkOpen();
    const access = allocatedAccess(options, MemoryType.HOST, POSIX_NAME);
    const segment = Segment.create(byteLength, this.#segmentOptions);
    const memory = this.own({ bytes: segment.bytes, allocation: segment, packable: true, access });
    this.#segmentOf.set(memory, segment);
    return memory;
  }

  override memReg(source: RegistrationSource, options?: RegisterOptions): HostMemory {
    const memory = super.memReg(source, options);
    const segment = source instanceof HostMemory ? this.#segmentOf.get(source) : undefined;
    if (segment !== undefined) this.#segmentOf.set(memory, segment);
    return memory;
  }

  rkeyUnpack(packed: Uint8Array): PosixKey {
    this.checkOpen();
    const published = this.reader.open(packed);
    try {
      return this.#attach(published);
    } catch (error) {
      published.release();
      throw error;
    }
  }

  override close(): void {
    super.close();
    this.#segments.close();
  }

  protected payloadOf(memory: HostMemory): Int32Array {
    const payload = new Int32Array(PAYLOAD_WORDS);
    new Uint8Array(payload.buffer).set(this.#segmentOf.get(memory)!.packedName);
    return payload;
  }

  protected makeIface(): PosixIface {
    return new PosixIface(RESOURCE, this.#services, this.#onShortage);
  }

  readonly #onShortage = (error: UcxError): string => {
    const { log, config } = this.#services;
    const bytes = ringBytes(ringGeometry(config.get(POSIX_CONFIG_TABLE)));
    const reason = `no space for a ring of ${kibibytes(bytes)} in ${this.#folder}, which has ${freeIn(this.#folder)} free: ${error.message}`;
    const remedy =
      'enlarge it, set UCX_POSIX_DIR to another folder, or lower UCX_POSIX_SEG_COUNT or UCX_POSIX_SEG_SIZE';
    if (!this.#hasWarned) log.warn(`some connections cannot send messages through posix: ${reason}; ${remedy}`);
    this.#hasWarned = true;
    return reason;
  };

  #attach(published: PublishedKey): PosixKey {
    const { payload, byteLength } = published;
    const name = new Uint8Array(payload.buffer, payload.byteOffset, SEGMENT_NAME_BYTES);
    const offset = joinWords(payload[NAME_WORDS]!, payload[NAME_WORDS + 1]!);
    let segment: Segment;
    try {
      segment = this.#segments.acquire(name);
    } catch (error) {
      if (isLackOfResources(error)) throw error;
      throw refusal('ERR_RKEY_STALE', 'belongs to memory that cannot be attached any more', error);
    }
    if (isInside(offset, byteLength, segment.byteLength)) {
      return new PosixKey(published, segment, offset, this.#segments);
    }
    this.#segments.release(segment);
    throw refusal('ERR_RKEY_FORGED', 'is longer than its memory');
  }
}

function refusal(code: string, rule: string, cause?: unknown): UcxError {
  const message = `remote key of ${POSIX_NAME} ${rule}`;
  return new UcxError({ code, status: Status.INVALID_ADDR, message, details: { md: POSIX_NAME }, cause });
}

function kibibytes(bytes: number): string {
  return `${Math.floor(bytes / 1024)} KiB`;
}

function freeIn(folder: string): string {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return kibibytes(bavail * bsize);
  } catch {
    // The error that is being described is the same: the folder is not accessible any more.
    return 'an unknown number of bytes';
  }
}

/**
 * Creates a segment of the size that a worker with one peer needs, and removes it, so that a missing, full, read-only or inaccessible folder is detected now.
 * @throws UcxError ERR_NO_DEVICE with the reason, ERR_CONFIG_VALUE
 */
export function checkPosixFolder(config: PosixConfig): void {
  const folder = config.DIR;
  const byteLength = DIRECTORY_BYTES + ringBytes(ringGeometry(config));
  try {
    Segment.create(byteLength, { folder }).close();
  } catch (error) {
    if (!isUcxError(error)) throw error;
    throw new UcxError({
      code: 'ERR_NO_DEVICE',
      status: Status.NO_DEVICE,
      message: `no shared memory in ${folder}: ${error.message}; enlarge or repair it, or set UCX_POSIX_DIR to another folder`,
      cause: error,
    });
  }
}

/** The component `posix`. */
export function posixComponent(): Component {
  return {
    name: POSIX_NAME,
    transports: [{ name: POSIX_NAME, aliases: POSIX_ALIASES }],
    isReplaceable: true,
    isAbsenceWarned: true,
    configTable: POSIX_CONFIG_TABLE,
    openMd: (services) => {
      checkServices(services);
      return new PosixMd(services);
    },
  };
}
