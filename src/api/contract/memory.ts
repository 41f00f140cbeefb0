/**
 * Memory as parameters of operations: mapped memory, host bytes, lists of ranges, remote keys; and the protection of mapped memory
 * (ucp_mem_map_params_t.prot), with its names in the API and the access flags of transports.
 */

import type { MemoryType, MemoryTypeName, WithMemoryType } from '../../ucs/memory/memory-type.ts';
import { invalidParam, type UcxError } from '../../ucs/type/error.ts';
import type { RemoteKeySource } from '../../uct/api/memory.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';

/**
 * One permitted access to mapped memory (UCP_MEM_MAP_PROT_*). `local-read`: source of sends and puts. `local-write`: destination of receives and gets.
 * `remote-read`, `remote-write`: gets and puts of peers with the remote key; with both, also atomic operations.
 */
export type MemoryProtection = 'local-read' | 'local-write' | 'remote-read' | 'remote-write';

/** Options of memMap for memory of every kind. */
export interface ProtectionOptions {
  /**
   * Permitted accesses. Default: all. Other operations fail before any bytes move: at the API with ERR_INVALID_PARAM; for a peer that forges its key, with
   * INVALID_ADDR at RDMA devices, over tcp, and where the owner's worker executes the operation. Peers on this host that map the memory (posix), access the
   * process (cma) or its cards (gaudi_ipc) can forge keys. Without `remote-read` or `remote-write`, the memory has no remote key. Messages do not depend on
   * remote access. Loads and stores of this process are not restricted.
   */
  readonly protection?: readonly MemoryProtection[] | undefined;
}

/** Parameters of memMap. */
export type MemMapParams = MemorySource & ProtectionOptions;

/** The memory that memMap maps. */
export type MemorySource =
  | {
      /** Host memory to register: not empty, not in a resizable ArrayBuffer or in the pool of small Buffers, and not detached while mapped. */
      readonly buffer: Uint8Array;
    }
  | {
      /**
       * Address of foreign memory: device memory of hl-thunk, or host memory of another library in this process, which must stay mapped until it is reported
       * unmapped.
       */
      readonly address: number | bigint;
      /** Length in bytes; of host memory at most 4 GiB. */
      readonly byteLength: number;
      /** Default: detected. */
      readonly memoryType?: MemoryType | MemoryTypeName | undefined;
      /** Logical index of the card with the address; required if several cards have memory at this address. */
      readonly sysDevice?: number | undefined;
    }
  | {
      /** Bytes to allocate; of host memory at most 4 GiB. */
      readonly allocate: number;
      /** Default host. */
      readonly memoryType?: MemoryType | MemoryTypeName | undefined;
      /** Logical index of the card, for memory type GAUDI. Default: the first one. */
      readonly sysDevice?: number | undefined;
      /**
       * Allocates memory that can be exported as a dma-buf without exposing other memory: device memory in a separate allocation, or host memory in a memfd,
       * which needs a descriptor; peers do not map it (posix), but access it in other ways.
       */
      readonly shared?: boolean | undefined;
    }
  | {
      /**
       * Foreign memory by its dma-buf. The caller may close the descriptor once memMap has returned: memMap duplicates it, and memUnmap closes the duplicate.
       */
      readonly dmabuf: {
        /** Descriptor of the dma-buf. */
        readonly fd: number;
        /** Offset of the first byte in the dma-buf. Default 0. */
        readonly offset?: number | undefined;
        /** Length in bytes; of host memory at most 4 GiB. */
        readonly byteLength: number;
      };
      /** Type of the memory. Default host: memory that the processor maps. GAUDI is HBM, which a card imports if its driver supports it. */
      readonly memoryType?: MemoryType | MemoryTypeName | undefined;
      /** Logical index of the card that imports memory of type GAUDI. Default: the first card that can. */
      readonly sysDevice?: number | undefined;
    };

/** MemMapParams with the memory type as a number. */
export type MapParams = WithMemoryType<MemMapParams>;

/** A range of mapped memory, and a signal for cancellation. */
export interface MemoryRange {
  /** Offset of the range. Default 0. */
  readonly offset?: number | undefined;
  /** Length of the range. Default: all from `offset` on. */
  readonly byteLength?: number | undefined;
  /** Cancels the operation: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link MemoryHandle.copyTo}. */
export interface CopyOptions extends MemoryRange {
  /** Offset in the other memory. Default 0. */
  readonly targetOffset?: number | undefined;
}

/** Mapped memory of a context: the result of memMap, usable as local memory of every operation and for packing remote keys. */
export interface MemoryHandle {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** The card, by its logical index; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Address of the first byte: host virtual or of the device. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /**
   * The bytes of host memory; undefined for device memory, which the processor cannot access. The array stays the same after memUnmap, because JavaScript
   * cannot revoke it: for memory that memMap allocated, its bytes are then 0, and writes do not reach peers. {@link view} throws instead.
   */
  readonly bytes: Uint8Array | undefined;
  /** Permitted accesses. */
  readonly protection: readonly MemoryProtection[];
  /** False after memUnmap, and for memory of a card that its driver has reset: the contents are lost, and uses throw ERR_GAUDI_DEVICE_BUSY with the reason. */
  readonly mapped: boolean;
  /**
   * The bytes of host memory: {@link bytes}, with a check that the memory is mapped.
   * @throws UcxError ERR_CLOSED after memUnmap; undefined for device memory
   */
  view(): Uint8Array | undefined;

