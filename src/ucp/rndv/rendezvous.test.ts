/** The rendezvous over fake lanes, with peers that keep to it and peers that do not: windows, keys, fragments, and the end of both sides. */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import {
  FakeLanes,
  type FakePeer,
  type LaneOptions,
  LOOPBACK,
  MESSAGES,
  RMA,
} from '../../../test/fixtures/lanes/fake-lanes.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { readWithdraw } from '../../api/layout/control.ts';
import { MessageId } from '../../api/layout/message.ts';
import {
  ATP_IN_TARGET,
  DATA_BYTES,
  type RtrFields,
  readAtp,
  readData,
  readReply,
  readRtr,
  writeAtp,
  writeData,
  writeReply,
  writeRtr,
} from '../../api/layout/rendezvous.ts';
import { readTagRts, writeTagRts } from '../../api/layout/tag.ts';
import type { Request } from '../../index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceType } from '../../uct/api/iface.ts';
import { KEYS_MAX } from '../mem/message-keys.ts';
import { KEY_LIST, packKeyList } from './own-key.ts';

const TAG = 3;
const ZCOPY = { zcopyBytesMax: 2 ** 30 };
/** A card that copies its memory. */
const CARD: LaneOptions = { name: 'card', deviceType: DeviceType.ACC, reach: 'itself', put: ZCOPY, get: ZCOPY };
/** The longest window, and the most fragments that one message waits for. */
const WINDOW_BYTES_MAX = 16 * 2 ** 20;
const WAITING_MAX = 16_384;

function pattern(byteLength: number, seed = 1): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  fillPattern(bytes, seed);
  return bytes;
}

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

function reply(peer: FakePeer, request: number, status: Status): void {
  peer.deliver(MessageId.REPLY, writeReply(peer.connection.id, { request, status, low: 0, high: 0 }));
}

/** The parts of messages that a peer got, and its answers. */
function dataOf(peer: FakePeer): { from: number; bytes: Uint8Array }[] {
  return peer.got(MessageId.DATA).map((frame) => {
    const { from, start, byteLength } = readData(frame);
    return { from, bytes: frame.bytes.slice(start, start + byteLength) };
  });
}

function repliesOf(peer: FakePeer): { request: number; status: Status }[] {
  return peer.got(MessageId.REPLY).map((frame) => {
    const { request, status } = readReply(frame);
    return { request, status };
  });
}

