/** Explanations of operations over libucp: the protocol, and the path for device memory. */

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
import { choosePath, DevicePath, explainByNative } from '../device/paths.ts';
import type { EngineContext, EngineEndpoint } from '../engine/engine.ts';
import { type LocalMemory, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { isHost, isKnown } from '../request/local.ts';

const LIBUCP = 'libucp';
/** Native transport to memory of other processes. */
const NATIVE_TRANSPORT = 'gaudi_ipc';
const WORDS = [4, 8] as const;
const KIB = 1024;

/** The operation to explain. */
interface Query {
  readonly context: EngineContext;
  readonly endpoint: EngineEndpoint;
  readonly operation: ExplainedOperation;
  readonly local: LocalMemory;
  readonly rkey: UcpRemoteKey;
}

/** The selected path, which is the same for all sizes, and why the others were not selected. */
interface SelectedPath {
  readonly protocol: string;
  readonly note?: string | undefined;
  readonly rejected: readonly RejectedProtocol[];
}

/** @throws UcxError ERR_INVALID_PARAM */
export function explainOver(
  context: EngineContext,
  endpoint: EngineEndpoint,
  operation: ExplainedOperation,
  { local, rkey }: Pick<Query, 'local' | 'rkey'>,
): Explanation {
  if (!EXPLAINED_OPERATIONS.includes(operation)) {
    throw invalidParam('operation', `must be one of ${EXPLAINED_OPERATIONS.join(', ')}`, operation);
  }
  return explainedBy(context.engine, choiceOf({ context, endpoint, operation, local, rkey }));
}

function choiceOf(query: Query): ExplainedChoice {
  const { endpoint, operation, local, rkey } = query;
  if (operation === 'atomic') return explained(query, explainAtomic(query));
  if (operation !== 'put' && operation !== 'get') return explained(query, explainMessage(query));
  if (isHost(local) && rkey.exportId === 0) return explained(query, { ...alone(query), rejected: [] });
  switch (choosePath(endpoint, operation, local, rkey)) {
    case DevicePath.NATIVE:
      return byNative(query, operation);
    case DevicePath.DIRECT:
      return explained(query, { ...alone(query), rejected: [whyNotNative(query)] });
    case DevicePath.PIPELINE:
      return explained(query, {
        protocol: `${operation}/staging`,
        note: `through ${fragmentsOf(query)}`,
        rejected: [whyNotNative(query), whyNotAlone(query)],
      });
    case DevicePath.REMOTE:
      return explained(query, {
        protocol: `${operation}/am`,
        note: `by messages to the worker that owns the card; ${isHost(local) ? 'the owner stages' : 'both ends stage'} through ${fragmentsOf(query)}`,
        rejected: [whyNotNative(query), whyNotAlone(query)],
      });
  }
}

/** An operation of libucp alone. */
function alone(query: Query): Omit<SelectedPath, 'rejected'> {
  const { endpoint, operation } = query;
  const lanes = endpoint.transports;
  const passed = passedAddresses(query);
  const memory = passed.length === 0 ? [] : [`libucp uses the device address of ${passed.join(' and of ')} memory`];
  const note = [...memory, ...(lanes.length === 0 ? [] : [`lanes ${lanes.join(', ')}`])].join(', ');
  return { protocol: `${operation}/libucp`, note: note === '' ? undefined : note };
}

/** The sides whose device memory libucp accesses by address: for a message only the local one, for an atomic operation at most the remote one. */
function passedAddresses({ operation, local, rkey }: Query): string[] {
  const namesRemote = operation === 'put' || operation === 'get';
  return [
    ...(operation !== 'atomic' && !isHost(local) && isKnown(local) ? ['the local'] : []),
    ...(namesRemote && rkey.exportId !== 0 && rkey.handle !== 0 ? ['the remote'] : []),
  ];
}

function explainMessage(query: Query): SelectedPath {
  const { local, operation } = query;
  const path = alone(query);
  if (isKnown(local)) return { ...path, rejected: [] };
  const copying = `one message with a generic datatype, through ${fragmentsOf(query)}`;
  const note = path.note === undefined ? copying : `${copying}, ${path.note}`;
  const native = { transport: NATIVE_TRANSPORT, protocol: undefined, reason: 'does not support messages' };
  return { protocol: `${operation}/libucp`, note, rejected: [native, whyNotAlone(query)] };
}

function explainAtomic(query: Query): SelectedPath {
  if (query.rkey.exportId === 0) return { ...alone(query), protocol: 'amo/libucp', rejected: [] };
  return {
    protocol: 'amo/am',
    note: 'by messages to the worker that owns the card, which executes them one after the other',
    rejected: [
      { transport: NATIVE_TRANSPORT, protocol: undefined, reason: 'does not support atomics' },
      { transport: LIBUCP, protocol: 'amo/libucp', reason: 'libucp does not support atomics on memory of cards' },
    ],
  };
}

/** The explanation of the native transports, with libucp as an alternative. */
function byNative(query: Query, operation: 'put' | 'get'): ExplainedChoice {
  const { endpoint, local, rkey } = query;
  const native = explainByNative(endpoint, operation, local, rkey)!;
  const reason = 'both memories are on this machine, and the native transports reach them';
  const out = {
    transport: LIBUCP,
    protocol: `${operation}/${isKnown(local) && rkey.handle !== 0 ? 'libucp' : 'am'}`,
    reason,
  };
  const choice = { ...headOf(query), chosen: native.chosen, rejected: [...native.rejected, out] };
  return {
    ...choice,
    at: (bytes) => {
      const size = native.at(bytes);
      return { ...size, losers: [...size.losers, out] };
    },
    toString: () => explanationText(choice),
  };
}

function whyNotNative({ context, endpoint, operation, local, rkey }: Query): RejectedProtocol {
  const out = (reason: string): RejectedProtocol => ({ transport: NATIVE_TRANSPORT, protocol: undefined, reason });
  if (rkey.exportId === 0) return out('does not reach host memory of other processes');
  const missing = context.native.query().unavailable.find(({ name }) => name.startsWith(NATIVE_TRANSPORT));
  if (missing !== undefined) return out(missing.reason);
  if (endpoint.nativeEndpoint === undefined) return out('does not reach the peer');
  const said = explainByNative(endpoint, operation, local, rkey)?.rejected ?? [];
  return out(
    said.find(({ transport }) => transport.startsWith(NATIVE_TRANSPORT))?.reason ?? 'does not reach the memory',
  );
}

function whyNotAlone({ context, operation }: Query): RejectedProtocol {
  const { isDirect, reason } = context.access;
  const why = isDirect ? 'the remote key has no libucp part' : reason;
  return { transport: LIBUCP, protocol: `${operation}/libucp`, reason: why };
}

function fragmentsOf({ context: { fragments } }: Query): string {
  return `at most ${fragments.countMax} fragments of ${fragments.fragmentBytes / KIB} KiB in host memory`;
}

function headOf({ operation, local, rkey }: Query): Pick<ExplainedChoice, 'operation' | 'local' | 'remote'> {
  const localType = local instanceof UcpMemory ? local.memoryType : MemoryType.HOST;
  return { operation, local: memoryTypeName(localType), remote: memoryTypeName(rkey.memoryType) };
}

/** An explanation without estimates, because libucp exposes no performance model. */
function explained(query: Query, { protocol, note, rejected }: SelectedPath): ExplainedChoice {
  const row = { protocol, transport: LIBUCP, estimatedNs: undefined, note };
  const isAtomic = query.operation === 'atomic';
  const chosen: ChosenProtocol[] = isAtomic
    ? WORDS.map((bytes) => ({ bytesMin: bytes, bytesMax: bytes, ...row }))
    : [{ bytesMin: 1, bytesMax: Number.POSITIVE_INFINITY, ...row }];
  const choice = { ...headOf(query), chosen, rejected };
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
