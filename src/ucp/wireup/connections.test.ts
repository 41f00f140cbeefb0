/** The connections of a worker over fake lanes: paired by number, proven by the source of a message, and bounded against peers that do not keep to the protocol. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, MESSAGES } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { readWireup, WireupCode, writeClose, writeWireup } from '../../api/layout/control.ts';
import { endpointOf, NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { LEAVING_MAX } from './connections.ts';

const WINDOW = 5000;
const UNCLAIMED_MAX = 4096;

describe('an endpoint that is made first', () => {
  it('asks with the address of its worker, and is established by the answer, once', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.connect();
    const [asked] = peer.got(MessageId.WIREUP);
    const { id, inbound } = peer.connection;
    expect(readWireup(asked!)).toEqual({
      code: WireupCode.REQUEST,
      from: id,
      number: 0,
      windowBytes: inbound.windowBytes,
    });
    expect([endpointOf(asked!), asked!.byteLength]).toEqual([NO_ENDPOINT, 24 + stack.worker.address().byteLength]);
    peer.answer(WINDOW);
    expect([peer.connection.remoteId, peer.connection.credit.bytes]).toEqual([peer.id, WINDOW]);
    const again = { code: WireupCode.REPLY, from: 9999, number: 0, windowBytes: 2 ** 40 };
    peer.deliver(MessageId.WIREUP, writeWireup(id, again));
    expect([peer.connection.remoteId, peer.connection.credit.bytes]).toEqual([peer.id, WINDOW]);
  });

  it('takes no answer of another peer, and none from no connection', () => {
    const stack = new FakeLanes([MESSAGES]);
    const [peer, other] = [stack.stranger(), stack.stranger()];
    peer.connect();
    const reply = { code: WireupCode.REPLY, from: 77, number: 0, windowBytes: WINDOW };
    peer.deliver(MessageId.WIREUP, writeWireup(peer.connection.id, reply), undefined, other.source);
    for (const from of [0, -1]) peer.deliver(MessageId.WIREUP, writeWireup(peer.connection.id, { ...reply, from }));
    expect(peer.connection.remoteId).toBe(NO_ENDPOINT);
  });

  it('is one connection with that of a peer that asks at the same time', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.connect();
    const { connection } = peer;
    peer.request(WINDOW);
    expect([stack.worker.connections.all, connection.remoteId, connection.credit.bytes]).toEqual([
      [connection],
      peer.id,
      WINDOW,
    ]);
    expect(peer.got(MessageId.WIREUP).length).toBe(1);
  });
});

describe('a peer that asks first', () => {
  it('gets the number of its half here, which the next endpoint to it is', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    const number = peer.request(WINDOW);
    const { connection } = peer;
    expect([number, connection.remoteId, connection.credit.bytes]).toEqual([connection.id, peer.id, WINDOW]);
    peer.connect();
    expect([stack.worker.connections.all, peer.got(MessageId.WIREUP).length]).toEqual([[connection], 1]);
  });

  it('needs an address of the interface that its message came from', () => {
    const stack = new FakeLanes([MESSAGES]);
    const [peer, other] = [stack.stranger(), stack.stranger()];
    const request = { code: WireupCode.REQUEST, from: 55, number: 0, windowBytes: WINDOW };
    peer.deliver(MessageId.WIREUP, writeWireup(NO_ENDPOINT, request), peer.address, other.source);
    peer.deliver(MessageId.WIREUP, writeWireup(NO_ENDPOINT, request), peer.address.subarray(1));
    expect([stack.worker.connections.all, stack.warnings.length]).toEqual([[], 2]);
  });

  it('is refused beyond a number of connections that nobody here has asked for', () => {
    const stack = new FakeLanes([MESSAGES]);
    const [first, second] = Array.from({ length: UNCLAIMED_MAX }, () => {
      const peer = stack.stranger();
      peer.request(WINDOW);
      return peer;
    });
    expect(stack.worker.connections.all.length).toBe(UNCLAIMED_MAX);
    const late = stack.stranger();
    late.request(WINDOW);
    expect(stack.worker.connections.all.length).toBe(UNCLAIMED_MAX);
    const refusals = stack.ifaces[0]!.endpoints.at(-1)!.messages(MessageId.CLOSE);
    expect([refusals.map(endpointOf), stack.ifaces[0]!.endpoints.at(-1)!.isClosed]).toEqual([[late.id], true]);
    // One that is used makes room for another.
    first!.connect();
    late.request(WINDOW);
    // So does one that its peer closes.
    second!.deliver(MessageId.CLOSE, writeClose(second!.connection.id));
    for (const peer of [stack.stranger(), stack.stranger()]) peer.request(WINDOW);
    expect(stack.worker.connections.all.length).toBe(UNCLAIMED_MAX + 1);
  });

  it('that asks for the same again gets no second half', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    for (let i = 0; i < 3; i++) {
      peer.request(WINDOW);
      if (i === 1) peer.connect();
    }
    expect(stack.worker.connections.all.length).toBe(1);
  });
});

describe('a close', () => {
  it('of the peer ends the connection, and is not answered', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.peer();
    peer.deliver(MessageId.CLOSE, writeClose(peer.connection.id));
    expect([peer.endpoint.status, peer.endpoint.closedByPeer, peer.got(MessageId.CLOSE)]).toEqual([
      Status.CONNECTION_RESET,
      true,
      [],
    ]);
  });

  it('of another peer changes nothing', () => {
    const stack = new FakeLanes([MESSAGES]);
    const [peer, other] = [stack.peer(), stack.peer()];
    peer.deliver(MessageId.CLOSE, writeClose(peer.connection.id), undefined, other.source);
    expect(peer.connection.failure).toBe(Status.OK);
  });

  it('of the peer drops a half that nobody here has asked for', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.request(WINDOW);
    const { budget } = stack.worker;
    expect(budget.grantedBytes).toBeGreaterThan(0);
    peer.deliver(MessageId.CLOSE, writeClose(peer.connection.id));
    expect([stack.worker.connections.all, budget.grantedBytes, peer.lanes[0]!.isClosed]).toEqual([[], 0, true]);
  });

  it('here tells the peer, and a late message does not reach the next connection', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.peer();
    const { connection } = peer;
    const { am } = peer;
    stack.worker.connections.close(connection);
    expect([am.messages(MessageId.CLOSE).map(endpointOf), am.isClosed, stack.worker.connections.all]).toEqual([
      [peer.id],
      true,
      [],
    ]);
    peer.connect();
    expect(peer.connection.id).not.toBe(connection.id);
    peer.deliver(MessageId.CLOSE, writeClose(connection.id));
    expect(peer.connection.failure).toBe(Status.OK);
  });

  it('before the answer waits for it, to tell the peer', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.connect();
    const { am } = peer;
    stack.worker.connections.close(peer.connection);
    expect([am.isClosed, stack.worker.connections.hasPending]).toEqual([false, true]);
    const reply = { code: WireupCode.REPLY, from: peer.id, number: 0, windowBytes: WINDOW };
    peer.deliver(MessageId.WIREUP, writeWireup(peer.connection.id, reply));
    expect([am.messages(MessageId.CLOSE).map(endpointOf), am.isClosed]).toEqual([[peer.id], true]);
    expect(stack.worker.connections.hasPending).toBe(false);
  });

  it('waits until there is room for its message', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.peer();
    const { am } = peer;
    am.answers.amShort = Status.NO_RESOURCE;
    stack.worker.connections.close(peer.connection);
    stack.worker.progress();
    expect(am.isClosed).toBe(false);
    delete am.answers.amShort;
    stack.worker.progress();
    expect([am.messages(MessageId.CLOSE).length, am.isClosed, stack.worker.connections.all]).toEqual([1, true, []]);
  });

  it('does not wait for a peer that is gone', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.connect();
    peer.am.answers.check = Status.ENDPOINT_TIMEOUT;
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    stack.worker.connections.close(peer.connection);
    expect([peer.lanes[0]!.isClosed, stack.worker.connections.all]).toEqual([true, []]);
  });

  it('waits for so many answers, and gives up the oldest then', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peers = Array.from({ length: LEAVING_MAX + 1 }, () => {
      const peer = stack.stranger();
      peer.connect();
      return peer;
    });
    const [first, second] = peers;
    for (const { connection } of peers.slice(0, LEAVING_MAX)) stack.worker.connections.close(connection);
    expect(first!.lanes[0]!.isClosed).toBe(false);
    stack.worker.connections.close(peers.at(-1)!.connection);
    expect([first!.lanes[0]!.isClosed, second!.lanes[0]!.isClosed]).toEqual([true, false]);
    expect(stack.worker.connections.all.length).toBe(LEAVING_MAX);
  });

  it('gives the number of a half that is dropped to no other', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    peer.request(WINDOW);
    peer.deliver(MessageId.CLOSE, writeClose(peer.connection.id));
    peer.connect();
    expect(readWireup(peer.got(MessageId.WIREUP)[0]!)).toMatchObject({ code: WireupCode.REQUEST, number: 1 });
  });
});

describe('a half for a client', () => {
  it('is attached to by its client, and by no answer', () => {
    const stack = new FakeLanes([MESSAGES]);
    const [client, other] = [stack.stranger(), stack.stranger()];
    const connection = stack.worker.connections.accept(client.address);
    const said = { code: WireupCode.REPLY, from: client.id, number: 0, windowBytes: WINDOW };
    client.deliver(MessageId.WIREUP, writeWireup(connection.id, said));
    const attach = { ...said, code: WireupCode.ATTACH };
    client.deliver(MessageId.WIREUP, writeWireup(connection.id, attach), client.address, other.source);
    expect(connection.remoteId).toBe(NO_ENDPOINT);
    client.deliver(MessageId.WIREUP, writeWireup(connection.id, attach), client.address);
    expect([connection.remoteId, connection.credit.bytes]).toEqual([client.id, WINDOW]);
  });

  it('that is gone is refused to a client that comes late', () => {
    const stack = new FakeLanes([MESSAGES]);
    const client = stack.stranger();
    const connection = stack.worker.connections.accept(client.address);
    stack.worker.connections.drop(connection);
    const attach = { code: WireupCode.ATTACH, from: client.id, number: 0, windowBytes: WINDOW };
    client.deliver(MessageId.WIREUP, writeWireup(connection.id, attach), client.address);
    expect(stack.ifaces[0]!.endpoints.at(-1)!.messages(MessageId.CLOSE).map(endpointOf)).toEqual([client.id]);
    expect(stack.worker.connections.all).toEqual([]);
  });
});

describe('a request to connect that lacks resources', () => {
  it('is served later, and not at each progress', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.stranger();
    const [iface] = stack.ifaces;
    const { connect } = iface!;
    let tries = 0;
    iface!.connect = () => {
      tries += 1;
      throw statusError(Status.NO_MEMORY, 'connect');
    };
    peer.request(WINDOW);
    for (let i = 0; i < 10; i++) stack.worker.progress();
    expect([tries, stack.worker.connections.hasPending]).toEqual([1, true]);
    iface!.connect = connect;
    stack.clock.advance(5e6);
    stack.worker.progress();
    const [half] = stack.worker.connections.all;
    expect([half!.remoteId, stack.worker.connections.hasPending]).toEqual([peer.id, false]);
  });
});
