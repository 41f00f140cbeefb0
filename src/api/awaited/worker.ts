/**
 * The implementation of a worker that all engines share: awaited operations on top of the nbx operations, events, and closing. Also connecting to listeners:
 * checks the options, and tries the addresses of a host in turn.
 */

import { isIP } from 'node:net';
import type { Clock } from '../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { closedError, invalidParam, isUcxError, statusError, UcxError } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { Status } from '../../ucs/type/status.ts';
import type { SocketAddress } from '../../uct/api/connection-manager.ts';
import type { Endpoint } from '../contract/endpoint.ts';
import { checkErrorHandling } from '../contract/error-handling.ts';
import { addressesOf, checkSignal, checkSocketAddress, printSocketAddress } from '../contract/listener.ts';
import type { LocalBuffer, MessageBuffer } from '../contract/memory.ts';
import { checkParams, type Request, type RequestParams, type Tag, TagInfo } from '../contract/request.ts';
import type {
  ConnectNbxOptions,
  ConnectOptions,
  LoopOptions,
  Notification,
  NotificationHandler,
  TagRecvOptions,
  TagRecvResult,
  WorkerOptions,
} from '../contract/worker.ts';
import type { GivenMemory } from '../memory/local.ts';
import { ProgressDriver } from '../progress/progress-driver.ts';
import { type SignalFd, WorkerEvent } from '../progress/worker-event.ts';
import { rangeOf, tagOf } from './endpoint.ts';
import { checkLoopOptions } from './loop-end.ts';
import type { MessageOwner, Notifications, ReceivedMessage } from './messages.ts';
import { PromiseTier, signalOf } from './promises.ts';

const CLIENT_ID_MAX = 0xffff_ffff_ffff_ffffn;
/** Keeps the number of calls a small integer of V8. */
const PROGRESS_CALLS_MASK = 0x3fff_ffff;

/** Services that a worker receives from its context. */
export interface WorkerServices {
  readonly clock: Clock;
  /** See UCX_PROGRESS_SPIN. */
  readonly progressSpinNs: number;
  /** See UCX_REQUESTS_MAX. */
  readonly requestsMax: number;
}

