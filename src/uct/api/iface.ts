/**
 * Interfaces and endpoints: transports as capabilities and operations. Types and capability records only, no behaviour.
 */

import type { UcxError } from '../../ucs/error.ts';
import type { Status } from '../../ucs/status.ts';
import type { MdMemory, RemoteKey } from './memory.ts';

/** Kinds of transport devices (uct_device_type_t). */
export const DeviceType = { NET: 'network', SHM: 'intra-node', ACC: 'accelerator', SELF: 'loopback' } as const;
export type DeviceType = (typeof DeviceType)[keyof typeof DeviceType];

/** A transport on a device. */
export interface IfaceResource {
  /** Transport name, such as `gaudi_cpy`. */
  readonly transport: string;
  /** Other names under which users may choose it. */
  readonly aliases: readonly string[];
  /** Device name, such as `gaudi0` or `memory`. */
  readonly device: string;
  readonly deviceType: DeviceType;
  /** System device behind it; undefined for none. */
  readonly sysDevice: number | undefined;
}

/** Capability bits of an interface (UCT_IFACE_FLAG_*). A flag that is set works; an operation that works has its flag. */
export const IfaceFlag = {
  PUT_SHORT: 0x1,
  PUT_ZCOPY: 0x2,
  GET_SHORT: 0x4,
  GET_ZCOPY: 0x8,
  CONNECT_TO_IFACE: 0x10,
  /** Reports errors of a remote memory access. */
  ERRHANDLE_REMOTE_MEM: 0x40,
  /** Has an event to sleep on. */
  EVENT: 0x80,
} as const;

/** Limits of one operation. */
export interface RmaLimits {
  /** 0 where the operation is missing. */
  readonly shortBytesMax: number;
  readonly zcopyBytesMin: number;
  readonly zcopyBytesMax: number;
  /** Entries of a zero-copy list; a longer one is refused. */
  readonly iovMax: number;
}

/** Speed of an interface as the cost model sees it. */
export interface IfacePerformance {
  readonly latencyNs: number;
  /** Cost of the call itself. */
  readonly overheadNs: number;
  /** Bytes per second, by the direction of the transfer. */
  readonly hostToDevice: number;
  readonly deviceToHost: number;
  readonly deviceToDevice: number;
  readonly hostToHost: number;
}

/** Attributes of an interface (uct_iface_attr). */
export interface IfaceAttributes {
  readonly resource: IfaceResource;
  /** Bits of {@link IfaceFlag}. */
  readonly flags: number;
  readonly put: RmaLimits;
  readonly get: RmaLimits;
  /** Whether the operations take these memory types, as masks, on the local and on the remote side. */
  readonly localMemoryTypes: number;
  readonly remoteMemoryTypes: number;
  /** At least one side must be of these types, as a mask; 0 for no such rule. Host to host is no work for a card. */
  readonly requiredMemoryTypes: number;
  readonly performance: IfacePerformance;
  readonly priority: number;
  readonly deviceAddressBytes: number;
  readonly ifaceAddressBytes: number;
  readonly endpointAddressBytes: number;
  /** Short names for what error handling covers, as ucx_info prints them. */
  readonly errorHandling: readonly string[];
}

/**
 * Tells the caller that operations have ended (uct_completion_t). Set `count` to the number of operations that shall end before
 * `onComplete` runs; the first failure goes into `failure`, which is OK before.
 */
export interface Completion {
  count: number;
  failure: Status;
  /** Runs inside `progress()` when `count` reaches 0. */
  onComplete(): void;
}

/** One entry of a zero-copy list: bytes of registered or allocated memory. */
export interface IovEntry {
  readonly memory: MdMemory;
  readonly offset: number;
  readonly byteLength: number;
}

/**
 * A connection over one interface. Operations return OK (done, as far as the caller's buffer is concerned), INPROGRESS (the completion will
 * be called), NO_RESOURCE (nothing happened, try again after progress) or a failure. `remoteOffset` counts from the start of the memory
 * behind the key.
 */
export interface UctEndpoint {
  /**
   * Copies the bytes at once; the buffer may be reused.
   * @param completion called when they have arrived; without it OK is returned and remote completion is what flush waits for
   */
  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion?: Completion,
  ): Status;
  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /** The bytes are in `target` when the completion is called or OK is returned. */
  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
  ): Status;
  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /** OK when everything started before has reached remote memory, else INPROGRESS and the completion is called then. */
  flush(completion: Completion | undefined): Status;
  /**
   * Orders operations started before against those started after.
   * @returns OK when the order is ensured; INPROGRESS when it is not yet: ask again after progress, before starting the next operation
   */
  fence(): Status;
  close(): void;
}

/** An open transport on a device. */
export interface Iface {
  readonly attributes: IfaceAttributes;
  /** Connects to this very process and interface. */
  connect(): UctEndpoint;
  /**
   * Drives outstanding operations; completions run inside.
   * @returns number of operations that ended
   */
  progress(): number;
  /** Operations that have not ended. */
  readonly outstanding: number;
  /** What the transport itself knows about a failed status, as the cause of the error that users see; undefined for nothing. Cold. */
  errorOf(status: Status): UcxError | undefined;
  /**
   * Sleeps until an outstanding operation may have ended or `timeoutNs` is over, without blocking the event loop.
   * Resolves at once when nothing is outstanding.
   */
  wait(timeoutNs: number): Promise<void>;
  close(): void;
}
