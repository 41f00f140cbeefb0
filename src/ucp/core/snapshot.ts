/** The snapshot of a worker of the native engine: its endpoints, requests and unexpected messages, and the reason why each request is pending. */

import { printSocketAddress } from '../../api/contract/listener.ts';
import { tagWordsText, wantedText } from '../../api/contract/request.ts';
import {
  countBy,
  type EndpointSnapshot,
  SNAPSHOT_ENDPOINTS_MAX,
  SNAPSHOT_MESSAGES_MAX,
  type UnexpectedSnapshot,
  type WaitReason,
  type WorkerSnapshot,
} from '../../api/contract/snapshot.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { PendingRequests } from '../../api/snapshot/summary.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { Connection } from '../base/connection.ts';
import { RequestState } from '../base/queued.ts';
import { ReceiveRequest, SendRequest } from '../base/request/operation-requests.ts';
import { ConnectRequest, FlushRequest, type Request } from '../base/request/request.ts';
import { nameOf } from '../lane/lanes.ts';
import type { EndpointWorker } from './endpoint.ts';

const SLOT_MASK = 0xffff;

/** Takes the snapshot of a worker. @param isClaimed true if the program has an endpoint for a connection */
export function workerSnapshot(worker: EndpointWorker, isClaimed: (connection: Connection) => boolean): WorkerSnapshot {
  const queued = new Map<Connection, number>();
  const requests = new PendingRequests<Request>(({ request, protocol, reason, byteLength, ageMs }) => {
    const transport = transportOf(request);
    return {
      protocol,
      byteLength,
      doneBytes: request.done,
      ageMs,
      endpoint: request.connection === undefined ? undefined : slotOf(request.connection),
      transport,
      reason,
      waitsFor: waitTextOf(request, reason, transport),
    };
  });
  worker.coarse.look();
  const { nowMs } = worker.coarse;
  for (const request of worker.requests.created) {
    if (request.state === RequestState.FREE) continue;
    if (request.isCompleted) {
      requests.addEnded();
      continue;
    }
    const { connection, byteLength } = request;
    if (request.queued && connection !== undefined) queued.set(connection, (queued.get(connection) ?? 0) + 1);
    // The age of a protocol request counts from the first snapshot that shows it.
    if (request.startMs < 0) request.startMs = nowMs;
    requests.add({
      request,
      protocol: request.protocol,
      reason: waitReasonOf(request),
      byteLength,
      ageMs: nowMs - request.startMs,
    });
  }
  const connections = worker.connections.all;
  const load = (connection: Connection): number => (queued.get(connection) ?? 0) + connection.waiting.size;
  const shown = [...connections].sort((left, right) => load(right) - load(left)).slice(0, SNAPSHOT_ENDPOINTS_MAX);
  return {
    id: worker.shownId,
    clientId: `0x${worker.clientId.toString(16)}`,
    transports: worker.ifaces.map(({ attributes }) => nameOf(attributes)),
    endpointCount: connections.length,
    endpointStates: countBy(connections, stateOf),
    endpoints: shown.map((each) => endpointSnapshot(each, queued.get(each) ?? 0, isClaimed(each))),
    requests: requests.summary(worker.requests.max),
    unexpected: unexpectedSnapshot(worker),
  };
}

function endpointSnapshot(connection: Connection, queued: number, isClaimed: boolean): EndpointSnapshot {
  const { lanes, amLane, socketAddresses, unreachable, waiting, credit } = connection;
  return {
    id: slotOf(connection),
    peer:
      socketAddresses?.remote === undefined
        ? Buffer.from(connection.peerWorkerId, 'latin1').toString('hex')
        : printSocketAddress(socketAddresses.remote),
    state: stateOf(connection),
    isClaimed,
    lanes: lanes.map((lane) => ({ transport: nameOf(lane.iface.attributes), carriesMessages: lane === amLane })),
    queued,
    awaitingPeer: waiting.size,
    creditBytes: credit.bytes,
    notUsed: unreachable.map(({ name, reason }) => ({ name, reason })),
  };
}

function stateOf({ failure, isLoopback, remoteId }: Connection): string {
  if (failure !== Status.OK) return statusName(failure);
  if (isLoopback) return 'loopback';
  return remoteId === NO_ENDPOINT ? 'connecting' : 'connected';
}

function unexpectedSnapshot({ protocols, context }: EndpointWorker): UnexpectedSnapshot {
  const { unexp_messages, unexp_bytes, stream_bytes, am_bytes } = protocols.levels();
  return {
    messages: unexp_messages,
    messageBytes: unexp_bytes,
    streamBytes: stream_bytes,
    amBytes: am_bytes,
    bytesMax: context.unexpectedBytesMax,
    first: protocols.tag.matcher.firstWaiting(SNAPSHOT_MESSAGES_MAX).map(({ tagLow, tagHigh, byteLength }) => ({
      tag: tagWordsText(tagLow, tagHigh),
      byteLength,
    })),
  };
}

function transportOf({ transport, device }: Request): string | undefined {
  return transport === undefined ? undefined : `${transport}/${device ?? ''}`;
}

/** Slot of the connection in the table, which numbers its endpoint. */
function slotOf({ id }: Connection): number {
  return id & SLOT_MASK;
}

export interface Wait {
  readonly reason: WaitReason;
  readonly text: string;
}

/** The reason without details: cheap, for many requests. */
export function waitReasonOf(request: Request): WaitReason {
  const { connection } = request;
  if (request.queued) {
    if (connection?.remoteId === NO_ENDPOINT && !connection.isLoopback) return 'connection';
    const isUnasked = request instanceof SendRequest && !request.protocolName.startsWith('rndv');
    return isUnasked && connection !== undefined && connection.credit.bytes < request.byteLength
      ? 'credit'
      : 'resources';
  }
  if (request instanceof FlushRequest) return 'operations';
  if (request instanceof ConnectRequest || request.requestId !== 0) return 'peer';
  if (request instanceof ReceiveRequest && request.transfer === undefined && request.messageBytes === 0) {
    return 'message';
  }
  return request.lane === undefined && request.transfer !== undefined ? 'peer' : 'transport';
}

/** The details of the reason. @param transport of the request, such as `gaudi_cpy/gaudi0` */
function waitTextOf(request: Request, reason: WaitReason, transport: string | undefined): string {
  const { connection } = request;
  switch (reason) {
    case 'connection':
      return 'the reply to the connection request';
    case 'credit':
      return `credit of the peer, ${connection?.credit.bytes ?? 0} bytes are left`;
    case 'resources':
      return transport === undefined
        ? 'earlier operations, or resources of a transport'
        : `earlier operations, or resources of ${transport}`;
    case 'message':
      return request instanceof ReceiveRequest && connection === undefined
        ? messageText(request)
        : 'bytes of the stream';
    case 'peer':
      return request instanceof ConnectRequest ? 'the reply of the listener' : 'the reply of the peer';
    case 'operations':
      return 'earlier operations';
    case 'transport':
      return transport === undefined ? 'a transport' : transport;
  }
}

function messageText({ tagLow, tagHigh, maskLow, maskHigh }: ReceiveRequest): string {
  return wantedText(joinBig(tagLow, tagHigh), joinBig(maskLow, maskHigh));
}
