/**
 * Listeners and connections by socket address over libucp, for one worker: connects the listeners of api/contract, which all engines share, with the handles
 * of libucp. Workers with manual progress that have such endpoints also get background progress, because libucp replies to a connecting or closing peer only
 * during progress; it sleeps until libucp has events, and does not keep the process alive.
 */

import { checkConnectOptions } from '../../api/awaited/worker.ts';
import { FEATURES } from '../../api/contract/context.ts';
import type { EndpointOptions } from '../../api/contract/endpoint.ts';
import {
  ConnectionRequest,
  checkListenerOptions,
  Listener,
  type ListenerOptions,
  printSocketAddress,
} from '../../api/contract/listener.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import type { ConnectNbxOptions } from '../../api/contract/worker.ts';
import { type Progressable, progressInBackground } from '../../api/progress/progressable.ts';
import {
  allocateScratch,
  Errno,
  NativeCallback,
  packSockaddr,
  SOCKADDR_BYTES_MAX,
  SyscallError,
  tcpConnectError,
} from '../../sys/index.ts';
import { throwLater } from '../../ucs/debug/uncaught.ts';
import type { Timer } from '../../ucs/sys/clock.ts';
import { checkStatus, closedError, statusError, UcxError } from '../../ucs/type/error.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { SocketAddress, SocketListener } from '../../uct/api/connection-manager.ts';
import {
  UCP_CONN_REQUEST_ATTR,
  UCP_CONN_REQUEST_ATTR_FIELD,
  UCP_EP_PARAM_FIELD,
  UCP_EP_PARAMS_FLAGS,
  UCP_FEATURE,
  UCP_LISTENER_ATTR,
  UCP_LISTENER_ATTR_FIELD,
  UCP_LISTENER_PARAM_FIELD,
  UCP_LISTENER_PARAMS,
} from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import { featureBits } from '../c/library.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { UcpRequest } from '../request/request.ts';
import { createEndpoint, UNKNOWN_PEER } from './create.ts';
import type { EndpointParts } from './message-endpoint.ts';
import { isMarked } from './unproven-peers.ts';

/** Reported by libucp for a client that sent no id. */
const NO_CLIENT_ID = 0n;

/** Address and argument of the libucp callback for connection requests of a listener. */
interface ClientCallback {
  readonly callback: number;
  readonly index: number;
}

class UcpListener implements SocketListener {
  readonly handle: number;
  readonly address: SocketAddress;
  /** Handles of clients that await an accept decision. */
  readonly waiting: Set<number> = new Set();
  readonly #core: WorkerCore;
  readonly #onClose: () => void;
  #closed = false;

  /** @param clients callback for connection requests, and its argument, the number of this listener */
  constructor(core: WorkerCore, address: SocketAddress, clients: ClientCallback, onClose: () => void) {
    this.#core = core;
    this.#onClose = onClose;
    this.handle = listen(core, address, clients);
    this.address = { address: address.address, port: portOf(core, this.handle) };
  }

  reject(request: number): void {
    if (!this.waiting.delete(request)) return;
    this.#core.functions.ucp_listener_reject(this.handle, request);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const request of this.waiting) this.reject(request);
    this.#core.functions.ucp_listener_destroy(this.handle);
    this.#onClose();
  }
}

/** The members of a worker that listeners and connection attempts use. */
interface SocketsWorker extends Progressable {
  /** Whether only the program makes progress. */
  readonly isManual: boolean;
  readonly closed: boolean;
}

export class SocketEndpoints {
  readonly #parts: EndpointParts;
  readonly #core: WorkerCore;
  readonly #worker: SocketsWorker;
  /** Called when {@link isDue} becomes true outside of progress. */
  readonly #onDue: () => void;
  readonly #callback: NativeCallback;
  readonly #listeners: Map<number, { readonly shown: Listener; readonly socket: UcpListener }> = new Map();
  /** Connection requests that libucp reported during its progress: listener number and handle. */
  readonly #connectionRequests: [listener: number, request: number][] = [];
  /** Pending connection attempts, with their endpoints. */
  readonly #attempts: Map<UcpRequest, EngineEndpoint> = new Map();
  /** Functions to call for attempts whose time limit has passed. */
  readonly #expired: (() => void)[] = [];
  readonly #backgroundProgress: BackgroundProgress;
  #nextIndex = 1;
  #closed = false;