  /**
   * Writes bytes into memory of any type, and waits until they have arrived. Like the three methods below, it drives progress and needs no endpoint.
   * @param options the range to write; the default length is that of `bytes`
   * @throws UcxError ERR_INVALID_PARAM for a range outside the memory; ERR_CLOSED after memUnmap; the failure of the transfer; AbortError
   */
  write(bytes: Uint8Array, options?: MemoryRange): Promise<void>;

  /**
   * Reads bytes of memory of any type.
   * @param target destination. Default: a new array
   * @param options the range to read; the default length is that of the target, or all from `offset` on
   * @returns the bytes read: the target, or a subarray of it
   * @throws UcxError see {@link write}
   */
  read(target?: Uint8Array, options?: MemoryRange): Promise<Uint8Array>;

  /**
   * Sets bytes of the memory to a value.
   * @param value 0 to 255
   * @throws UcxError see {@link write}
   */
  fill(value: number, options?: MemoryRange): Promise<void>;

  /**
   * Copies bytes to other memory of the same context: between host memory and cards, within a card, between cards. Ranges of one memory may overlap in host
   * memory, but not in device memory.
   * @param options the range to copy, and the offset in the other memory
   * @throws UcxError see {@link write}
   */
  copyTo(other: MemoryHandle, options?: CopyOptions): Promise<void>;

