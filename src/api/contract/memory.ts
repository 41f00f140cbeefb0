/**
 * Memory as parameters of the operations: mapped memory, host bytes, lists of pieces, remote keys. The protection of mapped memory
 * (ucp_mem_map_params_t.prot): its names in the API, and the access flags of transports that they stand for.
 */

import type { MemoryType, MemoryTypeName, WithMemoryType } from '../../ucs/memory/memory-type.ts';
import { invalidParam, type UcxError } from '../../ucs/type/error.ts';
import type { RemoteKeySource } from '../../uct/api/memory.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';

/**
 * One access that mapped memory permits (UCP_MEM_MAP_PROT_*). `local-read`: it can be sent, and is the source of puts. `local-write`: it can be received into,
 * and is the target of gets. `remote-read`, `remote-write`: peers with its remote key get from it, and put to it; with both, atomic operations too.
 */
export type MemoryProtection = 'local-read' | 'local-write' | 'remote-read' | 'remote-write';

/** Options of memMap for memory of every kind. */
export interface ProtectionOptions {
  /**
   * What the memory may be used for. Default: everything. An operation that it does not permit fails before anything moves: at the API with
   * ERR_INVALID_PARAM, and, for a peer that forges its key, with INVALID_ADDR at RDMA devices, over tcp, and where the worker of the owner executes it.
   * Peers on this node that map the memory (posix), or access the process (cma), or its cards (gaudi_ipc), are not prevented from forging. Without
   * `remote-read` or `remote-write` the memory has no remote key. Messages move whatever peers may access. The loads and stores of this process are
   * not restricted.
   */
  readonly protection?: readonly MemoryProtection[] | undefined;
}

/** Parameters of memMap. */
export type MemMapParams = MemorySource & ProtectionOptions;

/** The memory that memMap maps. */
export type MemorySource =
  | {
      /** Host memory to register: not empty, not in a resizable ArrayBuffer or in the pool of small Buffers, and not detached while it is mapped. */
      readonly buffer: Uint8Array;
    }
  | {
      /**
       * Address of foreign memory: device memory of hl-thunk, or host memory of another library of this process, which must stay mapped until it
       * is reported unmapped.
       */
      readonly address: number | bigint;
      /** Length in bytes; of host memory at most 4 GiB. */
      readonly byteLength: number;
      /** Default: detected. */
      readonly memoryType?: MemoryType | MemoryTypeName | undefined;
      /** Logical index of the card that has the address; required if several cards have memory there. */
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
       * Allocates memory that can be exported as a dma-buf without exposing other memory: device memory in an allocation of its own, or host memory in a
       * memfd, which keeps a descriptor, and which peers do not map (posix) but access in other ways.
       */
      readonly shared?: boolean | undefined;
    }
  | {
      /**
       * Foreign memory by its dma-buf. The descriptor stays the caller's, who may close it when memMap has returned: memMap duplicates
       * it, and memUnmap closes the duplicate.
       */
      readonly dmabuf: {
        /** Descriptor of the dma-buf. */
        readonly fd: number;
        /** Offset of the first byte in the dma-buf. Default 0. */
        readonly offset?: number | undefined;
        /** Length in bytes; of host memory at most 4 GiB. */
        readonly byteLength: number;
      };
      /** Type of the memory. Default host: memory that the processor maps. GAUDI is HBM, which a card imports if its driver supports that. */
      readonly memoryType?: MemoryType | MemoryTypeName | undefined;
      /** Logical index of the card that imports memory of type GAUDI. Default: the first one that can. */
      readonly sysDevice?: number | undefined;
    };

/** MemMapParams with the memory type as a number. */
export type MapParams = WithMemoryType<MemMapParams>;

