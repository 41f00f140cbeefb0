/** Host memory for the schedules of a worker's teams, kept for the next operation. It is mapped, so that peers can write to it. */

import type { Context } from '../../../api/contract/context.ts';
import type { LocalMemory, MemoryHandle } from '../../../api/contract/memory.ts';

/** From this length on it is mapped; shorter parts are sent in messages anyway. */
const MAPPED_MIN = 64 * 1024;
/** Bytes that are kept while no operation uses them. */
const KEPT_MAX = 64 * 2 ** 20;
const LENGTH_MIN = 1024;

/** The context that maps the memory. */
export type Mapper = Pick<Context, 'memMap' | 'memUnmap'>;

/** The scratch memory of a team. */
export class Scratch {
  readonly #mapper: Mapper;
  /** Free pieces by their length, a power of two. */
  readonly #free: Map<number, LocalMemory[]> = new Map();
  #keptBytes = 0;

  constructor(mapper: Mapper) {
    this.#mapper = mapper;
  }

  /**
   * Host memory of at least some bytes.
   * @throws UcxError ERR_NO_MEMORY
   */
  take(byteLength: number): LocalMemory {
    const length = lengthFor(byteLength);
    const kept = this.#free.get(length)?.pop();
    if (kept !== undefined) {
      this.#keptBytes -= length;
      return kept;
    }
    return length < MAPPED_MIN ? new Uint8Array(length) : this.#mapper.memMap({ allocate: length });
  }

  /** Returns memory that no operation uses any more. */
  give(memory: LocalMemory): void {
    const length = memory.byteLength;
    if (this.#keptBytes + length > KEPT_MAX) {
      this.#release(memory);
      return;
    }
    this.#keptBytes += length;
    const free = this.#free.get(length);
    if (free === undefined) this.#free.set(length, [memory]);
    else free.push(memory);
  }

  /** Releases all that is kept. */
  close(): void {
    for (const free of this.#free.values()) for (const memory of free) this.#release(memory);
    this.#free.clear();
    this.#keptBytes = 0;
  }

  #release(memory: LocalMemory): void {
    if (!(memory instanceof Uint8Array) && memory.mapped) this.#mapper.memUnmap(memory as MemoryHandle);
  }
}

function lengthFor(byteLength: number): number {
  return Math.max(LENGTH_MIN, 2 ** Math.ceil(Math.log2(Math.max(1, byteLength))));
}
