/** Tag matching over fake lanes: which receive gets which message, what a peer may send without being asked, and the credit of each message. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, type FakePeer, MESSAGES, RMA } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { messageFrame } from '../../../test/fixtures/messages/message-frame.ts';
import { CreditCode, readCredit, writeCredit, writeWithdraw } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readReply, writeReply } from '../../api/layout/rendezvous.ts';
import { readTag, readTagRts, writeTag, writeTagRts } from '../../api/layout/tag.ts';
import type { Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { KEPT_OVERHEAD_BYTES, OFFERS_MAX } from '../credit/credit.ts';

function opened(settings = {}, windowBytes?: number) {
  const stack = new FakeLanes([MESSAGES], settings);
  return { stack, peer: stack.peer(windowBytes) };
}

/** A receive of up to 8 bytes. */
function receive({ worker }: FakeLanes, tag: number | bigint, mask?: number | bigint) {
  const target = new Uint8Array(8);
  const started = worker.tagRecvNbx(target, 0, 8, tag, mask, { noImmediateCompletion: true });
  return { target, request: started as Request };
}

function send(peer: FakePeer, tag: number, bytes: readonly number[], sync = 0): void {
  const id = sync === 0 ? MessageId.TAG : MessageId.TAG_SYNC;
  peer.deliver(id, writeTag(peer.connection.id, sync, tag, 0), Uint8Array.from(bytes));
}

function offer(peer: FakePeer, tag: number, request: number, byteLength: number): void {
  const rts = { request, tagLow: tag, tagHigh: 0, byteLength, keyOffset: 0 };
  peer.deliver(MessageId.TAG_RTS, writeTagRts(peer.connection.id, rts));
}

function repliesOf(peer: FakePeer): [number, Status][] {
  return peer.got(MessageId.REPLY).map((frame) => {
    const { request, status } = readReply(frame);
    return [request, status];
  });
}

describe('the matching', () => {
  it('gives a message to the receive that was posted first, whatever its mask', () => {
    const { stack, peer } = opened();
    const wild = receive(stack, 0x10, 0xf0);
    const exact = receive(stack, 0x15);
    const other = receive(stack, 0x15);
    for (const byte of [1, 2, 3]) send(peer, 0x15, [byte]);
    expect([wild.target[0], exact.target[0], other.target[0]]).toEqual([1, 2, 3]);
    expect(wild.request.senderTag).toBe(0x15n);
    const before = receive(stack, 0x16);
    receive(stack, 0, 0);
    send(peer, 0x16, [4]);
    expect(before.target[0]).toBe(4);
  });

  it('gives a receive the message that came first of those that match', () => {
    const { stack, peer } = opened();
    send(peer, 0x25, [1]);
    send(peer, 0x15, [2]);
    send(peer, 0x15, [3]);
    expect([receive(stack, 0x10, 0xf0).target[0], receive(stack, 0x15).target[0]]).toEqual([2, 3]);
    expect(receive(stack, 0, 0).target[0]).toBe(1);
  });

  it('compares both halves of a tag', () => {
    const { stack, peer } = opened();
    const high = receive(stack, 5n + 2n ** 32n);
    const masked = receive(stack, 2n ** 33n, 2n ** 33n);
    send(peer, 5, [1]);
    expect([high.request.isCompleted, masked.request.isCompleted]).toEqual([false, false]);
    expect(receive(stack, 5).target[0]).toBe(1);
  });

  it('forgets a receive that is cancelled, and none that has its message', () => {
    const { stack, peer } = opened();
    const { request } = receive(stack, 5);
    expect([request.cancel(), request.status, request.cancel()]).toEqual([true, Status.CANCELED, false]);
    const second = receive(stack, 5);
    send(peer, 5, [1]);
    expect([second.target[0], second.request.status, second.request.cancel()]).toEqual([1, Status.OK, false]);
    const third = receive(stack, 6);
    offer(peer, 6, 55, 8);
    expect([third.request.cancel(), third.request.isCompleted]).toEqual([false, false]);
  });

  it('finds what comes behind a receive that was cancelled, or a message that was taken back', () => {
    const { stack, peer } = opened();
    const receives = [receive(stack, 5), receive(stack, 5)];
    receives[1]!.request.cancel();
    receives.push(receive(stack, 5));
    for (const byte of [1, 2]) send(peer, 5, [byte]);
    expect(receives.map(({ target }) => target[0])).toEqual([1, 0, 2]);
    send(peer, 6, [1], 55);
    send(peer, 6, [2], 56);
    peer.deliver(MessageId.WITHDRAW, writeWithdraw(peer.connection.id, 56));
    send(peer, 6, [3]);
    expect([receive(stack, 6).target[0], receive(stack, 6).target[0]]).toEqual([1, 3]);
  });

  it('finds each of many messages by its whole tag', () => {
    const { stack, peer } = opened();
    const high = 3000;
    for (let i = 0; i < high; i++)
      peer.deliver(MessageId.TAG, writeTag(peer.connection.id, 0, 5, i), Uint8Array.of(i & 255));
    for (let i = high - 1; i >= 0; i--) {
      const tag = BigInt(i) * 2n ** 32n + 5n;
      expect(stack.worker.tagProbe(tag)?.senderTag).toBe(tag);
    }
  });

  it('leaves a probed message, or removes it for one receive', () => {
    const { stack, peer } = opened();
    send(peer, 5, [7]);
    expect(stack.worker.tagProbe(5)).toMatchObject({ senderTag: 5n, byteLength: 1 });
    const taken = stack.worker.tagProbe(5, undefined, true)!;
    expect([stack.worker.tagProbe(5), stack.worker.protocols.tag.matcher.waiting]).toEqual([undefined, 0]);
    const target = new Uint8Array(1);
    expect(stack.worker.tagMessageRecvNbx(target, 0, 1, taken)).toBe(Status.OK);
    expect(target[0]).toBe(7);
    expect(() => stack.worker.tagMessageRecvNbx(target, 0, 1, taken)).toThrow('must not be received twice');
  });
});