  /**
   * Unmaps the memory at the end of a block, as `context.memUnmap` does; no effect if already unmapped.
   * @throws UcxError ERR_BUSY while operations use it
   * @example
   * ```ts
   * using memory = context.memMap({ allocate: 4096 });
   * await memory.fill(0);
   * ```
   */
  [Symbol.dispose](): void;
}

/**
 * Memory on the local side of an operation: mapped memory, or a host buffer. The native engine also sends and receives bytes of resizable ArrayBuffers, in
 * messages without a remote key; puts and gets reject them if their transport registers host memory. Over libucp, every operation rejects them.
 */
export type LocalMemory = MemoryHandle | Uint8Array;

/** Maximum number of ranges in a list. */
export const IOV_MAX = 1024;

/** One range of local memory. */
export interface IovPiece {
  /** The memory of the range. */
  readonly memory: LocalMemory;
  /** Default 0. */
  readonly offset?: number | undefined;
  /** Default: all of the memory from `offset` on. */
  readonly byteLength?: number | undefined;
}

/** Local memory of a message: memory, or a list of ranges that form one message in order. */
export type LocalBuffer = LocalMemory | readonly IovPiece[];

/** Local memory of an awaited message: memory, a range `{ memory, offset, byteLength }` of it, or a list of ranges that form one message in order. */
export type MessageBuffer = LocalBuffer | IovPiece;

/** An unpacked remote key. */
export interface RemoteKey {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device with the memory; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Address of the first byte at the owner. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** Permitted accesses of peers: `remote-read`, `remote-write` or both. */
  readonly protection: readonly MemoryProtection[];
  /** The remote bytes, if a transport has mapped them into this process (ucp_rkey_ptr), and peers may read and write them; otherwise undefined. */
  readonly bytes: Uint8Array | undefined;
  /** True after `release()`. */
  readonly released: boolean;
  /** False if a transport has detected that the memory was released. */
  readonly live: boolean;
  /** Describes the memory, for each memory domain that reaches it: empty for a released key. */
  describe(): readonly RemoteKeyPart[];
  /** Releases the key, which cannot be used afterwards. Await its operations first, because a queued one may fail. Idempotent. */
  release(): void;
  /** Releases the key at the end of a block: `using rkey = endpoint.unpackRkey(packed)`. */
  [Symbol.dispose](): void;
}

/** The component of a remote key for one memory domain. */
export interface RemoteKeyPart {
  /** Name of the memory domain; `libucp` for the key of libucp, which is opaque. */
  readonly md: string;
  /** Length of the memory in bytes. */
  readonly byteLength: number;
  /** False if the memory domain has detected that the memory was released. */
  readonly live: boolean;
  /** Card, process, arena and channels of device memory; undefined if the memory domain does not report them. */
  readonly source: RemoteKeySource | undefined;
}

/** The range of mapped memory to which advice applies. */
export interface AdviseOptions {
  /** Offset of the range. Default 0. */
  readonly offset?: number | undefined;
  /** Default: all from `offset` on. */
  readonly byteLength?: number | undefined;
}

/** A range of addresses. */
export interface AddressedMemory {
  /** Address of the first byte: a host virtual address or a device address. */
  readonly address: number | bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** Logical index of the card with the address; without it, an address with memory of several cards is an error. */
  readonly sysDevice?: number | undefined;
}

/** Attributes of memory (ucp_mem_attr). */
export interface MemoryInfo {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** Undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Start of the whole allocation; for host memory start of the requested range. */
  readonly baseAddress: bigint;
  /** Length of the whole allocation in bytes; for host memory of the requested range. */
  readonly allocLength: number;
}

/** A report about foreign device memory. */
export interface MemoryTypeEvent extends AddressedMemory {
  /** The event. */
  readonly event: 'allocated' | 'freed';
  /** Kind of the memory. */
  readonly memoryType: MemoryType | MemoryTypeName;
}

/** MemoryTypeEvent with the memory type as a number. */
export type TypeEvent = WithMemoryType<MemoryTypeEvent>;

/** Access flags for puts and gets of peers. */
export const REMOTE_ACCESS: number = MemAccess.REMOTE_PUT | MemAccess.REMOTE_GET;
/** Access flags for atomic operations of peers, which read and write. */
export const ATOMIC_ACCESS: number = REMOTE_ACCESS | MemAccess.REMOTE_ATOMIC;

const ACCESS_OF: Readonly<Record<MemoryProtection, number>> = {
  'local-read': MemAccess.LOCAL_READ,
  'local-write': MemAccess.LOCAL_WRITE,
  'remote-read': MemAccess.REMOTE_GET,
  'remote-write': MemAccess.REMOTE_PUT,
};
const NAMES = Object.keys(ACCESS_OF) as readonly MemoryProtection[];
const RULE = `must be a list of one or more of ${NAMES.join(', ')}`;

/** The access flags of a protection; all flags for undefined. @throws UcxError ERR_INVALID_PARAM */
export function accessOf(protection: readonly MemoryProtection[] | undefined): number {
  if (protection === undefined) return MemAccess.ALL;
  if (!Array.isArray(protection) || protection.length === 0) throw invalidParam('protection', RULE, protection);
  let access = 0;
  for (const name of protection as readonly MemoryProtection[]) {
    if (!NAMES.includes(name)) throw invalidParam('protection', RULE, name);
    access |= ACCESS_OF[name];
  }
  return withAtomics(access);
}

/** The access flags, plus atomic operations if both put and get of peers are permitted. */
export function withAtomics(access: number): number {
  return (access & REMOTE_ACCESS) === REMOTE_ACCESS ? access | MemAccess.REMOTE_ATOMIC : access;
}

/** The names of access flags. */
export function protectionOf(access: number): MemoryProtection[] {
  return NAMES.filter((name) => (access & ACCESS_OF[name]) !== 0);
}

/** Denied, not permitted, accesses are packed, so that keys of unrestricted memory have the same bytes in all versions of this library. */
const DENIES_PUT = 0x1;
const DENIES_GET = 0x2;

/** The byte of a packed key with the accesses denied to peers. */
export function deniedOf(access: number): number {
  return (
    ((access & MemAccess.REMOTE_PUT) === 0 ? DENIES_PUT : 0) | ((access & MemAccess.REMOTE_GET) === 0 ? DENIES_GET : 0)
  );
}

/** The accesses that such a byte permits to peers: bits of {@link REMOTE_ACCESS}; undefined if unknown bits are set. */
export function accessWithout(denied: number): number | undefined {
  if ((denied & ~(DENIES_PUT | DENIES_GET)) !== 0) return undefined;
  const put = (denied & DENIES_PUT) === 0 ? MemAccess.REMOTE_PUT : 0;
  return (denied & DENIES_GET) === 0 ? put | MemAccess.REMOTE_GET : put;
}

/** Accesses that an operation needs. */
export interface Accesses {
  /** To the local memory: bits of MemAccess. */
  readonly ownAccess: number;
  /** To the memory of the key: bits of MemAccess. */
  readonly remoteAccess: number;
}

/** The accesses of a put. */
export const PUT_ACCESSES: Accesses = { ownAccess: MemAccess.LOCAL_READ, remoteAccess: MemAccess.REMOTE_PUT };
/** The accesses of a get. */
export const GET_ACCESSES: Accesses = { ownAccess: MemAccess.LOCAL_WRITE, remoteAccess: MemAccess.REMOTE_GET };

const OF_ATOMICS: Accesses = { ownAccess: 0, remoteAccess: ATOMIC_ACCESS };
const OF_MESSAGES: Accesses = { ownAccess: MemAccess.LOCAL_READ, remoteAccess: 0 };

/** The accesses of an operation, by its name: put, get or atomic; other names are message operations. */
export function accessesOf(operation: string): Accesses {
  if (operation === 'put') return PUT_ACCESSES;
  if (operation === 'get') return GET_ACCESSES;
  return operation === 'atomic' ? OF_ATOMICS : OF_MESSAGES;
}

/** The error of an operation without permission by the protection of the memory. */
export function refusedAccess(argument: string, needed: number, access: number): UcxError {
  const rule = `must be mapped with protection ${protectionOf(needed).join(' and ')} for this operation`;
  return invalidParam(argument, rule, protectionOf(access).join(', '));
}

/** The error of packing a remote key for memory without remote access. */
export function noRemoteAccess({ access }: { readonly access: number }): UcxError {
  const rule = 'must be mapped with protection remote-read or remote-write to have a remote key';
  return invalidParam('handle', rule, protectionOf(access).join(', '));
}
