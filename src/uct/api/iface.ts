/**
 * Interfaces and endpoints: transports as capabilities and operations. Types and capability records only, no behaviour.
 */

import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { MdMemory, RemoteKey } from './memory.ts';

/** Kinds of transport devices (uct_device_type_t). */
export const DeviceType = {
  /** A network device. */
  NET: 'network',
  /** Shared memory of a node. */
  SHM: 'intra-node',
  /** A card. */
  ACC: 'accelerator',
  /** The worker itself. */
  SELF: 'loopback',
} as const;
export type DeviceType = (typeof DeviceType)[keyof typeof DeviceType];

/** A transport on a device. */
export interface IfaceResource {
  /** Transport name, such as `gaudi_cpy`. */
  readonly transport: string;
  /** Other names under which users may choose it. */
  readonly aliases: readonly string[];
  /** Device name, such as `gaudi0` or `memory`. */
  readonly device: string;
  /** Kind of the device. */
  readonly deviceType: DeviceType;
  /** System device behind it; undefined for none. */
  readonly sysDevice: number | undefined;
}

/** Capability bits of an interface (UCT_IFACE_FLAG_*). A flag that is set works; an operation that works has its flag. */
export const IfaceFlag = {
  /** Put that copies its bytes at the call. */
  PUT_SHORT: 0x1,
  /** Put from registered memory. */
  PUT_ZCOPY: 0x2,
  /** Get into any host memory. */
  GET_SHORT: 0x4,
  /** Get into registered memory. */
  GET_ZCOPY: 0x8,
  /** Endpoints connect to the address of an interface. */
  CONNECT_TO_IFACE: 0x10,
  /** Reports errors of a remote memory access. */
  ERRHANDLE_REMOTE_MEM: 0x40,
  /** Has an event to sleep on. */
  EVENT: 0x80,
  /** Active messages whose header and payload are copied at the call. */
  AM_SHORT: 0x100,
  /** Active messages that a packer writes into a buffer of the transport. */
  AM_BCOPY: 0x200,
  /** Atomic operations of {@link AtomicOperation} on 32-bit and 64-bit words, with and without the old value. */
  ATOMIC32: 0x400,
  /** Atomic operations on 64-bit words. */
  ATOMIC64: 0x800,
  /** `check` tells whether the peer lives. */
  EP_CHECK: 0x1000,
  /** Active messages whose payload is registered memory. */
  AM_ZCOPY: 0x2000,
  /** Short gets and atomic operations are instructions of this CPU (UCT_IFACE_FLAG_ATOMIC_CPU): they have ended when the call returns. */
  CPU_ACCESS: 0x4000,
} as const;

/** Limits of one operation. */
export interface RmaLimits {
  /** 0 where the operation is missing. */
  readonly shortBytesMax: number;
  /** Shortest zero-copy transfer in bytes. */
  readonly zcopyBytesMin: number;
  /** Longest zero-copy transfer in bytes; 0 if the operation is missing. */
  readonly zcopyBytesMax: number;
  /** Entries of a zero-copy list; a longer one is refused. */
  readonly iovMax: number;
}

/** Limits of active messages. */
export interface AmLimits {
  /** Header and payload together; 0 where the operation is missing. */
  readonly shortBytesMax: number;
  /** What a packer may write; 0 where the operation is missing. */
  readonly bcopyBytesMax: number;
  /** Header and payload together; absent where the operation is missing. */
  readonly zcopyBytesMax?: number;
}

/** An interface without active messages. */
export const NO_ACTIVE_MESSAGES: AmLimits = { shortBytesMax: 0, bcopyBytesMax: 0 };

/** Speed of an interface as the cost model sees it. */
export interface IfacePerformance {
  /** Latency in nanoseconds. */
  readonly latencyNs: number;
  /** Cost of the call itself. */
  readonly overheadNs: number;
  /** Bytes per second, by the direction of the transfer. */
  readonly hostToDevice: number;
  /** Bytes per second from device to host memory. */
  readonly deviceToHost: number;
  /** Bytes per second between device memories. */
  readonly deviceToDevice: number;
  /** Bytes per second between host memories. */
  readonly hostToHost: number;
}

