/**
 * Encoding of the words of an atomic operation for libucp: the operand, and the reply buffer, which is input and output. The operation is started in
 * atomic-start.ts.
 */

import type { WordOperation } from '../../api/operation/word-operation.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { UCP_ATOMIC_OP } from '../c/abi.ts';
import type { UcpRequest } from '../request/request.ts';

/** Opcode of each operation in libucp. */
export const ATOMIC_OPCODES: Readonly<Record<AtomicOperation, number>> = {
  [AtomicOperation.ADD]: UCP_ATOMIC_OP.ADD,
  [AtomicOperation.AND]: UCP_ATOMIC_OP.AND,
  [AtomicOperation.OR]: UCP_ATOMIC_OP.OR,
  [AtomicOperation.XOR]: UCP_ATOMIC_OP.XOR,
  [AtomicOperation.SWAP]: UCP_ATOMIC_OP.SWAP,
  [AtomicOperation.CSWAP]: UCP_ATOMIC_OP.CSWAP,
};

/** Offset of the reply buffer. */
export const REPLY_OFFSET = 8;

/** The words, zeroed except for the operands of the operation. */
export function wordsOf({ operation, value, compare, wordBytes }: WordOperation): ScratchBlock {
  const words = allocateScratch(2 * REPLY_OFFSET);
  const isSwap = operation === AtomicOperation.CSWAP;
  setWord(words, 0, wordBytes, isSwap ? compare : value);
  if (isSwap) setWord(words, REPLY_OFFSET, wordBytes, value);
  return words;
}

function setWord({ view }: ScratchBlock, at: number, wordBytes: number, value: bigint): void {
  if (wordBytes === 4) view.setUint32(at, Number(value), true);
  else view.setBigUint64(at, value, true);
}

/** The error if libucp has no protocol for an operation: it would have to be done in software, at an endpoint with peer error handling. */
export function noAtomics(): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: "libucp has no atomic operations at an endpoint that looks after its peer: errorHandling: 'none' has",
  });
}

/**
 * Reads the previous value of the word after an atomic operation. libucp cancels operations without a protocol.
 * @param isOpen false once the endpoint has been closed or has failed
 */
export function takeWord(request: UcpRequest, status: Status, isOpen: boolean): Status {
  if (status === Status.CANCELED && isOpen && !request.isCanceled) {
    request.error = noAtomics();
    return Status.UNSUPPORTED;
  }
  if (status !== Status.OK) return status;
  const { view } = request.scratch!;
  const isShort = request.byteLength === 4;
  request.atomicResult = isShort ? BigInt(view.getUint32(REPLY_OFFSET, true)) : view.getBigUint64(REPLY_OFFSET, true);
  return status;
}
