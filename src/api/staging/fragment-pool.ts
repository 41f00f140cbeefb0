/** Pool of fragments: pieces of pinned host memory of one length, a bounded number, given out in the order of the requests. */

import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/**
 * Receives a fragment, which it gives back later; undefined if not even one can be allocated, and `status` says why. It runs inside the call that frees a
 * fragment.
 */
export type FragmentUser<F> = (fragment: F | undefined, status: Status) => void;

/** Where fragments come from. */
export interface Fragments<F> {
  /** Gets a fragment: `run` is called once, during the call or later. */
  acquire(run: FragmentUser<F>): void;
  /** Gives it back. */
  release(fragment: F): void;
}

/** The length and number of the fragments of a pool. */
export interface FragmentLimits {
  readonly fragmentBytes: number;
  readonly countMax: number;
}

/** The fragments of a worker or of a context. They are allocated at their first use and kept until {@link close}. */
export class FragmentPool<F extends object> implements Fragments<F> {
  /** Bytes of a fragment. */
  readonly fragmentBytes: number;
  /** Fragments at most. */
  readonly countMax: number;
  readonly #allocate: (byteLength: number) => F;
  readonly #release: (fragment: F) => void;
  readonly #free: F[] = [];
  readonly #all: Set<F> = new Set();
  readonly #waiters: FragmentUser<F>[] = [];
  /** Waiters that hold their fragment until the peer has filled it. */
  readonly #receivers: FragmentUser<F>[] = [];
  #isServing = false;
  /** Fragments that a peer fills. */
  #receiving = 0;
  /** Fragments that a peer may still write to, and that could not be freed at once. */
  readonly #retired: F[] = [];

  /**
   * @param allocate throws UcxError if there is no memory
   * @param free throws UcxError BUSY while a transport uses the memory
   */
  constructor(
    allocate: (byteLength: number) => F,
    free: (fragment: F) => void,
    { fragmentBytes, countMax }: FragmentLimits,
  ) {
    this.#allocate = allocate;
    this.#release = free;
    this.fragmentBytes = fragmentBytes;
    this.countMax = countMax;
  }

  /** Fragments in use. */
  get inUse(): number {
    return this.#all.size - this.#free.length;
  }

  /** Fragments that peers may fill at the same time: half of them. The other half is for sends, so two workers that send to each other never wait for each other. */
  get receivingMax(): number {
    return this.countMax >> 1;
  }

  /** Calls `run` with a fragment, now or when one is given back, in order. The fragment must be given back without help of a peer. */
  acquire(run: FragmentUser<F>): void {
    this.#waiters.push(run);
    this.#serve();
  }

  /** A fragment without waiting; undefined if none is free, others wait for one, or there is no memory. */
  tryAcquire(): F | undefined {
    if (this.#waiters.length > 0) return undefined;
    const fragment = this.#free.pop() ?? this.#grow();
    return typeof fragment === 'number' ? undefined : fragment;
  }

  /** Gives a fragment back. */
  release(fragment: F): void {
    this.#free.push(fragment);
    this.#serve();
  }

  /** Like {@link acquire}, for a fragment that a peer fills: at most {@link receivingMax} at a time, but before those that this worker sends from. */
  acquireToReceive(run: FragmentUser<F>): void {
    this.#receivers.push(run);
    this.#serve();
  }

  /** Gives back a fragment of {@link acquireToReceive} that no peer writes to any more. */
  releaseReceived(fragment: F): void {
    this.#receiving -= 1;
    this.release(fragment);
  }

  /** Takes a fragment out of use that a peer may still write to: it is freed, which revokes its key, and another one takes its place. */
  retireReceived(fragment: F): void {
    this.#receiving -= 1;
    this.#all.delete(fragment);
    try {
      this.#release(fragment);
    } catch {
      // A transport still uses it: it is freed with the others when the pool closes.
      this.#retired.push(fragment);
    }
    this.#serve();
  }

  /** Frees all fragments; none is in use any more. */
  close(): void {
    for (const fragment of [...this.#all, ...this.#retired]) this.#release(fragment);
    this.#all.clear();
    this.#free.length = 0;
    this.#retired.length = 0;
  }

  /** Serves the waiters while there are fragments. A user may release its fragment at once: the loop then serves the next one, without recursion. */
  #serve(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    try {
      for (;;) {
        const isReceiver = this.#receivers.length > 0 && this.#receiving < this.receivingMax;
        const users = isReceiver ? this.#receivers : this.#waiters;
        if (users.length === 0) return;
        const fragment = this.#free.pop() ?? this.#grow();
        if (fragment === Status.NO_RESOURCE) return;
        const user = users.shift()!;
        if (typeof fragment === 'number') {
          user(undefined, fragment);
          continue;
        }
        if (isReceiver) this.#receiving += 1;
        user(fragment, Status.OK);
      }
    } finally {
      this.#isServing = false;
    }
  }

  /** Allocates a fragment. NO_RESOURCE at the bound, and if memory runs out while others exist; the failure if the first one cannot be allocated. */
  #grow(): F | Status {
    if (this.#all.size >= this.countMax) return Status.NO_RESOURCE;
    try {
      const fragment = this.#allocate(this.fragmentBytes);
      this.#all.add(fragment);
      return fragment;
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return this.#all.size > 0 ? Status.NO_RESOURCE : error.status;
    }
  }
}

/** The bytes of a fragment: fragments are host memory. */
export function fragmentBytesOf(fragment: { readonly bytes: Uint8Array | undefined }): Uint8Array {
  return fragment.bytes!;
}