/** Attributes of an interface (uct_iface_attr). */
export interface IfaceAttributes {
  /** Transport and device. */
  readonly resource: IfaceResource;
  /** Bits of {@link IfaceFlag}. */
  readonly flags: number;
  /** Limits of put. */
  readonly put: RmaLimits;
  /** Limits of get. */
  readonly get: RmaLimits;
  /** Limits of active messages. */
  readonly am: AmLimits;
  /** Whether the operations take these memory types, as masks, on the local and on the remote side. */
  readonly localMemoryTypes: number;
  /** Memory types on the remote side, as a mask. */
  readonly remoteMemoryTypes: number;
  /** At least one side must be of these types, as a mask; 0 for no such rule. Host to host is no work for a card. */
  readonly requiredMemoryTypes: number;
  /** True when remote memory may be on any device; false when it must be on the device of the resource. */
  readonly reachesOtherDevices: boolean;
  /** Estimated speed. */
  readonly performance: IfacePerformance;
  /** Decides between interfaces with equal estimates: the higher one is used. */
  readonly priority: number;
  /** Paths of the device that lanes may use at the same time. */
  readonly devicePaths: number;
  /** Length of the device address in bytes. */
  readonly deviceAddressBytes: number;
  /** Length of the interface address in bytes. */
  readonly ifaceAddressBytes: number;
  /** Length of an endpoint address in bytes. */
  readonly endpointAddressBytes: number;
  /** Short names for what error handling covers, as ucx_info prints them. */
  readonly errorHandling: readonly string[];
  /** Why operations that the transport has elsewhere are missing here, in words for users. */
  readonly limitation?: string | undefined;
}

/**
 * Tells the caller that operations have ended (uct_completion_t). Set `count` to the number of operations that shall end before
 * `onComplete` runs; the first failure goes into `failure`, which is OK before.
 */
export interface Completion {
  /** Operations that have not ended. */
  count: number;
  /** The first failure; OK before. */
  failure: Status;
  /** Runs inside `progress()` when `count` reaches 0. */
  onComplete(): void;
}