describe('a sender', () => {
  it('sends each window that is asked for in messages, and ends with the answer', () => {
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
  ])('ignores a window %s', (_name, asked) => {
    const { peer, rts } = offered();
    ask(peer, { request: rts.request, ...asked }, new Uint8Array(24));
    expect(peer.am.sent.map(({ id }) => id)).toEqual([MessageId.TAG_RTS]);
  });

  it('ignores a window that was asked for twice, and one of another peer', () => {
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

  it('is not taken back once the peer has asked for bytes', () => {
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

/** A receive, and the offer that matches it. */
function receiving(byteLength = 5000, lanes: readonly LaneOptions[] = [MESSAGES], settings = {}) {
  const stack = new FakeLanes(lanes, settings);
  const peer = stack.peer();
  const target = new Uint8Array(byteLength);
  const request = stack.worker.tagRecvNbx(target, 0, byteLength, TAG) as Request;
  const offer = (key?: Uint8Array, keyOffset = 0): void => {
    const rts = { request: 55, tagLow: TAG, tagHigh: 0, byteLength, keyOffset };
    peer.deliver(MessageId.TAG_RTS, writeTagRts(peer.connection.id, rts), key);
  };
  return { stack, peer, target, request, offer };
}

type Rtr = ReturnType<typeof readRtr>;

function windowsOf(peer: FakePeer): Rtr[] {
  return peer.got(MessageId.RTR).map(readRtr);
}

function data(peer: FakePeer, request: number, from: number, bytes: Uint8Array): void {
  peer.deliver(MessageId.DATA, writeData(peer.connection.id, request, from), bytes);
}

describe('a receiver', () => {
  const FRAGMENTS = { RNDV_FRAG_SIZE: 1000, RNDV_FRAG_ALLOC_COUNT: 4 };

  it('asks for windows in order, and answers when all bytes are there', () => {
    const { peer, target, request, offer } = receiving(5000, [MESSAGES], FRAGMENTS);
    offer();
    const bytes = pattern(5000);
    for (let i = 0; i < 5; i++) {
      const [{ peerRequest, from, byteLength }] = windowsOf(peer).slice(i) as [Rtr, ...Rtr[]];
      expect([from, byteLength, repliesOf(peer)]).toEqual([1000 * i, 1000, []]);
      data(peer, peerRequest, from, bytes.subarray(from, from + 400));
      data(peer, peerRequest, from + 400, bytes.subarray(from + 400, from + 1000));
    }
    expect([request.status, target, repliesOf(peer)]).toEqual([Status.OK, bytes, [{ request: 55, status: Status.OK }]]);
  });

  it('takes only bytes that it has asked for, once', () => {
    const { peer, target, request, offer } = receiving(5000, [MESSAGES], FRAGMENTS);
    offer();
    const [{ peerRequest }] = windowsOf(peer) as [Rtr, ...Rtr[]];
    const wrong = new Uint8Array(600).fill(0xee);
    for (const from of [-8, 700, 2000, 4999, 5000, 2 ** 40]) data(peer, peerRequest, from, wrong);
    data(peer, peerRequest, 0, new Uint8Array(0));
    expect(target.includes(0xee)).toBe(false);
    // More bytes than a window has, by the same bytes twice.
    data(peer, peerRequest, 0, pattern(600));
    data(peer, peerRequest, 0, wrong);
    data(peer, peerRequest, 400, wrong);
    expect([target.slice(0, 600), target.slice(600).includes(0xee)]).toEqual([pattern(600), false]);
    expect([request.isCompleted, repliesOf(peer)]).toEqual([false, []]);
  });

  it('ignores bytes that come late, after its end', () => {
    const { peer, target, request, offer } = receiving(5000, [MESSAGES], FRAGMENTS);
    offer();
    const [{ peerRequest }] = windowsOf(peer) as [Rtr, ...Rtr[]];
    reply(peer, peerRequest, Status.CANCELED);
    data(peer, peerRequest, 0, new Uint8Array(1000).fill(0xee));
    expect([request.status, target.includes(0xee), repliesOf(peer)]).toEqual([Status.CANCELED, false, []]);
  });

  it('believes no writing of memory whose key it has not sent', () => {
    const { peer, request, offer } = receiving(1000, [MESSAGES], { ...FRAGMENTS, RNDV_SCHEME: 'am' });
    offer();
    const [{ peerRequest }] = windowsOf(peer) as [Rtr, ...Rtr[]];
    for (const flags of [ATP_IN_TARGET, 0]) {
      const atp = { request: peerRequest, from: 0, byteLength: 1000, flags };
      peer.deliver(MessageId.ATP, writeAtp(peer.connection.id, atp));
    }
    expect([request.isCompleted, repliesOf(peer)]).toEqual([false, []]);
  });

  it('takes what the sender has written to its memory, and releases the key', () => {
    const { stack, peer, target, request, offer } = receiving(1000, [{ ...RMA, get: {} }], {
      ...FRAGMENTS,
      RNDV_SCHEME: 'put_zcopy',
    });
    const before = stack.memories;
    offer();
    const [rtr] = windowsOf(peer) as [Rtr, ...Rtr[]];
    expect([rtr.targetBytes > 0, rtr.keys?.byteLength === rtr.targetBytes, stack.memories]).toEqual([
      true,
      true,
      before + 1,
    ]);
    target.set(pattern(1000));
    const atp = { request: rtr.peerRequest, from: 0, byteLength: 1000, flags: ATP_IN_TARGET };
    peer.deliver(MessageId.ATP, writeAtp(peer.connection.id, atp));
    expect([request.status, target, stack.memories]).toEqual([Status.OK, pattern(1000), before]);
  });

  it('asks for more windows when the first bytes come, and not by a part without any', () => {
    const { peer, offer } = receiving(50_000, [{ ...RMA, get: {} }], { ...FRAGMENTS, RNDV_FRAG_ALLOC_COUNT: 16 });
    offer();
    const [{ peerRequest }] = windowsOf(peer) as [Rtr, ...Rtr[]];
    data(peer, peerRequest, 0, new Uint8Array(0));
    expect(windowsOf(peer).length).toBe(2);
    data(peer, peerRequest, 0, pattern(1));
    expect(windowsOf(peer).length).toBe(8);
  });

  it('sends the key of its memory with the first window only', () => {
    const { peer, offer } = receiving(5000, [{ ...RMA, get: {} }], FRAGMENTS);
    offer();
    expect(windowsOf(peer).map(({ targetBytes }) => targetBytes > 0)).toEqual([true, false]);
  });

  it('releases the keys of a list that it cannot use as a whole', () => {
    const { stack, peer, offer } = receiving(5000, [RMA]);
    const packed = peer.keyOf(stack.mds[0]!.add(new Uint8Array(2500)));
    const ranges = [packed, new Uint8Array(40)].map((key) => ({ packed: key, offset: 0, byteLength: 2500 }));
    offer(packKeyList(ranges), KEY_LIST);
    expect([windowsOf(peer).length > 0, stack.keys]).toEqual([true, 1]);
    peer.connection.rkeys.close();
    expect(stack.keys).toBe(0);
  });

  it('reads the memory of a sender whose key a lane can use', () => {
    const { stack, peer, target, request, offer } = receiving(5000, [RMA]);
    const remote = stack.mds[0]!.add(pattern(6000));
    offer(peer.keyOf(remote), 100);
    const [read] = peer.lanes[0]!.started;
    expect([windowsOf(peer), request.isCompleted, repliesOf(peer)]).toEqual([[], false, []]);
    read!.end();
    expect([request.status, target, repliesOf(peer)]).toEqual([
      Status.OK,
      remote.storage.slice(100, 5100),
      [{ request: 55, status: Status.OK }],
    ]);
    peer.connection.rkeys.close();
    expect(stack.keys).toBe(0);
  });

  it('releases the key of a sender whose memory no lane reads, and asks for windows', () => {
    const { stack, peer, offer } = receiving(5000, [{ ...RMA, get: {} }]);
    offer(peer.keyOf(stack.mds[0]!.add(pattern(5000))));
    expect([windowsOf(peer).length > 0, stack.keys]).toEqual([true, 1]);
    peer.connection.rkeys.close();
    expect(stack.keys).toBe(0);
  });

  it('does not read behind the memory of a key', () => {
    const { stack, peer, offer } = receiving(5000, [RMA]);
    offer(peer.keyOf(stack.mds[0]!.add(pattern(5000))), 1);
    expect([peer.lanes[0]!.started, windowsOf(peer).length > 0]).toEqual([[], true]);
  });

  it('ends with INVALID_ADDR if the sender took its memory back during the read, and keeps no such key', () => {
    const { stack, peer, request, offer } = receiving(5000, [RMA]);
    const remote = stack.mds[0]!.add(pattern(5000));
    offer(peer.keyOf(remote));
    remote.live = false;
    peer.lanes[0]!.started[0]!.end();
    expect([request.status, repliesOf(peer), stack.keys]).toEqual([
      Status.INVALID_ADDR,
      [{ request: 55, status: Status.INVALID_ADDR }],
      0,
    ]);
  });

  it('does not use a list of keys whose ranges are not as long as the message', () => {
    for (const byteLength of [2400, 2600]) {
      const { stack, peer, offer } = receiving(5000, [RMA]);
      const packed = peer.keyOf(stack.mds[0]!.add(new Uint8Array(8000)));
      offer(packKeyList([2500, byteLength].map((bytes) => ({ packed, offset: 0, byteLength: bytes }))), KEY_LIST);
      expect([peer.lanes[0]!.started, windowsOf(peer).length > 0]).toEqual([[], true]);
    }
  });

  it('retires the fragments that a lost sender may still write to', () => {
    const lanes = [{ ...RMA, get: {} }, CARD, LOOPBACK];
    const stack = new FakeLanes(lanes, FRAGMENTS);
    const peer = stack.peer();
    const memory = stack.context.memMap({ allocate: 5000, memoryType: MemoryType.GAUDI });
    const request = stack.worker.tagRecvNbx(memory, 0, 5000, TAG) as Request;
    const before = stack.memories;
    const rts = { request: 55, tagLow: TAG, tagHigh: 0, byteLength: 5000, keyOffset: 0 };
    peer.deliver(MessageId.TAG_RTS, writeTagRts(peer.connection.id, rts));
    const windows = windowsOf(peer);
    expect([windows.length, windows.every(({ keys }) => keys !== undefined)]).toEqual([2, true]);
    expect(stack.memories).toBeGreaterThan(before);
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect([request.status, stack.memories]).toEqual([Status.ENDPOINT_TIMEOUT, before]);
  });

  it('uses the fragments again of a sender that has answered', () => {
    const stack = new FakeLanes([{ ...RMA, get: {} }, CARD, LOOPBACK], FRAGMENTS);
    const peer = stack.peer();
    const memory = stack.context.memMap({ allocate: 5000, memoryType: MemoryType.GAUDI });
    const request = stack.worker.tagRecvNbx(memory, 0, 5000, TAG) as Request;
    const rts = { request: 55, tagLow: TAG, tagHigh: 0, byteLength: 5000, keyOffset: 0 };
    peer.deliver(MessageId.TAG_RTS, writeTagRts(peer.connection.id, rts));
    const during = stack.memories;
    reply(peer, windowsOf(peer)[0]!.peerRequest, Status.IO_ERROR);
    expect([request.status, stack.memories, stack.worker.protocols.rendezvous.staging.inUse]).toEqual([
      Status.IO_ERROR,
      during,
      0,
    ]);
  });

  it('copies full fragments to device memory, and answers behind the last copy', () => {
    const stack = new FakeLanes([MESSAGES, CARD], FRAGMENTS);
    const peer = stack.peer();
    const memory = stack.device(2000);
    const request = stack.worker.tagRecvNbx(memory, 0, 2000, TAG) as Request;
    const rts = { request: 55, tagLow: TAG, tagHigh: 0, byteLength: 2000, keyOffset: 0 };
    peer.deliver(MessageId.TAG_RTS, writeTagRts(peer.connection.id, rts));
    const [one, two] = windowsOf(peer);
    const bytes = pattern(2000);
    data(peer, two!.peerRequest, 1000, bytes.subarray(1000, 1900));
    expect(stack.ifaces[1]!.endpoints).toEqual([]);
    data(peer, two!.peerRequest, 1900, bytes.subarray(1900));
    data(peer, one!.peerRequest, 0, bytes.subarray(0, 500));
    data(peer, one!.peerRequest, 500, bytes.subarray(500, 1000));
    const { started } = stack.ifaces[1]!.endpoints[0]!;
    expect([started.length, repliesOf(peer)]).toEqual([2, []]);
    started[0]!.end();
    expect(request.isCompleted).toBe(false);
    started[1]!.end();
    expect([request.status, stack.storageOf(memory)]).toEqual([Status.OK, bytes]);
    expect(repliesOf(peer)).toEqual([{ request: 55, status: Status.OK }]);
  });

  it('refuses an offer once its memory is gone, and ends with the failure of a connection', () => {
    const { peer, target, request, offer } = receiving();
    structuredClone(target, { transfer: [target.buffer] });
    offer();
    expect([request.status, repliesOf(peer)]).toEqual([
      Status.INVALID_ADDR,
      [{ request: 55, status: Status.INVALID_ADDR }],
    ]);
  });

  it('ends when its sender is gone, and answers no one', () => {
    const { peer, request, offer } = receiving();
    offer();
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect([request.status, repliesOf(peer)]).toEqual([Status.ENDPOINT_TIMEOUT, []]);
  });

  it('announces what it has written by windows, with its carrier once', () => {
    const stack = new FakeLanes([RMA], { ...FRAGMENTS, RNDV_SCHEME: 'put_ppln' });
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
