/** Active messages over fake lanes: what handlers get, what is refused, the credit of each message, and data that stays with its sender. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, type FakePeer, MESSAGES } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { AM_HEADER_BYTES_MAX } from '../../api/contract/active-message.ts';
import { AM_BYTES, paddedTo8, readAm, readAmRts, writeAm, writeAmRts } from '../../api/layout/am.ts';
import { CreditCode, readCredit, writeCredit, writeWithdraw } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readReply, readRtr, writeData } from '../../api/layout/rendezvous.ts';
import type { AmMessage, Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { KEPT_OVERHEAD_BYTES, OFFERS_MAX } from '../credit/credit.ts';
import type { PeerMessage } from './active-message.ts';

const ID = 7;
const HEADER = Uint8Array.of(1, 2, 3);
const DATA = Uint8Array.of(9, 8, 7, 6);

function opened(settings = {}, windowBytes?: number) {
  const stack = new FakeLanes([MESSAGES], settings);
  return { stack, peer: stack.peer(windowBytes), am: stack.worker.protocols.am };
}

/** Header, padding and data. */
function payloadOf(header: Uint8Array, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(paddedTo8(header.byteLength) + data.byteLength);
  bytes.set(header);
  bytes.set(data, paddedTo8(header.byteLength));
  return bytes;
}

function arrive(peer: FakePeer, id = MessageId.AM as number, headerBytes = HEADER.byteLength): void {
  peer.deliver(id, writeAm(peer.connection.id, ID, headerBytes), payloadOf(HEADER, DATA));
}

function offer(peer: FakePeer, request: number, fields = {}): void {
  const rts = { handler: ID, headerBytes: 3, keyBytes: 0, byteLength: 100, request, keyOffset: 0, ...fields };
  peer.deliver(MessageId.AM_RTS, writeAmRts(peer.connection.id, rts), payloadOf(HEADER, new Uint8Array(0)));
}

function repliesOf(peer: FakePeer): [number, Status][] {
  return peer.got(MessageId.REPLY).map((frame) => {
    const { request, status } = readReply(frame);
    return [request, status];
  });
}

describe('a handler', () => {
  it('gets header and data of each message of its id', () => {
    const { stack, peer } = opened();
    const got: unknown[] = [];
    stack.worker.setAmHandler(ID, (message) => {
      if (!message.isRendezvous) got.push(message.header.slice(), message.data.slice());
    });
    arrive(peer);
    expect(got).toEqual([HEADER, DATA]);
  });

  it.each([
    ['negative', -1],
    ['longer than the message', 13],
    ['longer than any', AM_HEADER_BYTES_MAX + 1],
  ])('gets no message whose header is %s, which only uses credit for a while', (_name, headerBytes) => {
    const { stack, peer } = opened();
    let calls = 0;
    stack.worker.setAmHandler(ID, () => {
      calls += 1;
    });
    arrive(peer, MessageId.AM, headerBytes);
    offer(peer, 55, { headerBytes });
    offer(peer, 55, { keyBytes: -1 });
    offer(peer, 55, { keyBytes: 1 });
    expect([calls, peer.connection.inbound.heldBytes, peer.connection.failure]).toEqual([0, 0, Status.OK]);
  });

  it('gets no notification behind puts that have failed, whose credit comes back', () => {
    const { stack, peer } = opened();
    let calls = 0;
    stack.worker.setAmHandler(ID, () => {
      calls += 1;
    });
    arrive(peer, MessageId.AM_VOID);
    expect([calls, peer.connection.inbound.heldBytes]).toEqual([0, 0]);
  });

  it('that does not exist is a warning, and one that was removed is not', () => {
    const { stack, peer } = opened();
    arrive(peer);
    expect([stack.warnings.length, peer.connection.inbound.heldBytes]).toEqual([1, 0]);
    const other = opened();
    other.stack.worker.setAmHandler(ID, () => {});
    other.stack.worker.setAmHandler(ID, undefined);
    arrive(other.peer);
    offer(other.peer, 55);
    expect([other.stack.warnings, repliesOf(other.peer)]).toEqual([[], [[55, Status.OK]]]);
  });
});

