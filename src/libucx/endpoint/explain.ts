/** Explanations of operations over libucp: the protocol, and the path for memory of cards. */

import { EXPLAINED_OPERATIONS, type ExplainedOperation } from '../../api/contract/endpoint.ts';
import {
  type ChosenProtocol,
  type ExplainedChoice,
  type Explanation,
  explainedBy,
  explanationText,
  type RejectedProtocol,
} from '../../api/contract/explanation.ts';
import { MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { checkPositive } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { choosePath, DevicePath, explainByNode } from '../device/paths.ts';
import type { EngineContext, EngineEndpoint } from '../engine/engine.ts';
import { type LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { isHost, isKnown } from '../request/local.ts';

const LIBUCP = 'libucp';
/** Transports of the node that reach memory of other processes. */
const NODE_TRANSPORT = 'gaudi_ipc';
const WORDS = [4, 8] as const;
const KIB = 1024;

/** The explained operation. */
interface Question {
  readonly context: EngineContext;
  readonly endpoint: EngineEndpoint;
  readonly operation: ExplainedOperation;
  readonly local: LocalMemory;
  readonly rkey: UcpRemoteKey;
}

/** The one path for all sizes, and the reasons against the others. */
interface Answer {
  readonly protocol: string;
  readonly note?: string | undefined;
  readonly rejected: readonly RejectedProtocol[];
}

/**
 * Explains an operation.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function explainOver(
  context: EngineContext,
  endpoint: EngineEndpoint,
  operation: ExplainedOperation,
  { local, rkey }: Pick<Question, 'local' | 'rkey'>,
): Explanation {
  if (!EXPLAINED_OPERATIONS.includes(operation)) {
    throw invalidParam('operation', `must be one of ${EXPLAINED_OPERATIONS.join(', ')}`, operation);
  }
  return explainedBy(context.engine, choiceOf({ context, endpoint, operation, local, rkey }));
}

function choiceOf(question: Question): ExplainedChoice {
  const { endpoint, operation, local, rkey } = question;
  if (operation === 'atomic') return explained(question, explainAtomic(question));
  if (operation !== 'put' && operation !== 'get') return explained(question, explainMessage(question));
  if (isHost(local) && rkey.exportId === 0) return explained(question, { ...alone(question), rejected: [] });
  switch (choosePath(endpoint, operation, local, rkey)) {
    case DevicePath.NODE:
      return byNode(question, operation);
    case DevicePath.DIRECT:
      return explained(question, { ...alone(question), rejected: [notByNode(question)] });
    case DevicePath.PIPELINE:
      return explained(question, {
        protocol: `${operation}/staging`,
        note: `through ${fragmentsOf(question)}`,
        rejected: [notByNode(question), notAlone(question)],
      });
    case DevicePath.REMOTE:
      return explained(question, {
        protocol: `${operation}/am`,
        note: `by messages to the worker that owns the card, ${isHost(local) ? 'which goes' : 'both ends go'} through ${fragmentsOf(question)}`,
        rejected: [notByNode(question), notAlone(question)],
      });
  }
}

/** Explains an operation of libucp alone. */
function alone(question: Question): Omit<Answer, 'rejected'> {
  const { endpoint, operation } = question;
  const lanes = endpoint.transports;
  const passed = passedAddresses(question);
  const memory = passed.length === 0 ? [] : [`libucp gets the device address of ${passed.join(' and of ')} memory`];
  const note = [...memory, ...(lanes.length === 0 ? [] : [`lanes ${lanes.join(', ')}`])].join(', ');
  return { protocol: `${operation}/libucp`, note: note === '' ? undefined : note };
}

/** The sides whose device memory libucp accesses by its address. A message does not name the memory of the receiver, and an atomic operation has a value. */
function passedAddresses({ operation, local, rkey }: Question): string[] {
  const namesRemote = operation === 'put' || operation === 'get';
  return [
    ...(operation !== 'atomic' && !isHost(local) && isKnown(local) ? ['the local'] : []),
    ...(namesRemote && rkey.exportId !== 0 && rkey.handle !== 0 ? ['the remote'] : []),
  ];
}

function explainMessage(question: Question): Answer {
  const { local, operation } = question;
  const answer = alone(question);
  if (isKnown(local)) return { ...answer, rejected: [] };
  const path = `one message with a datatype of its own, through ${fragmentsOf(question)}`;
  const note = answer.note === undefined ? path : `${path}, ${answer.note}`;
  const node = { transport: NODE_TRANSPORT, protocol: undefined, reason: 'carries no messages' };
  return { protocol: `${operation}/libucp`, note, rejected: [node, notAlone(question)] };
}

function explainAtomic(question: Question): Answer {
  if (question.rkey.exportId === 0) return { ...alone(question), protocol: 'amo/libucp', rejected: [] };
  return {
    protocol: 'amo/am',
    note: 'by messages to the worker that owns the card, one after the other',
    rejected: [
      { transport: NODE_TRANSPORT, protocol: undefined, reason: 'has no atomic operations' },
      { transport: LIBUCP, protocol: 'amo/libucp', reason: 'cards have no atomic operations that libucp could use' },
    ],
  };
}

/** The explanation of the transports of the node; libucp is listed as an alternative. */
function byNode(question: Question, operation: 'put' | 'get'): ExplainedChoice {
  const { endpoint, local, rkey } = question;
  const node = explainByNode(endpoint, operation, local, rkey)!;
  const reason = 'both memories are on this machine, and its own transports reach them';
  const out = {
    transport: LIBUCP,
    protocol: `${operation}/${isKnown(local) && rkey.handle !== 0 ? 'libucp' : 'am'}`,
    reason,
  };
  const choice = { ...headOf(question), chosen: node.chosen, rejected: [...node.rejected, out] };
  return {
    ...choice,
    at: (bytes) => {
      const size = node.at(bytes);
      return { ...size, losers: [...size.losers, out] };
    },
    toString: () => explanationText(choice),
  };
}

function notByNode({ context, endpoint, operation, local, rkey }: Question): RejectedProtocol {
  const out = (reason: string): RejectedProtocol => ({ transport: NODE_TRANSPORT, protocol: undefined, reason });
  if (rkey.exportId === 0) return out('does not reach host memory of other processes');
  const missing = context.node.query().unavailable.find(({ name }) => name.startsWith(NODE_TRANSPORT));
  if (missing !== undefined) return out(missing.reason);
  if (endpoint.nodeEndpoint === undefined) return out('does not reach the peer');
  const said = explainByNode(endpoint, operation, local, rkey)?.rejected ?? [];
  return out(said.find(({ transport }) => transport.startsWith(NODE_TRANSPORT))?.reason ?? 'does not reach the memory');
}

function notAlone({ context, operation }: Question): RejectedProtocol {
  const { isDirect, reason } = context.access;
  const why = isDirect ? 'the peer has given no key of libucp' : reason;
  return { transport: LIBUCP, protocol: `${operation}/libucp`, reason: why };
}

function fragmentsOf({ context: { fragments } }: Question): string {
  return `${fragments.countMax} fragments of ${fragments.fragmentBytes / KIB} KiB in host memory at most`;
}

function headOf({ operation, local, rkey }: Question): Pick<ExplainedChoice, 'operation' | 'local' | 'remote'> {
  const localType = local instanceof UcpMemory ? local.memoryType : MemoryType.HOST;
  return { operation, local: memoryTypeName(localType), remote: memoryTypeName(rkey.memoryType) };
}

/** An explanation without estimates: libucp has no performance model here. */
function explained(question: Question, { protocol, note, rejected }: Answer): ExplainedChoice {
  const row = { protocol, transport: LIBUCP, estimatedNs: undefined, note };
  const isAtomic = question.operation === 'atomic';
  const chosen: ChosenProtocol[] = isAtomic
    ? WORDS.map((bytes) => ({ bytesMin: bytes, bytesMax: bytes, ...row }))
    : [{ bytesMin: 1, bytesMax: Number.POSITIVE_INFINITY, ...row }];
  const choice = { ...headOf(question), chosen, rejected };
  return {
    ...choice,
    at: (bytes) => {
      checkPositive('bytes', bytes);
      const isTaken = chosen.some(({ bytesMin, bytesMax }) => bytesMin <= bytes && bytes <= bytesMax);
      return { bytes, winner: isTaken ? { ...row, bandwidth: undefined } : undefined, losers: rejected };
    },
    toString: () => explanationText(choice),
  };
}
