/** One execution of a list: starts its blocks in order, each on its lane. Blocks that the peer's worker moves are combined into few transfers. */

import { entryError, type ListBlock, type PlannedList } from '../../api/list/list.ts';
import { hostBytes } from '../../api/memory/local.ts';
import { Operation, operationOf } from '../../api/operation/call.ts';
import { invalidParam, isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { type Completion, IfaceFlag, type IovEntry } from '../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type { Connection } from '../base/connection.ts';
import { start } from '../base/queued.ts';
import type { ListMove, ListRequest } from '../base/request/list-request.ts';
import { NO_MEMORY, type RegisteringOwner, RmaRequest } from '../base/request/operation-requests.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import type { Lane } from '../lane/lanes.ts';
import type { LocalMemory, LocalPiece, OperationRegistrar } from '../mem/memory-handle.ts';
import type { MemoryMap } from '../mem/memory-map.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, costNs, type Plan, Protocol } from '../proto/selection.ts';
import { chooseCandidate, planFor } from '../transfer/plan.ts';
import { initEntry } from '../transfer/transfer.ts';
import type { EmulatedRma } from './software.ts';

// Deregistration must not fail: the operation has ended.
const FORCE = { force: true } as const;

interface Registration {
  readonly bytes: Uint8Array;
  readonly registrar: OperationRegistrar;
  readonly memory: MdMemory;
}

/** Registrations of host memory for one execution: one for all blocks in the same bytes. */
export class MoveRegistrations implements BlockRegistrar {
  readonly #ofBuffers: Map<ArrayBufferLike, Registration[]> = new Map();

  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory {
    const { buffer, byteOffset, byteLength } = bytes;
    const registered = this.#ofBuffers.get(buffer) ?? [];
    const known = registered.find(
      (each) =>
        each.registrar === registrar && each.bytes.byteOffset === byteOffset && each.bytes.byteLength === byteLength,
    );
    if (known !== undefined) return known.memory;
    const memory = registrar.memReg(bytes);
    registered.push({ bytes, registrar, memory });
    this.#ofBuffers.set(buffer, registered);
    return memory;
  }

  close(): void {
    for (const registered of this.#ofBuffers.values()) {
      for (const { registrar, memory } of registered) registrar.memDereg(memory, FORCE);
    }
    this.#ofBuffers.clear();
  }
}

const NO_BLOCKS: readonly PlannedBlock[] = [];

/** Executes the list of one request, repeatedly. */
export class BlockMove implements ListMove {
  readonly #host: WorkerCore;
  readonly #software: EmulatedRma;
  #list: PlannedList<PlannedBlock> | undefined = undefined;
  #blocks: readonly PlannedBlock[] = NO_BLOCKS;
  /** Indices of the blocks to move, unless all are; the array is kept for later executions. */
  #selected: Int32Array = new Int32Array(0);
  #isPart = false;
  #registrations: MoveRegistrations | undefined = undefined;
  #count = 0;
  #next = 0;
  /** Index of the next part of a block that several devices share. */
  #nextPart = 0;
  /** The block that is being started, as a zero-copy list; transports do not keep it. */
  readonly #iov: PlannedBlock[] = [];
  /** Corked lanes, which hold operations back. */
  readonly #corked: Lane[] = [];
  /** Blocks that the peer's worker moves. */
  readonly #remote: PlannedBlock[] = [];
  /** The transfers of those blocks that wait for resources. */
  #transfers: RmaRequest[] | undefined = undefined;
  #isDropped = false;

  constructor(host: WorkerCore, software: EmulatedRma) {
    this.#host = host;
    this.#software = software;
  }

  /**
   * Begins an execution; the previous one was closed. Does not allocate in steady state.
   * @param selected indices of the blocks to move, copied; undefined for all
   */
  begin(
    list: PlannedList<PlannedBlock>,
    selected: ArrayLike<number> | undefined,
    registrations: MoveRegistrations | undefined,
  ): void {
    this.#list = list;
    this.#blocks = list.blocks;
    this.#isPart = selected !== undefined;
    if (selected !== undefined) this.#select(selected);
    this.#registrations = registrations;
    this.#count = selected?.length ?? list.blockCount;
    this.#next = 0;
    this.#nextPart = 0;
    this.#isDropped = false;
  }

  get isIntact(): boolean {
    return this.#list?.isIntact !== false;
  }

  get isCarried(): boolean {
    return this.#remote.length === 0;
  }

  start(request: ListRequest, connection: Connection): Status {
    const status = this.#startBlocks(request);
    if (status !== Status.OK || this.#remote.length === 0) return status;
    this.#transfers ??= this.#transfersOf(request, connection, this.#remote);
    return this.#startTransfers(request, this.#transfers);
  }

  drop(): void {
    this.#isDropped = true;
    // One of them may be the transfer that has failed while it waited to be restarted.
    for (const transfer of this.#transfers?.splice(0) ?? []) if (!transfer.isCompleted) transfer.end(Status.CANCELED);
  }

  close(): void {
    this.#registrations?.close();
    this.#registrations = undefined;
    this.#list = undefined;
    this.#blocks = NO_BLOCKS;
    this.#transfers = undefined;
    this.#iov.pop();
    while (this.#remote.length > 0) this.#remote.pop();
  }

  #select(selected: ArrayLike<number>): void {
    if (this.#selected.length < selected.length) this.#selected = new Int32Array(selected.length);
    for (let i = 0; i < selected.length; i++) this.#selected[i] = selected[i]!;
  }

  #startBlocks(request: ListRequest): Status {
    const blocks = this.#blocks;
    const corked = this.#corked;
    let last: Lane | undefined;
    try {
      while (this.#next < this.#count && !this.#isDropped) {
        const whole = blocks[this.#isPart ? this.#selected[this.#next]! : this.#next]!;
        const block = whole.parts === undefined ? whole : whole.parts[this.#nextPart]!;
        const { lane } = block;
        if (lane === undefined) {
          this.#remote.push(block);
          this.#next += 1;
          continue;
        }
        if (lane !== last) {
          last = lane;
          if (!request.used.includes(lane)) request.used.push(lane);
          // A single block is not corked, like a put: it may start together with other operations on its lane.
          if (this.#count > 1 && !corked.includes(lane)) {
            corked.push(lane);
            lane.endpoint.cork?.();
          }
        }
        const completion = request.takeCompletion(block.entry);
        this.#iov[0] = block;
        const status = startBlock(this.#iov, completion, request);
        if (status !== Status.INPROGRESS) request.putCompletion(completion);
        if (status === Status.NO_RESOURCE) return status;
        this.#nextPart += 1;
        if (this.#nextPart >= (whole.parts?.length ?? 1)) {
          this.#nextPart = 0;
          this.#next += 1;
        }
        if (status < 0) {
          request.fail(block.entry, status);
          return status;
        }
        // The request cannot be cancelled from here on.
        request.done += block.byteLength;
      }
      return request.failure;
    } finally {
      for (let lane = corked.pop(); lane !== undefined; lane = corked.pop()) lane.endpoint.uncork?.();
    }
  }

  /** The transfers of blocks that the peer's worker moves: for each key, as many blocks as one message can name. */
  #transfersOf(request: ListRequest, connection: Connection, blocks: readonly PlannedBlock[]): RmaRequest[] {
    const blocksMax = this.#software.blocksMax(connection);
    const byKey = new Map<RemoteKey, PlannedBlock[]>();
    for (const block of blocks) {
      const ofKey = byKey.get(block.rkey);
      if (ofKey === undefined) byKey.set(block.rkey, [block]);
      else ofKey.push(block);
    }
    const transfers: RmaRequest[] = [];
    for (const [rkey, ofKey] of byKey) {
      for (let first = 0; first < ofKey.length; first += blocksMax) {
        transfers.push(this.#transferOf(request, connection, rkey.memoryKey!, ofKey.slice(first, first + blocksMax)));
      }
    }
    return transfers;
  }

  #transferOf(
    request: ListRequest,
    connection: Connection,
    memoryKey: Uint8Array,
    blocks: readonly PlannedBlock[],
  ): RmaRequest {
    let start = 0;
    const pieces = blocks.map(({ local: memory, localOffset: offset, byteLength }): LocalPiece => {
      const piece = { memory, offset, byteLength, start };
      start += byteLength;
      return piece;
    });
    const { entry } = blocks[0]!;
    const transfer = new RmaRequest(this.#host);
    transfer.begin(connection, connection.amLane);
    transfer.operation = operationOf(this.#list!.operation);
    transfer.protocolIndex = Protocol.SOFTWARE;
    this.#software.initBlocks(transfer, pieces, blocks, memoryKey);
    const completion = request.takeCompletion(entry);
    transfer.callback = (_transfer, status) => request.blockEnded(completion, entry, status);
    return transfer;
  }

  #startTransfers(request: ListRequest, transfers: RmaRequest[]): Status {
    for (let transfer = transfers[0]; transfer !== undefined; transfer = transfers[0]) {
      const status = start(transfer);
      if (status === Status.NO_RESOURCE) return status;
      transfers.shift();
      request.done += transfer.byteLength;
      if (status !== Status.INPROGRESS && !transfer.isCompleted) transfer.end(status);
    }
    return request.failure;
  }
}

/** Starts a block. An exception of a transport becomes its status, because other blocks may be in flight. */
function startBlock(iov: readonly PlannedBlock[], completion: Completion, request: ListRequest): Status {
  const block = iov[0]!;
  try {
    return block.start(iov, completion);
  } catch (error) {
    request.error ??= entryError(block.entry, error);
    return isUcxError(error) ? error.status : Status.IO_ERROR;
  }
}

/** Registers host memory of a list that is not mapped. */
export interface BlockRegistrar {
  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory;
}

/** Rejects host memory that is not mapped: prepared lists must not hold registrations. */
class MappedOnly implements BlockRegistrar {
  register(_registrar: OperationRegistrar, bytes: Uint8Array): never {
    throw invalidParam('local', 'must be mapped memory in a prepared list', bytes.byteLength);
  }
}

export const MAPPED_ONLY: BlockRegistrar = new MappedOnly();

/** The context of the blocks of one list. */
export interface BlockOwner {
  readonly operation: Operation;
  readonly connection: Connection;
  readonly mapped: MemoryMap;
  readonly registrar: BlockRegistrar;
}

/** A block. It is also the entry of its zero-copy list, because a list has thousands of blocks, and each further object costs a cache miss. */
export class PlannedBlock implements RegisteringOwner, IovEntry {
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly rkey: RemoteKey;
  readonly remoteOffset: number;
  readonly byteLength: number;
  /** The local memory in the lane's memory domain, and the offset in it; unused by short operations. */
  memory: MdMemory = NO_MEMORY;
  offset = 0;
  /** Index of the list entry. */
  readonly entry: number;
  /** The lane; undefined for a block that the peer's worker moves. */
  readonly lane: Lane | undefined;
  readonly protocol: Protocol;
  readonly #operation: Operation;
  readonly #part: UctRemoteKey | undefined;
  /** Local bytes of a short operation. */
  readonly #bytes: Uint8Array | undefined;
  readonly #registrar: BlockRegistrar;
  /** The parts that are started instead of this block, if several devices share it. */
  parts: readonly PlannedBlock[] | undefined = undefined;

  /**
   * @param candidate the candidate to use; undefined for the best one
   * @throws UcxError ERR_UNREACHABLE, or the error of registering the local memory
   */
  constructor({ operation, connection, mapped, registrar }: BlockOwner, block: ListBlock, candidate?: Candidate) {
    const { local, localOffset, rkey, remoteOffset, byteLength, entry } = block;
    this.local = local as LocalMemory;
    this.localOffset = localOffset;
    this.rkey = rkey as RemoteKey;
    this.remoteOffset = remoteOffset;
    this.byteLength = byteLength;
    this.entry = entry;
    this.#operation = operation;
    this.#registrar = registrar;
    const planned = { operation, connection, local: this.local, rkey: this.rkey };
    const plan = planFor(planned);
    const { protocol, lane: index } =
      candidate ?? bestOf(plan, connection, byteLength) ?? chooseCandidate(plan, planned, byteLength);
    this.protocol = protocol;
    const lane = protocol === Protocol.SOFTWARE ? undefined : connection.lanes[index]!;
    this.lane = lane;
    this.#part = lane === undefined ? undefined : this.rkey.parts[lane.md.index];
    this.#bytes = protocol === Protocol.SHORT ? hostBytes(this.local) : undefined;
    if (protocol === Protocol.ZCOPY) initEntry(this, this, lane!.md.index, mapped);
  }

  setEntry(memory: MdMemory, offset: number): void {
    this.memory = memory;
    this.offset = offset;
  }

  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory {
    return this.#registrar.register(registrar, bytes);
  }

  /**
   * Starts the block on its lane; returns the status of the transport.
   * @param iov a list with this block only
   */
  start(iov: readonly PlannedBlock[], completion: Completion): Status {
    const { endpoint, activity } = this.lane!;
    activity.busy = true;
    const { localOffset, remoteOffset, byteLength } = this;
    const part = this.#part!;
    const bytes = this.#bytes;
    if (bytes === undefined) {
      return this.#operation === Operation.PUT
        ? endpoint.putZcopy(iov, remoteOffset, part, completion)
        : endpoint.getZcopy(iov, remoteOffset, part, completion);
    }
    return this.#operation === Operation.PUT
      ? endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, part, completion)
      : endpoint.getShort(bytes, localOffset, byteLength, remoteOffset, part, completion);
  }
}

/**
 * The best zero-copy candidate, or the best short one of a CPU that reaches the remote memory. Other short operations need a resource for each block and
 * start at once, so they are not used. Undefined if there is none.
 */
function bestOf(plan: Plan, { lanes }: Connection, byteLength: number): Candidate | undefined {
  let best: Candidate | undefined;
  for (const candidate of plan.candidates) {
    const { protocol, lane, bytesMin, bytesMax } = candidate;
    const isCpu = (lanes[lane]!.iface.attributes.flags & IfaceFlag.CPU_ACCESS) !== 0;
    const isFit = protocol === Protocol.ZCOPY || (protocol === Protocol.SHORT && isCpu);
    if (!isFit || byteLength < bytesMin || byteLength > bytesMax) continue;
    if (best === undefined || costNs(candidate, byteLength) < costNs(best, byteLength)) best = candidate;
  }
  return best;
}
