/** An atomic operation on one word: its checked operands, and its effect on a word without concurrent writers. Engines access the word. */

import { invalidParam } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { type AtomicCall, AtomicOperation } from '../../uct/api/iface.ts';
import type { AtomicName, AtomicParams } from './request.ts';

const ATOMIC_OPERATIONS: ReadonlyMap<AtomicName, AtomicOperation> = new Map([
  ['add', AtomicOperation.ADD],
  ['and', AtomicOperation.AND],
  ['or', AtomicOperation.OR],
  ['xor', AtomicOperation.XOR],
  ['swap', AtomicOperation.SWAP],
  ['cswap', AtomicOperation.CSWAP],
]);

const WORD64_END = 1n << 64n;

/** The operands and the result of one operation. */
export class WordOperation implements AtomicCall {
  readonly operation: AtomicOperation;
  readonly wordBytes: 4 | 8;
  readonly value: bigint;
  readonly compare: bigint;
  result = 0n;

  constructor(operation: AtomicOperation, wordBytes: 4 | 8, value: bigint, compare: bigint) {
    this.operation = operation;
    this.wordBytes = wordBytes;
    this.value = value;
    this.compare = compare;
  }
}

/**
 * Checks the operands of an operation.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkWordOperation(
  name: AtomicName,
  value: number | bigint,
  params: AtomicParams | undefined,
): WordOperation {
  const operation = ATOMIC_OPERATIONS.get(name);
  if (operation === undefined) {
    throw invalidParam('operation', `must be one of ${[...ATOMIC_OPERATIONS.keys()].join(', ')}`, name);
  }
  const bits = params?.bits ?? 64;
  if (bits !== 32 && bits !== 64) throw invalidParam('bits', 'must be 32 or 64', bits);
  if (operation === AtomicOperation.CSWAP && params?.compare === undefined) {
    throw invalidParam('compare', 'must be given for cswap', params?.compare);
  }
  const wordBytes = bits === 32 ? 4 : 8;
  return new WordOperation(
    operation,
    wordBytes,
    wordOf('value', value, bits),
    wordOf('compare', params?.compare ?? 0, bits),
  );
}

/** A value as an unsigned word; negative ones as two's complement. */
function wordOf(argument: string, value: number | bigint, bits: 32 | 64): bigint {
  const isInteger = typeof value === 'bigint' || Number.isSafeInteger(value);
  const word = isInteger ? BigInt(value) : WORD64_END;
  const end = 1n << BigInt(bits);
  if (word >= end || word < -end / 2n) throw invalidParam(argument, `must be an integer of ${bits} bits`, value);
  return BigInt.asUintN(bits, word);
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
