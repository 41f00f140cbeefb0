/**
 * The shared-memory segments in remote keys of libucp, and the location of a process. libucp 1.13 ends the process if it cannot attach a segment
 * (uct_rkey_release of a component that was not unpacked), so this engine checks the segments before it unpacks a key.
 *
 * A packed key (UCX: src/ucp/core/ucp_rkey.c) has a bit map of memory domains (8 bytes), the memory type, and for each domain a length and as many bytes:
 * for sysv the segment id (u32) and address (u64), for posix the file name (u64), address and length (src/uct/sm/mm).
 *
 * The location of a process in addresses and keys of this engine is the boot id of its machine, its namespaces and its identity.
 */

import {
  attachSegment,
  bootId,
  detachSegment,
  hasEnded,
  ipcNamespace,
  isSyscallError,
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  pathIdentity,
  unpackIdentity,
} from '../../sys/index.ts';

const PARTS_OFFSET = 9;
const SYSV_BYTES = 12;
const POSIX_BYTES = 24;
/** The file is /proc/PID/fd/FD. */
const POSIX_PROC_LINK = 1n << 63n;
/** The file is in /dev/shm, or was, if {@link POSIX_PROC_LINK} is set too. Without both bits, the folder follows. */
const POSIX_SHM_OPEN = 1n << 62n;
const POSIX_NUMBER_MASK = (1n << 60n) - 1n;
const PID_BITS = 30n;
const PID_MASK = (1n << PID_BITS) - 1n;

/** The segments that a key refers to. */
export interface KeySegments {
  /** System V segment ids. */
  readonly ids: readonly number[];
  /** Paths of the posix files. */
  readonly files: readonly string[];
}

/** Parses the segments in a packed key of libucp; those with an unknown layout are left out. */
export function segmentsOf(key: Uint8Array): KeySegments {
  const view = new DataView(key.buffer, key.byteOffset, key.byteLength);
  const [ids, files]: [number[], string[]] = [[], []];
  if (key.byteLength < PARTS_OFFSET) return { ids, files };
  let at = PARTS_OFFSET;
  for (let domains = view.getBigUint64(0, true); domains > 0n && at < key.byteLength; domains &= domains - 1n) {
    const byteLength = view.getUint8(at);
    const begin = at + 1;
    at = begin + byteLength;
    if (at > key.byteLength) break;
    if (byteLength === SYSV_BYTES) ids.push(view.getInt32(begin, true));
    else if (byteLength >= POSIX_BYTES) {
      const file = fileOf(view.getBigUint64(begin, true));
      if (file !== undefined) files.push(file);
    }
  }
  return { ids, files };
}

function fileOf(name: bigint): string | undefined {
  const number = name & POSIX_NUMBER_MASK;
  if ((name & POSIX_PROC_LINK) !== 0n) return `/proc/${number & PID_MASK}/fd/${number >> PID_BITS}`;
  return (name & POSIX_SHM_OPEN) !== 0n ? `/dev/shm/ucx_shm_posix_${number.toString(16)}` : undefined;
}

/** A hash that identifies the files of segments: a descriptor may refer to another file later. 0 without files; undefined if one does not exist. */
export function identityOf({ files }: KeySegments): bigint | undefined {
  let identity = 0n;
  for (const file of files) {
    const id = pathIdentity(file);
    if (id === undefined) return undefined;
    identity ^= id;
  }
  return identity;
}

/**
 * Runs a function while the segments of a key exist. Only sysv segments can be kept from being removed meanwhile.
 * @param identity identity of the files when the key was packed
 * @returns undefined, without calling the function, if a segment does not exist any more
 */
export function whileThere<T>(segments: KeySegments, identity: bigint, run: () => T): T | undefined {
  const attached: number[] = [];
  try {
    for (const id of segments.ids) {
      const address = unlessDenied(() => attachSegment(id), 0);
      if (address === undefined) return undefined;
      if (address !== 0) attached.push(address);
    }
    if (unlessDenied(() => identityOf(segments), identity) !== identity) return undefined;
    return run();
  } finally {
    for (const address of attached) detachSegment(address);
  }
}

/** The result of a look-up; `otherwise` if this process lacks the permission: libucp may then try. */
function unlessDenied<T>(look: () => T, otherwise: T): T {
  try {
    return look();
  } catch (error) {
    if (isSyscallError(error) || (error instanceof Error && 'code' in error && error.code === 'EACCES'))
      return otherwise;
    throw error;
  }
}

/** 16 bytes boot id, u32 namespace of System V segments, 4 zero bytes, then the process identity. */
const AT = { BOOT: 0, IPC_NAMESPACE: 16, IDENTITY: 24 } as const;

/** Bytes of a packed location. */
export const LOCATION_BYTES: number = AT.IDENTITY + PROCESS_IDENTITY_BYTES;

let own: Uint8Array | undefined;

/** The packed location of this process. Throws SyscallError without /proc, or EMFILE on the first call. */
export function ownLocation(): Uint8Array {
  if (own === undefined) {
    const bytes = new Uint8Array(LOCATION_BYTES);
    bytes.set(bootId(), AT.BOOT);
    new DataView(bytes.buffer).setUint32(AT.IPC_NAMESPACE, ipcNamespace(), true);
    packIdentity(ownIdentity(), bytes, AT.IDENTITY);
    own = bytes;
  }
  return own;
}

export class ProcessLocation {
  readonly process: ProcessIdentity;
  /** Whether the process runs on this machine, in the same pid namespace. */
  readonly isNear: boolean;
  /** Whether it also shares the System V segments of this process. */
  readonly sharesSegments: boolean;

  /** @param packed {@link LOCATION_BYTES} bytes */
  constructor(packed: Uint8Array) {
    const mine = ownLocation();
    const isSame = (begin: number, end: number): boolean =>
      Buffer.compare(packed.subarray(begin, end), mine.subarray(begin, end)) === 0;
    this.process = unpackIdentity(packed, AT.IDENTITY);
    this.isNear = isSame(AT.BOOT, AT.IPC_NAMESPACE) && this.process.pidNamespace === ownIdentity().pidNamespace;
    this.sharesSegments = this.isNear && isSame(AT.IPC_NAMESPACE, AT.IDENTITY);
  }

  /** Whether the process is known to have ended. */
  get hasEnded(): boolean {
    return this.isNear && hasEnded(this.process);
  }
}
