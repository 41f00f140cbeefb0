/** Memory of one rank of a pattern: a send buffer, and one receive range for each sender; their contents and their verification. */

import type { Context } from '../../../api/contract/context.ts';
import type { MemoryHandle } from '../../../api/contract/memory.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { memoryTypeOf } from '../side/test-context.ts';
import type { MemoryName } from '../spec.ts';
import { type Flow, type PatternSpec, type Shape, transferBytes } from './pattern-spec.ts';

/** Value of the receive memory before the verified iteration, which no contents have in neighbouring bytes. */
const EMPTY = 0xa5;

/** The flows of a rank, and their shape. */
export interface RankFlows {
  readonly flows: readonly Flow[];
  readonly shape: Shape;
}

/** Memory of a rank. */
export class RankMemory {
  /** Memory to send; undefined if this rank does not send. */
  readonly source: MemoryHandle | undefined;
  /** Memory to receive into: one range for each flow to this rank, in their order. */
  readonly target: MemoryHandle | undefined;
  readonly #context: Context;
  readonly #rank: number;
  readonly #senders: readonly number[];
  readonly #shape: Shape;

  constructor(context: Context, spec: PatternSpec, { flows, shape }: RankFlows, rank: number) {
    this.#context = context;
    this.#rank = rank;
    this.#shape = shape;
    this.#senders = flows.filter(({ to }) => to === rank).map(({ from }) => from);
    const bytes = transferBytes(shape);
    this.source = flows.some(({ from }) => from === rank) ? this.#map(spec.sendMemory, bytes) : undefined;
    this.target = this.#senders.length > 0 ? this.#map(spec.recvMemory, bytes * this.#senders.length) : undefined;
  }

  /** Offset of a sender's range in {@link target}. */
  offsetOf(sender: number): number {
    return this.#senders.indexOf(sender) * transferBytes(this.#shape);
  }

  /** Writes the contents that this rank sends, and clears the receive memory. */
  async fill(): Promise<void> {
    await this.source?.write(contentOf(this.#rank, transferBytes(this.#shape)));
    await this.target?.fill(EMPTY);
  }

  /** Number of received blocks that differ from those sent. */
  async countWrong(): Promise<number> {
    const { target } = this;
    if (target === undefined) return 0;
    const { blocks, blockBytes } = this.#shape;
    const bytes = transferBytes(this.#shape);
    let wrong = 0;
    for (const sender of this.#senders) {
      const found = Buffer.from(await target.read(undefined, { offset: this.offsetOf(sender), byteLength: bytes }));
      const sent = contentOf(sender, bytes);
      for (let block = 0; block < blocks; block++) {
        const [at, to] = [block * blockBytes, (blocks - 1 - block) * blockBytes];
        if (found.compare(sent, at, at + blockBytes, to, to + blockBytes) !== 0) wrong += 1;
      }
    }
    return wrong;
  }

  close(): void {
    for (const memory of [this.source, this.target]) if (memory !== undefined) this.#context.memUnmap(memory);
  }

  #map(name: MemoryName, byteLength: number): MemoryHandle {
    if (name === 'gaudi' && !this.#context.query().memoryTypes.includes(memoryTypeOf(name))) {
      throw invalidParam('-m', 'must not be gaudi on a rank without a card', name);
    }
    return this.#context.memMap({ allocate: byteLength, memoryType: memoryTypeOf(name) });
  }
}

/** Contents of a rank's send memory: differ between ranks, between neighbouring blocks, and from {@link EMPTY}. */
function contentOf(rank: number, byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  const seed = Math.imul(rank + 1, 0x85ebca6b);
  for (let i = 0; i < byteLength; i++) bytes[i] = Math.imul(i ^ seed, 0x9e3779b1) >>> 21;
  return bytes;
}
