/** Requests of operations on remote memory: puts and gets, of the application and of protocols, and atomic operations. */

import { areIntact, holdsBytes } from '../../../api/memory/local.ts';
import { WordOperation } from '../../../api/operation/word-operation.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { Status } from '../../../ucs/type/status.ts';
import type { IovEntry } from '../../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../../uct/api/memory.ts';
import type { Lane } from '../../lane/lane.ts';
import type { LocalPiece } from '../../mem/memory-handle.ts';
import type { OperationRegistrar } from '../../mem/memory-map.ts';
import type { RemoteKey } from '../../mem/remote-key.ts';
import { OPERATION_NAMES, Operation, PROTOCOL_NAMES, Protocol } from '../../proto/selection.ts';
import { type Connection, NO_PIECES, notInitialized, Request, type Starter } from './request.ts';

/** An ended operation must not be kept from ending. */
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

/** The one entry of a zero-copy list. */
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

/** A put or get. */
export class RmaRequest extends Request {
  starter: Starter<RmaRequest> = notInitialized;
  operation: Operation = Operation.PUT;
  protocolIndex: Protocol = Protocol.SHORT;
  /** The part of the key for the lane. */
  rkey: UctRemoteKey | undefined = undefined;
  remoteOffset = 0;
  /** Local bytes of a short operation. */
  bytes: Uint8Array | undefined = undefined;
  localOffset = 0;
  /** Local memory of a zero-copy operation, as the list that transports take. */
  readonly iov: readonly [RequestEntry] = [new RequestEntry()];
  /** Local memory of an operation that the worker of the peer executes. */
  pieces: readonly LocalPiece[] = NO_PIECES;
  /** True for a get of that kind until the worker of the peer has answered. */
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

  /** Points the zero-copy list at one piece of memory. */
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

/** An atomic operation on a word. */
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
