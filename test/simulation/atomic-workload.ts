/** The workload of atomic operations: all workers add to words of all others. It checks that every addition counts once and returns a unique value. */

import type { MemoryHandle } from '../../src/ucp/mem/memory-handle.ts';
import type { RemoteKey } from '../../src/ucp/mem/remote-key.ts';
import { MemoryType } from '../../src/ucs/memory/memory-type.ts';
import { Status } from '../../src/ucs/type/status.ts';
import type { Actor } from './actor.ts';
import type { End } from './link.ts';
import { storageOf } from './local-memory.ts';
import { unmapped } from './rma-workload.ts';
import type { Schedule } from './schedule.ts';

const WORDS = 2;
const BITS = [32, 64] as const;
const WORD_BYTES = 8;

interface Word {
  started: number;
  ended: number;
  failed: number;
  readonly seen: Set<bigint>;
}

interface Counters {
  readonly owner: Actor;
  readonly handle: MemoryHandle;
  readonly packed: Uint8Array;
  readonly words: readonly Word[];
}

/** The atomic operations of one schedule. */
export class AtomicWorkload {
  readonly #schedule: Schedule;
  readonly #counters: Map<Actor, Counters> = new Map();
  readonly #keys: Map<End, RemoteKey> = new Map();

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    schedule.onActor.push((owner) => {
      const { context } = owner.host;
      const isOfCard = schedule.variation.hasCard && schedule.isOneOf(2);
      const where = isOfCard ? { memoryType: MemoryType.GAUDI, sysDevice: 0 } : {};
      const handle = context.memMap({ allocate: WORDS * WORD_BYTES, ...where });
      storageOf(handle).fill(0);
      const words = BITS.map((): Word => ({ started: 0, ended: 0, failed: 0, seen: new Set() }));
      this.#counters.set(owner, { owner, handle, packed: context.packRkey(handle), words });
    });
    schedule.onEnd.push((end) => {
      const counters = this.#counters.get(end.peerActor)!;
      this.#keys.set(end, end.endpoint.unpackRkey(counters.packed));
    });
  }

  add(end: End): void {
    const schedule = this.#schedule;
    const { words } = this.#counters.get(end.peerActor)!;
    const index = schedule.random.below(WORDS);
    const word = words[index]!;
    word.started += 1;
    const onEnd = (status: Status, request: { readonly atomicResult: bigint } | undefined): void => {
      if (status !== Status.OK) {
        word.failed += 1;
        return;
      }
      word.ended += 1;
      const before = request!.atomicResult;
      if (word.seen.has(before)) schedule.fail(`two additions of ${end} saw ${before}`);
      word.seen.add(before);
    };
    const name = `add${BITS[index]} ${end}`;
    const rkey = this.#keys.get(end)!;
    schedule.start({ name, actor: end.actor, end, needsRequest: true, onEnd }, (params) =>
      end.endpoint.atomicNbx('add', 1, rkey, index * WORD_BYTES, { ...params, bits: BITS[index]! }),
    );
  }

  check(): void {
    for (const { owner, handle, words } of this.#counters.values()) {
      if (owner.host.isDead) continue;
      const storage = storageOf(handle);
      const view = new DataView(storage.buffer, storage.byteOffset);
      for (const [index, word] of words.entries()) {
        const at = index * WORD_BYTES;
        const value = BITS[index] === 32 ? view.getUint32(at, true) : Number(view.getBigUint64(at, true));
        const { started, ended } = word;
        if (value < ended || value > started) {
          this.#schedule.fail(`${ended} to ${started} additions of ${BITS[index]} bits at ${owner} are ${value}`);
        }
      }
    }
  }

  /** Unmaps all mapped memory; false if transports use some of it. */
  release(): boolean {
    for (const [end, rkey] of this.#keys) if (!end.actor.host.isDead) rkey.release();
    for (const [actor, { owner, handle }] of this.#counters) {
      if (owner.host.isDead || unmapped(owner.host.context, handle)) this.#counters.delete(actor);
    }
    return this.#counters.size === 0;
  }
}
