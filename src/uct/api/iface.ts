/** Interfaces and endpoints: transports as capabilities and operations. */

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
  /** Other names by which users may select it. */
  readonly aliases: readonly string[];
  /** Device name, such as `gaudi0` or `memory`. */
  readonly device: string;
  /** Kind of the device. */
  readonly deviceType: DeviceType;
  /** Its system device; undefined if there is none. */
  readonly sysDevice: number | undefined;
}

/** Capability bits of an interface (UCT_IFACE_FLAG_*). A flag is set if and only if the operation works. */
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
  /** Has an event to wait for. */
  EVENT: 0x80,
  /** Active messages whose header and payload are copied at the call. */
  AM_SHORT: 0x100,
  /** Active messages that a packer writes into a buffer of the transport. */
  AM_BCOPY: 0x200,
  /** Atomic operations of {@link AtomicOperation} on 32-bit and 64-bit words, with and without the old value. */
  ATOMIC32: 0x400,
  /** Atomic operations on 64-bit words. */
  ATOMIC64: 0x800,
  /** `check` detects whether the peer runs. */
  EP_CHECK: 0x1000,
  /** Active messages whose payload is registered memory. */
  AM_ZCOPY: 0x2000,
  /** Short gets and atomic operations are instructions of this CPU (UCT_IFACE_FLAG_ATOMIC_CPU): they are complete when the call returns. */
  CPU_ACCESS: 0x4000,
} as const;

/** Limits of one operation. */
export interface RmaLimits {
  /** Longest short transfer in bytes; 0 if the operation is missing. */
  readonly shortBytesMax: number;
  /** Shortest zero-copy transfer in bytes. */
  readonly zcopyBytesMin: number;
  /** Longest zero-copy transfer in bytes; 0 if the operation is missing. */
  readonly zcopyBytesMax: number;
  /** Maximum number of entries of a zero-copy list; a longer one is rejected. */
  readonly iovMax: number;
}

/** Limits of active messages. */
export interface AmLimits {
  /** Maximum bytes of header and payload together; 0 if the operation is missing. */
  readonly shortBytesMax: number;
  /** Maximum bytes that a packer may write; 0 if the operation is missing. */
  readonly bcopyBytesMax: number;
  /** Maximum bytes of header and payload together; absent if the operation is missing. */
  readonly zcopyBytesMax?: number;
}

/** An interface without active messages. */
export const NO_ACTIVE_MESSAGES: AmLimits = { shortBytesMax: 0, bcopyBytesMax: 0 };

/** Cost of tracking a zero-copy operation until it ends, in nanoseconds. */
export const ZCOPY_TRACKING_NS = 40;

/** Performance of an interface for the cost model. */
export interface IfacePerformance {
  /** Latency in nanoseconds. */
  readonly latencyNs: number;
  /** Cost of the call itself in nanoseconds. */
  readonly overheadNs: number;
  /** Cost in nanoseconds of a zero-copy operation beyond that of a short one: tracking it, and its system call if short operations share one. */
  readonly zcopyOverheadNs: number;
  /** Bytes per second from host to device memory. */
  readonly hostToDevice: number;
  /** Bytes per second from device to host memory. */
  readonly deviceToHost: number;
  /** Bytes per second between device memories. */
  readonly deviceToDevice: number;
  /** Bytes per second between host memories. */
  readonly hostToHost: number;
}

/** Queues of an interface over queue pairs, as configured and as the device allows. */
export interface QueueLimits {
  /** Work requests of the send queue of a connection. */
  readonly sendLength: number;
  /** Work requests of the receive queue that the connections share. */
  readonly receiveLength: number;
  /** Bytes that are sent inside a work request. */
  readonly inlineBytes: number;
  /** Ranges of memory of a work request. */
  readonly sgeMax: number;
  /** Memory regions of the device. */
  readonly regionsMax: number;
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
  /** Memory types on the local side, as a mask. */
  readonly localMemoryTypes: number;
  /** Memory types on the remote side, as a mask. */
  readonly remoteMemoryTypes: number;
  /** At least one side must have one of these types, as a mask; 0 for no restriction. gaudi_cpy leaves copies from host to host to others. */
  readonly requiredMemoryTypes: number;
  /** Whether remote memory may be on any device; otherwise it must be on the device of the resource. */
  readonly reachesOtherDevices: boolean;
  /** Estimated speed. */
  readonly performance: IfacePerformance;
  /** Decides between interfaces with equal estimates: the highest is used. */
  readonly priority: number;
  /** Queues and limits of the device, for a transport over queue pairs. */
  readonly queues?: QueueLimits | undefined;
  /** Length of the device address in bytes. */
  readonly deviceAddressBytes: number;
  /** Length of the interface address in bytes. */
  readonly ifaceAddressBytes: number;
  /** Length of an endpoint address in bytes. */
  readonly endpointAddressBytes: number;
  /** Short names of the failures that error handling covers, as ucx_info prints them. */
  readonly errorHandling: readonly string[];
  /** The reason why operations that the transport supports elsewhere are missing, as text for users. */
  readonly limitation?: string | undefined;
}

