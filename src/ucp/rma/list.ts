/**
 * Lists of puts and gets, and notifications of their end: checks lists once, and runs the phases of their requests. Divides the blocks of a list between
 * network devices: a long block like a put, shorter ones in turns.
 */

import type {
  ListParams,
  PreparedList,
  RequestCallback,
  RequestParams,
  TransferEntry,
} from '../../api/contract/request.ts';
import { checkList, entryError, type ListBlock, notificationOf, PlannedList } from '../../api/list/list.ts';
import { type Operation, operationOf } from '../../api/operation/call.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { ListPhase, type ListRequest, type Notice } from '../base/request/list-request.ts';
import type { Request } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { type Rail, type RailLimits, railsOf } from '../lane/rails.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, type Plan, PROTOCOL_NAMES } from '../proto/selection.ts';
import { planFor } from '../transfer/plan.ts';
import { BlockMove, type BlockRegistrar, MAPPED_ONLY, MoveRegistrations, PlannedBlock } from './list-move.ts';
import type { EmulatedRma } from './software.ts';

/** Sends the notification of a list. Returns like an nbx operation. */
type Notify = (connection: Connection, notice: Notice, params: RequestParams) => Status | Request;

/**
 * Sends a notification behind the last puts of the message lane, which may be in flight.
 * @returns OK, or the reason why it has to wait until the puts have ended
 */
type NotifyAfterPuts = (connection: Connection, notice: Notice, puts: number) => Status;

/** Protocol names of lists, by that of their first block. */
const NAMES = {
  put: PROTOCOL_NAMES.map((name) => `put/list/${name}`),
  get: PROTOCOL_NAMES.map((name) => `get/list/${name}`),
} as const;
/** Constructors of the error of a failed block, by operation. */
const ERRORS = {
  put: (entry: number, status: Status) => entryError(entry, statusError(status, 'put')),
  get: (entry: number, status: Status) => entryError(entry, statusError(status, 'get')),
} as const;

export class RmaLists {
  readonly #host: WorkerCore;
  readonly #software: EmulatedRma;
  readonly #notify: Notify;
  readonly #notifyAfterPuts: NotifyAfterPuts;

  constructor(host: WorkerCore, software: EmulatedRma, notify: Notify, notifyAfterPuts: NotifyAfterPuts) {
    this.#host = host;
    this.#software = software;
    this.#notify = notify;
    this.#notifyAfterPuts = notifyAfterPuts;
  }

  /** See Endpoint.prepareList. */
  prepare(
    connection: Connection,
    operation: 'put' | 'get',
    list: readonly TransferEntry[],
    strict: boolean,
  ): PreparedList {
    return this.#plan(connection, operation, { list, strict }, MAPPED_ONLY);
  }

  /** See Endpoint.putListNbx. */
  start(
    connection: Connection,
    operation: 'put' | 'get',
    list: readonly TransferEntry[] | PreparedList,
    params: ListParams | undefined,
  ): Status | Request {
    if (list instanceof PlannedList) {
      list.check(operation, connection);
      return this.#start(connection, list as PlannedList<PlannedBlock>, undefined, params);
    }
    const registrations = new MoveRegistrations();
    try {
      const given = { list: list as readonly TransferEntry[], strict: params?.strict === true };
      const planned = this.#plan(connection, operation, given, registrations);
      const started = this.#start(connection, planned, registrations, params);
      if (typeof started === 'number') registrations.close();
      return started;
    } catch (error) {
      registrations.close();
      throw error;
    }
  }