/** One entry of a zero-copy list: bytes of registered or allocated memory. */
export interface IovEntry {
  /** The memory that it is a part of. */
  readonly memory: MdMemory;
  /** First byte in the memory. */
  readonly offset: number;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** Atomic operations (uct_atomic_op_t). */
export const AtomicOperation = {
  /** Adds the operand. */
  ADD: 0,
  /** Bitwise and with the operand. */
  AND: 1,
  /** Bitwise or with the operand. */
  OR: 2,
  /** Bitwise exclusive or with the operand. */
  XOR: 3,
  /** Stores the operand. */
  SWAP: 4,
  /** Stores the operand if the word equals `compare`. */
  CSWAP: 5,
} as const;
export type AtomicOperation = (typeof AtomicOperation)[keyof typeof AtomicOperation];

/** An atomic operation on one word of remote memory, and its result. Only the fields of the word's length are used, so that 32-bit words need no bigint. */
export interface AtomicCall {
  /** The operation. */
  readonly operation: AtomicOperation;
  /** Length of the word in bytes. */
  readonly wordBytes: 4 | 8;
  /** Operand for a 32-bit word, signed; the new value of SWAP and CSWAP. */
  readonly value32: number;
  /** Operand for a 64-bit word, unsigned. */
  readonly value64: bigint;
  /** CSWAP stores the operand if the 32-bit word equals this. */
  readonly compare32: number;
  /** CSWAP stores the operand if the 64-bit word equals this. */
  readonly compare64: bigint;
  /** The 32-bit word before the operation; set when the operation has ended. */
  result32: number;
  /** The 64-bit word before the operation; set when the operation has ended. */
  result64: bigint;
}

/**
 * Where the bytes of an active message lie: valid during the call that hands it out. `words` and `bytes` are the same memory, `offset` is a
 * multiple of 8.
 */
export interface AmFrame {
  /** The memory as bytes. */
  readonly bytes: Uint8Array;
  /** The memory as 32-bit words. */
  readonly words: Int32Array;
  /** First byte of the message. */
  readonly offset: number;
  /** Bytes of the message; of the room for one, for a packer. */
  readonly byteLength: number;
  /**
   * Which interface has sent it, as the transport knows from the way that it came: what {@link Iface.identityOf} tells of the address of that
   * interface. Empty for a packer.
   */
  readonly source: string;
}

/**
 * Takes an active message, inside `progress()`. It must not throw.
 * @param id 0 to 31, as the sender gave it
 */
export type AmHandler = (id: number, frame: AmFrame) => void;

/**
 * Is told that the connection of an endpoint has ended without being closed here, once for each endpoint, inside `progress()`. Operations on it end with this
 * status by themselves; the endpoint is still to be closed.
 */
export type EndpointErrorHandler = (endpoint: UctEndpoint, status: Status) => void;

/** Writes an active message into the memory of a transport. */
export interface AmPacker {
  /** Writes at `frame.offset`, at most `frame.byteLength` bytes; returns how many. */
  pack(frame: AmFrame): number;
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
  /**
   * Sends the bytes from where they lie.
   * @param completion called when they have arrived, or with their failure: a flush tells of operations without a completion only
   */
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
  /** Gets into registered memory; otherwise like `putZcopy`, in the other direction. */
  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /**
   * OK when everything started before has reached remote memory, else INPROGRESS and the completion is called then. A failure is the first one
   * of an operation without a completion, and is told once.
   */
  flush(completion: Completion | undefined): Status;
  /**
   * Orders operations started before against those started after.
   * @returns OK when the order is ensured; INPROGRESS when it is not yet: ask again after progress, before starting the next operation
   */
  fence(): Status;
  /**
   * Sends an active message (uct_ep_am_short): a header of words and a payload behind it, together at most `am.shortBytesMax`.
   * @param headerWords words of `header` to send, an even number
   * @param payload undefined for none
   * @returns OK, NO_RESOURCE when the peer is behind, or a failure
   */
  amShort(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status;
  /** Sends an active message that the packer writes (uct_ep_am_bcopy). Returns like {@link amShort}; the packer runs only for OK. */
  amBcopy(id: number, packer: AmPacker): Status;
  /**
   * Sends an active message whose payload is registered memory, together with the header at most `am.zcopyBytesMax` (uct_ep_am_zcopy). Absent without
   * {@link IfaceFlag.AM_ZCOPY}.
   * @param headerWords words of `header` to send, an even number up to 10
   * @param completion called when the memory can be used again
   */
  amZcopy?(
    id: number,
    header: Int32Array,
    headerWords: number,
    iov: readonly IovEntry[],
    completion: Completion,
  ): Status;
  /**
   * Runs an atomic operation on a word of remote memory.
   * @param remoteOffset a multiple of the word
   * @returns OK when `call.result` is set; INPROGRESS, NO_RESOURCE or a failure
   */
  atomic(call: AtomicCall, remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /** Whether the peer lives, as far as the transport can tell: OK; ENDPOINT_TIMEOUT for one that is gone, CONNECTION_RESET for one that has closed (uct_ep_check). */
  check(): Status;
  /** Closes the endpoint. Idempotent; never fails. */
  close(): void;
}

/** The way from an interface to one piece of remote memory, where it differs from what the attributes say. */
export interface RemotePath {
  /** The part of the bandwidth that is there: 1 for all of it, 0 where nothing gets through. */
  readonly bandwidthShare: number;
  /** In words for users, such as `2 of 3 links up`. */
  readonly note: string;
}

/** An open transport on a device. */
export interface Iface {
  /** Attributes of the interface; constant. */
  readonly attributes: IfaceAttributes;
  /** Identifies the interface for peers: opaque bytes, at most 255, that carry no descriptor and no pointer. */
  readonly address: Uint8Array;
  /**
   * Why the interface of a peer cannot be reached, in words for users; undefined when it can. Whatever the bytes are, it throws nothing but
   * SyscallError EMFILE, ENFILE or ENOMEM, where this process has not what it takes to look.
   */
  unreachableReason(address: Uint8Array): string | undefined;
  /**
   * Identifies the interface with this address as {@link AmFrame.source} does; undefined for an address of another transport. Absent without active
   * messages. Never throws, whatever the bytes are.
   */
  identityOf?(address: Uint8Array): string | undefined;
  /** Of a network: whether the interface with this address is on this node. Never throws, whatever the bytes are. */
  sharesNode?(address: Uint8Array): boolean;
  /**
   * Connects to the interface with this address. The peer may hear of it only with the first message.
   * @throws UcxError ERR_UNREACHABLE with the reason; NO_RESOURCE at a bound of the peer
   */
  connect(address: Uint8Array): UctEndpoint;
  /** What is known of the way to the memory of a key of this memory domain, now; undefined, or absent, for nothing. Cold. */
  remotePath?(rkey: RemoteKey): RemotePath | undefined;
  /** Takes the active messages that arrive from now on; those that arrived before are kept. One handler per interface. */
  setAmHandler(handler: AmHandler): void;
  /** Who is told at once that a peer has gone (uct_iface err_handler); absent where only {@link UctEndpoint.check} finds that out. */
  setErrorHandler?(handler: EndpointErrorHandler): void;
  /**
   * Drives outstanding operations; completions run inside.
   * @returns number of operations that ended
   */
  progress(): number;
  /** Operations that have not ended. */
  readonly outstanding: number;
  /** What the transport itself knows about a failed status, as the cause of the error that users see; undefined for nothing. Cold. */
  errorOf(status: Status): UcxError | undefined;
  /** What the endpoints have done, and what has arrived: counters of class `uct_iface`. */
  stats(): StatsNode;
  /**
   * Sleeps until an outstanding operation may have ended, a message may have arrived, or `timeoutNs` is over, without blocking the event
   * loop. Resolves at once when there is nothing to wait for: nothing outstanding and no active messages. A caller that sleeps while another one does joins
   * that sleep: the promise is the same until it resolves, at the earliest time that was asked for.
   */
  wait(timeoutNs: number): Promise<void>;
  /** Closes the interface. Idempotent; never fails. */
  close(): void;
}