/**
 * Notifies the caller that operations have ended (uct_completion_t). Before use, `count` is the number of operations that must end before `onComplete` runs,
 * and `failure` is OK; the first failure is stored in it.
 */
export interface Completion {
  /** Number of operations that have not ended. */
  count: number;
  /** The first failure; OK if there is none. */
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

/**
 * An atomic operation on one word of remote memory, and its result. Only the fields for the length of the word are used, so that 32-bit words need no
 * bigint.
 */
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

/** The memory of an active message, valid during the call that passes it. `words` and `bytes` are the same memory; `offset` is a multiple of 8. */
export interface AmFrame {
  /** The memory as bytes. */
  readonly bytes: Uint8Array;
  /** The memory as 32-bit words. */
  readonly words: Int32Array;
  /** First byte of the message. */
  readonly offset: number;
  /** Length of the message; for a packer, of the available space. */
  readonly byteLength: number;
  /**
   * The interface that has sent it, identified by the connection: {@link Iface.identityOf} returns the same for the address of that interface. Empty for a
   * packer.
   */
  readonly source: string;
  /**
   * A view of a range of {@link bytes}, for copies during the call. The transport caches it for the next message with the same offset and length, because
   * making a view takes longer than copying 2 KiB. Absent if messages do not have fixed offsets.
   */
  part?(start: number, byteLength: number): Uint8Array;
  /**
   * Stops receiving messages of the endpoint that has sent this one, whose check then returns CONNECTION_RESET: for a peer to which no reply can be sent.
   * Absent if every peer that has sent a message can be reached.
   */
  reject?(): void;
}

/**
 * Receives an active message, inside `progress()`. It must not throw.
 * @param id 0 to 31, as the sender has passed it
 */
export type AmHandler = (id: number, frame: AmFrame) => void;

/**
 * Called when the connection of an endpoint has ended without being closed by this process, once for each endpoint, inside `progress()`. Its operations end
 * with this status; the endpoint must still be closed.
 */
export type EndpointErrorHandler = (endpoint: UctEndpoint, status: Status) => void;

/** Writes an active message into the memory of a transport. */
export interface AmPacker {
  /** Writes at `frame.offset`, at most `frame.byteLength` bytes; returns the number of bytes. */
  pack(frame: AmFrame): number;
}

/**
 * A connection over one interface. Operations return OK (complete, so the caller's buffer can be reused), INPROGRESS (the completion will be called),
 * NO_RESOURCE (nothing was started, and the call can be repeated after progress) or a failure. `remoteOffset` is relative to the start of the memory of the
 * key.
 */
export interface UctEndpoint {
  /**
   * Copies the bytes during the call, after which the buffer may be reused.
   * @param completion called when the bytes have arrived; without it the call returns OK, and flush waits for their arrival
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
   * Sends the bytes from their memory. The list is the caller's again when the call has returned, its memory when the operation has ended.
   * @param completion called when the bytes have arrived, or with their failure: flush reports only operations without a completion
   */
  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /** Copies remote bytes into `target`, which is filled when the completion is called or OK is returned. */
  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
  ): Status;
  /** Gets bytes into registered memory; otherwise like `putZcopy`, in the other direction. */
  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /**
   * Returns OK if all operations that were started before have reached remote memory; otherwise INPROGRESS, and calls the completion when they have. Returns
   * NO_RESOURCE if the completion cannot be queued now: call again after progress. Its failure is the first one of an operation without a completion, and is
   * reported once.
   */
  flush(completion: Completion | undefined): Status;
  /**
   * Orders operations started before the call with those started after it.
   * @returns OK if the order is ensured; INPROGRESS if the call must be repeated after progress, before the next operation is started
   */
  fence(): Status;
  /**
   * Obtains the resources for messages now; otherwise the first message does. Absent if messages need none.
   * @returns undefined if messages can be sent; else the reason, as text for users: the caller must use another transport for this peer
   * @throws SyscallError EMFILE, ENFILE or ENOMEM if this process lacks the resources
   */
  openMessages?(): string | undefined;
  /**
   * Sends an active message (uct_ep_am_short): a header of words followed by a payload, together at most `am.shortBytesMax`.
   * @param headerWords number of words of `header` to send, an even number
   * @param payload undefined for none
   * @returns OK, NO_RESOURCE if the peer is busy, or a failure
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
   * @param headerWords number of words of `header` to send, an even number up to 10
   * @param completion called when the memory can be used again
   */
  amZcopy?(
    id: number,
    header: Int32Array,
    headerWords: number,
    iov: readonly IovEntry[],
    completion: Completion,
  ): Status;
  /** Where the peer is, as text for users: its process, or its address. Absent if the transport does not know it. */
  readonly peerPlace?: string | undefined;
  /**
   * Number of puts that were started on the connection of this endpoint, counted in the units of the transport: it changes if and only if a put starts.
   * Absent where messages may arrive before earlier puts.
   */
  readonly putsStarted?: number | undefined;
  /**
   * Sends an active message that the packer writes, after the last `puts` of {@link putsStarted}: it arrives when their bytes are visible in remote memory.
   * Present if and only if `putsStarted` is.
   * @param failedId id with which it arrives if one of those puts has failed at the peer
   * @returns like {@link amBcopy}; NO_RESOURCE also if local memory of those puts is still read
   */
  amAfterPuts?(id: number, failedId: number, packer: AmPacker, puts: number): Status;
  /**
   * Runs an atomic operation on a word of remote memory.
   * @param remoteOffset a multiple of the length of the word
   * @returns OK if the result is set in `call`; INPROGRESS, NO_RESOURCE or a failure
   */
  atomic(call: AtomicCall, remoteOffset: number, rkey: RemoteKey, completion: Completion): Status;
  /**
   * Holds back the operations that follow until {@link uncork}, so that they start together: in one submission of a card, in few calls of a socket. Absent
   * if that has no advantage. Call {@link uncork} after each call: until then, only operations that had started before make progress.
   */
  cork?(): void;
  /** Starts the operations that were held back. */
  uncork?(): void;
  /**
   * Ends the operations and flushes of this endpoint that are in flight with CANCELED, without waiting for the peer (uct_ep_flush with UCT_FLUSH_FLAG_CANCEL).
   * They do not use their memory any more, and their effect at the peer is undefined. If the peer responds, some of them may still be executed there
   * shortly afterwards. The endpoint can then only be closed. Absent if operations do not need the peer.
   */
  cancel?(): void;
  /** Whether the peer runs, as far as the transport can detect: OK; ENDPOINT_TIMEOUT if it has ended, CONNECTION_RESET if it has closed (uct_ep_check). */
  check(): Status;
  /** Whether the process of the peer is stopped by a signal (SIGSTOP) now; absent if the transport detects that by {@link check}, or not at all. */
  isPeerStopped?(): boolean;
  /** Closes the endpoint. Idempotent; never fails. */
  close(): void;
}

