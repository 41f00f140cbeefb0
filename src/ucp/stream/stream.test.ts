/** Streams over fake lanes: bytes in order at both ends, the credit of the sender, and the message that a receiver asks for. */

import { describe, expect, it } from 'vitest';
import { CARD, FakeLanes, type FakePeer, MESSAGES } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { CreditCode, readCredit, writeCredit } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readStream, STREAM_ASKED, STREAM_BYTES, writeStream } from '../../api/layout/stream.ts';
import type { Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { KEPT_OVERHEAD_BYTES } from '../credit/credit.ts';

const WINDOW = 4096;
/** The longest message that may wait for credit: a quarter of the window. */
const MESSAGE_MAX = WINDOW / 4 - KEPT_OVERHEAD_BYTES;

function opened(windowBytes = WINDOW) {
  const stack = new FakeLanes([MESSAGES], { UNEXP_MAX_BYTES: WINDOW });
  return { stack, peer: stack.peer(windowBytes) };
}

function pattern(byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  fillPattern(bytes, 2);
  return bytes;
}

function arrive(peer: FakePeer, bytes: Uint8Array, flags = 0): void {
  peer.deliver(MessageId.STREAM, writeStream(peer.connection.id, flags), bytes);
}

function credit(peer: FakePeer, code: number, returned = 0): void {
  peer.deliver(MessageId.CREDIT, writeCredit(peer.connection.id, code, returned, WINDOW));
}

/** The messages that a peer got: their bytes and flags. */
function sentTo(peer: FakePeer): { bytes: Uint8Array; flags: number }[] {
  return peer.got(MessageId.STREAM).map((frame) => {
    const { flags, start, byteLength } = readStream(frame);
    return { bytes: frame.bytes.slice(start, start + byteLength), flags };
  });
}

function codesTo(peer: FakePeer): number[] {
  return peer.got(MessageId.CREDIT).map((frame) => readCredit(frame).code);
}

const joined = (parts: readonly { bytes: Uint8Array }[]): Uint8Array =>
  Uint8Array.from(Buffer.concat(parts.map(({ bytes }) => bytes)));

describe('a send', () => {
  it('with credit is one message, in its call', () => {
    const { peer } = opened();
    const bytes = pattern(900);
    expect([peer.endpoint.streamSendNbx(bytes, 100, 8), peer.endpoint.streamSendNbx(bytes, 0, 900)]).toEqual([0, 0]);
    expect(sentTo(peer).map((part) => part.bytes)).toEqual([bytes.slice(100, 108), bytes]);
    expect(peer.connection.credit.bytes).toBe(WINDOW - 908 - 2 * KEPT_OVERHEAD_BYTES);
  });

  it('is cut into messages, waits for credit, and does not overtake', () => {
    const { stack, peer } = opened();
    const bytes = pattern(8000);
    const long = peer.endpoint.streamSendNbx(bytes, 0, 8000) as Request;
    const short = peer.endpoint.streamSendNbx(Uint8Array.of(1, 2), 0, 2) as Request;
    let turns = 0;
    while (!short.isCompleted && turns++ < 20) {
      const parts = sentTo(peer);
      expect(Math.max(...parts.map((part) => part.bytes.byteLength))).toBeLessThanOrEqual(MESSAGE_MAX);
      expect(peer.connection.credit.bytes).toBeGreaterThanOrEqual(0);
      credit(peer, CreditCode.RETURN, 1024);
      stack.worker.progress();
    }
    expect([long.status, short.status]).toEqual([Status.OK, Status.OK]);
    expect(joined(sentTo(peer))).toEqual(Uint8Array.of(...bytes, 1, 2));
    expect(peer.connection.waiting.size).toBe(0);
  });

  it('does not overtake one that waits for more credit than it needs itself', () => {
    const { peer } = opened();
    const long = peer.endpoint.streamSendNbx(pattern(8000), 0, 8000) as Request;
    credit(peer, CreditCode.RETURN, 600);
    const before = sentTo(peer).length;
    const short = [undefined, { noImmediateCompletion: true }].map(
      (params) => peer.endpoint.streamSendNbx(Uint8Array.of(1), 0, 1, params) as Request,
    );
    expect([sentTo(peer).length, short.map(({ isCompleted }) => isCompleted)]).toEqual([before, [false, false]]);
    credit(peer, CreditCode.RETURN, 100_000);
    expect([long.status, joined(sentTo(peer))]).toEqual([Status.OK, Uint8Array.of(...pattern(8000), 1, 1)]);
  });

  it('tells a peer that holds its credit once that it waits, and sends what that asks for without credit', () => {
    const { stack, peer } = opened();
    credit(peer, CreditCode.HELD);
    const bytes = pattern(6000);
    const request = peer.endpoint.streamSendNbx(bytes, 0, 6000) as Request;
    const before = sentTo(peer).length;
    stack.worker.progress();
    expect(codesTo(peer)).toEqual([CreditCode.STREAM_WAITS]);
    const left = peer.connection.credit.bytes;
    credit(peer, CreditCode.STREAM_TAKE);
    const [requested, ...more] = sentTo(peer).slice(before);
    expect([requested!.flags, requested!.bytes.byteLength, more, peer.connection.credit.bytes]).toEqual([
      STREAM_ASKED,
      1000 - STREAM_BYTES,
      [],
      left,
    ]);
    expect(codesTo(peer)).toEqual([CreditCode.STREAM_WAITS, CreditCode.STREAM_WAITS]);
    credit(peer, CreditCode.RETURN, 100_000);
    expect([request.status, joined(sentTo(peer))]).toEqual([Status.OK, bytes]);
  });

  it('can be cancelled while it has sent nothing, and leaves the others', () => {
    const { peer } = opened();
    const first = peer.endpoint.streamSendNbx(pattern(6000), 0, 6000) as Request;
    const second = peer.endpoint.streamSendNbx(pattern(10), 0, 10) as Request;
    expect([first.cancel(), second.cancel(), second.status]).toEqual([false, true, Status.CANCELED]);
    credit(peer, CreditCode.RETURN, 100_000);
    expect([first.status, joined(sentTo(peer))]).toEqual([Status.OK, pattern(6000)]);
  });

  it('does not tell a peer again that it waits behind one that was cancelled', () => {
    const { peer } = opened();
    credit(peer, CreditCode.HELD);
    peer.connection.credit.bytes = 0;
    const first = peer.endpoint.streamSendNbx(pattern(10), 0, 10) as Request;
    expect(first.cancel()).toBe(true);
    peer.endpoint.streamSendNbx(pattern(10), 0, 10);
    expect(codesTo(peer)).toEqual([CreditCode.STREAM_WAITS]);
  });

  it('that waits ends with its connection', () => {
    const { peer } = opened();
    const request = peer.endpoint.streamSendNbx(pattern(6000), 0, 6000) as Request;
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect(request.status).toBe(Status.ENDPOINT_TIMEOUT);
  });

  it('of device memory that has waited ends behind its copy, once, when its connection ends', () => {
    const stack = new FakeLanes([MESSAGES, CARD], { UNEXP_MAX_BYTES: WINDOW, RNDV_FRAG_SIZE: 1000 });
    const peer = stack.peer(WINDOW);
    peer.endpoint.streamSendNbx(pattern(6000), 0, 6000);
    const ends: Status[] = [];
    const callback = (_request: Request, status: Status): number => ends.push(status);
    const request = peer.endpoint.streamSendNbx(stack.device(500), 0, 500, { callback }) as Request;
    credit(peer, CreditCode.RETURN, 100_000);
    const [copy] = stack.ifaces[1]!.endpoints[0]!.started;
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect([request.isCompleted, ends]).toEqual([false, []]);
    copy!.end();
    expect(ends).toEqual([Status.ENDPOINT_TIMEOUT]);
    expect(stack.worker.protocols.rendezvous.staging.inUse).toBe(0);
  });

  it('ends with INVALID_ADDR if its memory was detached while it waited', () => {
    const { peer } = opened();
    const bytes = pattern(6000);
    const request = peer.endpoint.streamSendNbx(bytes, 0, 6000) as Request;
    const before = sentTo(peer).length;
    structuredClone(bytes, { transfer: [bytes.buffer as ArrayBuffer] });
    credit(peer, CreditCode.RETURN, 100_000);
    expect([request.status, sentTo(peer).length]).toEqual([Status.INVALID_ADDR, before]);
  });
});

describe('a receive', () => {
  const receive = (peer: FakePeer, byteLength: number, waitAll = false) => {
    const target = new Uint8Array(byteLength);
    const params = { waitAll, noImmediateCompletion: true };
    return { target, request: peer.endpoint.streamRecvNbx(target, 0, byteLength, params) as Request };
  };

  it('takes bytes in order over the borders of messages', () => {
    const { peer } = opened();
    const bytes = pattern(100);
    arrive(peer, bytes.subarray(0, 30));
    arrive(peer, bytes.subarray(30, 70));
    const [one, two, three] = [receive(peer, 20), receive(peer, 30, true), receive(peer, 50, true)];
    expect([one!.target, two!.target]).toEqual([bytes.slice(0, 20), bytes.slice(20, 50)]);
    expect(three!.request.isCompleted).toBe(false);
    arrive(peer, bytes.subarray(70));
    expect([three!.request.status, three!.target]).toEqual([Status.OK, bytes.slice(50)]);
    expect(peer.connection.inbound.heldBytes).toBe(0);
  });

  it('without waitAll ends with what has arrived', () => {
    const { peer } = opened();
    const part = receive(peer, 5);
    arrive(peer, pattern(25));
    expect([part.target, peer.stack.worker.protocols.streams.heldBytes]).toEqual([pattern(25).slice(0, 5), 20]);
    receive(peer, 20);
    const { target, request } = receive(peer, 50);
    arrive(peer, pattern(20));
    expect([request.status, request.receivedBytes, target.slice(0, 20)]).toEqual([Status.OK, 20, pattern(20)]);
  });

  it('returns the credit of each message when its last byte is taken, however many', () => {
    const { peer } = opened();
    for (let i = 0; i < 50; i++) {
      arrive(peer, pattern(100));
      expect(peer.connection.inbound.heldBytes).toBe(100 + KEPT_OVERHEAD_BYTES);
      receive(peer, 60);
      expect(peer.connection.inbound.heldBytes).toBe(100 + KEPT_OVERHEAD_BYTES);
      receive(peer, 60);
      expect(peer.connection.inbound.heldBytes).toBe(0);
    }
    for (let i = 0; i < 50; i++) {
      receive(peer, 100, true);
      arrive(peer, pattern(100));
    }
    expect([peer.connection.failure, peer.connection.inbound.heldBytes]).toEqual([Status.OK, 0]);
  });

  it('refuses bytes without credit', () => {
    const { peer, stack } = opened();
    for (let i = 0; i < 4; i++) arrive(peer, pattern(900));
    expect([peer.connection.failure, stack.worker.protocols.streams.heldBytes]).toEqual([Status.EXCEEDS_LIMIT, 2700]);
  });

  it('asks a peer that waits for one message, once, and takes it without credit', () => {
    const { peer } = opened();
    const { target } = receive(peer, 3000, true);
    credit(peer, CreditCode.STREAM_WAITS);
    credit(peer, CreditCode.STREAM_WAITS);
    expect(codesTo(peer)).toEqual([CreditCode.STREAM_TAKE]);
    arrive(peer, pattern(900), STREAM_ASKED);
    expect([target.slice(0, 900), peer.connection.inbound.heldBytes]).toEqual([pattern(900), 0]);
    // The second question is answered behind the first message.
    expect(codesTo(peer)).toEqual([CreditCode.STREAM_TAKE, CreditCode.STREAM_TAKE]);
  });

  it('ignores messages without credit that it has not requested for', () => {
    const { peer, stack } = opened();
    for (let i = 0; i < 10; i++) arrive(peer, pattern(900), STREAM_ASKED);
    receive(peer, 900);
    credit(peer, CreditCode.STREAM_WAITS);
    arrive(peer, pattern(900), STREAM_ASKED);
    for (let i = 0; i < 10; i++) arrive(peer, pattern(900), STREAM_ASKED);
    expect([stack.worker.protocols.streams.heldBytes, peer.connection.failure]).toEqual([0, Status.OK]);
  });

  it('asks no peer while nothing wants its bytes', () => {
    const { peer } = opened();
    credit(peer, CreditCode.STREAM_WAITS);
    expect(codesTo(peer)).toEqual([]);
    arrive(peer, pattern(10));
    expect(peer.endpoint.streamRecvData()).toEqual(pattern(10));
    expect(codesTo(peer)).toEqual([]);
    expect(peer.endpoint.streamRecvData()).toBe(undefined);
    expect(codesTo(peer)).toEqual([CreditCode.STREAM_TAKE]);
  });

  it('can be cancelled until it has bytes', () => {
    const { peer } = opened();
    const [one, two, three] = [receive(peer, 50, true), receive(peer, 50, true), receive(peer, 10, true)];
    arrive(peer, pattern(20));
    expect([one!.request.cancel(), two!.request.cancel(), two!.request.status]).toEqual([false, true, Status.CANCELED]);
    arrive(peer, pattern(40));
    expect([one!.request.status, three!.request.status, three!.target]).toEqual([
      Status.OK,
      Status.OK,
      pattern(40).slice(30),
    ]);
  });

  it('takes what has arrived before the end of the connection, and then its status', () => {
    const { peer, stack } = opened();
    arrive(peer, pattern(20));
    peer.connection.fail(Status.CONNECTION_RESET);
    stack.worker.protocols.streams.connectionEnded(peer.connection);
    const { target, request } = receive(peer, 20);
    expect([request.status, target]).toEqual([Status.OK, pattern(20)]);
    expect(peer.endpoint.streamRecvNbx(target, 0, 20)).toBe(Status.CONNECTION_RESET);
    expect(stack.worker.requestsInUse).toBe(1);
  });

  it('ends with the connection while it waits', () => {
    const { peer, stack } = opened();
    const { request } = receive(peer, 20);
    peer.connection.fail(Status.CONNECTION_RESET);
    stack.worker.protocols.streams.connectionEnded(peer.connection);
    expect(request.status).toBe(Status.CONNECTION_RESET);
  });

  it('of a connection that is closed is cancelled, and the credit of what nobody takes comes back', () => {
    const { peer, stack } = opened();
    const { streams } = stack.worker.protocols;
    arrive(peer, pattern(900));
    streams.cancelReceives(peer.connection);
    arrive(peer, pattern(900));
    expect([streams.heldBytes, peer.connection.inbound.heldBytes, peer.connection.failure]).toEqual([0, 0, Status.OK]);
    const other = stack.peer();
    const { request } = receive(other, 20);
    streams.cancelReceives(other.connection);
    expect(request.status).toBe(Status.CANCELED);
  });
});
