/** Puts and gets that the worker of the peer executes, over fake lanes: what an owner permits, what it refuses, and the end of both sides. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, type FakePeer, MESSAGES } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readData, readReply, readRtr, writeData, writeReply, writeRtr } from '../../api/layout/rendezvous.ts';
import { type RmaBlock, readGetReady, readRma, writeGetReady, writeRma, writeRmaBlocks } from '../../api/layout/rma.ts';
import type { MemoryProtection, Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { MEMORY_KEY_BYTES, type MemoryHandle } from '../mem/memory-handle.ts';

/** Maximum number of blocks of a transfer. */
const BLOCKS_MAX = 512;
const SIZE = 4096;

function pattern(byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  fillPattern(bytes, 8);
  return bytes;
}

/** The key by which peers ask for memory. */
function memoryKeyOf({ context }: FakeLanes, memory: MemoryHandle): Uint8Array {
  const connection = { lanes: [] } as unknown as Parameters<FakeLanes['context']['unpackRkey']>[1];
  return context.unpackRkey(context.packRkey(memory), connection).memoryKey!;
}

/** An owner of memory, by messages of up to 16000 bytes. */
function owner(protection?: readonly MemoryProtection[]) {
  const stack = new FakeLanes([{ ...MESSAGES, am: { shortBytesMax: 64, bcopyBytesMax: 16_000 } }], {
    RNDV_SCHEME: 'am',
  });
  const bytes = pattern(SIZE);
  const memory = stack.context.memMap({ buffer: bytes, protection });
  return { stack, bytes, memory, key: memoryKeyOf(stack, memory), peer: stack.peer() };
}

function ask(peer: FakePeer, id: number, key: Uint8Array, blocks: readonly RmaBlock[]): void {
  peer.deliver(id, writeRma(peer.connection.id, { request: 7, ...blocks[0]! }), writeRmaBlocks(key, blocks));
}

function repliesOf(peer: FakePeer): [number, Status][] {
  return peer.got(MessageId.REPLY).map((frame) => {
    const { request, status } = readReply(frame);
    return [request, status];
  });
}

const block = (remoteOffset: number, byteLength: number): RmaBlock => ({ remoteOffset, byteLength });

describe('an owner', () => {
  it('takes the bytes of a put to their blocks', () => {
    const { bytes, key, peer } = owner();
    ask(peer, MessageId.PUT, key, [block(100, 10), block(3000, 15), block(3500, 5)]);
    const [{ request, peerRequest, byteLength }] = peer.got(MessageId.RTR).map(readRtr) as [ReturnType<typeof readRtr>];
    expect([request, byteLength]).toEqual([7, 30]);
    const sent = Uint8Array.from({ length: 30 }, (_, i) => 200 + i);
    peer.deliver(MessageId.DATA, writeData(peer.connection.id, peerRequest, 0), sent);
    const expected = pattern(SIZE);
    expected.set(sent.subarray(0, 10), 100);
    expected.set(sent.subarray(10, 25), 3000);
    expected.set(sent.subarray(25), 3500);
    expect([bytes, repliesOf(peer)]).toEqual([expected, [[7, Status.OK]]]);
  });

  it('offers the bytes of a get, and sends them when the getter asks', () => {
    const { bytes, key, peer } = owner();
    ask(peer, MessageId.GET, key, [block(100, 10), block(3000, 20)]);
    const { request, peerRequest, status } = readGetReady(peer.got(MessageId.GET_READY)[0]!);
    expect([request, status]).toEqual([7, Status.OK]);
    const rtr = { request: peerRequest, peerRequest: 9, targetBytes: 0, from: 0, byteLength: 30, targetOffset: 0 };
    peer.deliver(MessageId.RTR, writeRtr(peer.connection.id, rtr));
    const { start, byteLength } = readData(peer.got(MessageId.DATA)[0]!);
    const got = peer.got(MessageId.DATA)[0]!.bytes.slice(start, start + byteLength);
    expect(got).toEqual(Uint8Array.of(...bytes.subarray(100, 110), ...bytes.subarray(3000, 3020)));
    expect(peer.connection.waiting.size).toBe(1);
    peer.deliver(
      MessageId.REPLY,
      writeReply(peer.connection.id, { request: peerRequest, status: Status.OK, low: 0, high: 0 }),
    );
    expect(peer.connection.waiting.size).toBe(0);
  });

  it.each([
    ['that ends behind the memory', [block(SIZE - 9, 10)]],
    ['behind the memory', [block(SIZE + 8, 8)]],
    ['without bytes', [block(0, 0)]],
    ['whose second block ends behind the memory', [block(0, 8), block(SIZE - 7, 8)]],
    ['whose second block is empty', [block(0, 8), block(0, 0)]],
    ['with an endless block', [block(8, 2 ** 53 - 1)]],
    ['of more blocks than one may have', Array.from({ length: BLOCKS_MAX + 1 }, (_, i) => block(i, 1))],
  ])('refuses a range %s', (_name, blocks) => {
    const { bytes, key, peer } = owner();
    ask(peer, MessageId.PUT, key, blocks);
    ask(peer, MessageId.GET, key, blocks);
    expect(repliesOf(peer)).toEqual([[7, Status.INVALID_ADDR]]);
    const { request, peerRequest, status } = readGetReady(peer.got(MessageId.GET_READY)[0]!);
    expect([request, peerRequest, status]).toEqual([7, 0, Status.INVALID_ADDR]);
    expect([bytes, peer.got(MessageId.RTR), peer.connection.waiting.size]).toEqual([pattern(SIZE), [], 0]);
  });

  it('permits the longest range, and as many blocks as one may have', () => {
    const { key, peer } = owner();
    ask(peer, MessageId.GET, key, [block(0, SIZE)]);
    ask(
      peer,
      MessageId.GET,
      key,
      Array.from({ length: BLOCKS_MAX }, (_, i) => block(i, 1)),
    );
    expect(peer.got(MessageId.GET_READY).map((frame) => readGetReady(frame).status)).toEqual([Status.OK, Status.OK]);
  });

  it('permits the accesses that its memory is mapped for', () => {
    for (const [protection, statuses] of [
      ['remote-read', [Status.INVALID_ADDR, Status.OK]],
      ['remote-write', [undefined, Status.INVALID_ADDR]],
    ] as const) {
      const { key, peer } = owner([protection, 'local-read', 'local-write']);
      ask(peer, MessageId.PUT, key, [block(0, 8)]);
      ask(peer, MessageId.GET, key, [block(0, 8)]);
      expect([repliesOf(peer)[0]?.[1], readGetReady(peer.got(MessageId.GET_READY)[0]!).status]).toEqual(statuses);
    }
  });

  it('refuses keys that are cut or wrong, and those of memory that is gone', () => {
    const { stack, memory, key, peer } = owner();
    const wrong = key.slice();
    wrong[MEMORY_KEY_BYTES - 1]! ^= 1;
    const header = { request: 7, ...block(0, 8) };
    for (const payload of [key.subarray(1), wrong, new Uint8Array(0), Uint8Array.of(...key, 1, 2, 3)]) {
      peer.deliver(MessageId.PUT, writeRma(peer.connection.id, header), payload);
    }
    stack.context.memUnmap(memory);
    ask(peer, MessageId.PUT, key, [block(0, 8)]);
    expect(repliesOf(peer).map(([, status]) => status)).toEqual(new Array(5).fill(Status.INVALID_ADDR));
  });

  it('ignores what comes from another peer than that of the connection', () => {
    const { stack, key, peer } = owner();
    const other = stack.peer();
    for (const id of [MessageId.PUT, MessageId.GET]) {
      const header = writeRma(peer.connection.id, { request: 7, ...block(0, 8) });
      peer.deliver(id, header, key, other.source);
    }
    expect([peer.am.sent, other.am.sent]).toEqual([[], []]);
  });
});

