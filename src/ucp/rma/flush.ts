/** Flush and fence of connections. A flush ends when all earlier operations have reached remote memory; a fence orders them before later ones. */

import { Status } from '../../ucs/type/status.ts';
import { IfaceFlag } from '../../uct/api/iface.ts';
import type { Connection } from '../base/connection.ts';
import { FlushRequest, type RequestOwner } from '../base/request/request.ts';
import type { Lane } from '../lane/lanes.ts';

/** Flushes lanes without waiting: returns OK, INPROGRESS if operations are in flight, or the first failure, which is reported once. */
export function tryFlush(lanes: readonly Lane[]): Status {
  let failure: Status = Status.OK;
  let isPending = false;
  for (let i = 0; i < lanes.length; i++) {
    const status = lanes[i]!.endpoint.flush(undefined);
    if (status === Status.INPROGRESS) isPending = true;
    else if (failure === Status.OK) failure = status;
  }
  return failure !== Status.OK || !isPending ? failure : Status.INPROGRESS;
}

/** Initializes a request as the flush of lanes of one connection, and of operations that only the peer can end. */
export function initFlush(
  request: FlushRequest,
  connection: Connection,
  lanes: readonly Lane[],
  failure: Status,
): void {
  request.begin(connection, undefined);
  request.lanes = lanes;
  request.failure = failure;
  request.starter = () => startFlush(request, connection);
}

/** Starts the flush of the remaining lanes; lanes without resources are retried at the next start. */
function startFlush(request: FlushRequest, connection: Connection): Status {
  // A lane reports a failure once: one that a fence has consumed, perhaps while this flush waited behind it, belongs to this flush.
  const kept = connection.takeFailure();
  if (request.failure === Status.OK) request.failure = kept;
  const left: Lane[] = [];
  for (const lane of request.lanes) {
    request.count += 1;
    lane.activity.busy = true;
    const status = lane.endpoint.flush(request);
    if (status === Status.INPROGRESS) continue;
    request.count -= 1;
    if (status === Status.NO_RESOURCE) left.push(lane);
    else if (status < 0) request.failure = status;
  }
  request.lanes = left;
  if (left.length > 0) return Status.NO_RESOURCE;
  connection.awaitRemote(request);
  request.onList = () => request.complete(Status.OK);
  request.count += connection.notifications.await(request.onList);
  request.count -= 1;
  return request.count > 0 ? Status.INPROGRESS : request.failure;
}

/** Flushes a connection that is being closed, behind all queued requests and with a request that is not from the pool. */
export function enqueueFlush(connection: Connection, owner: RequestOwner, done: () => void): void {
  const flush = new FlushRequest(owner);
  initFlush(flush, connection, connection.lanes, Status.OK);
  flush.callback = done;
  // If the connection ends in the meantime, the flush is queued again: transports complete what they have started.
  flush.abandon = () => connection.enqueue(flush);
  connection.enqueue(flush);
}

/** Initializes a request as one flush of several connections; it ends with the last of them. */
export function initFlushOf(request: FlushRequest, connections: readonly Connection[], owner: RequestOwner): void {
  request.begin(undefined, undefined);
  request.starter = () => {
    const parts: FlushRequest[] = [];
    request.parts = parts;
    for (const connection of connections) {
      const part = new FlushRequest(owner);
      parts.push(part);
      initFlush(part, connection, connection.lanes, Status.OK);
      request.count += 1;
      part.callback = (_part, status) => request.complete(status);
      connection.enqueue(part);
    }
    request.count -= 1;
    return request.count > 0 ? Status.INPROGRESS : request.failure;
  };
}

/** Orders the operations that a connection has started before those that it starts later. */
export function fenceConnection(connection: Connection, owner: RequestOwner): void {
  if (!connection.hasPending && isOrdered(connection)) return;
  const fence = new FlushRequest(owner);
  fence.begin(connection, undefined);
  // At the head of the queue, the fence holds back the requests behind it.
  fence.starter = () => (isOrdered(connection) ? Status.OK : Status.NO_RESOURCE);
  connection.enqueue(fence);
}

function isOrdered(connection: Connection): boolean {
  if (connection.remoteOperations > 0) return false;
  const { lanes } = connection;
  let ordered = true;
  for (const { endpoint } of lanes) {
    if (endpoint.fence() === Status.INPROGRESS) ordered = false;
  }
  if (!ordered || lanes.filter(canMove).length < 2) return ordered;
  // A lane keeps only its own order, but later operations may use another lane.
  for (const { endpoint } of lanes) {
    const status = endpoint.flush(undefined);
    if (status === Status.INPROGRESS) ordered = false;
    else if (status < 0) connection.keepFailure(status);
  }
  return ordered;
}

/** True if puts, gets or atomic operations may use a lane. */
function canMove({ iface: { attributes } }: Lane): boolean {
  const { put, get, flags } = attributes;
  const isRma = put.shortBytesMax + put.zcopyBytesMax + get.shortBytesMax + get.zcopyBytesMax > 0;
  return isRma || (flags & (IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64)) !== 0;
}