describe('the credit of a peer', () => {
  it('comes back behind the handler, however many messages come', () => {
    const { stack, peer } = opened({ UNEXP_MAX_BYTES: 4096 });
    stack.worker.setAmHandler(ID, () => {});
    for (let i = 0; i < 100; i++) arrive(peer);
    const returned = peer.got(MessageId.CREDIT).reduce((sum, frame) => sum + readCredit(frame).returnedBytes, 0);
    expect([peer.connection.failure, peer.connection.inbound.heldBytes]).toEqual([Status.OK, 0]);
    expect(returned + peer.connection.inbound.returnable).toBe(100 * (12 + KEPT_OVERHEAD_BYTES));
  });

  it('is held by messages in a queue of the library until they leave it', () => {
    const { peer, am } = opened({ UNEXP_MAX_BYTES: 4096 });
    const kept: PeerMessage[] = [];
    am.setHandler(ID, (message) => {
      message.isQueued = true;
      const { sender, waiting, cost, headerLength, byteLength } = message as PeerMessage;
      kept.push({ sender, waiting, cost, headerLength, byteLength } as PeerMessage);
    });
    for (let i = 0; i < 3; i++) arrive(peer);
    expect([am.heldBytes, peer.connection.inbound.heldBytes]).toEqual([21, 3 * (12 + KEPT_OVERHEAD_BYTES)]);
    for (const message of kept) am.taken(message);
    expect([am.heldBytes, peer.connection.inbound.heldBytes]).toEqual([0, 0]);
  });

  it('that is exceeded ends the connection, and no handler is called', () => {
    const { stack, peer, am } = opened({ UNEXP_MAX_BYTES: 4096 });
    let calls = 0;
    am.setHandler(ID, (message) => {
      calls += 1;
      message.isQueued = true;
    });
    for (let i = 0; i < 20; i++) arrive(peer);
    expect([calls, peer.connection.failure]).toEqual([15, Status.EXCEEDS_LIMIT]);
    expect(stack.warnings).toEqual([expect.stringContaining('without credit')]);
  });

  it('does not bound offers, of which there may be a fixed number in queues', () => {
    const { peer, am } = opened();
    am.setHandler(ID, () => {});
    for (let i = 0; i <= OFFERS_MAX; i++) offer(peer, i + 1);
    expect(peer.connection.failure).toBe(Status.OK);
    am.setHandler(ID, (message) => {
      message.isQueued = true;
      message.isTaken = true;
    });
    for (let i = 0; i < OFFERS_MAX; i++) offer(peer, i + 1);
    expect(peer.connection.failure).toBe(Status.OK);
    for (let i = 0; i < 2; i++) am.taken({ sender: peer.connection, waiting: {} } as PeerMessage);
    for (let i = 0; i < 2; i++) offer(peer, 1);
    expect(peer.connection.failure).toBe(Status.OK);
    offer(peer, 1);
    expect(peer.connection.failure).toBe(Status.EXCEEDS_LIMIT);
  });
});

describe('data that stays with its sender', () => {
  /** A message that the program has kept. */
  function kept() {
    const { stack, peer } = opened();
    const messages: AmMessage[] = [];
    stack.worker.setAmHandler(ID, (message) => {
      messages.push(message.retain());
    });
    offer(peer, 55);
    return { stack, peer, message: messages[0]! };
  }

  const receive = (message: AmMessage, target: Uint8Array) =>
    message.receiveNbx(target, 0, target.byteLength, { noImmediateCompletion: true }) as Request;

  it('that no handler wants releases its sender', () => {
    const { stack, peer } = opened();
    stack.worker.setAmHandler(ID, () => {});
    offer(peer, 55);
    expect([repliesOf(peer), peer.connection.offers.size]).toEqual([[[55, Status.OK]], 0]);
  });

  it('is fetched when the program asks for it', () => {
    const { peer, message } = kept();
    expect(repliesOf(peer)).toEqual([]);
    const target = new Uint8Array(100);
    const request = receive(message, target);
    const [{ request: asked, peerRequest, byteLength }] = peer.got(MessageId.RTR).map(readRtr) as [
      ReturnType<typeof readRtr>,
      ...ReturnType<typeof readRtr>[],
    ];
    expect([asked, byteLength]).toEqual([55, 100]);
    peer.deliver(MessageId.DATA, writeData(peer.connection.id, peerRequest, 0), new Uint8Array(100).fill(5));
    expect([request.status, target, repliesOf(peer)]).toEqual([
      Status.OK,
      new Uint8Array(100).fill(5),
      [[55, Status.OK]],
    ]);
  });

  it('that its sender takes back is not received', () => {
    const { peer, message } = kept();
    peer.deliver(MessageId.WITHDRAW, writeWithdraw(peer.connection.id, 55));
    const request = receive(message, new Uint8Array(100));
    expect([request.status, repliesOf(peer), peer.got(MessageId.RTR)]).toEqual([
      Status.CANCELED,
      [[55, Status.CANCELED]],
      [],
    ]);
  });

  it('cannot be taken back once the program has asked for it, or discarded it', () => {
    for (const use of [
      (message: AmMessage) => receive(message, new Uint8Array(100)),
      (message: AmMessage) => message.release(),
    ]) {
      const { peer, message } = kept();
      use(message);
      const before = repliesOf(peer);
      peer.deliver(MessageId.WITHDRAW, writeWithdraw(peer.connection.id, 55));
      expect(repliesOf(peer)).toEqual(before);
    }
  });

  it('that is discarded releases its sender, once', () => {
    const { peer, message } = kept();
    message.release();
    expect([repliesOf(peer), peer.connection.offers.size]).toEqual([[[55, Status.OK]], 0]);
  });

  it('is not received into memory that is too short', () => {
    const { peer, message } = kept();
    expect(() => receive(message, new Uint8Array(99))).toThrow('local memory');
    expect(peer.got(MessageId.RTR)).toEqual([]);
  });
});

