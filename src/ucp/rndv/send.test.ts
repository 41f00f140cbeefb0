/** The sender of a rendezvous over fake lanes, with receivers that keep to it and receivers that do not: windows, keys, fragments, and its end. */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import {
  CARD,
  FakeLanes,
  type FakePeer,
  type LaneOptions,
  MESSAGES,
  RMA,
} from '../../../test/fixtures/lanes/fake-lanes.ts';
import { pattern, repliesOf, reply } from '../../../test/fixtures/lanes/rendezvous.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { readWithdraw } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import { ATP_IN_TARGET, DATA_BYTES, type RtrFields, readAtp, readData, writeRtr } from '../../api/layout/rendezvous.ts';
import { readTagRts } from '../../api/layout/tag.ts';
import type { Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { KEYS_MAX } from '../mem/message-keys.ts';
import { KEY_LIST, packKeyList } from './own-key.ts';

const TAG = 3;
/** The longest window, and the most fragments that one message waits for. */
const WINDOW_BYTES_MAX = 16 * 2 ** 20;
const WAITING_MAX = 16_384;

/** A message that is offered to a peer. */
function offered(byteLength = 5000, lanes: readonly LaneOptions[] = [MESSAGES], settings = {}) {
  const stack = new FakeLanes(lanes, settings);
  const peer = stack.peer();
  const bytes = pattern(byteLength);
  const ends: Status[] = [];
  const callback = (_request: Request, status: Status): number => ends.push(status);
  const before = stack.memories;
  const request = peer.endpoint.tagSendNbx(bytes, 0, byteLength, TAG, { callback }) as Request;
  const rts = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
  return { stack, peer, bytes, request, rts, ends, before };
}

/** The peer asks for a window; its request is 9. */
function ask(peer: FakePeer, rtr: Partial<RtrFields> & Pick<RtrFields, 'request'>, keys?: Uint8Array): void {
  const fields = { peerRequest: 9, targetBytes: 0, from: 0, byteLength: 2000, targetOffset: 0, ...rtr };
  peer.deliver(MessageId.RTR, writeRtr(peer.connection.id, fields), keys);
}

/** The parts of messages that a peer got, and its answers. */
function dataOf(peer: FakePeer): { from: number; bytes: Uint8Array }[] {
  return peer.got(MessageId.DATA).map((frame) => {
    const { from, start, byteLength } = readData(frame);
    return { from, bytes: frame.bytes.slice(start, start + byteLength) };
  });
}

describe('a sender', () => {
  it('sends each requested window in messages, and ends with the reply', () => {
    const { peer, bytes, request, rts } = offered();
    for (const [from, byteLength] of [
      [0, 2000],
      [2000, 3000],
    ] as const) {
      ask(peer, { request: rts.request, from, byteLength });
      const parts = dataOf(peer);
      peer.am.sent.length = 0;
      expect(Buffer.concat(parts.map((part) => part.bytes))).toEqual(Buffer.from(bytes.slice(from, from + byteLength)));
      expect(parts.map((part) => part.from)).toEqual(parts.map((_part, i) => from + i * (1000 - DATA_BYTES)));
    }
    expect(request.isCompleted).toBe(false);
    reply(peer, rts.request, Status.OK);
    expect(request.status).toBe(Status.OK);
  });

  it.each([
    ['that is not the next one', { from: 1000 }],
    ['that begins in front of the message', { from: -8 }],
    ['without bytes', { byteLength: 0 }],
    ['that ends behind the message', { byteLength: 5001 }],
    ['with a negative length', { byteLength: -8 }],
    ['with a longer key than it has', { targetBytes: 25 }],
    ['with a key of negative length', { targetBytes: -1 }],
  ])('ignores a window %s', (_name, requested) => {
    const { peer, rts } = offered();
    ask(peer, { request: rts.request, ...requested }, new Uint8Array(24));
    expect(peer.am.sent.map(({ id }) => id)).toEqual([MessageId.TAG_RTS]);
  });

  it('ignores a window that was requested for twice, and one of another peer', () => {
    const { stack, peer, rts } = offered();
    const other = stack.peer();
    const rtr = { request: rts.request, peerRequest: 9, targetBytes: 0, from: 0, byteLength: 900, targetOffset: 0 };
    peer.deliver(MessageId.RTR, writeRtr(peer.connection.id, rtr), undefined, other.source);
    expect(dataOf(peer)).toEqual([]);
    ask(peer, rtr);
    ask(peer, rtr);
    expect(dataOf(peer).length).toBe(1);
  });

  it('sends no window that is longer than any receiver may ask for', () => {
    const { peer, rts } = offered(WINDOW_BYTES_MAX + 1);
    ask(peer, { request: rts.request, byteLength: WINDOW_BYTES_MAX + 1 });
    expect(dataOf(peer)).toEqual([]);
    ask(peer, { request: rts.request, byteLength: 900 });
    expect(dataOf(peer).length).toBe(1);
  });

  it('waits for no more fragments than a receiver may ask for', () => {
    const byteLength = (WAITING_MAX + 1) * 1000;
    const stack = new FakeLanes([MESSAGES, CARD], { RNDV_FRAG_SIZE: 1000, RNDV_FRAG_ALLOC_COUNT: 2 });
    const peer = stack.peer();
    const memory = stack.device(byteLength);
    peer.endpoint.tagSendNbx(memory, 0, byteLength, TAG);
    const { request } = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
    const copies = (): number => stack.ifaces[1]!.endpoints.reduce((sum, { started }) => sum + started.length, 0);
    ask(peer, { request, byteLength });
    expect(copies()).toBe(0);
    ask(peer, { request, byteLength: WAITING_MAX * 1000 });
    expect(copies()).toBe(2);
  });

  it('counts the fragments that it waits for, and not those that it had', () => {
    const before = 100;
    const byteLength = (before + WAITING_MAX) * 1000;
    const stack = new FakeLanes([MESSAGES, CARD], { RNDV_FRAG_SIZE: 1000, RNDV_FRAG_ALLOC_COUNT: 2 });
    const peer = stack.peer();
    peer.endpoint.tagSendNbx(stack.device(byteLength), 0, byteLength, TAG);
    const { request } = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
    ask(peer, { request, byteLength: before * 1000 });
    const { started } = stack.ifaces[1]!.endpoints[0]!;
    for (let copy = started.shift(); copy !== undefined; copy = started.shift()) copy.end();
    ask(peer, { request, from: before * 1000, byteLength: WAITING_MAX * 1000 });
    expect(started.length).toBe(2);
  });

  it('copies device memory through fragments, and gives each back', () => {
    const stack = new FakeLanes([MESSAGES, CARD], { RNDV_FRAG_SIZE: 1000, RNDV_FRAG_ALLOC_COUNT: 2 });
    const peer = stack.peer();
    const memory = stack.device(5000);
    fillPattern(stack.storageOf(memory), 4);
    const request = peer.endpoint.tagSendNbx(memory, 0, 5000, TAG) as Request;
    const rts = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
    ask(peer, { request: rts.request, byteLength: 5000 });
    const { started } = stack.ifaces[1]!.endpoints[0]!;
    for (let copy = started.shift(); copy !== undefined; copy = started.shift()) copy.end();
    const arrived = new Uint8Array(5000);
    for (const { from, bytes } of dataOf(peer)) arrived.set(bytes, from);
    expect(arrived).toEqual(stack.storageOf(memory));
    reply(peer, rts.request, Status.OK);
    expect([request.status, stack.worker.protocols.rendezvous.staging.inUse]).toEqual([Status.OK, 0]);
  });

  it('gives back a fragment that comes when the message has ended', () => {
    const stack = new FakeLanes([MESSAGES, CARD], { RNDV_FRAG_SIZE: 1000, RNDV_FRAG_ALLOC_COUNT: 1 });
    const peer = stack.peer();
    const memory = stack.device(5000);
    const { staging } = stack.worker.protocols.rendezvous;
    const held = staging.tryAcquire()!;
    const request = peer.endpoint.tagSendNbx(memory, 0, 5000, TAG) as Request;
    const rts = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
    ask(peer, { request: rts.request, byteLength: 5000 });
    reply(peer, rts.request, Status.CANCELED);
    staging.release(held);
    expect([request.status, staging.inUse]).toEqual([Status.CANCELED, 0]);
  });

  it('ends with a copy that fails, and tells the receiver once', () => {
    const stack = new FakeLanes([MESSAGES, CARD], { RNDV_FRAG_SIZE: 1000, RNDV_FRAG_ALLOC_COUNT: 4 });
    const peer = stack.peer();
    const request = peer.endpoint.tagSendNbx(stack.device(5000), 0, 5000, TAG) as Request;
    const rts = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
    ask(peer, { request: rts.request, byteLength: 5000 });
    const { started } = stack.ifaces[1]!.endpoints[0]!;
    started[0]!.end(Status.IO_ERROR);
    reply(peer, rts.request, Status.OK);
    expect([request.isCompleted, repliesOf(peer), peer.connection.waiting.size]).toEqual([false, [], 1]);
    for (const copy of started.slice(1)) copy.end();
    expect([request.status, repliesOf(peer)]).toEqual([Status.IO_ERROR, [{ request: 9, status: Status.IO_ERROR }]]);
    expect(stack.worker.protocols.rendezvous.staging.inUse).toBe(0);
    reply(peer, rts.request, Status.OK);
    expect(request.status).toBe(Status.IO_ERROR);
  });

  it('offers the key of its memory, which is released with the message', () => {
    const { stack, peer, request, rts, before } = offered(5000, [RMA]);
    expect([rts.packedKey === undefined, stack.memories]).toEqual([false, before + 1]);
    reply(peer, rts.request, Status.OK);
    expect([request.status, stack.memories]).toEqual([Status.OK, before]);
  });

  it('releases a key that does not fit into the message', () => {
    const short: LaneOptions = { ...RMA, am: { shortBytesMax: 64, bcopyBytesMax: 100 } };
    const { stack, rts, before } = offered(5000, [short]);
    expect([rts.packedKey, stack.memories]).toEqual([undefined, before]);
  });

  it('writes the memory of a receiver whose key a lane can use, and tells it when the bytes are there', () => {
    const { stack, peer, bytes, request, rts } = offered(5000, [RMA], { RNDV_SCHEME: 'put_zcopy' });
    const target = stack.mds[0]!.add(new Uint8Array(6000));
    const packed = peer.keyOf(target);
    ask(peer, { request: rts.request, byteLength: 5000, targetBytes: packed.byteLength, targetOffset: 8 }, packed);
    const [write] = peer.lanes[0]!.started;
    // Windows of the same message are ignored from here on, by its new number too, and so is an early answer.
    for (const number of [rts.request, rts.request + 1]) ask(peer, { request: number, byteLength: 1 });
    expect([dataOf(peer), peer.lanes[0]!.started.length]).toEqual([[], 1]);
    reply(peer, rts.request, Status.OK);
    expect([request.isCompleted, repliesOf(peer)]).toEqual([false, []]);
    write!.end();
    expect(target.storage.slice(8, 5008)).toEqual(bytes);
    expect([request.status, repliesOf(peer)]).toEqual([Status.OK, [{ request: 9, status: Status.OK }]]);
    peer.connection.rkeys.close();
    expect(stack.keys).toBe(0);
  });

  it('writes nothing behind the memory of a receiver', () => {
    const { stack, peer, bytes, rts } = offered(5000, [RMA], { RNDV_SCHEME: 'put_zcopy' });
    const packed = peer.keyOf(stack.mds[0]!.add(new Uint8Array(5000)));
    ask(peer, { request: rts.request, byteLength: 5000, targetBytes: packed.byteLength, targetOffset: 1 }, packed);
    expect(peer.lanes[0]!.started).toEqual([]);
    expect(Buffer.concat(dataOf(peer).map((part) => part.bytes))).toEqual(Buffer.from(bytes));
  });

  it('keeps a bounded number of keys that no lane can use', () => {
    const stack = new FakeLanes([RMA]);
    const peer = stack.peer();
    const { attributes } = stack.mds[0]!;
    for (let i = 0; i < KEYS_MAX + 10; i++) {
      peer.am.sent.length = 0;
      peer.endpoint.tagSendNbx(pattern(1500), 0, 1500, TAG);
      const { request } = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
      const memory = stack.mds[0]!.add(new Uint8Array(1500 + i));
      const packed = peer.keyOf(memory);
      // The part of a memory domain that this context does not have.
      packed.set(Buffer.from('x'), Buffer.from(packed).indexOf(attributes.name));
      new DataView(packed.buffer).setUint32(packed.byteLength - 4, crc32(packed.subarray(0, -4)), true);
      ask(peer, { request, byteLength: 900, targetBytes: packed.byteLength }, packed);
      expect(dataOf(peer).length).toBe(1);
    }
    expect(peer.connection.rkeys.size).toBeLessThanOrEqual(KEYS_MAX);
  });

  it('releases the keys of a list that it does not write by windows', () => {
    const { stack, peer, rts } = offered(5000, [{ ...RMA, put: {} }]);
    const [one, two] = [stack.mds[0]!.add(new Uint8Array(2500)), stack.mds[0]!.add(new Uint8Array(2500))];
    const list = packKeyList([one, two].map((each) => ({ packed: peer.keyOf(each), offset: 0, byteLength: 2500 })));
    ask(peer, { request: rts.request, byteLength: 900, targetBytes: list.byteLength, targetOffset: KEY_LIST }, list);
    expect(dataOf(peer).length).toBe(1);
    expect(stack.keys).toBe(2);
    peer.connection.rkeys.close();
    expect(stack.keys).toBe(0);
  });

  it('announces what it has written by windows, with its carrier once', () => {
    const stack = new FakeLanes([RMA], { RNDV_SCHEME: 'put_ppln' });
    const peer = stack.peer();
    peer.endpoint.tagSendNbx(pattern(2000), 0, 2000, TAG);
    const { request } = readTagRts(peer.got(MessageId.TAG_RTS)[0]!);
    const target = stack.mds[0]!.add(new Uint8Array(2000));
    const packed = peer.keyOf(target);
    ask(peer, { request, byteLength: 1000, targetBytes: packed.byteLength }, packed);
    ask(peer, { request, from: 1000, byteLength: 1000 });
    for (const write of peer.lanes[0]!.started) write.end();
    const announced = peer.got(MessageId.ATP).map(readAtp);
    expect(announced).toMatchObject([
      { request: 9, from: 0, byteLength: 1000, flags: ATP_IN_TARGET },
      { request: 9, from: 1000, byteLength: 1000, flags: ATP_IN_TARGET },
    ]);
    expect(announced.map(({ carrier }) => carrier && Buffer.from(carrier).toString())).toEqual([
      expect.stringContaining('net/net0/'),
      undefined,
    ]);
    expect(target.storage).toEqual(pattern(2000));
  });
});

describe('a send that is cancelled', () => {
  it('asks the peer once, and ends with its answer, whatever that is', () => {
    for (const status of [Status.CANCELED, Status.OK]) {
      const { peer, request, rts, ends } = offered();
      expect([request.cancel(), request.cancel()]).toEqual([false, false]);
      expect(peer.got(MessageId.WITHDRAW).map(readWithdraw)).toEqual([rts.request]);
      expect(ends).toEqual([]);
      reply(peer, rts.request, status);
      reply(peer, rts.request, Status.OK);
      expect([request.status, request.cancel(), ends]).toEqual([status, false, [status]]);
    }
  });

  it('is not taken back once the peer has requested for bytes', () => {
    const { peer, request, rts } = offered();
    ask(peer, { request: rts.request, byteLength: 900 });
    expect([request.cancel(), peer.got(MessageId.WITHDRAW)]).toEqual([false, []]);
  });

  it('ends at once if its peer is stopped and has no key: that one learns it when it asks', () => {
    const { peer, request, rts } = offered();
    peer.am.isPeerStopped = () => true;
    request.cancel();
    expect([request.status, peer.connection.takenBack.size]).toEqual([Status.CANCELED, 1]);
    ask(peer, { request: rts.request });
    ask(peer, { request: rts.request });
    expect(repliesOf(peer)).toEqual([{ request: 9, status: Status.CANCELED }]);
    expect([peer.connection.takenBack.size, dataOf(peer)]).toEqual([0, []]);
  });
});