/** A range of mapped memory, and a signal that cancels the operation with it. */
export interface MemoryRange {
  /** First byte. Default 0. */
  readonly offset?: number | undefined;
  /** Bytes. Default: all from `offset` on. */
  readonly byteLength?: number | undefined;
  /** Cancels the operation: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link MemoryHandle.copyTo}. */
export interface CopyOptions extends MemoryRange {
  /** First byte of the other memory. Default 0. */
  readonly targetOffset?: number | undefined;
}

/** Mapped memory of a context: the result of memMap, usable as local memory of every operation and as the origin of remote keys. */
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
   * The bytes of host memory; undefined for device memory, which the processor cannot access. After memUnmap it is still this array, because JavaScript cannot
   * take an array back: of memory that memMap has allocated the bytes are 0 then, and what is written reaches no peer. {@link view} throws instead.
   */
  readonly bytes: Uint8Array | undefined;
  /** What the memory may be used for. */
  readonly protection: readonly MemoryProtection[];
  /** False after memUnmap, and for memory of a card that its driver resets: the contents are lost, and uses throw ERR_GAUDI_DEVICE_BUSY with the reason. */
  readonly mapped: boolean;
  /**
   * The bytes of host memory: {@link bytes}, with a check that the memory is mapped.
   * @throws UcxError ERR_CLOSED after memUnmap; undefined for device memory
   */
  view(): Uint8Array | undefined;

  /**
   * Writes bytes into memory of any type, and waits until they have arrived. Like the three methods below, it drives progress by itself and needs no
   * endpoint.
   * @param options where to write; the length is by default that of `bytes`
   * @throws UcxError ERR_INVALID_PARAM for a range that is not inside the memory; ERR_CLOSED after memUnmap; the failure of the transfer; AbortError
   */
  write(bytes: Uint8Array, options?: MemoryRange): Promise<void>;

  /**
   * Reads bytes of memory of any type.
   * @param target destination. Default: new bytes
   * @param options the range to read; the length is by default that of the target, or all from `offset` on
   * @returns the bytes that were read: the target, or the part of it
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
   * Copies bytes to other memory of the same context: between host memory and cards, within a card, between cards. Ranges of one
   * memory may overlap in host memory, and not in device memory.
   * @param options the range to copy, and where to
   * @throws UcxError see {@link write}
   */
  copyTo(other: MemoryHandle, options?: CopyOptions): Promise<void>;

