/** A connection over fake lanes: the order of what waits, the numbers of requests, and the end of all of them, once. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, type FakePeer, MESSAGES, RMA } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { readCredit } from '../../api/layout/control.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readReply, writeReply } from '../../api/layout/rendezvous.ts';
import { readTag, writeTag } from '../../api/layout/tag.ts';
import type { Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { postReply } from '../rndv/reply.ts';
import { SendRequest } from './request/operation-requests.ts';

function opened(lanes = [MESSAGES]) {
  const stack = new FakeLanes(lanes);
  return { stack, peer: stack.peer() };
}

const BYTES = new Uint8Array(8);

function repliesOf(peer: FakePeer): number[] {
  return peer.got(MessageId.REPLY).map((frame) => readReply(frame).request);
}

describe('a message of the protocol', () => {
  it('that finds no room is sent later, in order, with the contents that it had', () => {
    const { stack, peer } = opened();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    for (const number of [1, 2]) postReply(peer.connection, number, Status.OK);
    delete peer.am.answers.amShort;
    postReply(peer.connection, 3, Status.OK);
    expect([repliesOf(peer), peer.connection.isDrained]).toEqual([[], false]);
    stack.worker.progress();
    expect([repliesOf(peer), peer.connection.isDrained]).toEqual([[1, 2, 3], true]);
  });

  it('is sent again if the process lacks memory or descriptors', () => {
    const { stack, peer } = opened();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    postReply(peer.connection, 1, Status.OK);
    peer.am.answers.amShort = Status.NO_MEMORY;
    stack.worker.progress();
    delete peer.am.answers.amShort;
    stack.worker.progress();
    expect(repliesOf(peer)).toEqual([1]);
  });

  it('overtakes operations of the program that wait', () => {
    const { stack, peer } = opened();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    peer.endpoint.tagSendNbx(BYTES, 0, 8, 1);
    postReply(peer.connection, 1, Status.OK);
    delete peer.am.answers.amShort;
    stack.worker.progress();
    expect(peer.am.sent.map(({ id }) => id)).toEqual([MessageId.REPLY, MessageId.TAG]);
  });

  it('is one of a bounded number: more end the connection, within progress', () => {
    const { stack, peer } = opened();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    const errors: Status[] = [];
    peer.endpoint.setOptions({ onError: (_endpoint, status) => errors.push(status) });
    for (let i = 0; i < 65_536; i++) postReply(peer.connection, i, Status.OK);
    expect(peer.connection.failure).toBe(Status.OK);
    postReply(peer.connection, 0, Status.OK);
    expect([peer.connection.failure, errors]).toEqual([Status.EXCEEDS_LIMIT, []]);
    stack.worker.progress();
    expect(errors).toEqual([Status.EXCEEDS_LIMIT]);
  });

  it('returns all credit that is free when it is sent, in one message', () => {
    const stack = new FakeLanes([MESSAGES], { UNEXP_MAX_BYTES: 4096 });
    const peer = stack.peer();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    for (let i = 0; i < 12; i++) {
      stack.worker.tagRecvNbx(new Uint8Array(8), 0, 8, 5);
      peer.deliver(MessageId.TAG, writeTag(peer.connection.id, 0, 5, 0), BYTES);
    }
    delete peer.am.answers.amShort;
    stack.worker.progress();
    const returned = peer.got(MessageId.CREDIT).map((frame) => readCredit(frame).returnedBytes);
    expect([returned, peer.connection.inbound.returnable]).toEqual([[12 * 264], 0]);
  });
});

describe('requests of the program', () => {
  it('wait for the answer to connect, and go in their order', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.connect();
    const requests = [1, 2, 3].map((tag) => peer.endpoint.tagSendNbx(BYTES, 0, 8, tag) as Request);
    stack.worker.progress();
    expect([requests.some(({ isCompleted }) => isCompleted), peer.connection.hasPending]).toEqual([false, true]);
    peer.answer(4096);
    stack.worker.progress();
    expect(peer.got(MessageId.TAG).map((frame) => readTag(frame).tagLow)).toEqual([1, 2, 3]);
  });

  it('wait until the request to connect is sent, by whichever lane they go', () => {
    const stack = new FakeLanes([RMA]);
    const [iface] = stack.ifaces;
    const { connect } = iface!;
    iface!.connect = () => {
      const endpoint = connect.call(iface);
      endpoint.answers.amShort = Status.NO_RESOURCE;
      return endpoint;
    };
    const peer = stack.stranger();
    peer.connect();
    const [lane] = peer.lanes;
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(stack.mds[0]!.add(new Uint8Array(2000))));
    peer.endpoint.putNbx(new Uint8Array(2000), 0, 2000, rkey, 0);
    stack.worker.progress();
    expect([lane!.sent, lane!.started]).toEqual([[], []]);
    delete lane!.answers.amShort;
    stack.worker.progress();
    expect([peer.got(MessageId.WIREUP).length, lane!.started.length]).toEqual([1, 1]);
  });

  it('have numbers of their own until they end', () => {
    const { stack, peer } = opened();
    const { connection } = peer;
    const requests = [0, 1, 2].map(() => {
      const request = new SendRequest(stack.worker);
      request.begin(connection, undefined);
      connection.expect(request);
      return request;
    });
    const numbers = requests.map(({ requestId }) => requestId);
    expect([new Set(numbers).size, numbers.includes(0)]).toEqual([3, false]);
    connection.renew(requests[1]!);
    expect([connection.waiting.has(numbers[1]!), connection.waiting.get(requests[1]!.requestId)]).toEqual([
      false,
      requests[1],
    ]);
    for (const request of requests) request.end(Status.OK);
    expect([connection.waiting.size, requests.map(({ requestId }) => requestId)]).toEqual([0, [0, 0, 0]]);
  });

  it('that only the peer can end hold up flushes until the last of them has ended', () => {
    const { stack, peer } = opened();
    const { connection } = peer;
    const remote = [0, 1].map(() => {
      const request = new SendRequest(stack.worker);
      request.begin(connection, undefined);
      request.isRemote = true;
      connection.expect(request);
      return request;
    });
    const flush = peer.endpoint.flushNbx() as Request;
    remote[0]!.end(Status.OK);
    expect(flush.isCompleted).toBe(false);
    remote[1]!.end(Status.OK);
    expect([flush.status, connection.remoteOperations]).toEqual([Status.OK, 0]);
  });

  it('end a flush that was cancelled no second time', () => {
    const { stack, peer } = opened();
    const request = new SendRequest(stack.worker);
    request.begin(peer.connection, undefined);
    request.isRemote = true;
    peer.connection.expect(request);
    const ends: Status[] = [];
    const flush = peer.endpoint.flushNbx({ callback: (_request, status) => ends.push(status) }) as Request;
    expect([flush.cancel(), flush.cancel()]).toEqual([true, false]);
    // The object belongs to another flush, which waits for a lane too.
    flush.free();
    peer.am.answers.flush = Status.INPROGRESS;
    const second = peer.endpoint.flushNbx() as Request;
    request.end(Status.OK);
    expect([ends, second === flush, second.isCompleted]).toEqual([[Status.CANCELED], true, false]);
    peer.am.flushes[0]!.end();
    expect(second.status).toBe(Status.OK);
  });

  it('keep the first failure that was found before their flush, for one flush', () => {
    const { connection } = opened().peer;
    connection.keepFailure(Status.IO_ERROR);
    connection.keepFailure(Status.TIMED_OUT);
    expect([connection.takeFailure(), connection.takeFailure()]).toEqual([Status.IO_ERROR, Status.OK]);
  });
});

describe('the end of a connection', () => {
  it('ends each request once, with its status, and later operations fail with the same', () => {
    const { stack, peer } = opened();
    const ends: [string, Status][] = [];
    const ended = (name: string) => ({ callback: (_request: Request, status: Status) => ends.push([name, status]) });
    peer.endpoint.tagSendSyncNbx(BYTES, 0, 8, 1, ended('waits for the peer'));
    peer.am.answers.amShort = Status.NO_RESOURCE;
    peer.endpoint.tagSendNbx(BYTES, 0, 8, 1, ended('waits for room'));
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    peer.connection.fail(Status.CANCELED);
    stack.worker.progress();
    expect(ends).toEqual([
      ['waits for the peer', Status.ENDPOINT_TIMEOUT],
      ['waits for room', Status.ENDPOINT_TIMEOUT],
    ]);
    expect([peer.connection.failure, peer.endpoint.tagSendNbx(BYTES, 0, 8, 1)]).toEqual([
      Status.ENDPOINT_TIMEOUT,
      Status.ENDPOINT_TIMEOUT,
    ]);
    expect([stack.worker.requestsInUse, peer.connection.waiting.size]).toEqual([2, 0]);
  });

  it('in the start of a request ends that once, and starts nothing behind it', () => {
    const { stack, peer } = opened();
    const ends: Status[] = [];
    const queued = [0, 1].map(() => {
      const request = new SendRequest(stack.worker);
      request.begin(peer.connection, undefined);
      request.callback = (_request, status) => ends.push(status);
      request.starter = (_request, connection) => {
        connection.fail(Status.EXCEEDS_LIMIT);
        return Status.IO_ERROR;
      };
      peer.connection.queue(request);
      return request;
    });
    stack.worker.progress();
    expect([ends, queued.map(({ status }) => status)]).toEqual([
      [Status.EXCEEDS_LIMIT, Status.EXCEEDS_LIMIT],
      [Status.EXCEEDS_LIMIT, Status.EXCEEDS_LIMIT],
    ]);
  });

  it('waits for transports that use the memory of a request', () => {
    const { stack, peer } = opened([RMA]);
    const remote = stack.mds[0]!.add(new Uint8Array(2000));
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(remote));
    const request = peer.endpoint.putNbx(new Uint8Array(2000), 0, 2000, rkey, 0) as Request;
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect(request.isCompleted).toBe(false);
    peer.lanes[0]!.started[0]!.end(Status.ENDPOINT_TIMEOUT);
    expect(request.status).toBe(Status.ENDPOINT_TIMEOUT);
  });

  it('waits for the blocks of a list in flight, told once or twice, and keeps the lanes open', () => {
    const { stack, peer } = opened([RMA]);
    const [lane] = peer.lanes;
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(stack.mds[0]!.add(new Uint8Array(4000))));
    const { putZcopy } = lane!;
    let room = 1;
    lane!.putZcopy = (...given) => (room-- > 0 ? putZcopy.apply(lane, given) : Status.NO_RESOURCE);
    const list = [0, 2000].map((offset) => ({
      local: new Uint8Array(1000),
      rkey,
      remoteOffset: offset,
      byteLength: 1000,
    }));
    const request = peer.endpoint.putListNbx(list) as Request;
    lane!.answers.check = Status.ENDPOINT_TIMEOUT;
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    peer.connection.cancelWaiting(Status.CANCELED);
    peer.connection.releaseLanes();
    expect([request.isCompleted, peer.connection.waiting.size, lane!.isClosed]).toEqual([false, 1, false]);
    lane!.started[0]!.end(Status.ENDPOINT_TIMEOUT);
    peer.connection.releaseLanes();
    expect([request.status, peer.connection.waiting.size, lane!.isClosed]).toEqual([Status.ENDPOINT_TIMEOUT, 0, true]);
  });

  it('is reported to the peer once', () => {
    const { peer } = opened();
    peer.connection.fail(Status.EXCEEDS_LIMIT);
    peer.connection.sendClose();
    peer.connection.close();
    expect(peer.got(MessageId.CLOSE).length).toBe(1);
  });

  it('is not told to a peer that has closed first, or never heard of it', () => {
    const { stack, peer } = opened();
    peer.connection.endedByPeer();
    expect([peer.got(MessageId.CLOSE), peer.connection.failure, peer.connection.closedByPeer]).toEqual([
      [],
      Status.CONNECTION_RESET,
      true,
    ]);
    const stranger = stack.stranger();
    stranger.connect();
    expect([stranger.connection.remoteId, stranger.connection.isClosePending]).toEqual([NO_ENDPOINT, true]);
    stranger.connection.fail(Status.CANCELED);
    expect(stranger.got(MessageId.CLOSE)).toEqual([]);
  });

  it('closes its lanes once, and gives back what it keeps of the peer', () => {
    const { stack, peer } = opened([RMA]);
    const { budget } = stack.worker;
    const before = budget.grantedBytes;
    const other = stack.peer();
    const packed = other.keyOf(stack.mds[0]!.add(new Uint8Array(8)));
    const rkey = other.connection.rkeys.acquire(packed, (kept) => stack.context.unpackRkey(kept, other.connection));
    other.connection.rkeys.release(rkey);
    expect([budget.grantedBytes > before, stack.keys]).toEqual([true, 1]);
    other.connection.close();
    expect([budget.grantedBytes, stack.keys, other.lanes.every(({ isClosed }) => isClosed)]).toEqual([before, 0, true]);
    expect(peer.lanes.some(({ isClosed }) => isClosed)).toBe(false);
  });

  it('closes the lanes of a peer that has closed as soon as no request uses them', () => {
    const { stack, peer } = opened([RMA]);
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(stack.mds[0]!.add(new Uint8Array(2000))));
    peer.endpoint.putNbx(new Uint8Array(2000), 0, 2000, rkey, 0);
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    peer.connection.releaseLanes();
    expect(peer.lanes[0]!.isClosed).toBe(false);
    const closed = stack.peer();
    closed.connection.releaseLanes();
    expect(closed.lanes[0]!.isClosed).toBe(false);
    closed.connection.endedByPeer();
    closed.connection.releaseLanes();
    expect(closed.lanes[0]!.isClosed).toBe(true);
  });
});

describe('a connection that is given up', () => {
  it('ends what waits with CANCELED, sends what the peer waits for, and lets flushes end', () => {
    const { stack, peer } = opened();
    const ends: Status[] = [];
    const params = { callback: (_request: Request, status: Status): number => ends.push(status) };
    peer.endpoint.tagSendSyncNbx(BYTES, 0, 8, 1, params);
    peer.am.answers.amShort = Status.NO_RESOURCE;
    peer.endpoint.tagSendNbx(BYTES, 0, 8, 1, params);
    postReply(peer.connection, 7, Status.OK);
    const flush = peer.endpoint.flushNbx() as Request;
    peer.connection.cancelWaiting(Status.CANCELED);
    expect([ends, flush.isCompleted, peer.am.cancels]).toEqual([[Status.CANCELED, Status.CANCELED], false, 1]);
    delete peer.am.answers.amShort;
    stack.worker.progress();
    expect([repliesOf(peer), flush.status, peer.connection.failure]).toEqual([[7], Status.OK, Status.OK]);
  });

  it('ignores answers to what it has ended', () => {
    const { peer } = opened();
    const ends: Status[] = [];
    const params = { callback: (_request: Request, status: Status): number => ends.push(status) };
    peer.endpoint.tagSendSyncNbx(BYTES, 0, 8, 1, params);
    const { request } = readTag(peer.got(MessageId.TAG_SYNC)[0]!);
    peer.connection.cancelWaiting(Status.CANCELED);
    peer.deliver(MessageId.REPLY, writeReply(peer.connection.id, { request, status: Status.OK, low: 0, high: 0 }));
    expect(ends).toEqual([Status.CANCELED]);
  });
});
