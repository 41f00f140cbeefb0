/** An atomic operation on one word: its checked operands, and its effect on a word without concurrent writers. Engines access the word. */

import { invalidParam } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { type AtomicCall, AtomicOperation } from '../../uct/api/iface.ts';
import type { AtomicName, AtomicParams } from '../contract/request.ts';

const NAMES: readonly AtomicName[] = ['add', 'and', 'or', 'xor', 'swap', 'cswap'];

const WORD64_MAX = (1n << 64n) - 1n;
const WORD64_MIN = -(1n << 63n);
const WORD32_MAX = 2 ** 32 - 1;
const WORD32_MIN = -(2 ** 31);
/** Small operands as bigints, because creating a bigint takes longer than the operation. */
const SMALL_WORDS: readonly bigint[] = Array.from({ length: 256 }, (_, value) => BigInt(value));

/** Operands and result of one operation. Reusable. */
export class WordOperation implements AtomicCall {
  operation: AtomicOperation = AtomicOperation.ADD;
  wordBytes: 4 | 8 = 8;
  value32 = 0;
  value64 = 0n;
  compare32 = 0;
  compare64 = 0n;
  result32 = 0;
  result64 = 0n;

  /** An operation with operands that were checked elsewhere; excess bits are cut off. */
  static of(operation: AtomicOperation, wordBytes: 4 | 8, value: bigint, compare: bigint): WordOperation {
    const call = new WordOperation();
    call.operation = operation;
    call.wordBytes = wordBytes;
    call.value32 = Number(BigInt.asIntN(32, value));
    call.value64 = BigInt.asUintN(64, value);
    call.compare32 = Number(BigInt.asIntN(32, compare));
    call.compare64 = BigInt.asUintN(64, compare);
    return call;
  }

  /**
   * Sets the operation, with its operands checked.
   * @throws UcxError ERR_INVALID_PARAM
   */
  set(
    name: AtomicName,
    value: number | bigint,
    bits: AtomicParams['bits'] = 64,
    compare: AtomicParams['compare'] = undefined,
  ): this {
    const operation = operationOf(name);
    if (bits !== 32 && bits !== 64) throw invalidParam('bits', 'must be 32 or 64', bits);
    this.operation = operation;
    if (bits === 32) {
      this.wordBytes = 4;
      this.value32 = word32('value', value);
    } else {
      this.wordBytes = 8;
      this.value64 = word64('value', value);
    }
    // A compare value of other operations is ignored.
    if (operation === AtomicOperation.CSWAP) this.#setCompare(compare);
    else if (compare !== undefined) word64('compare', compare);
    return this;
  }

  #setCompare(compare: number | bigint | undefined): void {
    if (compare === undefined) throw invalidParam('compare', 'must be set for cswap', compare);
    if (this.wordBytes === 4) this.compare32 = word32('compare', compare);
    else this.compare64 = word64('compare', compare);
  }

  /** Copies operation and operands of another object, but not its result. */
  copyFrom({ operation, wordBytes, value32, value64, compare32, compare64 }: WordOperation): void {
    this.operation = operation;
    this.wordBytes = wordBytes;
    this.value32 = value32;
    this.value64 = value64;
    this.compare32 = compare32;
    this.compare64 = compare64;
  }

  /** The operand, unsigned, for both word lengths. */
  get value(): bigint {
    return this.wordBytes === 4 ? BigInt(this.value32 >>> 0) : this.value64;
  }

  /** The expected value of the word for CSWAP, unsigned. */
  get compare(): bigint {
    return this.wordBytes === 4 ? BigInt(this.compare32 >>> 0) : this.compare64;
  }

  /** The value of the word before the operation, unsigned. */
  get result(): bigint {
    return this.wordBytes === 4 ? BigInt(this.result32 >>> 0) : this.result64;
  }

  set result(word: bigint) {
    if (this.wordBytes === 4) this.result32 = Number(BigInt.asIntN(32, word));
    else this.result64 = word;
  }
}

/** Comparisons of constant strings take less time than a lookup in a map. */
function operationOf(name: AtomicName): AtomicOperation {
  switch (name) {
    case 'add':
      return AtomicOperation.ADD;
    case 'and':
      return AtomicOperation.AND;
    case 'or':
      return AtomicOperation.OR;
    case 'xor':
      return AtomicOperation.XOR;
    case 'swap':
      return AtomicOperation.SWAP;
    case 'cswap':
      return AtomicOperation.CSWAP;
    default:
      throw invalidParam('operation', `must be one of ${NAMES.join(', ')}`, name);
  }
}

/** An operand as a signed word; unsigned values are accepted too. */
function word32(argument: string, value: number | bigint): number {
  const word = typeof value === 'bigint' ? Number(value) : value;
  if (Number.isInteger(word) && word >= WORD32_MIN && word <= WORD32_MAX) return word | 0;
  throw invalidParam(argument, 'must be an integer of 32 bits', value);
}

/** An operand as an unsigned word; negative values are converted to two's complement. */
function word64(argument: string, value: number | bigint): bigint {
  if (typeof value === 'number') {
    if (!Number.isSafeInteger(value))
      throw invalidParam(argument, 'must be an integer, as a bigint from 2^53 on', value);
    return SMALL_WORDS[value] ?? BigInt.asUintN(64, BigInt(value));
  }
  const isWord = typeof value === 'bigint' && value <= WORD64_MAX && value >= WORD64_MIN;
  if (!isWord) throw invalidParam(argument, 'must be an integer of 64 bits', value);
  return value < 0n ? BigInt.asUintN(64, value) : value;
}

/** Applies an operation to a word without concurrent writers. */
export function modifyWord(bytes: Uint8Array, offset: number, call: WordOperation): Status {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, call.wordBytes);
  const before = call.wordBytes === 4 ? BigInt(view.getUint32(0, true)) : view.getBigUint64(0, true);
  const after = wordAfter(call, before);
  if (call.wordBytes === 4) view.setUint32(0, Number(after), true);
  else view.setBigUint64(0, after, true);
  call.result = before;
  return Status.OK;
}

/** The value of a word after an operation. */
export function wordAfter(call: WordOperation, before: bigint): bigint {
  return BigInt.asUintN(call.wordBytes * 8, afterOf(call, before));
}

function afterOf({ operation, value, compare }: WordOperation, before: bigint): bigint {
  switch (operation) {
    case AtomicOperation.ADD:
      return before + value;
    case AtomicOperation.AND:
      return before & value;
    case AtomicOperation.OR:
      return before | value;
    case AtomicOperation.XOR:
      return before ^ value;
    case AtomicOperation.SWAP:
      return value;
    case AtomicOperation.CSWAP:
      return before === compare ? value : before;
  }
}
