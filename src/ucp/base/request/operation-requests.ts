/**
 * Requests of messages (sends and receives of tag matching, active messages and streams) and of remote memory access (puts, gets and atomic operations, of
 * the application and of protocols).
 */

import { areHost, areIntact, areMapped, bytesOf, holdsBytes, hostBytes, scatter } from '../../../api/memory/local.ts';
import { Operation } from '../../../api/operation/call.ts';
import { WordOperation } from '../../../api/operation/word-operation.ts';
import { copyBytes } from '../../../ucs/memory/bytes.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { joinBig } from '../../../ucs/type/int64.ts';
import type { Status } from '../../../ucs/type/status.ts';
import type { AmFrame, IovEntry } from '../../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../../uct/api/memory.ts';
import type { Lane } from '../../lane/lanes.ts';
import type { LocalMemory, LocalPiece, MemoryHandle, OperationRegistrar } from '../../mem/memory-handle.ts';
import type { RemoteKey } from '../../mem/remote-key.ts';
import { OPERATION_NAMES, PROTOCOL_NAMES, Protocol } from '../../proto/selection.ts';
import type { Connection } from '../connection.ts';
import { cannotCancel, NO_PIECES, notInitialized, Request, type Starter } from './request.ts';

const NO_BYTES = new Uint8Array(0);
/** Shorter parts of a message are copied without a view, which pays off only for longer ones. */
const PART_BYTES_MIN = 16;

/** The bytes of a message: a frame of a transport, or a kept part of a frame. */
export type MessageBytes = Pick<AmFrame, 'bytes' | 'part'>;

/** A remote key in a message, by which the receiver accesses the sender's memory. */
export interface SentKey {
  readonly packed: Uint8Array;
  /** Offset in the memory of the key at which the message begins. */
  readonly offset: number;
}

/** A request that sends a message or a part of one. */
export class SendRequest extends Request {
  starter: Starter<SendRequest> = notInitialized;
  /** Operation name, such as `tag`: the first part of {@link protocol}. */
  operation = '';
  pieces: readonly LocalPiece[] = NO_PIECES;
  /** Tag, as two signed words. */
  tagLow = 0;
  tagHigh = 0;
  /** AM id, and a copy of the AM header. */
  amId = 0;
  amHeader: Uint8Array = NO_BYTES;
  /** Key of the sent memory, for a receiver that reads it. */
  key: SentKey | undefined = undefined;
  /** True once transports have all bytes: the request ends when they no longer use its memory. */
  isPassedOn = false;
  /** True once the peer was requested to drop the message. */
  isWithdrawn = false;
  /** Withdraws the send from its protocol after its start; false if it is too late. */
  canceller: (request: SendRequest) => boolean = cannotCancel;

  override get protocol(): string {
    return `${this.operation}/${this.protocolName}`;
  }

  override begin(connection: Connection | undefined, lane: Lane | undefined): void {
    super.begin(connection, lane);
    this.isPassedOn = false;
    this.isWithdrawn = false;
    this.canceller = cannotCancel;
  }

  protected override takeBack(): boolean {
    return this.queued ? super.takeBack() : this.canceller(this);
  }

  start(): Status {
    const { connection } = this;
    return connection === undefined ? notInitialized() : this.starter(this, connection);
  }

  protected override holdsMemory(): boolean {
    return areIntact(this.pieces);
  }

  protected override dropMemory(): void {
    this.pieces = NO_PIECES;
    this.amHeader = NO_BYTES;
    this.key = undefined;
  }
}