describe('a message that arrives', () => {
  it('is copied if no receive waits for it: the transport uses its memory again', () => {
    const { stack, peer } = opened();
    const eager = messageFrame(writeTag(peer.connection.id, 0, 5, 0), Uint8Array.of(1, 2, 3), peer.source);
    peer.deliverFrame(MessageId.TAG, eager);
    eager.bytes.fill(0xee);
    expect(receive(stack, 5).target.slice(0, 3)).toEqual(Uint8Array.of(1, 2, 3));
  });

  it('offered with a key keeps a copy of the key', () => {
    const stack = new FakeLanes([RMA]);
    const peer = stack.peer();
    const rts = { request: 55, tagLow: 5, tagHigh: 0, byteLength: 8, keyOffset: 0 };
    const remote = stack.mds[0]!.add(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8));
    const frame = messageFrame(writeTagRts(peer.connection.id, rts), peer.keyOf(remote), peer.source);
    peer.deliverFrame(MessageId.TAG_RTS, frame);
    frame.bytes.fill(0xee);
    const { target, request } = receive(stack, 5);
    for (const read of peer.lanes[0]!.started) if (!request.isCompleted) read.end();
    expect(target).toEqual(remote.storage);
  });

  it('longer than its receive is not stored, and its sender is notified', () => {
    const { stack, peer } = opened();
    const eager = receive(stack, 5);
    send(peer, 5, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    const offered = receive(stack, 6);
    offer(peer, 6, 55, 9);
    const statuses = [eager.request.status, offered.request.status];
    expect(statuses).toEqual([Status.MESSAGE_TRUNCATED, Status.MESSAGE_TRUNCATED]);
    expect([eager.target, repliesOf(peer)]).toEqual([new Uint8Array(8), [[55, Status.OK]]]);
  });

  it('of a synchronous send is answered when it is matched, and not before', () => {
    const { stack, peer } = opened();
    send(peer, 5, [1], 55);
    expect(repliesOf(peer)).toEqual([]);
    receive(stack, 5);
    expect(repliesOf(peer)).toEqual([[55, Status.OK]]);
    receive(stack, 6);
    send(peer, 6, [1], 56);
    expect(repliesOf(peer)).toEqual([
      [55, Status.OK],
      [56, Status.OK],
    ]);
  });

  it('from another peer than that of its connection is ignored', () => {
    const { stack, peer } = opened();
    const other = stack.peer();
    const { request } = receive(stack, 5);
    peer.deliver(MessageId.TAG, writeTag(peer.connection.id, 0, 5, 0), Uint8Array.of(1), other.source);
    peer.deliver(MessageId.TAG, writeTag(peer.connection.id, 0, 5, 0), Uint8Array.of(1), '');
    expect([request.isCompleted, stack.worker.protocols.tag.matcher.waiting]).toEqual([false, 0]);
  });
});