/** The path from an interface to one range of remote memory, if it differs from the attributes. */
export interface RemotePath {
  /** Available fraction of the bandwidth: 1 for all of it, 0 if the path is interrupted. */
  readonly bandwidthShare: number;
  /** Text for users, such as `2 of 3 links up`. */
  readonly note: string;
}

/** An open transport on a device. */
export interface Iface {
  /** Attributes of the interface, which are constant. */
  readonly attributes: IfaceAttributes;
  /** Address of the interface for peers: opaque bytes, at most 255, without descriptors and pointers. */
  readonly address: Uint8Array;
  /**
   * The reason why the interface of a peer cannot be reached, as text for users; undefined if it can. For any bytes it throws nothing but SyscallError
   * EMFILE, ENFILE or ENOMEM, if this process lacks the resources for the check.
   */
  unreachableReason(address: Uint8Array): string | undefined;
  /**
   * Identifies the interface with this address as {@link AmFrame.source} does; undefined for an address of another transport. Absent without active
   * messages. Never throws, for any bytes.
   */
  identityOf?(address: Uint8Array): string | undefined;
  /** For a network: whether the interface with this address is on this node. Never throws, for any bytes. */
  sharesNode?(address: Uint8Array): boolean;
  /**
   * Connects to the interface with this address. The peer may be notified only by the first message.
   * @throws UcxError ERR_UNREACHABLE with the reason; NO_RESOURCE at a limit of the peer
   */
  connect(address: Uint8Array): UctEndpoint;
  /**
   * Current properties of the path to the memory of a key of this memory domain; undefined or absent if there are none. Not on the fast path.
   * @throws UcxError ERR_INVALID_PARAM for another key
   */
  remotePath?(rkey: RemoteKey): RemotePath | undefined;
  /**
   * Sets the handler of active messages, of which there is one for each interface; undefined removes it. Messages that arrive without a handler are kept
   * for the next one.
   * @throws UcxError ERR_INVALID_PARAM
   */
  setAmHandler(handler: AmHandler | undefined): void;
  /** Sets the handler that is notified at once of a failed peer (uct_iface err_handler); absent if only {@link UctEndpoint.check} detects that. */
  setErrorHandler?(handler: EndpointErrorHandler): void;
  /**
   * Drives outstanding operations; completions run inside the call.
   * @returns number of operations that ended
   */
  progress(): number;
  /** Number of operations that have not ended. */
  readonly outstanding: number;
  /** The transport's details of a failed status, as the cause of the error that users see; undefined if there are none. Not on the fast path. */
  errorOf(status: Status): UcxError | undefined;
  /** Counters of operations of the endpoints and of received messages: a node of class `uct_iface`. */
  stats(): StatsNode;
  /**
   * Sleeps until an outstanding operation may have ended, a message may have arrived, or `timeoutNs` has passed, without blocking the event loop. Resolves
   * at once if there is nothing to wait for: no outstanding operation and no active messages. A caller that sleeps while another one does shares that sleep:
   * the promise is the same until it resolves, at the earliest requested time.
   */
  wait(timeoutNs: number): Promise<void>;
  /** Closes the interface. Idempotent; never fails. */
  close(): void;
}