  #start(
    connection: Connection,
    list: PlannedList<PlannedBlock>,
    registrations: MoveRegistrations | undefined,
    params: ListParams | undefined,
  ): Status | Request {
    if (connection.failure !== Status.OK) return connection.failure;
    const selected = params?.blocks;
    const notification = notificationOf(params);
    if ((selected ?? list.blocks).length === 0 && notification === undefined) return Status.OK;
    if (notification !== undefined) connection.messageLane();
    const request = this.#host.requests.take(this.#host.requests.lists);
    if (request === undefined) return Status.NO_RESOURCE;
    const { operation } = list;
    const first = list.blocks[selected?.[0] ?? 0];
    request.begin(connection, first?.lane ?? connection.amLane);
    const blocks = request.move instanceof BlockMove ? request.move : new BlockMove(this.#host, this.#software);
    blocks.begin(list, selected, registrations);
    request.move = blocks;
    request.byteLength = list.bytesOf(selected);
    request.protocolName = first === undefined ? 'notify' : NAMES[operation][first.protocol]!;
    request.errorOf = ERRORS[operation];
    request.notification = notification && { bytes: notification, id: params?.notifyId };
    request.flushes = params?.flush === true || notification !== undefined;
    if (request.flushes) connection.notifications.add(request, notification !== undefined);
    request.starter = this.#advance;
    return this.#host.start(request, params);
  }

  #plan(
    connection: Connection,
    operation: 'put' | 'get',
    { list, strict }: { readonly list: readonly TransferEntry[]; readonly strict: boolean },
    registrar: BlockRegistrar,
  ): PlannedList<PlannedBlock> {
    const { context } = this.#host;
    const blocks = checkList({ memory: context, keys: connection }, operation, list, strict);
    const rails = new ListRails(connection, operationOf(operation), blocks, context.rmaRails);
    const owner = { operation: operationOf(operation), connection, mapped: context.memory, registrar };
    const planned = (block: ListBlock, candidate?: Candidate): PlannedBlock =>
      new PlannedBlock(owner, block, candidate);
    const plan = (block: ListBlock): PlannedBlock => {
      try {
        const [first, ...others] = rails.partsOf(block) ?? [];
        const whole = planned(block, first?.candidate);
        if (first === undefined || others.length === 0) return whole;
        whole.parts = [first, ...others].map(({ candidate, offset, byteLength }) => {
          const [localOffset, remoteOffset] = [block.localOffset + offset, block.remoteOffset + offset];
          return planned({ ...block, localOffset, remoteOffset, byteLength }, candidate);
        });
        return whole;
      } catch (error) {
        throw entryError(block.entry, error);
      }
    };
    return new PlannedList(operation, connection, blocks.map(plan));
  }

  /** Runs the current phase of a list, and those after it. */
  readonly #advance = (request: ListRequest, connection: Connection): Status => {
    if (request.phase === ListPhase.MOVE) {
      const puts = connection.amLane?.endpoint.putsStarted;
      const isBegun = request.done > 0;
      const status = request.move!.start(request, connection);
      if (status === Status.NO_RESOURCE) return status;
      // Other puts may have been started between several steps.
      const isSent = !isBegun && puts !== undefined && this.#follow(request, connection, puts);
      const next = request.flushes ? ListPhase.FLUSH : ListPhase.DONE;
      request.phase = isSent ? ListPhase.DONE : next;
      if (releaseHold(request)) return Status.INPROGRESS;
      if (request.failure !== Status.OK || request.phase === ListPhase.DONE) return request.failure;
      request.count = 1;
    }
    if (request.phase === ListPhase.FLUSH) {
      const status = flushUsed(request);
      if (status === Status.NO_RESOURCE) return status;
      request.phase = request.notification === undefined ? ListPhase.DONE : ListPhase.NOTIFY;
      if (releaseHold(request)) return Status.INPROGRESS;
      if (request.failure !== Status.OK || request.phase === ListPhase.DONE) return request.failure;
      request.count = 1;
    }
    if (!connection.notifications.isFirst(request)) {
      request.isDue = true;
      return Status.INPROGRESS;
    }
    const callback: RequestCallback = (message, status) => {
      request.message = undefined;
      message.free();
      request.complete(status);
    };
    const sent = this.#notify(connection, request.notification!, { callback });
    if (sent === Status.NO_RESOURCE) return sent;
    request.phase = ListPhase.DONE;
    if (typeof sent === 'number') return sent;
    request.message = sent;
    return Status.INPROGRESS;
  };

  /**
   * Sends the notification without waiting for the blocks, if one lane carries both and keeps their order.
   * @param putsBefore number of puts of the message lane when the first block was started
   * @returns false if it has to wait until the blocks have ended
   */
  #follow(request: ListRequest, connection: Connection, putsBefore: number): boolean {
    const { notification, used, move, failure } = request;
    const { amLane, notifications } = connection;
    const puts = (amLane?.endpoint.putsStarted ?? 0) - putsBefore;
    if (notification === undefined || puts === 0 || failure !== Status.OK || !notifications.isFirst(request))
      return false;
    if (!(used.length === 1 && used[0] === amLane && move!.isCarried && move!.isIntact)) return false;
    if (this.#notifyAfterPuts(connection, notification, puts) !== Status.OK) return false;
    notifications.pass(request);
    return true;
  }
}

