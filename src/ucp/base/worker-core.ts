/**
 * The core of a worker, below its API: interfaces, requests and their start, the arguments of the operation that begins, counters, reports, and
 * connections by id.
 */

import { hostname } from 'node:os';
import { AwaitedWorker } from '../../api/awaited/worker.ts';
import type { RequestParams } from '../../api/contract/request.ts';
import type { WorkerOptions } from '../../api/contract/worker.ts';
import { endpointOf } from '../../api/layout/frame.ts';
import { Call } from '../../api/operation/call.ts';
import { CoarseClock } from '../../api/snapshot/summary.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame, Iface } from '../../uct/api/iface.ts';
import { CreditBudget } from '../credit/credit.ts';
import { type Activity, addressOfWorker, type OpenIface, openIfaces, QuietIfaces } from '../lane/lanes.ts';
import { WORKER_ID_BYTES } from '../lane/worker-address.ts';
import type { LocalMemory, LocalPiece } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { Connection } from './connection.ts';
import type { ContextCore } from './context-core.ts';
import { Observation, WorkerCounter, WorkerCounters } from './observation.ts';
import { OwnKeys } from './own-keys.ts';
import type { Request, RequestOwner } from './request/request.ts';
import { RequestPool } from './request/request-pool.ts';

/** Maximum number of connections of one worker. */
export const CONNECTIONS_MAX = 65_535;
const SLOT_BITS = 16;
const SLOT_MASK = 0xffff;
const GENERATION_MASK = 0x7fff;

/** The arguments of one operation. */
export type UcpCall = Call<Connection, LocalMemory, RemoteKey, LocalPiece>;

/** Human-readable name of the workers of this process. */
export function workerName(): string {
  return `${hostname()}:${process.pid}`;
}

/** A worker, as seen by its protocols and connections; `W` is the data of messages that wait for the program. */
export abstract class WorkerCore<W extends object = object>
  extends AwaitedWorker<Connection, W>
  implements RequestOwner
{
  readonly context: ContextCore;
  /** Rate-limited warnings about messages of peers. */
  readonly warnings: LimitedLog;
  readonly workerId: Uint8Array = systemRandomBytes(WORKER_ID_BYTES);
  readonly openIfaces: readonly OpenIface[];
  /** The interfaces, for tools and for sleeping. */
  readonly ifaces: readonly Iface[];
  /** Longest message that any transport delivers, in bytes. */
  readonly frameBytesMax: number;
  readonly counters: WorkerCounters = new WorkerCounters();
  /** Memory for messages that arrive before they are received. */
  readonly budget: CreditBudget;
  readonly requests: RequestPool;
  /** Arguments of the operation that is being started: see Call. */
  readonly call: UcpCall = new Call();
  readonly observation: Observation;
  /** Clock for the start times of requests in snapshots. */
  readonly coarse: CoarseClock;
  readonly table: ConnectionTable = new ConnectionTable();
  readonly ownKeys: OwnKeys;
  /** Connections with requests that wait for resources: progress restarts those. */
  readonly pending: Set<Connection> = new Set();
  /** Protocol puts and gets in flight: closing the worker waits for them. */
  internalTransfers = 0;
  /** Set if an operation was started on an interface that progress otherwise does not poll. */
  readonly activity: Activity;
  protected readonly quiet: QuietIfaces;
  #address: Uint8Array | undefined;

  constructor(context: ContextCore, options: WorkerOptions) {
    super(options, context, context.newSignal);
    this.context = context;
    this.warnings = new LimitedLog(context.log, context.clock);
    this.requests = new RequestPool(this, context, context.requestsMax);
    this.observation = new Observation(context);
    this.coarse = new CoarseClock(context.clock);
    this.openIfaces = openIfaces(context.resources.mds, context.log);
    this.ifaces = this.openIfaces.map(({ iface }) => iface);
    this.frameBytesMax = Math.max(0, ...this.ifaces.map(({ attributes }) => attributes.am.bcopyBytesMax));
    this.quiet = new QuietIfaces(this.ifaces);
    this.activity = this.quiet.activity;
    this.ownKeys = new OwnKeys(context, () => this.loopback);
    this.budget = new CreditBudget(context.unexpectedBytesMax);
  }

  /** The connection of this worker to itself, which reaches all local memory. */
  abstract readonly loopback: Connection;

  /** Called when a peer violates the protocol: its connection ends with EXCEEDS_LIMIT. */
  abstract breaksProtocol(connection: Connection, what: string): void;

  abstract cancelRequest(request: Request): boolean;

  get shownId(): string {
    return Buffer.from(this.workerId).toString('hex');
  }

  get requestsInUse(): number {
    return this.requests.inUse;
  }

  /** Packed at first use: transports begin to listen then. */
  get packedAddress(): Uint8Array {
    const name = this.context.addsNames ? workerName() : undefined;
    this.#address ??= addressOfWorker(this, name);
    return this.#address;
  }

  /** The connection named in the first word of a message; undefined also if the message came from another peer. */
  connectionOf(frame: AmFrame): Connection | undefined {
    return this.table.of(frame);
  }

  /**
   * Starts an initialized request: returns OK or a failure if it has ended, else the request.
   * @param isBlocked true if it waits for resources at once
   */
  start(request: Request, params: RequestParams | undefined, isBlocked = false): Status | Request {
    this.counters.count(WorkerCounter.REQUESTS);
    this.observation.started(request);
    const started = this.requests.start(request, params, isBlocked);
    if (typeof started === 'number') return started;
    started.startMs = this.coarse.nowMs;
    this.event.started();
    this.attend();
    this.driver.wake();
    return started;
  }

  onObservedEnd(request: Request): void {
    this.observation.ended(request);
  }

  freeRequest(request: Request): void {
    this.requests.free(request);
    this.promises.requestFreed();
  }

  /** Ends transfers that are complete. Called by progress after a message that has started a copy, so that the peer is notified before the next copy begins. */
  endTransfers(): void {
    if (this.activity.busy) this.quiet.progress(false);
  }
}

