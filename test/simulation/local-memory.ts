/** Memory of the caller in every form that operations accept: plain bytes, mapped bytes, lists, device memory. It records the expected contents. */

import type { PieceOf } from '../../src/api/memory/local.ts';
import type { LocalBuffer, LocalMemory, MemoryHandle } from '../../src/ucp/mem/memory-handle.ts';
import { MemoryType } from '../../src/ucs/memory/memory-type.ts';
import type { Actor } from './actor.ts';
import { SimulatedMemory } from './memory.ts';
import { isUntouched, UNTOUCHED, untouched } from './payload.ts';
import type { Schedule } from './schedule.ts';

/** Contents of the memory of an ended send. */
const SPENT = 0xdd;
const MARGIN = 16;

/** One piece, surrounded by bytes that must not be written. */
interface Part {
  readonly memory: LocalMemory;
  readonly handle: MemoryHandle | undefined;
  readonly storage: Uint8Array;
  readonly offset: number;
  readonly byteLength: number;
}

/** Memory for one operation. */
export class LocalSpace {
  readonly byteLength: number;
  readonly kind: string;
  readonly #parts: readonly Part[];
  readonly #schedule: Schedule;
  readonly #actor: Actor;
  readonly #isList: boolean;

  constructor(schedule: Schedule, actor: Actor, byteLength: number, takesLists: boolean) {
    this.#schedule = schedule;
    this.#actor = actor;
    this.byteLength = byteLength;
    const choice = schedule.random.below(10);
    this.#isList = takesLists && choice === 0 && byteLength > 1;
    const first = this.#isList ? 1 + schedule.random.below(byteLength - 1) : byteLength;
    this.#parts = this.#isList ? [this.#part(first), this.#part(byteLength - first)] : [this.#part(byteLength)];
    this.kind = this.#parts.map(({ handle }) => (handle === undefined ? 'b' : handle.memoryType ? 'c' : 'm')).join('');
  }

  /** The parameter of operations: a list has neither offset nor length. */
  get local(): LocalBuffer {
    if (!this.#isList) return this.#parts[0]!.memory;
    return this.#parts.map(({ memory, offset, byteLength }): PieceOf<LocalMemory> => ({ memory, offset, byteLength }));
  }

  /** For operations without lists. */
  get single(): LocalMemory {
    return this.#parts[0]!.memory;
  }

  get offset(): number {
    return this.#isList ? 0 : this.#parts[0]!.offset;
  }

  get length(): number {
    return this.#isList ? 0 : this.byteLength;
  }

  /** True if all of it is host memory. */
  get isHost(): boolean {
    return !this.kind.includes('c');
  }

  fill(bytes: Uint8Array): void {
    let at = 0;
    for (const { storage, offset, byteLength } of this.#parts) {
      storage.set(bytes.subarray(at, at + byteLength), offset);
      at += byteLength;
    }
  }

  read(): Uint8Array {
    const bytes = new Uint8Array(this.byteLength);
    let at = 0;
    for (const { storage, offset, byteLength } of this.#parts) {
      bytes.set(storage.subarray(offset, offset + byteLength), at);
      at += byteLength;
    }
    return bytes;
  }

  /** Whether bytes around the memory, or after the first `byteLength` of it, were written. */
  isTouchedBehind(byteLength: number): boolean {
    let left = byteLength;
    return this.#parts.some((part) => {
      const used = Math.min(left, part.byteLength);
      left -= used;
      return !isUntouched(part.storage, 0, part.offset) || !isUntouched(part.storage, part.offset + used);
    });
  }

  /** The operation has ended: the caller reuses its memory. */
  spend(): void {
    if (this.#actor.host.isDead) return;
    for (const { storage, offset, byteLength } of this.#parts) storage.fill(SPENT, offset, offset + byteLength);
    this.release();
  }

  /** Unmaps mapped memory. */
  release(): void {
    if (this.#actor.host.isDead) return;
    for (const { handle } of this.#parts) if (handle?.mapped === true) this.#actor.host.context.memUnmap(handle);
  }

  #part(byteLength: number): Part {
    const { context } = this.#actor.host;
    const choice = this.#schedule.random.below(8);
    const offset = this.#schedule.isOneOf(2) ? 0 : this.#schedule.random.below(MARGIN);
    const total = byteLength + offset + this.#schedule.random.below(MARGIN) + 1;
    if (choice === 0 || (choice === 1 && !this.#schedule.variation.hasCard)) {
      const storage = untouched(total);
      const handle = context.memMap({ buffer: storage });
      return { memory: handle, handle, storage, offset, byteLength };
    }
    if (choice < 4 && this.#schedule.variation.hasCard) {
      const handle = context.memMap({ allocate: total, memoryType: MemoryType.GAUDI, sysDevice: 0 });
      const storage = storageOf(handle);
      storage.fill(UNTOUCHED);
      return { memory: handle, handle, storage, offset, byteLength };
    }
    const storage = untouched(total);
    return { memory: storage, handle: undefined, storage, offset, byteLength };
  }
}

/** The bytes of mapped memory, also of a card. */
export function storageOf(handle: MemoryHandle): Uint8Array {
  if (handle.bytes !== undefined) return handle.bytes;
  const part = handle.mdMemory.find((memory) => memory instanceof SimulatedMemory && memory.sysDevice !== undefined);
  return (part as SimulatedMemory).storage;
}
