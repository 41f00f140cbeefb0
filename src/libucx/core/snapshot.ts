/** The snapshot of a worker over libucp: its endpoints and requests, as far as this engine tracks them. */

import type { EndpointAttributes } from '../../api/contract/endpoint.ts';
import { printSocketAddress } from '../../api/contract/listener.ts';
import { wantedText } from '../../api/contract/request.ts';
import {
  countBy,
  type EndpointSnapshot,
  SNAPSHOT_ENDPOINTS_MAX,
  type WaitReason,
  type WorkerSnapshot,
} from '../../api/contract/snapshot.ts';
import { PendingRequests } from '../../api/snapshot/summary.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { RequestKind, RequestState, STREAM_RECEIVE, type UcpRequest } from '../request/request.ts';
import type { Requests } from '../request/requests.ts';

/** The properties of a worker that a snapshot shows. */
export interface SnapshotWorker {
  /** Name of the worker within the process. */
  readonly shownId: string;
  readonly clientId: bigint;
  readonly requests: Requests;
  readonly endpoints: readonly EngineEndpoint[];
}

export function workerSnapshot({ shownId, clientId, requests, endpoints }: SnapshotWorker): WorkerSnapshot {
  const pending = new PendingRequests<UcpRequest>(({ request, protocol, byteLength, ageMs, reason }) => ({
    protocol,
    byteLength,
    doneBytes: 0,
    ageMs,
    endpoint: undefined,
    transport: request.transport,
    reason,
    waitsFor: waitTextOf(request),
  }));
  requests.coarse.look();
  const { nowMs } = requests.coarse;
  for (const request of requests.all) {
    if (request === undefined || request.state === RequestState.FREE) continue;
    if (request.isCompleted) pending.addEnded();
    else {
      const { protocol, byteLength, startMs, kind } = request;
      pending.add({
        request,
        protocol,
        reason: isStream(request) ? 'message' : REASONS[kind],
        byteLength,
        ageMs: nowMs - startMs,
      });
    }
  }
  return {
    id: shownId,
    clientId: `0x${clientId.toString(16)}`,
    transports: [],
    endpointCount: endpoints.length,
    endpointStates: countBy(endpoints, stateOf),
    endpoints: endpoints.slice(0, SNAPSHOT_ENDPOINTS_MAX).map(endpointSnapshot),
    requests: pending.summary(requests.max),
    unexpected: undefined,
  };
}

/** Number of each endpoint that was shown, from 1. Numbers are not reused. */
const ids = new WeakMap<EngineEndpoint, number>();
let shown = 0;

function idOf(endpoint: EngineEndpoint): number {
  const known = ids.get(endpoint);
  if (known !== undefined) return known;
  shown += 1;
  ids.set(endpoint, shown);
  return shown;
}

function endpointSnapshot(endpoint: EngineEndpoint): EndpointSnapshot {
  const { remoteAddress, transports = [] }: Partial<EndpointAttributes> = endpoint.closed ? {} : endpoint.query();
  return {
    id: idOf(endpoint),
    // For an endpoint by worker address, libucp does not report the peer.
    peer: remoteAddress === undefined ? undefined : printSocketAddress(remoteAddress),
    state: stateOf(endpoint),
    isClaimed: true,
    lanes: transports.map((transport) => ({ transport, carriesMessages: undefined })),
    queued: undefined,
    awaitingPeer: undefined,
    creditBytes: undefined,
    notUsed: [],
  };
}

function stateOf({ status }: EngineEndpoint): string {
  // libucp does not report whether the endpoint is connected.
  return status === Status.OK ? 'not known' : statusName(status);
}

/** True for a receive of a stream, which this engine queues. */
function isStream({ protocol }: UcpRequest): boolean {
  return protocol === STREAM_RECEIVE;
}

function waitTextOf(request: UcpRequest): string {
  const { kind, wantedTag, wantedMask } = request;
  if (isStream(request)) return 'bytes of the stream';
  return wantedTag === undefined ? WAIT_TEXTS[kind] : wantedText(wantedTag, wantedMask);
}

const REASONS: Readonly<Record<RequestKind, WaitReason>> = {
  [RequestKind.SEND]: 'transport',
  [RequestKind.TAG_RECV]: 'message',
  [RequestKind.AM_RECV]: 'transport',
  [RequestKind.COMPOSITE]: 'operations',
};

const WAIT_TEXTS: Readonly<Record<RequestKind, string>> = {
  [RequestKind.SEND]: 'libucp',
  [RequestKind.TAG_RECV]: 'the data of a message',
  [RequestKind.AM_RECV]: 'libucp',
  [RequestKind.COMPOSITE]: 'the transfers of which it consists',
};
