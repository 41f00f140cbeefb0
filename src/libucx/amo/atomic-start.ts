/** Starts atomic operations of libucp on remote host memory, and identifies those that libucp executes wrongly; device/atomic-loop.ts replaces these. */

import type { AtomicParams, Request } from '../../api/contract/request.ts';
import type { WordOperation } from '../../api/operation/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { ucpDtMakeContig } from '../c/abi.ts';
import { queryEndpoint } from '../c/endpoint-query.ts';
import type { EngineContext, EngineWorker } from '../engine/engine.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { RequestKind, TRANSPORT } from '../request/request.ts';
import { ATOMIC_OPCODES, noAtomics, REPLY_OFFSET, takeWord, wordsOf } from './atomic-words.ts';

/** First minor version with correct bitwise operations: 1.13 loses their operand if a CPU reaches the word itself, 1.18 does not. */
const BITS_FIXED_MINOR = 18;

/** First minor version with UCX_PROTO_ENABLE on by default. */
export const PROTO_ENABLE_MINOR = 16;
/** Transports of libucp with atomic operations in hardware, also with peer error handling. */
const HARDWARE = /^(rc|dc)_/;

/**
 * Checks that libucp supports atomic operations. The protocols of UCX_PROTO_ENABLE have them in software only at endpoints without peer error
 * handling; at others the call prints an error and is canceled, and before the connection is established it never returns, or ends the process (1.18).
 * @param ep the handle of libucp's endpoint
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

/** True for an operation that libucp executes wrongly. */
export function isWrong({ operation }: WordOperation, { minor }: { readonly minor: number }): boolean {
  if (minor >= BITS_FIXED_MINOR) return false;
  return operation === AtomicOperation.AND || operation === AtomicOperation.OR || operation === AtomicOperation.XOR;
}

/**
 * Starts an operation whose operands and word were checked.
 * @param ep the handle of libucp's endpoint
 */
export function startAtomic(
  { functions, requests }: EngineWorker,
  ep: number,
  call: WordOperation,
  [rkey, remoteOffset]: readonly [UcpRemoteKey, number],
  { params, isOpen }: { readonly params: AtomicParams | undefined; readonly isOpen: () => boolean },
): Status | Request {
  const request = requests.begin(RequestKind.SEND, 'amo/libucp');
  if (request === undefined) return Status.NO_RESOURCE;
  request.transport = TRANSPORT;
  request.byteLength = call.wordBytes;
  const words = wordsOf(call);
  request.scratch = words;
  request.settle = (ended, status) => takeWord(ended, status, isOpen());
  requests.setDatatype(ucpDtMakeContig(call.wordBytes));
  requests.setReplyBuffer(words.address + REPLY_OFFSET);
  const opcode = ATOMIC_OPCODES[call.operation];
  const remote = rkey.remoteAddress + remoteOffset;
  const started = functions.ucp_atomic_op_nbx(ep, opcode, words.address, 1, remote, rkey.handle, requests.param);
  return requests.started(request, started, params);
}
