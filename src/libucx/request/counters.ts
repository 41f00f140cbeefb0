/**
 * Counters and events of the operations of a worker over libucp. Native interfaces count the transfers that they move. libucp does not report its
 * protocols, so protocols have no counters.
 */

import { nextWorkerNumber, type OperationEnd, operationEnd } from '../../ucs/debug/diagnostics.ts';
import { type Log, LogLevel } from '../../ucs/debug/log.ts';
import { type Counters, namedCounters } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Status, statusName } from '../../ucs/type/status.ts';

/** Counter names by index; same as those of the native engine where it has the counter. */
const NAMES = [
  'put',
  'get',
  'atomic',
  'flush',
  'tag_tx',
  'tag_rx',
  'am_tx',
  'am_rx_data',
  'stream_tx',
  'stream_rx',
  'bytes_tx',
  'bytes_rx',
  'failures',
  'canceled',
  'am_rx',
  'requests',
] as const;
const BYTES_TX = NAMES.indexOf('bytes_tx');
const BYTES_RX = NAMES.indexOf('bytes_rx');
const FAILURES = NAMES.indexOf('failures');
const CANCELED = NAMES.indexOf('canceled');
const AM_RX = NAMES.indexOf('am_rx');
const REQUESTS = NAMES.indexOf('requests');
const NONE = -1;

/** Indices of the counters of an operation. */
type Pair = readonly [send: number, receive: number];

const PUT: Pair = [NAMES.indexOf('put'), NONE];
const GET: Pair = [NONE, NAMES.indexOf('get')];
const ATOMIC: Pair = [NAMES.indexOf('atomic'), NONE];
const FLUSH: Pair = [NAMES.indexOf('flush'), NONE];
const TAG: Pair = [NAMES.indexOf('tag_tx'), NAMES.indexOf('tag_rx')];
const AM: Pair = [NAMES.indexOf('am_tx'), NAMES.indexOf('am_rx_data')];
const STREAM: Pair = [NAMES.indexOf('stream_tx'), NAMES.indexOf('stream_rx')];

/** By the first component of a protocol name. */
const BY_OPERATION: Readonly<Record<string, Pair>> = {
  put: PUT,
  get: GET,
  amo: ATOMIC,
  flush: FLUSH,
  tag: TAG,
  am: AM,
  stream: STREAM,
};

/** Protocol of the request that closes an endpoint. Not counted as an operation. */
const CLOSE = 'close';

/** The counters of a protocol. The most frequent names are compared directly, which costs less than a look-up and creates no garbage. */
function countersOf(protocol: string): Pair | undefined {
  switch (protocol) {
    case 'tag/libucp':
      return TAG;
    case 'put/libucp':
      return PUT;
    case 'get/libucp':
      return GET;
    case 'am/libucp':
      return AM;
    case 'stream/libucp':
      return STREAM;
    case 'amo/libucp':
      return ATOMIC;
    case 'flush':
      return FLUSH;
    default:
      return BY_OPERATION[protocol.split('/', 1)[0]!];
  }
}

export interface EndedOperation {
  readonly protocol: string;
  readonly transport: string | undefined;
  readonly device: string | undefined;
  readonly isReceive: boolean;
  /** Transfers by libucp. Native interfaces count their own transfers and bytes. */
  readonly transfers: number;
  readonly nativeBytes: number;
  readonly movedBytes: number;
  /** -1 if the start was not observed. */
  readonly startNs: number;
}

export class OperationCounters {
  readonly #values: Float64Array = new Float64Array(NAMES.length);
  readonly #clock: Clock;
  readonly #worker: number = nextWorkerNumber();
  /** Log for a line per operation (UCX_LOG_LEVEL=data); undefined when disabled. */
  readonly #trace: Log | undefined;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#trace = log.level < LogLevel.DATA ? undefined : log;
  }

  /** Start time of an operation for its event; -1 without subscribers. */
  startNs(): number {
    return operationEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** Counts an operation that has ended, and publishes its event. */
  ended(operation: EndedOperation, status: number): void {
    const { protocol, isReceive, movedBytes, startNs } = operation;
    if (protocol === CLOSE) return;
    const { transfers, nativeBytes: nodeBytes } = operation;
    if (status < 0 || (transfers === 1 && nodeBytes === 0)) this.count(protocol, isReceive, movedBytes, status);
    else this.#countTransfers(operation);
    if (startNs < 0) return;
    const { transport, device } = operation;
    operationEnd.publish({
      protocol,
      transport,
      device,
      byteLength: movedBytes,
      status,
      startNs,
      endNs: this.#clock.nowNs(),
      worker: this.#worker,
    } satisfies OperationEnd);
  }

  /** Counts an operation that has ended. */
  count(protocol: string, isReceive: boolean, byteLength: number, status: number): void {
    const counters = countersOf(protocol);
    if (counters === undefined) return;
    this.#traceEnd(protocol, isReceive, byteLength, status);
    if (status === Status.CANCELED) this.#values[CANCELED]! += 1;
    if (status < 0) this.#values[FAILURES]! += 1;
    else this.#add(counters, isReceive, byteLength, 1);
  }

  /** Counts a list, or an operation of the native transports. */
  #countTransfers({ protocol, isReceive, movedBytes, transfers, nativeBytes: nodeBytes }: EndedOperation): void {
    const counters = countersOf(protocol);
    if (counters === undefined) return;
    this.#traceEnd(protocol, isReceive, movedBytes, Status.OK);
    if (transfers > 0) this.#add(counters, isReceive, movedBytes - nodeBytes, transfers);
  }

  #add(counters: Pair, isReceive: boolean, byteLength: number, transfers: number): void {
    const values = this.#values;
    const counter = isReceive ? counters[1] : counters[0];
    values[counter === NONE ? counters[isReceive ? 0 : 1] : counter]! += transfers;
    values[isReceive || counters[0] === NONE ? BYTES_RX : BYTES_TX]! += byteLength;
  }

  #traceEnd(protocol: string, isReceive: boolean, byteLength: number, status: number): void {
    this.#trace?.data(`${isReceive ? 'RX' : 'TX'}: ${protocol} [length ${byteLength}] ${statusName(status)}`);
  }

  countMessage(): void {
    this.#trace?.data('RX: am/libucp');
    this.#values[AM_RX]! += 1;
  }

  /** Counts a pending or requested operation. */
  countRequest(): void {
    this.#values[REQUESTS]! += 1;
  }

  get values(): Counters {
    return namedCounters(NAMES, this.#values);
  }
}
