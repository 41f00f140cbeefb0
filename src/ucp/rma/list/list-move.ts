/** One move of a list: starts its blocks in order, lane by lane; blocks that the worker of the peer moves are combined into few transfers. */

import type { PlannedList } from '../../../api/list/list.ts';
import { entryError } from '../../../api/list/list.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../../uct/api/iface.ts';
import type { MdMemory } from '../../../uct/api/memory.ts';
import type { ProtocolHost } from '../../base/protocol-host.ts';
import type { ListMove, ListRequest } from '../../base/request/list-request.ts';
import { type Connection, start } from '../../base/request/request.ts';
import { RmaRequest } from '../../base/request/rma-request.ts';
import type { Lane } from '../../lane/lane.ts';
import type { LocalPiece } from '../../mem/memory-handle.ts';
import type { OperationRegistrar } from '../../mem/memory-map.ts';
import type { RemoteKey } from '../../mem/remote-key.ts';
import { Protocol } from '../../proto/selection.ts';
import { type BlockRegistrar, operationOf, type PlannedBlock } from './planned-block.ts';

/** An ended operation must not be kept from ending. */
const FORCE = { force: true } as const;

/** A range of remote memory. */
export interface RemoteBlock {
  readonly remoteOffset: number;
  readonly byteLength: number;
}

/** Puts and gets of many blocks that the worker of the peer moves. */
export interface SoftwareList {
  /** Maximum number of blocks of one transfer. */
  blocksMax(connection: Connection): number;
  /** Completes a request that has begun. */
  initBlocks(
    request: RmaRequest,
    pieces: readonly LocalPiece[],
    blocks: readonly RemoteBlock[],
    memoryKey: Uint8Array,
  ): void;
}

interface Registration {
  readonly bytes: Uint8Array;
  readonly registrar: OperationRegistrar;
  readonly memory: MdMemory;
}

/** Registrations of host memory for one move: one for all blocks of the same bytes. */
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

/** The blocks of a move before it has a list. */
const NO_BLOCKS: readonly PlannedBlock[] = [];

/** The moves of one request, one after the other. */
export class BlockMove implements ListMove {
  readonly #host: ProtocolHost;
  readonly #software: SoftwareList;
  #list: PlannedList<PlannedBlock> | undefined = undefined;
  #blocks: readonly PlannedBlock[] = NO_BLOCKS;
  /** Numbers of the blocks that are moved, unless it is all; the array is kept for later moves. */
  #selected: Int32Array = new Int32Array(0);
  #isPart = false;
  #registrations: MoveRegistrations | undefined = undefined;
  #count = 0;
  #next = 0;
  /** Index of the next part of a block that several devices share. */
  #nextPart = 0;
  /** The block that is started, as the list of a zero-copy operation; transports do not keep it. */
  readonly #iov: PlannedBlock[] = [];
  /** Lanes that are corked: they hold operations back. */
  readonly #corked: Lane[] = [];
  /** Blocks that the worker of the peer moves. */
  readonly #remote: PlannedBlock[] = [];
  /** Transfers of them that wait for resources. */
  #transfers: RmaRequest[] | undefined = undefined;
  #isDropped = false;

  constructor(host: ProtocolHost, software: SoftwareList) {
    this.#host = host;
    this.#software = software;
  }

  /**
   * Begins a move; the one before was closed. Allocates nothing in steady state.
   * @param selected numbers of the blocks that are moved, copied; undefined for all
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
    // One of them may be the one that has failed, while it waited to be started again.
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
        // From here on the request cannot be cancelled.
        request.done += block.byteLength;
      }
      return request.failure;
    } finally {
      for (let lane = corked.pop(); lane !== undefined; lane = corked.pop()) lane.endpoint.uncork?.();
    }
  }

  /** The transfers of blocks that the worker of the peer moves: for each key as many blocks as one message can name. */
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

/** Starts a block; an exception of a transport becomes its status, because other blocks may be in flight. */
function startBlock(iov: readonly PlannedBlock[], completion: Completion, request: ListRequest): Status {
  const block = iov[0]!;
  try {
    return block.start(iov, completion);
  } catch (error) {
    request.error ??= entryError(block.entry, error);
    return isUcxError(error) ? error.status : Status.IO_ERROR;
  }
}