/** The connections of one worker, by id. */
export class ConnectionTable {
  /** Indexed by the lower bits of the id; slot 0 stays empty. */
  readonly #slots: (Connection | undefined)[] = [undefined];
  readonly #freeSlots: number[] = [];
  /** Upper bits of ids, so that a late message does not reach the next connection in its slot. */
  #generation = 0;

  /** All connections, including those that only the peer has requested. */
  get all(): readonly Connection[] {
    return this.#slots.filter((connection) => connection !== undefined);
  }

  /** The connection named in the first word of a message, if the message came from its peer. */
  of(frame: AmFrame): Connection | undefined {
    const connection = this.byId(endpointOf(frame));
    return connection?.isFrom(frame.source) === true ? connection : undefined;
  }

  byId(id: number): Connection | undefined {
    const connection = this.#slots[id & SLOT_MASK];
    return connection !== undefined && connection.id === id ? connection : undefined;
  }

  /** Checks that a slot is free. @throws UcxError EXCEEDS_LIMIT */
  checkFreeSlot(): void {
    if (this.#freeSlots.length > 0 || this.#slots.length <= SLOT_MASK) return;
    throw statusError(
      Status.EXCEEDS_LIMIT,
      `connect: a worker has at most ${CONNECTIONS_MAX} connections: close endpoints, or use another worker`,
    );
  }

  /** Reserves the id of a connection that is added next. */
  takeId(): number {
    const slot = this.#freeSlots.pop() ?? this.#slots.length;
    this.#generation = (this.#generation + 1) & GENERATION_MASK;
    return (this.#generation << SLOT_BITS) | slot;
  }

  add(connection: Connection): void {
    this.#slots[connection.id & SLOT_MASK] = connection;
  }

  remove(connection: Connection): void {
    if (this.byId(connection.id) !== connection) return;
    this.#slots[connection.id & SLOT_MASK] = undefined;
    this.#freeSlots.push(connection.id & SLOT_MASK);
  }
}