describe('the credit of a peer', () => {
  const WINDOW = 4096;
  const bounded = () => opened({ UNEXP_MAX_BYTES: WINDOW });

  it('comes back for messages that receives wait for, however many', () => {
    const { stack, peer } = bounded();
    let returned = 0;
    for (let i = 0; i < 100; i++) {
      receive(stack, 5);
      send(peer, 5, [i]);
      returned += peer.got(MessageId.CREDIT).reduce((sum, frame) => sum + readCredit(frame).returnedBytes, 0);
      peer.am.sent.length = 0;
    }
    expect([peer.connection.failure, peer.connection.inbound.heldBytes]).toEqual([Status.OK, 0]);
    expect(returned + peer.connection.inbound.returnable).toBe(100 * (1 + KEPT_OVERHEAD_BYTES));
  });

  it('is held by kept messages until they are received', () => {
    const { stack, peer } = bounded();
    for (let i = 0; i < 10; i++) send(peer, 5, [i]);
    const { inbound } = peer.connection;
    expect([inbound.heldBytes, stack.worker.protocols.tag.matcher.heldBytes]).toEqual([2570, 10]);
    for (let i = 0; i < 10; i++) receive(stack, 5);
    expect([inbound.heldBytes, stack.worker.protocols.tag.matcher.heldBytes]).toEqual([0, 0]);
  });

  it('that is exceeded ends the connection, and nothing is kept of the message', () => {
    const { stack, peer } = bounded();
    for (let i = 0; i < 16; i++) send(peer, 5, [i]);
    expect([peer.connection.failure, stack.worker.protocols.tag.matcher.waiting]).toEqual([Status.EXCEEDS_LIMIT, 15]);
    expect(stack.warnings).toEqual([expect.stringContaining('without credit')]);
  });

  it('does not bound offers, of which there may be a fixed number', () => {
    const { stack, peer } = bounded();
    for (let i = 0; i < OFFERS_MAX; i++) offer(peer, 5, i + 1, 2 ** 40);
    expect(peer.connection.failure).toBe(Status.OK);
    offer(peer, 5, OFFERS_MAX + 1, 2 ** 40);
    expect([peer.connection.failure, stack.worker.protocols.tag.matcher.waiting]).toEqual([
      Status.EXCEEDS_LIMIT,
      OFFERS_MAX,
    ]);
  });

  it('counts an offer no more that was matched', () => {
    const { stack, peer } = bounded();
    for (let i = 0; i <= OFFERS_MAX; i++) {
      offer(peer, 5, i + 1, 0);
      receive(stack, 5);
    }
    expect(peer.connection.failure).toBe(Status.OK);
  });
});

describe('a peer that takes a message back', () => {
  const withdraw = (peer: FakePeer, request: number): void =>
    peer.deliver(MessageId.WITHDRAW, writeWithdraw(peer.connection.id, request));

  it('gets it if it was not matched, and its credit comes back', () => {
    const { stack, peer } = opened();
    offer(peer, 5, 55, 100);
    send(peer, 5, [1], 56);
    for (const request of [55, 56]) withdraw(peer, request);
    expect(repliesOf(peer)).toEqual([
      [55, Status.CANCELED],
      [56, Status.CANCELED],
    ]);
    expect([stack.worker.protocols.tag.matcher.waiting, peer.connection.inbound.heldBytes]).toEqual([0, 0]);
  });

  it('gets no message that was matched, and none of another peer', () => {
    const { stack, peer } = opened();
    const other = stack.peer();
    offer(peer, 5, 55, 100);
    withdraw(other, 55);
    expect([repliesOf(other), stack.worker.protocols.tag.matcher.waiting]).toEqual([[], 1]);
    const target = new Uint8Array(100);
    stack.worker.tagRecvNbx(target, 0, 100, 5);
    withdraw(peer, 55);
    expect(repliesOf(peer)).toEqual([]);
  });
});

