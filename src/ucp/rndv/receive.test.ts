/** The receiver of a rendezvous over fake lanes, with senders that keep to it and senders that do not: windows, keys, fragments, and its end. */

import { describe, expect, it } from 'vitest';
import {
  CARD,
  FakeLanes,
  type FakePeer,
  type LaneOptions,
  LOOPBACK,
  MESSAGES,
  RMA,
} from '../../../test/fixtures/lanes/fake-lanes.ts';
import { pattern, repliesOf, reply } from '../../../test/fixtures/lanes/rendezvous.ts';
import { MessageId } from '../../api/layout/message.ts';
import { ATP_IN_TARGET, readRtr, writeAtp, writeData } from '../../api/layout/rendezvous.ts';
import { writeTagRts } from '../../api/layout/tag.ts';
import type { Request } from '../../index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { Status } from '../../ucs/type/status.ts';
import { KEY_LIST, packKeyList } from './own-key.ts';

const TAG = 3;

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

  it('takes only bytes that it has requested for, once', () => {
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
});
