/** Memory as the operations of the API take it: mapped memory, host bytes, lists of pieces, remote keys. Types only. */

import type { MemoryType, MemoryTypeName, WithMemoryType } from '../../ucs/memory/memory-type.ts';

/** What memMap can be asked for. */
export type MemMapParams =
  | {
      /** Host memory to register. It must own its bytes and keep its length while it is mapped. */
      readonly buffer: Uint8Array;
    }
  | {
      /**
       * Address of memory that the application owns: device memory of hl-thunk, or host memory of another library of this process, which must stay until it
       * is reported unmapped.
       */
      readonly address: number | bigint;
      /** Bytes of it; of host memory 4 GiB at most. */
      readonly byteLength: number;
      /** What lies there; default: what is known about the address. */
      readonly memoryType?: MemoryType | MemoryTypeName;
      /** Card whose address it is, by its logical index; needed where several have memory there. */
      readonly sysDevice?: number;
    }
  | {
      /** Bytes to allocate. */
      readonly allocate: number;
      /** Default host. */
      readonly memoryType?: MemoryType | MemoryTypeName;
      /** Card, by its logical index; the first one by default. */
      readonly sysDevice?: number;
      /**
       * Asks for memory that can be exported as a dma-buf without exposing neighbours: device memory that shares nothing with other allocations, host memory in
       * a memfd, which keeps a descriptor, and which peers do not map (posix) but reach in other ways.
       */
      readonly shared?: boolean;
    }
  | {
      /**
       * Memory of others by a dma-buf of it. The descriptor stays the caller's, who may close it when memMap has returned: what is needed of it is duplicated,
       * and closed by memUnmap.
       */
      readonly dmabuf: {
        /** Descriptor of the dma-buf. */
        readonly fd: number;
        /** First byte of it. Default 0. */
        readonly offset?: number;
        /** Bytes from there; of host memory 4 GiB at most. */
        readonly byteLength: number;
      };
      /** What is behind it. Default host: memory that the processor maps. GAUDI is HBM, which a card imports, if its driver does. */
      readonly memoryType?: MemoryType | MemoryTypeName;
      /** The card that is to reach memory of type GAUDI, by its logical index; by default the first one that imports. */
      readonly sysDevice?: number;
    };

/** MemMapParams as engines have them: the memory type is no name. */
export type MapParams = WithMemoryType<MemMapParams>;

/** A range of mapped memory. */
export interface MemoryRange {
  /** First byte. Default 0. */
  readonly offset?: number;
  /** Bytes. Default: all from `offset` on. */
  readonly length?: number;
}

/** Mapped memory of a context: what memMap returns, usable as local memory of every operation and as the origin of remote keys. */
export interface MemoryHandle {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** The card, by its logical index; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Address of the first byte: host virtual or of the device. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The bytes, for host memory; device memory has none that a CPU can reach. */
  readonly bytes: Uint8Array | undefined;
  /** False after memUnmap. */
  readonly mapped: boolean;
  /**
   * The bytes of host memory.
   * @throws UcxError ERR_CLOSED after memUnmap; undefined for device memory
   */
  view(): Uint8Array | undefined;

  /**
   * Writes bytes into the memory, whatever kind it is, and waits until they are there. Like the other three it drives progress by itself and needs no endpoint.
   * @param offset first byte of the memory. Default 0
   * @throws UcxError ERR_INVALID_PARAM for a range that is not inside the memory; ERR_CLOSED after memUnmap; as the transfer ends
   */
  write(bytes: Uint8Array, offset?: number): Promise<void>;

  /**
   * Reads bytes of the memory, whatever kind it is.
   * @param target where to; default: new bytes
   * @param options what to read; the length is by default that of the target, or all from `offset` on
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
   * Copies bytes of the memory into other memory of the same context: between host memory and cards, inside a card, from card to card. Ranges of one memory
   * must not overlap.
   * @param targetOffset first byte of the other memory. Default 0
   * @param options what to copy
   * @throws UcxError see {@link write}
   */
  copyTo(other: MemoryHandle, targetOffset?: number, options?: MemoryRange): Promise<void>;
}

/** Memory on the local side of an operation: mapped memory, or any host buffer. */
export type LocalMemory = MemoryHandle | Uint8Array;

/** Pieces of a list at most. */
export const IOV_MAX = 1024;

/** One piece of local memory. */
export interface IovPiece {
  /** The memory that it is a part of. */
  readonly memory: LocalMemory;
  /** Default 0. */
  readonly offset?: number;
  /** Default: what the memory has from `offset` on. */
  readonly byteLength?: number;
}

/** Local memory of a message: one piece, or pieces that are one message in order. */
export type LocalBuffer = LocalMemory | readonly IovPiece[];

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
  /** The remote bytes, where a transport has mapped them into this process (ucp_rkey_ptr); undefined elsewhere. */
  readonly bytes: Uint8Array | undefined;
  /** True after `release()`. */
  readonly released: boolean;
  /** False when a transport knows that the memory is gone. */
  readonly live: boolean;
  /** Gives the key back: it cannot be used any more. Idempotent. */
  release(): void;
}

/** The part of mapped memory that advice is about. */
export interface AdviseOptions {
  /** First byte. Default 0. */
  readonly offset?: number;
  /** Default: all from `offset` on. */
  readonly byteLength?: number;
}

/** A range of addresses, as users name it. */
export interface AddressedMemory {
  /** Address of the first byte: a host virtual address or one of a device. */
  readonly address: number | bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The card whose address it is; without it all are asked, and several that have memory there are an error. */
  readonly sysDevice?: number;
}

/** What is known about memory (ucp_mem_attr). */
export interface MemoryInfo {
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** Undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Start and length of the whole allocation; of host memory those of the question. */
  readonly baseAddress: bigint;
  /** Length of the whole allocation in bytes. */
  readonly allocLength: number;
}

/** A report about memory that is not host memory and that this library does not allocate. */
export interface MemoryTypeEvent extends AddressedMemory {
  /** What happened to the memory. */
  readonly event: 'allocated' | 'freed';
  /** Kind of the memory. */
  readonly memoryType: MemoryType | MemoryTypeName;
}

/** MemoryTypeEvent as engines have it. */
export type TypeEvent = WithMemoryType<MemoryTypeEvent>;
