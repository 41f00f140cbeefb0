/**
 * Random numbers: a seeded, reproducible generator, which is not cryptographic (simulations, back-off, sampling), and bytes from the operating system for
 * secrets (keys).
 */

import { randomFillSync } from 'node:crypto';
import { invalidParam } from '../type/error.ts';

/** A reproducible sequence of random numbers. */
export interface Random {
  /** The next integer from 0 to 2^32 - 1. */
  nextU32(): number;
  /** The next integer of [0, bound), without bias. `bound` is an integer from 1 to 2^32. */
  below(bound: number): number;
  /** `length` random bytes in a new array. */
  bytes(length: number): Uint8Array<ArrayBuffer>;
  /** Overwrites `target` with random bytes. */
  fill(target: Uint8Array): void;
}

const U32 = 2 ** 32;

/** One step of splitmix32, which spreads a seed over the whole state. */
function splitMix32(state: number): number {
  let z = (state + 0x9e3779b9) | 0;
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return z ^ (z >>> 15);
}

/** xoshiro128** 1.1 of Blackman and Vigna: 2^128 - 1 numbers, four words of state. */
class Xoshiro128 implements Random {
  readonly #state: Int32Array;

  constructor(seed: number) {
    const low = (seed % U32) | 0;
    const high = Math.floor(seed / U32) | 0;
    const state = new Int32Array(4);
    for (let i = 0; i < 4; i++) state[i] = splitMix32((low + Math.imul(i, 0x9e3779b9)) ^ splitMix32(high));
    if (state.every((word) => word === 0)) state[0] = 1;
    this.#state = state;
  }

  nextU32(): number {
    const s = this.#state;
    const s1 = s[1]!;
    const scrambled = Math.imul(s1, 5);
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9) >>> 0;
    s[2]! ^= s[0]!;
    s[3]! ^= s1;
    s[1]! ^= s[2]!;
    s[0]! ^= s[3]!;
    s[2]! ^= s1 << 9;
    s[3] = (s[3]! << 11) | (s[3]! >>> 21);
    return result;
  }

  below(bound: number): number {
    if (!(Number.isInteger(bound) && bound >= 1 && bound <= U32)) {
      throw invalidParam('bound', 'must be an integer from 1 to 2^32', bound);
    }
    // Numbers above the last multiple of the bound would make small results more likely.
    const limit = U32 - (U32 % bound);
    let value = this.nextU32();
    while (value >= limit) value = this.nextU32();
    return value % bound;
  }

  bytes(length: number): Uint8Array<ArrayBuffer> {
    const target = new Uint8Array(length);
    this.fill(target);
    return target;
  }

  fill(target: Uint8Array): void {
    const length = target.length;
    for (let offset = 0; offset < length; offset += 4) {
      let word = this.nextU32();
      for (let i = offset; i < offset + 4 && i < length; i++) {
        target[i] = word & 0xff;
        word >>>= 8;
      }
    }
  }
}

/**
 * Creates a generator; equal seeds give equal sequences on every machine.
 * @param seed an integer from 0 to 2^53 - 1
 * @throws UcxError ERR_INVALID_PARAM
 */
export function createRandom(seed: number): Random {
  if (!(Number.isSafeInteger(seed) && seed >= 0)) {
    throw invalidParam('seed', 'must be an integer from 0 to 2^53 - 1', seed);
  }
  return new Xoshiro128(seed);
}

/** `length` unpredictable bytes from the operating system, in an array with a separate ArrayBuffer. */
export function systemRandomBytes(length: number): Uint8Array<ArrayBuffer> {
  return randomFillSync(new Uint8Array(length));
}
