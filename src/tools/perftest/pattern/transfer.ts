/** Transfer of one flow: lists of blocks, started repeatedly; each transfer is timed from its start until all bytes have arrived. */

import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { MemoryHandle, RemoteKey } from '../../../api/contract/memory.ts';
import type { ListParams, PreparedList, Request } from '../../../api/contract/request.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type Shape, transferBytes } from './pattern-spec.ts';

/** Number of latest samples for the percentiles. */
export const SAMPLES_MAX = 4096;

/** Latencies of the transfers of one rank. */
export class Latencies {
  readonly #samples: Float64Array = new Float64Array(SAMPLES_MAX);
  #count = 0;

  add(ns: number): void {
    this.#samples[this.#count % SAMPLES_MAX] = ns;
    this.#count += 1;
  }

  /** Clears all latencies. */
  reset(): void {
    this.#count = 0;
  }

  get samples(): Float64Array {
    return this.#samples.subarray(0, Math.min(this.#count, SAMPLES_MAX));
  }
}

/** Memory at both ends of a transfer: the mapped memory of this rank, and the key of the peer's memory. */
export interface TransferEnds {
  readonly operation: 'put' | 'get';
  readonly endpoint: Endpoint;
  readonly local: MemoryHandle;
  readonly rkey: RemoteKey;
  /** Offset of this flow in the memory of the receiver, which has one range for each sender. */
  readonly recvOffset: number;
}

/** The transfer. */
export class Transfer {
  /** Bytes of the completed transfers since {@link reset}. */
  bytes = 0;
  error: Error | undefined;
  /** Transport and device of the last list that reported them. */
  carrier = '';
  readonly #ends: TransferEnds;
  readonly #lists: readonly PreparedList[];
  readonly #params: ListParams;
  readonly #clock: Clock;
  readonly #latencies: Latencies;
  /** Lists of the current transfer that are not started, and that have not ended. */
  #unstarted = 0;
  #unfinished = 0;
  #beginNs = 0;

  constructor(ends: TransferEnds, shape: Shape, clock: Clock, latencies: Latencies) {
    this.#ends = ends;
    this.#clock = clock;
    this.#latencies = latencies;
    this.#lists = listsOf(ends, shape);
    this.#params = {
      ...(ends.operation === 'put' && { flush: true }),
      noImmediateCompletion: true,
      callback: (request, status) => this.#onEnd(request, status),
    };
  }

  /** True while a transfer runs. */
  get isRunning(): boolean {
    return this.#unfinished > 0;
  }

  reset(): void {
    this.bytes = 0;
  }

  /** Starts a transfer; call {@link advance} until it has ended. */
  start(): void {
    this.#unstarted = this.#lists.length;
    this.#unfinished = this.#lists.length;
    this.#beginNs = this.#clock.nowNs();
  }

  /** Starts as many lists as resources permit. @throws UcxError for a list that failed */
  advance(): void {
    const { operation, endpoint } = this.#ends;
    while (this.#unstarted > 0) {
      const list = this.#lists[this.#lists.length - this.#unstarted]!;
      const started =
        operation === 'put' ? endpoint.putListNbx(list, this.#params) : endpoint.getListNbx(list, this.#params);
      if (started === Status.NO_RESOURCE) return;
      this.#unstarted -= 1;
      // Each list has a request, whose callback counts it, even if it ends at once.
      if (typeof started === 'number' && started < 0) throw statusError(started, `${operation} of a list`);
    }
  }

  #onEnd(request: Request, status: Status): void {
    if (status < 0) this.error ??= statusError(status, `${this.#ends.operation} of a list`, request.error);
    if (request.transport !== undefined) this.carrier = `${request.transport}/${request.device ?? ''}`;
    request.free();
    this.#count();
  }

  #count(): void {
    this.#unfinished -= 1;
    if (this.#unfinished > 0) return;
    this.#latencies.add(this.#clock.nowNs() - this.#beginNs);
    for (const { byteLength } of this.#lists) this.bytes += byteLength;
  }
}

/** The lists of a transfer: the blocks of the receiver are in reverse order, so that no two blocks can be merged, as in a paged cache. */
function listsOf({ operation, endpoint, local, rkey, recvOffset }: TransferEnds, shape: Shape): PreparedList[] {
  const { blocks, blockBytes, batch } = shape;
  const lists: PreparedList[] = [];
  for (let first = 0; first < blocks; first += batch) {
    const entries = Array.from({ length: Math.min(batch, blocks - first) }, (_, index) => {
      const sendOffset = (first + index) * blockBytes;
      const target = recvOffset + transferBytes(shape) - sendOffset - blockBytes;
      const [offset, remoteOffset] = operation === 'put' ? [sendOffset, target] : [target, sendOffset];
      return { local, offset, rkey, remoteOffset, byteLength: blockBytes };
    });
    lists.push(endpoint.prepareList(operation, entries));
  }
  return lists;
}
