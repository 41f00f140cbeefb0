/** Pool of fragments: a bounded number of pinned host buffers of one length, granted in the order of the requests. */

import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/**
 * Called with a fragment, which the callee returns later; undefined if not even one fragment can be allocated, with the reason in `status`. It runs inside
 * the call that frees a fragment.
 */
export type FragmentUser<F> = (fragment: F | undefined, status: Status) => void;

/** A source of fragments. */
export interface Fragments<F> {
  /** Acquires a fragment: `run` is called once, during the call or later. */
  acquire(run: FragmentUser<F>): void;
  /** Returns a fragment. */
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
  /** Maximum number of fragments. */
  readonly countMax: number;
  readonly #allocate: (byteLength: number) => F;
  readonly #release: (fragment: F) => void;
  readonly #free: F[] = [];
  readonly #all: Set<F> = new Set();
  readonly #waiters: FragmentUser<F>[] = [];
  /** Waiters that hold their fragment until the peer has filled it. */
  readonly #receivers: FragmentUser<F>[] = [];
  #isServing = false;
  /** Number of fragments that peers fill. */
  #receiving = 0;
  /** Fragments that a peer may still write to, and that could not be freed immediately. */
  readonly #retired: F[] = [];

  /**
   * @param allocate throws UcxError if memory is exhausted
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

  /**
   * Maximum number of fragments that peers may fill at the same time: half of them. The other half is reserved for sends, so that two workers that send to
   * each other never deadlock.
   */
  get receivingMax(): number {
    return this.countMax >> 1;
  }

  /** Calls `run` with a fragment, now or when one is returned, in order. The fragment must be returned without help of a peer. */
  acquire(run: FragmentUser<F>): void {
    this.#waiters.push(run);
    this.#serve();
  }

  /** Acquires a fragment without waiting; undefined if none is free, others wait, or memory is exhausted. */
  tryAcquire(): F | undefined {
    if (this.#waiters.length > 0) return undefined;
    const fragment = this.#free.pop() ?? this.#grow();
    return typeof fragment === 'number' ? undefined : fragment;
  }

  /** Returns a fragment. */
  release(fragment: F): void {
    this.#free.push(fragment);
    this.#serve();
  }

  /** Like {@link acquire}, for a fragment that a peer fills: at most {@link receivingMax} at a time, but with priority over sends. */
  acquireToReceive(run: FragmentUser<F>): void {
    this.#receivers.push(run);
    this.#serve();
  }

  /** Returns a fragment of {@link acquireToReceive} that no peer writes to any more. */
  releaseReceived(fragment: F): void {
    this.#receiving -= 1;
    this.release(fragment);
  }

  /** Retires a fragment that a peer may still write to: it is freed, which revokes its key, and replaced by a new one. */
  retireReceived(fragment: F): void {
    this.#receiving -= 1;
    this.#all.delete(fragment);
    try {
      this.#release(fragment);
    } catch {
      // A transport still uses it: it is freed when the pool closes.
      this.#retired.push(fragment);
    }
    this.#serve();
  }

  /** Frees all fragments, none of which may be in use. */
  close(): void {
    for (const fragment of [...this.#all, ...this.#retired]) this.#release(fragment);
    this.#all.clear();
    this.#free.length = 0;
    this.#retired.length = 0;
  }

  /** Serves the waiters while there are fragments. A callee may return its fragment immediately: the loop then serves the next one, without recursion. */
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

  /** Allocates a fragment. NO_RESOURCE at the bound, and if memory is exhausted while others exist; the failure if the first one cannot be allocated. */
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