  /**
   * Unmaps the memory at the end of a block, as `context.memUnmap` does; nothing if it is unmapped already.
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
 * Memory on the local side of an operation: mapped memory, or any host buffer. The native engine sends and receives bytes of resizable ArrayBuffers too, in
 * messages without a remote key; puts and gets refuse them where their transport registers host memory. Over libucp every operation refuses them.
 */
export type LocalMemory = MemoryHandle | Uint8Array;

/** The most pieces of a list. */
export const IOV_MAX = 1024;

/** One piece of local memory. */
export interface IovPiece {
  /** The memory of the piece. */
  readonly memory: LocalMemory;
  /** Default 0. */
  readonly offset?: number | undefined;
  /** Default: all of the memory from `offset` on. */
  readonly byteLength?: number | undefined;
}

/** Local memory of a message: one piece, or a list of pieces that form one message in order. */
export type LocalBuffer = LocalMemory | readonly IovPiece[];

/** Local memory of an awaited message: all of it, a range `{ memory, offset, byteLength }` of it, or a list of ranges that form one message in order. */
export type MessageBuffer = LocalBuffer | IovPiece;

/** An unpacked remote key. */
export interface RemoteKey {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device that has the memory; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Address of the first byte at the owner. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** What peers may do with the memory: `remote-read`, `remote-write` or both. */
  readonly protection: readonly MemoryProtection[];
  /**
   * The remote bytes, if a transport has mapped them into this process (ucp_rkey_ptr), and peers may read and write them; otherwise undefined.
   */
  readonly bytes: Uint8Array | undefined;
  /** True after `release()`. */
  readonly released: boolean;
  /** False if a transport has detected that the memory was released. */
  readonly live: boolean;
  /** What the key names, for each memory domain that reaches the memory: empty for a key that was released. */
  describe(): readonly RemoteKeyPart[];
  /** Releases the key, which cannot be used afterwards: await the operations that use it first, as one that still waits may fail. Idempotent. */
  release(): void;
  /** Releases the key at the end of a block: `using rkey = endpoint.unpackRkey(packed)`. */
  [Symbol.dispose](): void;
}

/** The part of a remote key for one memory domain. */
export interface RemoteKeyPart {
  /** Name of the memory domain; `libucp` for the part that libucp unpacked, which tells nothing about itself. */
  readonly md: string;
  /** Length of the memory in bytes. */
  readonly byteLength: number;
  /** False if the memory domain has detected that the memory was released. */
  readonly live: boolean;
  /** Card, process, arena and channels of device memory; undefined where the part does not tell. */
  readonly source: RemoteKeySource | undefined;
}

/** The range of mapped memory that advice applies to. */
export interface AdviseOptions {
  /** First byte. Default 0. */
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
  /** Logical index of the card that has the address; without it, memory of several cards at the address is an error. */
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

/** Access of peers by put and get. */
export const REMOTE_ACCESS: number = MemAccess.REMOTE_PUT | MemAccess.REMOTE_GET;
/** Access of peers by atomic operations, which read and write. */
export const ATOMIC_ACCESS: number = REMOTE_ACCESS | MemAccess.REMOTE_ATOMIC;

const ACCESS_OF: Readonly<Record<MemoryProtection, number>> = {
  'local-read': MemAccess.LOCAL_READ,
  'local-write': MemAccess.LOCAL_WRITE,
  'remote-read': MemAccess.REMOTE_GET,
  'remote-write': MemAccess.REMOTE_PUT,
};
const NAMES = Object.keys(ACCESS_OF) as readonly MemoryProtection[];
const RULE = `must be a list of one or more of ${NAMES.join(', ')}`;

/** The access flags of a protection; all of them for none. @throws UcxError ERR_INVALID_PARAM */
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

/** The access flags, with that of atomic operations if they permit peers both put and get. */
export function withAtomics(access: number): number {
  return (access & REMOTE_ACCESS) === REMOTE_ACCESS ? access | MemAccess.REMOTE_ATOMIC : access;
}

/** The names of access flags. */
export function protectionOf(access: number): MemoryProtection[] {
  return NAMES.filter((name) => (access & ACCESS_OF[name]) !== 0);
}

/** Accesses that a packed key denies, not those that it permits: keys of memory for every access are the same bytes in all versions of this library. */
const DENIES_PUT = 0x1;
const DENIES_GET = 0x2;

/** The byte of a packed key that says which accesses it denies to peers. */
export function deniedOf(access: number): number {
  return (
    ((access & MemAccess.REMOTE_PUT) === 0 ? DENIES_PUT : 0) | ((access & MemAccess.REMOTE_GET) === 0 ? DENIES_GET : 0)
  );
}

/** The access that such a byte leaves to peers: bits of {@link REMOTE_ACCESS}; undefined for a byte with other bits. */
export function accessWithout(denied: number): number | undefined {
  if ((denied & ~(DENIES_PUT | DENIES_GET)) !== 0) return undefined;
  const put = (denied & DENIES_PUT) === 0 ? MemAccess.REMOTE_PUT : 0;
  return (denied & DENIES_GET) === 0 ? put | MemAccess.REMOTE_GET : put;
}

/** The accesses that an operation needs. */
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

/** The accesses of an operation, by its name: put, get or atomic; other names are those of messages. */
export function accessesOf(operation: string): Accesses {
  if (operation === 'put') return PUT_ACCESSES;
  if (operation === 'get') return GET_ACCESSES;
  return operation === 'atomic' ? OF_ATOMICS : OF_MESSAGES;
}

/** The error of an operation that the protection of memory does not permit. */
export function refusedAccess(argument: string, needed: number, access: number): UcxError {
  const rule = `must be mapped with protection ${protectionOf(needed).join(' and ')} for this`;
  return invalidParam(argument, rule, protectionOf(access).join(', '));
}

/** The error of packing a remote key for memory that peers may not access. */
export function noRemoteAccess({ access }: { readonly access: number }): UcxError {
  const rule = 'must be mapped with protection remote-read or remote-write for a remote key';
  return invalidParam('handle', rule, protectionOf(access).join(', '));
}
