/** Atomic operations of the CPU on words of mapped memory, through views that are created once. The transport checks access and ranges. */

import { Status } from '../../ucs/type/status.ts';
import { type AtomicCall, AtomicOperation } from '../api/iface.ts';

/** The words of one memory. */
export class AtomicWords {
  readonly #bytes: Uint8Array;
  /** Bytes before the first aligned word. */
  readonly #lead32: number;
  readonly #lead64: number;
  /** The aligned words of the memory, by word length; created by the first operation. */
  #words32: Int32Array | undefined = undefined;
  #words64: BigUint64Array | undefined = undefined;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#lead32 = -bytes.byteOffset & 3;
    this.#lead64 = -bytes.byteOffset & 7;
  }

  /**
   * Runs an operation on the word at `offset`, which must be inside the memory.
   * @returns OK with the result in `call`; INVALID_ADDR if the word is not aligned in memory
   */
  run(call: AtomicCall, offset: number): Status {
    if (call.wordBytes === 4) {
      const at = offset - this.#lead32;
      if (at % 4 !== 0) return Status.INVALID_ADDR;
      this.#words32 ??= this.#view(Int32Array, this.#lead32, 4);
      call.result32 = atomic32(this.#words32, at / 4, call.operation, call.value32, call.compare32);
    } else {
      const at = offset - this.#lead64;
      if (at % 8 !== 0) return Status.INVALID_ADDR;
      this.#words64 ??= this.#view(BigUint64Array, this.#lead64, 8);
      call.result64 = atomic64(this.#words64, at / 8, call.operation, call.value64, call.compare64);
    }
    return Status.OK;
  }

  #view<View>(
    type: new (buffer: ArrayBufferLike, byteOffset: number, length: number) => View,
    lead: number,
    wordBytes: number,
  ): View {
    const { buffer, byteOffset, byteLength } = this.#bytes;
    return new type(buffer, byteOffset + lead, Math.max(0, Math.floor((byteLength - lead) / wordBytes)));
  }
}

function atomic32(
  words: Int32Array,
  index: number,
  operation: AtomicOperation,
  value: number,
  compare: number,
): number {
  switch (operation) {
    case AtomicOperation.ADD:
      return Atomics.add(words, index, value);
    case AtomicOperation.AND:
      return Atomics.and(words, index, value);
    case AtomicOperation.OR:
      return Atomics.or(words, index, value);
    case AtomicOperation.XOR:
      return Atomics.xor(words, index, value);
    case AtomicOperation.SWAP:
      return Atomics.exchange(words, index, value);
    case AtomicOperation.CSWAP:
      return Atomics.compareExchange(words, index, compare, value);
  }
}

function atomic64(
  words: BigUint64Array,
  index: number,
  operation: AtomicOperation,
  value: bigint,
  compare: bigint,
): bigint {
  switch (operation) {
    case AtomicOperation.ADD:
      return Atomics.add(words, index, value);
    case AtomicOperation.AND:
      return Atomics.and(words, index, value);
    case AtomicOperation.OR:
      return Atomics.or(words, index, value);
    case AtomicOperation.XOR:
      return Atomics.xor(words, index, value);
    case AtomicOperation.SWAP:
      return Atomics.exchange(words, index, value);
    case AtomicOperation.CSWAP:
      return Atomics.compareExchange(words, index, compare, value);
  }
}