/** A request that receives a message. */
export class ReceiveRequest extends Request {
  starter: (request: ReceiveRequest) => Status = notInitialized;
  /** Contiguous host memory, and the mapped memory that contains it; undefined if the memory is in `pieces`. */
  bytes: Uint8Array | undefined = undefined;
  handle: MemoryHandle | undefined = undefined;
  localOffset = 0;
  pieces: readonly LocalPiece[] = NO_PIECES;
  /** Tag and mask, as signed words. */
  tagLow = 0;
  tagHigh = 0;
  maskLow = 0;
  maskHigh = 0;
  /** Tag of the received message, as two signed words. */
  senderLow = 0;
  senderHigh = 0;
  /** Sequence number of the posted receive, 0 if it is not posted; its neighbours in the matching. */
  order = 0;
  matchPrevious: ReceiveRequest | undefined = undefined;
  matchNext: ReceiveRequest | undefined = undefined;
  /** Bytes of the received message. */
  messageBytes = 0;
  /** True for a stream receive that ends only when its memory is full. */
  waitAll = false;
  /** Withdraws the receive from its protocol; false if it has its message or a part of it. */
  canceller: (request: ReceiveRequest) => boolean = cannotCancel;

  override get receivedBytes(): number {
    return this.messageBytes;
  }

  override get movedBytes(): number {
    return this.messageBytes;
  }

  override get senderTag(): bigint {
    return joinBig(this.senderLow, this.senderHigh);
  }

  override begin(connection: Connection | undefined, lane: Lane | undefined): void {
    super.begin(connection, lane);
    this.senderLow = 0;
    this.senderHigh = 0;
    this.messageBytes = 0;
    this.canceller = cannotCancel;
  }

  protected override takeBack(): boolean {
    return this.canceller(this);
  }

  /** Sets a checked, contiguous local range as receive memory. */
  setMemory(local: LocalMemory, localOffset: number, byteLength: number): void {
    this.byteLength = byteLength;
    this.bytes = hostBytes(local);
    if (this.bytes === undefined) this.pieces = [{ memory: local, offset: localOffset, byteLength, start: 0 }];
    this.localOffset = localOffset;
    this.handle = local instanceof Uint8Array ? undefined : local;
  }

  /** Sets a checked list as receive memory. */
  setPieces(pieces: readonly LocalPiece[]): void {
    this.pieces = pieces;
    this.byteLength = bytesOf(pieces);
  }

  /** True if the memory is host memory. */
  get isHost(): boolean {
    return this.bytes !== undefined || areHost(this.pieces);
  }

  /** False if some of the memory was unmapped, detached or shortened since the start. */
  get isMapped(): boolean {
    const { bytes } = this;
    if (bytes === undefined) return areMapped(this.pieces);
    return this.handle?.mapped !== false && holdsBytes(bytes, this.localOffset, this.byteLength);
  }

  /** The memory, as a list. */
  get asPieces(): readonly LocalPiece[] {
    const { bytes, handle, localOffset: offset, byteLength } = this;
    return bytes === undefined ? this.pieces : [{ memory: handle ?? bytes, offset, byteLength, start: 0 }];
  }

  /** Stores bytes of a message in host memory, at offset `at`. */
  store(at: number, message: MessageBytes, from: number, byteLength: number): void {
    const part = byteLength > PART_BYTES_MIN ? message.part?.(from, byteLength) : undefined;
    const source = part ?? message.bytes;
    const start = part === undefined ? from : 0;
    if (this.bytes === undefined) scatter(this.pieces, at, byteLength, source, start);
    else copyBytes(this.bytes, this.localOffset + at, source, start, byteLength);
  }

  /** Stores the next bytes of a message, as far as they fit, behind those already stored; returns how many. */
  storeNext(message: MessageBytes, from: number, byteLength: number): number {
    const taken = Math.min(byteLength, this.byteLength - this.done);
    this.store(this.done, message, from, taken);
    this.done += taken;
    return taken;
  }

  start(): Status {
    return this.starter(this);
  }

  protected override holdsMemory(): boolean {
    const { bytes } = this;
    return bytes === undefined ? areIntact(this.pieces) : holdsBytes(bytes, this.localOffset, this.byteLength);
  }

  protected override dropMemory(): void {
    this.bytes = undefined;
    this.handle = undefined;
    this.pieces = NO_PIECES;
  }
}

// Deregistration must not fail: the operation has ended.
const FORCE = { force: true } as const;