describe('a send', () => {
  const bytes = Uint8Array.from({ length: 900 }, (_, i) => i);

  it('uses credit for each message, and ends in its call', () => {
    const { peer } = opened({}, 4096);
    expect(peer.endpoint.tagSendNbx(bytes, 3, 5, 2n ** 63n + 7n)).toBe(Status.OK);
    const [frame] = peer.got(MessageId.TAG);
    const { tagLow, tagHigh, start, byteLength } = readTag(frame!);
    expect([tagLow, tagHigh, frame!.bytes.slice(start, start + byteLength)]).toEqual([
      7,
      -(2 ** 31),
      bytes.slice(3, 8),
    ]);
    expect(peer.endpoint.tagSendNbx(bytes, 0, 900, 7)).toBe(Status.OK);
    expect(peer.connection.credit.bytes).toBe(4096 - 905 - 2 * KEPT_OVERHEAD_BYTES);
  });

  it('waits without credit if that comes soon, and does not overtake', () => {
    const { stack, peer } = opened({}, 4096);
    for (let i = 0; i < 13; i++) peer.endpoint.tagSendNbx(bytes, 0, 8, 1);
    peer.am.sent.length = 0;
    const waiting = peer.endpoint.tagSendNbx(bytes, 0, 600, 2) as Request;
    // There would be credit for it.
    const behind = peer.endpoint.tagSendNbx(bytes, 0, 8, 3) as Request;
    stack.worker.progress();
    expect([waiting.isCompleted, behind.isCompleted, peer.am.sent]).toEqual([false, false, []]);
    peer.deliver(MessageId.CREDIT, writeCredit(peer.connection.id, CreditCode.RETURN, 1024, 4096));
    stack.worker.progress();
    expect(peer.got(MessageId.TAG).map((frame) => readTag(frame).tagLow)).toEqual([2, 3]);
    expect([waiting.status, behind.status]).toEqual([Status.OK, Status.OK]);
  });

  it('is offered without credit if the peer holds the messages that used it', () => {
    const { stack, peer } = opened({}, 4096);
    for (let i = 0; i < 15; i++) peer.endpoint.tagSendNbx(bytes, 0, 8, 1);
    peer.deliver(MessageId.CREDIT, writeCredit(peer.connection.id, CreditCode.HELD, 0, 4096));
    const request = peer.endpoint.tagSendNbx(bytes, 0, 8, 2) as Request;
    stack.worker.progress();
    const offers = peer.got(MessageId.TAG_RTS).map(readTagRts);
    expect([offers.map(({ tagLow, byteLength }) => [tagLow, byteLength]), request.protocol]).toEqual([
      [[2, 8]],
      'tag/rndv',
    ]);
  });

  it('that is synchronous ends with the answer, once', () => {
    const { peer } = opened();
    const ends: Status[] = [];
    const callback = (_request: Request, status: Status): number => ends.push(status);
    const request = peer.endpoint.tagSendSyncNbx(bytes, 0, 8, 2, { callback }) as Request;
    const { request: number } = readTag(peer.got(MessageId.TAG_SYNC)[0]!);
    expect([number > 0, request.isCompleted, request.cancel()]).toEqual([true, false, false]);
    const answer = { request: number, status: Status.OK, low: 0, high: 0 };
    for (let i = 0; i < 2; i++) peer.deliver(MessageId.REPLY, writeReply(peer.connection.id, answer));
    expect([request.status, ends, request.cancel()]).toEqual([Status.OK, [Status.OK], false]);
  });

  it('offers no more messages than a peer keeps', () => {
    const { peer } = opened({ REQUESTS_MAX: 20_000 }, 2 ** 30);
    for (let i = 0; i <= OFFERS_MAX; i++) peer.endpoint.tagSendSyncNbx(bytes, 0, 8, 2);
    expect(peer.got(MessageId.TAG_SYNC).length).toBe(OFFERS_MAX);
  });

  it('of memory that was detached while it waited ends with INVALID_ADDR', () => {
    const { stack, peer } = opened();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    const own = bytes.slice();
    const request = peer.endpoint.tagSendNbx(own, 0, 900, 2) as Request;
    structuredClone(own, { transfer: [own.buffer] });
    delete peer.am.answers.amShort;
    stack.worker.progress();
    expect([request.status, peer.am.sent]).toEqual([Status.INVALID_ADDR, []]);
  });

  it('of memory that was unmapped while it waited sends nothing of it', () => {
    const { stack, peer } = opened();
    const memory = stack.map(bytes.slice());
    peer.am.answers.amShort = Status.NO_RESOURCE;
    const request = peer.endpoint.tagSendNbx(memory, 0, 900, 2) as Request;
    stack.context.memUnmap(memory);
    delete peer.am.answers.amShort;
    stack.worker.progress();
    expect([request.status, peer.am.sent]).toEqual([Status.INVALID_ADDR, []]);
  });
});