  constructor(parts: EndpointParts, worker: SocketsWorker, onDue: () => void) {
    this.#parts = parts;
    this.#core = parts.core;
    this.#worker = worker;
    this.#onDue = onDue;
    this.#backgroundProgress = new BackgroundProgress(worker);
    this.#callback = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'uint64_t'],
      call: (request: number, index: number) => {
        this.#connectionRequests.push([index, request]);
      },
    });
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#connectionRequests.length > 0 || this.#expired.length > 0;
  }

  /** Passes new clients to their listeners, and ends attempts that have timed out. */
  progress(): number {
    let count = 0;
    for (let asked = this.#connectionRequests.shift(); asked !== undefined; asked = this.#connectionRequests.shift()) {
      this.#onRequest(...asked);
      count += 1;
    }
    for (let end = this.#expired.shift(); end !== undefined; end = this.#expired.shift()) {
      end();
      count += 1;
    }
    return count;
  }

  /** See Worker.listener. */
  listen(options: ListenerOptions): Listener {
    const checked = checkListenerOptions(options);
    if (this.#closed) throw closedError('worker');
    const index = this.#nextIndex++;
    let socket: UcpListener | undefined;
    const shown = new Listener(
      checked,
      this.#core.driver,
      () => {
        const clients = { callback: this.#callback.address, index };
        socket = new UcpListener(this.#core, checked, clients, () => this.#listeners.delete(index));
        return socket;
      },
      () => {},
    );
    this.#listeners.set(index, { shown, socket: socket! });
    return shown;
  }

  /** See Worker.connectNbx. */
  connect(options: ConnectNbxOptions, params: RequestParams | undefined): Status | Request {
    checkConnectOptions(options);
    if (this.#closed) throw closedError('worker');
    const { context, requests } = this.#core;
    const { answerTimeoutNs } = context;
    const request = requests.beginComposite('connect');
    if (request === undefined) return Status.NO_RESOURCE;
    let endpoint: EngineEndpoint;
    try {
      endpoint = this.#create(options);
    } catch (error) {
      requests.discard(request);
      throw error;
    }
    this.#attempts.set(request, endpoint);
    this.#keepProgressing(endpoint);
    const limit = this.#limit(() => {
      // The request may be in use for another attempt by now.
      if (this.#attempts.get(request) === endpoint) request.error = unanswered(options, answerTimeoutNs);
      end(Status.TIMED_OUT);
    });
    const end = (status: Status): void => {
      limit?.cancel();
      this.#settle(request, endpoint, options, status);
    };
    endpoint.onceFailed = end;
    request.abandon = () => {
      end(Status.CANCELED);
      return true;
    };
    // The flush completes when the server has accepted and the lanes are connected.
    const flush = endpoint.flushUcp({ noImmediateCompletion: true });
    if (typeof flush === 'number') {
      limit?.cancel();
      // A later failure must not find the request, which another operation may use by then.
      this.#attempts.delete(request);
      endpoint.onceFailed = undefined;
      void endpoint.close({ force: true });
      requests.discard(request);
      return flush;
    }
    flush.callback = (ended, status) => {
      ended.free();
      end(status);
    };
    return requests.adopt(request, params);
  }

  /** Closes listeners and cancels attempts. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#backgroundProgress.close();
    this.progress();
    for (const { shown } of [...this.#listeners.values()]) void shown.close();
    for (const request of [...this.#attempts.keys()]) request.cancel();
  }

  /** Call this when libucp can no longer call the callbacks. */
  free(): void {
    this.#callback.close();
  }

  /** Starts the time limit of a connection attempt: libucp may wait without a limit (1.21, 1.22). */
  #limit(onExpired: () => void): Timer | undefined {
    const { clock, answerTimeoutNs } = this.#core.context;
    if (answerTimeoutNs === Number.POSITIVE_INFINITY) return undefined;
    return clock.setTimer(answerTimeoutNs, () => {
      this.#expired.push(onExpired);
      this.#onDue();
    });
  }

  #create(options: ConnectNbxOptions): EngineEndpoint {
    using address = allocateScratch(SOCKADDR_BYTES_MAX);
    const length = packSockaddr(options, address);
    return createEndpoint(this.#parts, UNKNOWN_PEER, options, (params) => {
      const { clientId, sendsCloseMessages } = this.#core;
      const isSent = options.sendClientId === true || (sendsCloseMessages && isMarked(clientId));
      const sendsId = isSent ? UCP_EP_PARAMS_FLAGS.SEND_CLIENT_ID : 0;
      params.setU32('flags', UCP_EP_PARAMS_FLAGS.CLIENT_SERVER | sendsId);
      params.setU64('sockaddr.addr', address.address).setU32('sockaddr.addrlen', length);
      return UCP_EP_PARAM_FIELD.SOCK_ADDR | UCP_EP_PARAM_FIELD.FLAGS;
    });
  }

  /** Starts background progress: both ends connect and close by messages that libucp handles during progress. */
  #keepProgressing(endpoint: EngineEndpoint): void {
    if (this.#worker.isManual) this.#backgroundProgress.keepProgressing(endpoint);
    endpoint.onceDropped = () => this.#dropLanes();
  }

  /**
   * Makes progress for a limited time: during progress, libucp closes the lanes of an endpoint that was closed by force, and the peer notices it then.
   * Nothing waits for the result, because hanging operations on other endpoints may delay it.
   */
  #dropLanes(): void {
    const { teardown } = this.#core;
    if (teardown.hasBegun) return;
    const flush = this.#core.flushUcp({ noImmediateCompletion: true });
    if (typeof flush === 'number') return;
    const isOver = teardown.freeEventually(flush);
    teardown.waitFor(() => isOver() || this.#worker.closed).catch(throwLater);
  }

  /** Ends an attempt with its first result; later results are ignored. */
  #settle(request: UcpRequest, endpoint: EngineEndpoint, options: ConnectNbxOptions, status: Status): void {
    // The request may be in use for another attempt by now.
    if (this.#attempts.get(request) !== endpoint) return;
    this.#attempts.delete(request);
    endpoint.onceFailed = undefined;
    const failure = endpoint.status === Status.OK ? status : endpoint.status;
    if (failure === Status.OK) {
      try {
        options.onConnected(endpoint);
      } finally {
        request.end(Status.OK);
      }
      return;
    }
    void endpoint.close({ force: true });
    if (failure === Status.UNREACHABLE) request.error = unreachable(options, this.#core.context.features);
    if (failure === Status.NOT_CONNECTED) request.error = tcpConnectError(Errno.ECONNREFUSED, options);
    // Same status as with the native engine.
    request.end(failure === Status.NOT_CONNECTED ? Status.UNREACHABLE : failure);
  }

  #onRequest(index: number, request: number): void {
    const listener = this.#listeners.get(index);
    // The listener was closed during the callback of libucp: its clients were rejected.
    if (listener === undefined) return;
    const { shown, socket } = listener;
    const { clientAddress, clientId } = queryClient(this.#core, request);
    socket.waiting.add(request);
    const client = {
      clientAddress,
      serverAddress: socket.address,
      get live(): boolean {
        return socket.waiting.has(request);
      },
      reject: () => socket.reject(request),
    };
    const accept = (options: EndpointOptions): EngineEndpoint => {
      const endpoint = this.#accept(socket, request, options);
      if (clientId !== undefined && isMarked(clientId)) endpoint.greet();
      return endpoint;
    };
    shown.requested(new ConnectionRequest(shown, client, clientId, accept));
  }

  #accept(socket: UcpListener, request: number, options: EndpointOptions): EngineEndpoint {
    if (this.#closed) throw closedError('worker');
    if (!socket.waiting.delete(request))
      throw statusError(Status.NOT_CONNECTED, 'cannot accept this client: it was accepted or rejected before');
    const endpoint = createEndpoint(this.#parts, UNKNOWN_PEER, options, (params) => {
      params.setU64('conn_request', request);
      return UCP_EP_PARAM_FIELD.CONN_REQUEST;
    });
    this.#keepProgressing(endpoint);
    return endpoint;
  }
}