/** Placeholder in the list of a request without memory: an ended request must not keep memory alive. */
export const NO_MEMORY: MdMemory = {
  mdName: '',
  memoryType: MemoryType.UNKNOWN,
  sysDevice: undefined,
  address: 0n,
  byteLength: 0,
  bytes: undefined,
  generation: 0,
  live: false,
};

/** The single entry of a zero-copy list. */
export class RequestEntry implements IovEntry {
  memory: MdMemory = NO_MEMORY;
  offset = 0;
  byteLength = 0;

  setEntry(memory: MdMemory, offset: number, byteLength: number): void {
    this.memory = memory;
    this.offset = offset;
    this.byteLength = byteLength;
  }
}

/** The owner of a zero-copy list with one entry, which registers host memory that is not mapped. */
export interface RegisteringOwner {
  /** Points the entry at a range of memory. */
  setEntry(memory: MdMemory, offset: number, byteLength: number): void;
  /** Registers host memory until the operation ends. */
  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory;
}

/** A put or get. */
export class RmaRequest extends Request implements RegisteringOwner {
  starter: Starter<RmaRequest> = notInitialized;
  operation: Operation = Operation.PUT;
  protocolIndex: Protocol = Protocol.SHORT;
  /** Part of the remote key for the memory domain of the lane. */
  rkey: UctRemoteKey | undefined = undefined;
  remoteOffset = 0;
  /** Local bytes of a short operation. */
  bytes: Uint8Array | undefined = undefined;
  localOffset = 0;
  /** Local memory of a zero-copy operation, as the list that transports take. */
  readonly iov: readonly [RequestEntry] = [new RequestEntry()];
  /** Local memory of an operation that the worker of the peer executes. */
  pieces: readonly LocalPiece[] = NO_PIECES;
  /** True for a software get until the worker of the peer has replied. */
  isAsking = false;
  /** Memory that is registered for this operation only. */
  #registered: MdMemory | undefined = undefined;
  #registrar: OperationRegistrar | undefined = undefined;

  override get protocol(): string {
    if (this.protocolName !== '') return this.protocolName;
    return `${OPERATION_NAMES[this.operation]}/${PROTOCOL_NAMES[this.protocolIndex]}`;
  }

  override begin(connection: Connection | undefined, lane: Lane | undefined): void {
    super.begin(connection, lane);
    this.isAsking = false;
  }

  /** Points the zero-copy list at a range of memory. */
  setEntry(memory: MdMemory, offset: number, byteLength: number): void {
    this.iov[0].setEntry(memory, offset, byteLength);
  }

  /** Registers host memory until the operation ends. */
  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory {
    this.#registered = registrar.memReg(bytes);
    this.#registrar = registrar;
    return this.#registered;
  }

  start(): Status {
    const { connection } = this;
    return connection === undefined ? notInitialized() : this.starter(this, connection);
  }

  protected override holdsMemory(): boolean {
    const [{ memory, offset, byteLength }] = this.iov;
    if (memory !== NO_MEMORY) return holdsBytes(memory.bytes, offset, byteLength);
    const { bytes } = this;
    return bytes === undefined ? areIntact(this.pieces) : holdsBytes(bytes, this.localOffset, this.byteLength);
  }

  protected override dropMemory(): void {
    if (this.#registered !== undefined) this.#registrar?.memDereg(this.#registered, FORCE);
    this.#registered = undefined;
    this.#registrar = undefined;
    this.iov[0].memory = NO_MEMORY;
    this.bytes = undefined;
    this.pieces = NO_PIECES;
  }
}

export class AtomicRequest extends Request {
  starter: Starter<AtomicRequest> = notInitialized;
  readonly call: WordOperation = new WordOperation();
  rkey: RemoteKey | undefined = undefined;
  remoteOffset = 0;

  override get atomicResult(): bigint {
    return this.call.result;
  }

  start(): Status {
    const { connection } = this;
    return connection === undefined ? notInitialized() : this.starter(this, connection);
  }

  protected override dropMemory(): void {
    this.rkey = undefined;
  }
}