/** Releases the count that is held while a phase is started; true if operations of the phase are still in flight. */
function releaseHold(request: ListRequest): boolean {
  request.count -= 1;
  return request.count > 0;
}

/** Flushes the lanes that were given blocks; lanes without resources are retried at the next start. */
function flushUsed(request: ListRequest): Status {
  const { used } = request;
  for (let lane = used.at(-1); lane !== undefined; lane = used.at(-1)) {
    request.count += 1;
    lane.activity.busy = true;
    const status = lane.endpoint.flush(request);
    if (status !== Status.INPROGRESS) request.count -= 1;
    if (status === Status.NO_RESOURCE) return status;
    used.pop();
    if (status < 0 && request.failure === Status.OK) request.failure = status;
  }
  return Status.OK;
}

/** Blocks with the same plan. */
interface Group {
  byteLength: number;
  /** The shares of the devices in the total of the blocks; undefined if one lane carries them. */
  rails: readonly Rail[] | undefined;
  /** Bytes already assigned to each device. */
  readonly given: number[];
}

/** Divides the blocks of one list between network devices. */
class ListRails {
  readonly #connection: Connection;
  readonly #operation: Operation;
  readonly #limits: RailLimits;
  readonly #groups: Map<Plan, Group> = new Map();

  constructor(connection: Connection, operation: Operation, blocks: readonly ListBlock[], limits: RailLimits) {
    this.#connection = connection;
    this.#operation = operation;
    this.#limits = limits;
    if (!connection.hasRails || limits.railsMax < 2) return;
    for (const block of blocks) {
      const plan = this.#planOf(block);
      const group = this.#groups.get(plan);
      if (group === undefined) this.#groups.set(plan, { byteLength: block.byteLength, rails: undefined, given: [] });
      else group.byteLength += block.byteLength;
    }
    for (const [plan, group] of this.#groups) {
      group.rails = railsOf(plan, connection.lanes, group.byteLength, limits);
    }
  }

  /** The parts of a block with the candidate of each; undefined if the best candidate carries the whole block. */
  partsOf(block: ListBlock): readonly Rail[] | undefined {
    if (this.#groups.size === 0) return undefined;
    const plan = this.#planOf(block);
    const group = this.#groups.get(plan);
    if (group?.rails === undefined) return undefined;
    const { rails, given } = group;
    const { byteLength } = block;
    const parts = railsOf(plan, this.#connection.lanes, byteLength, this.#limits);
    if (parts !== undefined) return parts;
    let next: number | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const [i, { candidate, byteLength: share }] of rails.entries()) {
      const load = ((given[i] ?? 0) + byteLength) / share;
      if (byteLength < candidate.bytesMin || byteLength > candidate.bytesMax || load >= least) continue;
      least = load;
      next = i;
    }
    if (next === undefined) return undefined;
    given[next] = (given[next] ?? 0) + byteLength;
    return [{ candidate: rails[next]!.candidate, offset: 0, byteLength }];
  }

  #planOf({ local, rkey }: ListBlock): Plan {
    const memories = { local: local as LocalMemory, rkey: rkey as RemoteKey };
    return planFor({ operation: this.#operation, connection: this.#connection, ...memories });
  }
}
