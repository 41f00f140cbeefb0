/**
 * Atomic operations over libucp on remote host memory: the words that libucp takes (the operand, and the reply buffer, which is both input and output),
 * and a compare-and-swap loop for operations that libucp executes incorrectly. The loop retries with the value that it read until no other operation
 * intervened.
 */

import type { AtomicParams, Request } from '../../api/contract/request.ts';
import { WordOperation, wordAfter } from '../../api/operation/word-operation.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { UCP_ATOMIC_OP, ucpDtMakeContig } from '../c/abi.ts';
import { queryEndpoint } from '../c/queries.ts';
import type { EngineContext, EngineEndpoint, RemoteWord } from '../engine/engine.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import { RequestKind, TRANSPORT, type UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';

/** First minor version with correct bitwise operations. 1.13 loses their operand if a CPU accesses the word; 1.18 does not. */
const BITS_FIXED_MINOR = 18;

/** First minor version in which UCX_PROTO_ENABLE is on by default. */
export const PROTO_ENABLE_MINOR = 16;
/** Transports of libucp with atomic operations in hardware, which work with peer error handling. */
const HARDWARE = /^(rc|dc)_/;

/**
 * Checks that libucp supports atomic operations at an endpoint. With UCX_PROTO_ENABLE, software atomics work only at endpoints without peer error
 * handling: at others the call prints an error and is canceled, and before the connection is established it hangs or ends the process (1.18).
 * @param ep the endpoint handle of libucp
 * @param isWatched whether the endpoint has peer error handling
 * @throws UcxError ERR_UNSUPPORTED
 */
export function requireAtomics(
  { libucp, configuration }: Pick<EngineContext, 'libucp' | 'configuration'>,
  ep: number,
  isWatched: boolean,
): true {
  if (!isWatched || libucp.minor < PROTO_ENABLE_MINOR || !configuration.isOn('UCX_PROTO_ENABLE')) return true;
  if (queryEndpoint(libucp, ep).transports.some((lane) => HARDWARE.test(lane))) return true;
  throw noAtomics();
}

/** True for an operation that libucp executes incorrectly. */
export function isIncorrect({ operation }: WordOperation, { minor }: { readonly minor: number }): boolean {
  if (minor >= BITS_FIXED_MINOR) return false;
  return operation === AtomicOperation.AND || operation === AtomicOperation.OR || operation === AtomicOperation.XOR;
}

/** Starts an operation whose operands and word were checked. */
export function startAtomic(
  { core: { functions, requests, context }, handle }: { readonly core: WorkerCore; readonly handle: number },
  call: WordOperation,
  { rkey, remoteOffset }: RemoteWord,
  { params, isOpen }: { readonly params: AtomicParams | undefined; readonly isOpen: () => boolean },
): Status | Request {
  const { libucp, requestBytes } = context;
  const request = requests.begin(RequestKind.SEND, 'amo/libucp');
  if (request === undefined) return Status.NO_RESOURCE;
  request.transport = TRANSPORT;
  request.byteLength = call.wordBytes;
  request.isLent = libucp.minor < PROTO_ENABLE_MINOR;
  const words = wordsOf(call, request.isLent ? requestBytes : 0);
  request.scratch = words;
  if (request.isLent) requests.parameters.setRequest(words.address + REQUEST_OFFSET + requestBytes);
  request.pinKey(rkey);
  request.settle = (ended, status) => takeWord(ended, status, isOpen());
  requests.parameters.setDatatype(ucpDtMakeContig(call.wordBytes));
  requests.parameters.setReplyBuffer(words.address + REPLY_OFFSET);
  const opcode = ATOMIC_OPCODES[call.operation];
  const remote = rkey.remoteAddress + remoteOffset;
  const started = functions.ucp_atomic_op_nbx(
    handle,
    opcode,
    words.address,
    1,
    remote,
    rkey.handle,
    requests.parameters.address,
  );
  return requests.started(request, started, params);
}

/** libucp's opcodes. */
const ATOMIC_OPCODES: Readonly<Record<AtomicOperation, number>> = {
  [AtomicOperation.ADD]: UCP_ATOMIC_OP.ADD,
  [AtomicOperation.AND]: UCP_ATOMIC_OP.AND,
  [AtomicOperation.OR]: UCP_ATOMIC_OP.OR,
  [AtomicOperation.XOR]: UCP_ATOMIC_OP.XOR,
  [AtomicOperation.SWAP]: UCP_ATOMIC_OP.SWAP,
  [AtomicOperation.CSWAP]: UCP_ATOMIC_OP.CSWAP,
};

/** Offset of the reply buffer in bytes. */
const REPLY_OFFSET = 8;

/**
 * Offset of the memory for libucp's request. Without UCX_PROTO_ENABLE, libucp (1.13) leaves members of the request of an atomic operation uninitialized
 * and reads them when the endpoint is dropped: it would deregister memory of the previous operation with the same request (ucp_ep_req_purge), and end the
 * process. So the request is in zeroed memory.
 */
const REQUEST_OFFSET = 64;

/** Allocates zeroed memory with the operands, and space for the request of libucp. */
function wordsOf({ operation, value, compare, wordBytes }: WordOperation, requestBytes: number): ScratchBlock {
  const words = allocateScratch(REQUEST_OFFSET + requestBytes);
  const isSwap = operation === AtomicOperation.CSWAP;
  setWord(words, 0, wordBytes, isSwap ? compare : value);
  if (isSwap) setWord(words, REPLY_OFFSET, wordBytes, value);
  return words;
}

function setWord({ view }: ScratchBlock, at: number, wordBytes: number, value: bigint): void {
  if (wordBytes === 4) view.setUint32(at, Number(value), true);
  else view.setBigUint64(at, value, true);
}

/** The error if libucp lacks a protocol for an operation: it would need software atomics at an endpoint with peer error handling. */
function noAtomics(): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message:
      "libucp does not support atomic operations at an endpoint with peer error handling: use errorHandling: 'none'",
  });
}

/**
 * Stores the previous value of the word after an atomic operation. libucp cancels operations for which it has no protocol.
 * @param isOpen false once the endpoint was closed or has failed
 */
function takeWord(request: UcpRequest, status: Status, isOpen: boolean): Status {
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

export class CompareSwapLoop extends DeviceOperation {
  declare readonly endpoint: EngineEndpoint;
  declare readonly request: UcpRequest;
  readonly #call: WordOperation;
  readonly #word: RemoteWord;

  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    call: WordOperation,
    word: RemoteWord,
  ) {
    super(tracker, endpoint, request);
    this.#call = call;
    this.#word = word;
  }

  protected override begin(): void {
    // A guess: the reply has the correct value.
    this.#swap(0n);
  }

  /** Swaps the word if it has the expected value; otherwise retries with the value that it has. */
  #swap(expected: bigint): void {
    const { wordBytes } = this.#call;
    const swap = WordOperation.of(AtomicOperation.CSWAP, wordBytes, wordAfter(this.#call, expected), expected);
    const isOpen = (): boolean => this.endpoint.status === Status.OK && !this.endpoint.closed;
    this.run(
      (params) => {
        const how = { params: { ...params, noImmediateCompletion: true }, isOpen };
        const endpoint = { core: this.staging.core, handle: this.endpoint.handle };
        return startAtomic(endpoint, swap, this.#word, how);
      },
      (status, _error, ended) => {
        if (status < 0 || ended === undefined) return;
        this.request.atomicResult = ended.atomicResult;
        if (ended.atomicResult !== expected && this.failure === Status.OK) this.#swap(ended.atomicResult);
      },
    );
  }
}