function unanswered(listener: SocketAddress, answerTimeoutNs: number): UcxError {
  const limit = `${answerTimeoutNs / 1e9} s, see UCX_TCP_CM_ANSWER_TIMEOUT`;
  return connectFailure(Status.TIMED_OUT, `no reply from ${printSocketAddress(listener)} within ${limit}`);
}

/** The listener replied; if nothing listened, the status would be another one. */
function unreachable(listener: SocketAddress, features: number): UcxError {
  const own = FEATURES.filter((feature) => (featureBits([feature]) & features & ~UCP_FEATURE.WAKEUP) !== 0).join(', ');
  const remedy = `if their features differ, use the same option features as the listener (this context has ${own})`;
  return connectFailure(
    Status.UNREACHABLE,
    `this context and the listener ${printSocketAddress(listener)} have no lanes in common; ${remedy}`,
  );
}

/** The reason of a failed attempt, for the error of its request. */
function connectFailure(status: Status, message: string): UcxError {
  return new UcxError({ code: `ERR_${statusName(status)}`, status, message });
}

function listen(worker: WorkerCore, address: SocketAddress, { callback, index }: ClientCallback): number {
  using sockaddr = allocateScratch(SOCKADDR_BYTES_MAX);
  using params = new Fields(UCP_LISTENER_PARAMS);
  using out = new OutValue();
  const length = packSockaddr(address, sockaddr);
  params.setU64('field_mask', UCP_LISTENER_PARAM_FIELD.SOCK_ADDR | UCP_LISTENER_PARAM_FIELD.CONN_HANDLER);
  params.setU64('sockaddr.addr', sockaddr.address).setU32('sockaddr.addrlen', length);
  params.setU64('conn_handler.cb', callback).setU64('conn_handler.arg', index);
  const status = worker.functions.ucp_listener_create(worker.handle, params.address, out.address);
  // libucp maps only EADDRINUSE to BUSY.
  if (status === Status.BUSY) throw new SyscallError('bind', Errno.EADDRINUSE, printSocketAddress(address));
  checkStatus(status, `listen at ${printSocketAddress(address)}`);
  return out.value;
}

