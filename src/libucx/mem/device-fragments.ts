/**
 * Fragments of host memory through which memory of cards goes, a bounded number for all workers of a context: both libucp and the cards know them. Lent in the
 * order in which they are asked for; what is copied through them is not decided here.
 */

import type { MapParams } from '../../ucp/api/memory.ts';
import type { UcpMemory } from './memory-handle.ts';

/** A fragment. */
export class Fragment {
  readonly memory: UcpMemory;
  /** Address of the first byte. */
  readonly address: number;
  readonly byteLength: number;

  constructor(memory: UcpMemory) {
    this.memory = memory;
    this.address = memory.ucpAddress;
    this.byteLength = memory.byteLength;
  }
}

/** Who waits for a fragment. */
export interface FragmentWaiter {
  /** A fragment is free: it belongs to the waiter now. Called from anywhere, calls of C included: it may only be noted. */
  fragmentLent(fragment: Fragment): void;
}

/** Where fragments come from. */
export interface FragmentSource {
  map(params: MapParams): UcpMemory;
  unmap(memory: UcpMemory): void;
}

/** The fragments of a context. Allocated at their first use, kept until the memory of the context is given back. */
export class Fragments {
  readonly byteLength: number;
  /** Fragments at most. */
  readonly countMax: number;
  readonly #source: FragmentSource;
  readonly #all: Fragment[] = [];
  readonly #free: Fragment[] = [];
  readonly #waiting: Set<FragmentWaiter> = new Set();

  constructor(source: FragmentSource, byteLength: number, countMax: number) {
    this.#source = source;
    this.byteLength = byteLength;
    this.countMax = countMax;
  }

  /** Fragments that are lent. */
  get inUse(): number {
    return this.#all.length - this.#free.length;
  }

  /**
   * Lends a fragment, unless there is none, or others have waited before.
   * @throws UcxError NO_MEMORY and others of ucp_mem_map
   */
  take(): Fragment | undefined {
    if (this.#waiting.size > 0) return undefined;
    return this.#free.pop() ?? (this.#all.length < this.countMax ? this.#allocate() : undefined);
  }

  /** Lends a fragment as soon as there is one. */
  await(waiter: FragmentWaiter): void {
    this.#waiting.add(waiter);
  }

  /** The waiter does not want it any more. */
  forget(waiter: FragmentWaiter): void {
    this.#waiting.delete(waiter);
  }

  /** Takes a fragment back. */
  give(fragment: Fragment): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#free.push(fragment);
      return;
    }
    this.#waiting.delete(first);
    first.fragmentLent(fragment);
  }

  /** A fragment that is not counted: what must never wait has its own. */
  reserve(): Fragment {
    return new Fragment(this.#source.map({ allocate: this.byteLength }));
  }

  /** Takes back what {@link reserve} has returned. */
  release({ memory }: Fragment): void {
    this.#source.unmap(memory);
  }

  #allocate(): Fragment {
    const fragment = new Fragment(this.#source.map({ allocate: this.byteLength }));
    this.#all.push(fragment);
    return fragment;
  }
}