describe('a send', () => {
  const bytes = Uint8Array.from({ length: 900 }, (_, i) => i);

  it('has header, padding and data, and uses credit', () => {
    const { peer } = opened({}, 4096);
    const header = HEADER.slice();
    expect(peer.endpoint.amSendNbx(ID, header, bytes, 2, 500)).toBe(Status.OK);
    const [frame] = peer.got(MessageId.AM);
    const { handler, headerBytes, headerAt, dataAt, dataBytes } = readAm(frame!);
    expect([handler, frame!.bytes.slice(headerAt, headerAt + headerBytes)]).toEqual([ID, HEADER]);
    expect(frame!.bytes.slice(dataAt, dataAt + dataBytes)).toEqual(bytes.slice(2, 502));
    expect(peer.connection.credit.bytes).toBe(4096 - 508 - KEPT_OVERHEAD_BYTES);
    expect(peer.endpoint.amSendNbx(ID, undefined, bytes, 0, 4)).toBe(Status.OK);
    expect(peer.connection.credit.bytes).toBe(4096 - 512 - 2 * KEPT_OVERHEAD_BYTES);
  });

  it('keeps its header, which the program may change, and reads its data when it is sent', () => {
    const { stack, peer } = opened();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    const header = HEADER.slice();
    const request = peer.endpoint.amSendNbx(ID, header, bytes, 0, 8) as Request;
    header.fill(0xee);
    delete peer.am.answers.amShort;
    stack.worker.progress();
    const { headerAt } = readAm(peer.got(MessageId.AM)[0]!);
    expect([request.status, peer.got(MessageId.AM)[0]!.bytes.slice(headerAt, headerAt + 3)]).toEqual([
      Status.OK,
      HEADER,
    ]);
  });

  it('does not overtake what waits for credit, and is sent when that comes', () => {
    const { stack, peer } = opened({}, 4096);
    for (let i = 0; i < 13; i++) peer.endpoint.amSendNbx(ID, undefined, bytes, 0, 8);
    peer.am.sent.length = 0;
    peer.endpoint.amSendNbx(1, undefined, bytes, 0, 600);
    const behind = peer.endpoint.amSendNbx(2, undefined, bytes, 0, 8) as Request;
    expect([behind.isCompleted, peer.am.sent]).toEqual([false, []]);
    peer.deliver(MessageId.CREDIT, writeCredit(peer.connection.id, CreditCode.RETURN, 1024, 4096));
    stack.worker.progress();
    expect(peer.got(MessageId.AM).map((frame) => readAm(frame).handler)).toEqual([1, 2]);
  });

  it('that is longer than a frame, or to be fetched, is offered with its header', () => {
    const { peer } = opened();
    peer.endpoint.amSendNbx(ID, HEADER, bytes, 0, 900, { protocol: 'rendezvous' });
    peer.endpoint.amSendNbx(ID, HEADER, new Uint8Array(1000), 0, 1000);
    expect(peer.got(MessageId.AM_RTS).map(readAmRts)).toMatchObject([
      { handler: ID, headerBytes: 3, byteLength: 900, isCut: false },
      { handler: ID, headerBytes: 3, byteLength: 1000, isCut: false },
    ]);
    // Exactly a frame.
    const fits = 1000 - AM_BYTES;
    expect(peer.endpoint.amSendNbx(ID, undefined, new Uint8Array(fits), 0, fits)).toBe(Status.OK);
    expect(peer.endpoint.amSendNbx(ID, undefined, new Uint8Array(fits + 1), 0, fits + 1)).not.toBe(Status.OK);
  });

  it('behind puts needs credit, and uses it', () => {
    const { peer, am } = opened({}, 600);
    peer.am.putsStarted = 1;
    const notice = { bytes: HEADER, id: undefined };
    const sent = [0, 1, 2].map(() => am.notifyAfterPuts(peer.connection, notice, 1));
    expect([sent, peer.connection.credit.bytes]).toEqual([[Status.OK, Status.OK, Status.UNSUPPORTED], 600 - 2 * 264]);
    const stranger = peer.stack.stranger();
    stranger.connect();
    expect(am.notifyAfterPuts(stranger.connection, notice, 1)).toBe(Status.UNSUPPORTED);
  });

  it('of memory that was unmapped while it waited sends nothing of it', () => {
    const { stack, peer } = opened();
    const memory = stack.map(bytes.slice());
    peer.am.answers.amShort = Status.NO_RESOURCE;
    const request = peer.endpoint.amSendNbx(ID, undefined, memory, 0, 900) as Request;
    stack.context.memUnmap(memory);
    delete peer.am.answers.amShort;
    stack.worker.progress();
    expect([request.status, peer.am.sent]).toEqual([Status.INVALID_ADDR, []]);
  });
});