function portOf({ functions }: WorkerCore, listener: number): number {
  using attributes = new Fields(UCP_LISTENER_ATTR);
  attributes.setU64('field_mask', UCP_LISTENER_ATTR_FIELD.SOCKADDR);
  checkStatus(functions.ucp_listener_query(listener, attributes.address), 'ucp_listener_query');
  return attributes.inetAddress('sockaddr')?.port ?? 0;
}

function queryClient(
  { functions }: WorkerCore,
  request: number,
): { readonly clientAddress: SocketAddress; readonly clientId: bigint | undefined } {
  using attributes = new Fields(UCP_CONN_REQUEST_ATTR);
  const { CLIENT_ADDR, CLIENT_ID } = UCP_CONN_REQUEST_ATTR_FIELD;
  attributes.setU64('field_mask', CLIENT_ADDR | CLIENT_ID);
  const status = functions.ucp_conn_request_query(request, attributes.address);
  const clientAddress = attributes.inetAddress('client_address') ?? { address: '', port: 0 };
  const clientId = attributes.u64('client_id');
  return { clientAddress, clientId: status < 0 || clientId === NO_CLIENT_ID ? undefined : clientId };
}

/** Maximum number of progress calls before the event loop runs. */
const CALLS_MAX = 64;

class BackgroundProgress {
  readonly #worker: Progressable;
  readonly #endpoints: Set<{ readonly closed: boolean }> = new Set();
  /** Identifies the current sleep: the end of an older one has no effect. */
  #ticket: object | undefined;

  constructor(worker: Progressable) {
    this.#worker = worker;
  }

  /** Makes progress until the endpoint is closed: closing makes progress by other means. */
  keepProgressing(endpoint: { readonly closed: boolean }): void {
    this.#endpoints.add(endpoint);
    if (this.#ticket === undefined) this.#sleep();
  }

  close(): void {
    this.#endpoints.clear();
  }

  #sleep(): void {
    const ticket = {};
    this.#ticket = ticket;
    this.#worker.sleepOn(() => {
      if (this.#ticket === ticket) this.#progress();
    });
  }

  #progress(): void {
    this.#ticket = undefined;
    for (const endpoint of this.#endpoints) if (endpoint.closed) this.#endpoints.delete(endpoint);
    if (this.#endpoints.size === 0) return;
    for (let calls = 0; calls < CALLS_MAX && progressInBackground(this.#worker) > 0; calls++);
    if (this.#ticket === undefined) this.#sleep();
  }
}