describe('a getter', () => {
  function getting() {
    const { stack, peer } = owner();
    const remote = stack.mds[0]!.add(new Uint8Array(SIZE));
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(remote, new Uint8Array(MEMORY_KEY_BYTES).fill(4)));
    const target = new Uint8Array(100);
    const ends: Status[] = [];
    const callback = (_request: Request, status: Status): number => ends.push(status);
    const request = peer.endpoint.getNbx(target, 0, 100, rkey, 40, { callback }) as Request;
    const requested = readRma(peer.got(MessageId.GET)[0]!);
    const ready = (status: Status, peerRequest = 33, number = requested.request): void => {
      const fields = { request: number, peerRequest, status };
      peer.deliver(MessageId.GET_READY, writeGetReady(peer.connection.id, fields));
    };
    return { stack, peer, target, request, requested, ready, ends };
  }

  it('asks the owner, receives what it offers, and flushes wait for it', () => {
    const { peer, target, request, requested, ready } = getting();
    expect([requested.remoteOffset, requested.byteLength, peer.connection.remoteOperations]).toEqual([40, 100, 1]);
    const flush = peer.endpoint.flushNbx() as Request;
    ready(Status.OK);
    const [rtr] = peer.got(MessageId.RTR).map(readRtr);
    expect([rtr!.request, flush.isCompleted]).toEqual([33, false]);
    peer.deliver(MessageId.DATA, writeData(peer.connection.id, rtr!.peerRequest, 0), pattern(100));
    expect([request.status, target, flush.status]).toEqual([Status.OK, pattern(100), Status.OK]);
  });

  it('ends with the refusal of the owner, and takes one answer only', () => {
    const { peer, ready, ends } = getting();
    ready(Status.INVALID_ADDR);
    ready(Status.IO_ERROR);
    expect([ends, peer.connection.remoteOperations]).toEqual([[Status.INVALID_ADDR], 0]);
    const second = getting();
    second.ready(Status.OK);
    second.ready(Status.INVALID_ADDR);
    // By the number that it has since then, too.
    for (const number of [second.requested.request, second.requested.request + 1]) second.ready(Status.OK, 34, number);
    expect([second.ends, second.peer.got(MessageId.RTR).map((frame) => readRtr(frame).request)]).toEqual([[], [33]]);
  });

  it('that has ended meanwhile releases the owner', () => {
    const { peer, request, ready } = getting();
    peer.am.isPeerStopped = () => true;
    request.cancel();
    expect(request.status).toBe(Status.CANCELED);
    ready(Status.OK);
    expect(repliesOf(peer)).toEqual([[33, Status.CANCELED]]);
  });
});
