/** Starts atomic operations of libucp on remote host memory, and names those that libucp does wrong. Replacing these is in device/atomic-loop.ts. */

import type { AtomicParams, Request } from '../../ucp/api/request.ts';
import type { WordOperation } from '../../ucp/api/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';
import { ucpDtMakeContig } from '../c/abi.ts';
import { queryEndpoint } from '../c/endpoint-query.ts';
import type { EngineContext, EngineWorker } from '../engine/engine.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { RequestKind, TRANSPORT } from '../request/request.ts';
import { ATOMIC_OPCODES, noAtomics, REPLY_OFFSET, takeWord, wordsOf } from './atomic-words.ts';

/** The minor version since which operations of bits are right: 1.13 forgets their operand where a CPU reaches the word itself, 1.18 does not. */
const BITS_FIXED_MINOR = 18;

/** The minor version since which UCX_PROTO_ENABLE is on by default. */
export const PROTO_ENABLE_MINOR = 16;
/** Transports of libucp that have atomic operations in hardware, also where the peer is looked after. */
const HARDWARE = /^(rc|dc)_/;

/**
 * Checks that libucp can be asked for atomic operations. The protocols that UCX_PROTO_ENABLE turns on have those in software only at endpoints that do not look
 * after their peer; at others the call prints an error and is canceled, and before the connection is made it never returns, or ends the process (1.18).
 * @param ep the handle of libucp's endpoint
 * @param isWatched it looks after its peer
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

/** True for an operation that libucp is not to be trusted with. */
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
