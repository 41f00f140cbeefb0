/**
 * Atomic operations of the CPU on a word of mapped memory. Who may reach the word is checked by the transport.
 */

import { Status } from '../../ucs/type/status.ts';
import { type AtomicCall, AtomicOperation } from '../api/iface.ts';

const WORD32 = 0xffff_ffffn;
const WORD64 = 0xffff_ffff_ffff_ffffn;

/**
 * Runs an atomic operation on the word at `offset`, which lies inside `bytes`.
 * @returns OK with `call.result` set; INVALID_ADDR where the word is not aligned in memory
 */
export function atomicOn(bytes: Uint8Array, offset: number, call: AtomicCall): Status {
  const at = bytes.byteOffset + offset;
  if (at % call.wordBytes !== 0) return Status.INVALID_ADDR;
  if (call.wordBytes === 4) {
    const word = new Uint32Array(bytes.buffer, at, 1);
    const value = Number(call.value & WORD32);
    call.result = BigInt(atomic32(word, call.operation, value, Number(call.compare & WORD32)));
  } else {
    const word = new BigUint64Array(bytes.buffer, at, 1);
    call.result = atomic64(word, call.operation, call.value & WORD64, call.compare & WORD64);
  }
  return Status.OK;
}

function atomic32(word: Uint32Array, operation: AtomicOperation, value: number, compare: number): number {
  switch (operation) {
    case AtomicOperation.ADD:
      return Atomics.add(word, 0, value);
    case AtomicOperation.AND:
      return Atomics.and(word, 0, value);
    case AtomicOperation.OR:
      return Atomics.or(word, 0, value);
    case AtomicOperation.XOR:
      return Atomics.xor(word, 0, value);
    case AtomicOperation.SWAP:
      return Atomics.exchange(word, 0, value);
    case AtomicOperation.CSWAP:
      return Atomics.compareExchange(word, 0, compare, value);
  }
}

function atomic64(word: BigUint64Array, operation: AtomicOperation, value: bigint, compare: bigint): bigint {
  switch (operation) {
    case AtomicOperation.ADD:
      return Atomics.add(word, 0, value);
    case AtomicOperation.AND:
      return Atomics.and(word, 0, value);
    case AtomicOperation.OR:
      return Atomics.or(word, 0, value);
    case AtomicOperation.XOR:
      return Atomics.xor(word, 0, value);
    case AtomicOperation.SWAP:
      return Atomics.exchange(word, 0, value);
    case AtomicOperation.CSWAP:
      return Atomics.compareExchange(word, 0, compare, value);
  }
}
