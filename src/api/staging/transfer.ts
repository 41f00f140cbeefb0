/**
 * The transfer machine: moves a range slice by slice, several at the same time, and ends with the first failure. A range is the bytes of a message, or the
 * blocks of a list. Its route names the verbs of the port that each slice goes through; the port does the work.
 *
 * | State    | advance                                | block   | a slice ends                   | a slice fails | stop     |
 * |----------|----------------------------------------|---------|--------------------------------|---------------|----------|
 * | RUNNING  | begins slices up to the depth          | BLOCKED | advance; after the last: ENDED | STOPPING      | STOPPING |
 * | BLOCKED  | nothing                                | -       | RUNNING, as above              | STOPPING      | STOPPING |
 * | STOPPING | nothing in flight: ENDED               | -       | advance                        | advance       | advance  |
 * | ENDED    | nothing                                | -       | -                              | -             | nothing  |
 *
 * A slice waits for its fragment, is filled, drained, and gives the fragment back. After a stop, late fragments are returned at once, and a slice
 * that a verb works on ends with that verb.
 */

import { Status } from '../../ucs/type/status.ts';
import type { CopyDone } from './device-copier.ts';
import type { Fragments } from './fragment-pool.ts';

/** Operations of a port on a slice. */
export const Verb = {
  /** Writes it to memory of the peer. */
  PUT: 'put',
  /** Reads it from memory of the peer. */
  GET: 'get',
  /** Sends it in messages, or requests it from the peer; ends when it has arrived. */
  SEND: 'send',
  /** Copies it between device memory and its fragment. */
  COPY: 'copy',
} as const;
export type Verb = (typeof Verb)[keyof typeof Verb];

/** A slice in flight. */
export interface Slice<F> {
  /** Undefined if the route has no fragments. */
  readonly fragment: F;
  /** Offset and length in the message; or the index of a block, and 1. */
  readonly from: number;
  readonly length: number;
}

/** How the slices of a transfer move. */
export interface Route<F, V extends Verb> {
  /** The verb that fills the fragment of a slice; undefined without fragments. */
  readonly fill?: V;
  /** The verb that moves a slice to its destination. */
  readonly drain: V;
  /** Undefined for slices without a fragment. */
  readonly fragments?: Fragments<F>;
  /** Length of every slice except the last. */
  readonly sliceLength: number;
  /** Maximum number of slices in flight or waiting for a fragment. */
  readonly depth: number;
}

/**
 * The verbs of a route, and the callbacks for its end. A verb calls `done` once, during the call or later; if resources are missing, it retries, and may
 * {@link TransferMachine.block} the following slices.
 */
export type TransferPort<F, V extends Verb> = Readonly<Record<V, (slice: Slice<F>, done: CopyDone) => void>> & {
  /** Called once when the transfer is stopped, with the arguments that `ended` gets when the slices in flight have ended. */
  stopped?(status: Status, error: unknown): void;
  /** Called once, when nothing is in flight and nothing follows: with OK, the first failure, or the status of {@link TransferMachine.stop}. */
  ended(status: Status, error: unknown): void;
};

/** The states of a transfer: see the table above. */
const TransferState = { RUNNING: 0, BLOCKED: 1, STOPPING: 2, ENDED: 3 } as const;
type TransferState = (typeof TransferState)[keyof typeof TransferState];

/** One range on its route. Begin it with {@link advance}. */
export class TransferMachine<F, V extends Verb> {
  /** See {@link Route.depth}; {@link advance} uses a new value. */
  depth: number;
  readonly #port: TransferPort<F, V>;
  readonly #route: Route<F, V>;
  /** Offset of the next slice, and the end of the range. */
  #next: number;
  readonly #end: number;
  #waiting = 0;
  #inFlight = 0;
  #state: TransferState = TransferState.RUNNING;
  #outcome: Status = Status.OK;
  #error: unknown;
  #isAdvancing = false;

  constructor(port: TransferPort<F, V>, route: Route<F, V>, [from, length]: readonly [number, number]) {
    this.#port = port;
    this.#route = route;
    this.#next = from;
    this.#end = from + length;
    this.depth = route.depth;
  }

  /** Begins slices, until the range is complete or the depth is reached. */
  advance(): void {
    // A slice that ends during its start returns here: the loop below begins the next one, without recursion.
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    while (this.#hasNext()) this.#acquire();
    this.#isAdvancing = false;
    if (this.#inFlight > 0 || this.#state === TransferState.ENDED) return;
    if (this.#state !== TransferState.STOPPING && this.#next < this.#end) return;
    this.#state = TransferState.ENDED;
    this.#port.ended(this.#outcome, this.#error);
  }

  /** Begins no slices until one in flight has ended. For a verb that waits for resources. */
  block(): void {
    if (this.#state === TransferState.RUNNING) this.#state = TransferState.BLOCKED;
  }

  /** Begins no more slices: the transfer ends when those in flight have ended. Only the first call counts. */
  stop(status: Status, error?: unknown): void {
    if (this.#state < TransferState.STOPPING) {
      this.#state = TransferState.STOPPING;
      this.#outcome = status;
      this.#error = error;
      this.#port.stopped?.(status, error);
    }
    this.advance();
  }

  #hasNext(): boolean {
    const taken = this.#next + this.#waiting * this.#route.sliceLength;
    const isBelowDepth = this.#waiting + this.#inFlight < this.depth;
    return this.#state === TransferState.RUNNING && taken < this.#end && isBelowDepth;
  }

  #acquire(): void {
    const { fragments } = this.#route;
    if (fragments === undefined) {
      this.#begin(undefined as F);
      return;
    }
    this.#waiting += 1;
    fragments.acquire((fragment, refusal) => {
      this.#waiting -= 1;
      if (refusal < 0) this.stop(refusal);
      else if (this.#state < TransferState.STOPPING) this.#begin(fragment as F);
      else fragments.release(fragment as F);
    });
  }

  #begin(fragment: F): void {
    const { fill, drain, sliceLength } = this.#route;
    const from = this.#next;
    const slice = { fragment, from, length: Math.min(sliceLength, this.#end - from) };
    this.#next += slice.length;
    this.#inFlight += 1;
    const drained: CopyDone = (status, error) => this.#sliceEnded(slice, status, error);
    if (fill === undefined) {
      this.#port[drain](slice, drained);
      return;
    }
    this.#port[fill](slice, (status, error) => {
      if (status < 0 || this.#state >= TransferState.STOPPING) drained(status, error);
      else this.#port[drain](slice, drained);
    });
  }

  #sliceEnded({ fragment }: Slice<F>, status: Status, error: unknown): void {
    this.#route.fragments?.release(fragment);
    this.#inFlight -= 1;
    if (this.#state === TransferState.BLOCKED) this.#state = TransferState.RUNNING;
    if (status < 0) this.stop(status, error);
    else this.advance();
  }
}