/** The awaited tier and the events of one worker. */
export abstract class AwaitedWorker<S extends object = object, W extends object = object>
  implements MessageOwner<S, W>
{
  readonly clientId: bigint;
  /** Awaited operations of this worker. */
  readonly promises: PromiseTier;
  /** Whether only the program makes progress. */
  readonly isManual: boolean;
  /** Number of calls of progress, which wraps. */
  progressCalls = 0;
  protected readonly driver: ProgressDriver;
  protected readonly event: WorkerEvent;
  /** Set by {@link shutDown} when operations can no longer be started. */
  protected isClosed = false;
  /** Whether automatic progress has begun, or is disabled. */
  #isAttended: boolean;
  #closing: Promise<void> | undefined = undefined;
  #isInProgress = false;

  /** @throws UcxError ERR_INVALID_PARAM */
  constructor(options: WorkerOptions, { clock, progressSpinNs }: WorkerServices, newSignal: () => SignalFd) {
    checkOptions(options, 'options', ['clientId', 'progress']);
    this.clientId = clientIdOf(options);
    this.isManual = isManual(options);
    this.#isAttended = this.isManual;
    this.driver = new ProgressDriver(this, clock, progressSpinNs);
    this.promises = new PromiseTier(this.driver, (status, request) => this.causeOf(status, request));
    this.event = new WorkerEvent(this, clock, newSignal);
  }

  abstract address(): Uint8Array;
  abstract causeOf(status: Status, request?: Request): unknown;
  abstract sleepOn(wake: () => void): void;
  abstract connectNbx(options: ConnectNbxOptions, params?: RequestParams): Status | Request;
  abstract flushNbx(params?: RequestParams): Status | Request;
  abstract tagRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    mask?: Tag,
    params?: RequestParams,
  ): Status | Request;
  abstract endpointTo(sender: S): Endpoint;
  abstract releaseData(message: ReceivedMessage<S, W>): void;
  abstract receiveData(
    message: ReceivedMessage<S, W>,
    given: GivenMemory,
    params: RequestParams | undefined,
  ): Status | Request;
  /** Drives all outstanding operations; returns like {@link progress}. */
  protected abstract advance(): number;
  /** Notifications that have arrived. */
  protected abstract readonly arrivedNotifications: Notifications;
  /** Closes the worker; called once. */
  protected abstract shutDown(): Promise<void>;

  /** Whether a value is a worker, and not merely an object with its prototype. */
  static isGenuine(value: unknown): value is AwaitedWorker {
    return typeof value === 'object' && value !== null && #closing in value;
  }

  get closed(): boolean {
    return this.isClosed;
  }

  get isInProgress(): boolean {
    return this.#isInProgress;
  }

  progress(): number {
    // A transport is delivering the message or completion of this callback.
    if (this.#isInProgress) throw nestedProgress();
    this.#isInProgress = true;
    this.progressCalls = (this.progressCalls + 1) & PROGRESS_CALLS_MASK;
    let count: number;
    try {
      count = this.advance();
    } finally {
      this.#isInProgress = false;
    }
    this.driver.throwKept();
    return count;
  }

  /** Starts automatic progress, unless the program makes progress: peers, or operations of this worker, may need it. */
  attend(): void {
    if (this.#isAttended) return;
    this.#isAttended = true;
    this.driver.automatic.begin();
  }

  /** See ProgressDriver.onThrown. */
  onThrown(error: unknown): void {
    this.driver.onThrown(error);
  }

  wait(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.checkOpen();
    return this.event.wait(signalOf(options));
  }

  arm(): Status {
    this.checkOpen();
    return this.event.arm();
  }

  get eventFd(): number {
    this.checkOpen();
    return this.event.fd;
  }

  signal(): void {
    this.event.signal();
    this.driver.wake();
  }

  async serve(signal: AbortSignal): Promise<void> {
    this.checkOpen();
    checkSignal(signal);
    if (signal.aborted) return;
    await this.driver.serve(signal);
  }

  async connect(options: ConnectOptions): Promise<Endpoint> {
    this.checkOpen();
    return await connectToFirst(options, (address) => this.#connectTo({ ...options, ...address }, options.signal));
  }

  notifications(options: LoopOptions = {}): AsyncGenerator<Notification, void, void> {
    this.checkOpen();
    this.attend();
    return this.arrivedNotifications.loop(checkLoopOptions(options));
  }

  setNotificationHandler(handler: NotificationHandler | undefined): void {
    this.checkOpen();
    this.attend();
    this.arrivedNotifications.setHandler(handler);
  }

  async tagRecv(local: MessageBuffer, options: TagRecvOptions = {}): Promise<TagRecvResult> {
    checkOptions(options, 'options', ['tag', 'mask', 'signal']);
    const [memory, offset, byteLength] = rangeOf(local);
    const { receivedBytes, senderTag } = await this.promises.runTracked('tag receive', options.signal, (params) =>
      this.tagRecvNbx(memory, offset, byteLength, tagOf(options), options.mask, params),
    );
    return new TagInfo(senderTag, receivedBytes);
  }

  /** Receives the data of an active message; see ReceivedMessage. */
  async awaitData(
    message: ReceivedMessage<S, W>,
    local: MessageBuffer,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    const [memory, offset, byteLength] = rangeOf(local);
    const what = 'receive of an active message';
    const { receivedBytes } = await this.promises.runTracked(what, signal, (params) =>
      this.receiveData(message, { local: memory, localOffset: offset, byteLength }, params),
    );
    return receivedBytes;
  }

  async flush(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    checkOptions(options, 'options', ['signal']);
    await this.promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  close(): Promise<void> {
    // Closing makes progress itself.
    this.driver.automatic.close();
    this.#closing ??= this.shutDown();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @throws UcxError ERR_CLOSED */
  checkOpen(): void {
    if (this.isClosed) throw closedError('worker');
  }

  /** Checks the parameters of nbx operations. @throws UcxError ERR_CLOSED, ERR_INVALID_PARAM */
  protected check(params: RequestParams | undefined): void {
    this.checkOpen();
    checkParams(params);
  }

  async #connectTo(options: ConnectOptions & SocketAddress, signal: AbortSignal | undefined): Promise<Endpoint> {
    const endpoints: Endpoint[] = [];
    const onConnected = (endpoint: Endpoint): void => {
      endpoints.push(endpoint);
    };
    const what = `connect to ${printSocketAddress(options)}`;
    // A connection established despite an abort is kept until it is closed.
    await this.promises.runTracked(what, signal, (params) => this.connectNbx({ ...options, onConnected }, params));
    return endpoints[0]!;
  }
}

showAs(AwaitedWorker, 'Worker', (worker) => ({
  clientId: worker.clientId === 0n ? undefined : `0x${worker.clientId.toString(16)}`,
  address: worker.closed ? undefined : `${worker.address().byteLength} bytes`,
  state: worker.closed ? 'closed' : 'open',
}));

function nestedProgress(): UcxError {
  const message = 'worker.progress() must not be called in a callback of the same worker';
  return new UcxError({ code: 'ERR_BUSY', status: Status.BUSY, message });
}

/** @throws UcxError ERR_INVALID_PARAM */
function isManual({ progress = 'auto' }: WorkerOptions): boolean {
  if (progress !== 'auto' && progress !== 'manual') {
    throw invalidParam('progress', "must be 'auto' or 'manual'", progress);
  }
  return progress === 'manual';
}

/**
 * The client id of a worker with these options.
 * @throws UcxError ERR_INVALID_PARAM
 */
function clientIdOf(options: WorkerOptions): bigint {
  const { clientId } = options;
  if (clientId === undefined) return new DataView(systemRandomBytes(8).buffer).getBigUint64(0, true);
  const isNumber = typeof clientId === 'number' && Number.isSafeInteger(clientId) && clientId >= 0;
  const isBigint = typeof clientId === 'bigint' && clientId >= 0n && clientId <= CLIENT_ID_MAX;
  if (!isNumber && !isBigint) throw invalidParam('clientId', 'must be an integer from 0 to 2^64 - 1', clientId);
  return BigInt(clientId);
}

/** Failures after which the next address of the same host is tried. */
const TRY_NEXT: readonly Status[] = [Status.UNREACHABLE, Status.TIMED_OUT, Status.CONNECTION_RESET];

/** Names of the options besides those of endpoints; the engines pass the options of connect to connectNbx. */
const CONNECT_OPTIONS = ['address', 'host', 'port', 'sendClientId', 'signal'];

/**
 * Checks options.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkConnectOptions(options: ConnectNbxOptions): void {
  checkErrorHandling(options, [...CONNECT_OPTIONS, 'onConnected']);
  checkSocketAddress(options, 1);
  const { sendClientId = false, onConnected } = options;
  if (typeof sendClientId !== 'boolean') throw invalidParam('sendClientId', 'must be a boolean', sendClientId);
  if (typeof onConnected !== 'function') throw invalidParam('onConnected', 'must be a function', onConnected);
}

/**
 * Connects to the first address that responds.
 * @param connect connects to one address
 * @throws UcxError ERR_INVALID_PARAM, ERR_UNREACHABLE; the error of `connect` for the last address, or an error that does not depend on the address
 */
async function connectToFirst(
  options: ConnectOptions,
  connect: (address: SocketAddress) => Promise<Endpoint>,
): Promise<Endpoint> {
  if (typeof options === 'string')
    throw invalidParam('options', 'must be { host, port } or { address, port }', options);
  checkErrorHandling(options, CONNECT_OPTIONS);
  const { address, host, port, signal } = options;
  if (address === undefined && host === undefined) {
    throw invalidParam('address', 'must be set, unless host is', address);
  }
  if (address !== undefined && host !== undefined) {
    throw invalidParam('host', 'must not be combined with address, which is its numeric form', host);
  }
  if (signal !== undefined) checkSignal(signal);
  if (typeof address === 'string' && isIP(address) === 0) {
    throw invalidParam('address', 'must be a numeric IPv4 or IPv6 address (use option host for a name)', address);
  }
  if (address !== undefined) checkSocketAddress({ address, port }, 1);
  const addresses = address === undefined ? await addressesOf(host!, signal) : [address];
  for (const [index, candidate] of addresses.entries()) {
    checkSocketAddress({ address: candidate, port }, 1);
    try {
      return await connect({ address: candidate, port });
    } catch (error) {
      const isLast = index === addresses.length - 1;
      if (isLast || !isUcxError(error) || !TRY_NEXT.includes(error.status)) throw error;
    }
  }
  throw statusError(Status.UNREACHABLE, `connect to ${host}: it has no address`);
}
