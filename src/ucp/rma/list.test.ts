/** Lists of puts and gets over fake lanes: their blocks, their end, and when their notifications are sent. */

import { describe, expect, it } from 'vitest';
import { FakeLanes, type LaneOptions, MESSAGES, RMA } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { readAm } from '../../api/layout/am.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readData, writeRtr } from '../../api/layout/rendezvous.ts';
import { readRma, readRmaBlocks } from '../../api/layout/rma.ts';
import type { Request, TransferEntry } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceType } from '../../uct/api/iface.ts';
import { MEMORY_KEY_BYTES } from '../mem/memory-handle.ts';

/** Puts of blocks of 100 bytes, of which every other place is left out, from mapped memory. */
function listed(lanes: readonly LaneOptions[] = [RMA], blocks = 3) {
  const stack = new FakeLanes(lanes);
  const peer = stack.peer();
  const remotes = stack.mds.map((md) => md.add(new Uint8Array(4096)));
  const rkeys = remotes.map((remote) => peer.endpoint.unpackRkey(peer.keyOf(remote)));
  const bytes = new Uint8Array(4096);
  fillPattern(bytes, 5);
  const memory = stack.map(bytes);
  const entries = Array.from({ length: blocks }, (_, i): TransferEntry => {
    const offset = 200 * i;
    return { local: memory, rkey: rkeys[i % rkeys.length]!, offset, remoteOffset: offset + 8, byteLength: 100 };
  });
  return { stack, peer, remotes, bytes, memory, entries, lane: peer.lanes[0]! };
}

/** The type of the library does not know resizable buffers. */
const ResizableBuffer = ArrayBuffer as unknown as new (
  bytes: number,
  options: { maxByteLength: number },
) => ArrayBuffer;
const notify = Uint8Array.of(1, 2, 3);
/** Two lanes; each reaches only the memory of its device. */
const TWO_RAILS: readonly LaneOptions[] = [RMA, { ...RMA, name: 'b', am: { shortBytesMax: 0, bcopyBytesMax: 0 } }].map(
  (lane) => ({ ...lane, deviceType: DeviceType.SHM }),
);

describe('a list', () => {
  it('ends with the last of its blocks, and has moved all of them', () => {
    const { peer, remotes, bytes, entries, lane } = listed();
    const request = peer.endpoint.putListNbx(entries) as Request;
    const [one, two, three] = lane.started;
    three!.end();
    one!.end();
    expect(request.isCompleted).toBe(false);
    two!.end();
    expect(request.status).toBe(Status.OK);
    for (let i = 0; i < 3; i++) {
      expect(remotes[0]!.storage.slice(200 * i + 8, 200 * i + 108)).toEqual(bytes.slice(200 * i, 200 * i + 100));
    }
    expect(remotes[0]!.storage[108]).toBe(0);
  });

  it('gets bytes too', () => {
    const { peer, remotes, bytes, entries, lane } = listed();
    fillPattern(remotes[0]!.storage, 77);
    const request = peer.endpoint.getListNbx(entries) as Request;
    for (const block of lane.started) block.end();
    expect([request.status, bytes.slice(200, 300)]).toEqual([Status.OK, remotes[0]!.storage.slice(208, 308)]);
  });

  it('holds its lane back while it starts several blocks, and a single one starts at once', () => {
    const { peer, entries, lane } = listed();
    const corks: number[] = [];
    const { putZcopy } = lane;
    lane.putZcopy = (...given) => {
      corks.push(lane.corks);
      return putZcopy.apply(lane, given);
    };
    peer.endpoint.putListNbx(entries);
    peer.endpoint.putListNbx(entries.slice(0, 1));
    expect([corks, lane.corks]).toEqual([[1, 1, 1, 0], 0]);
  });

  it('ends with the first failure, when no block is in flight, and names the entry', () => {
    const { peer, entries, lane } = listed();
    let message = '';
    const callback = (request: Request): void => {
      message = String((request as unknown as { error: Error }).error.message);
    };
    const request = peer.endpoint.putListNbx(entries, { callback }) as Request;
    const [one, two, three] = lane.started;
    two!.end(Status.IO_ERROR);
    one!.end(Status.TIMED_OUT);
    expect(request.isCompleted).toBe(false);
    three!.end();
    expect([request.status, message]).toEqual([Status.IO_ERROR, expect.stringContaining('1')]);
  });

  it('continues after the last block that was started, once there are resources', () => {
    const { stack, peer, entries, lane } = listed();
    const { putZcopy } = lane;
    let room = 1;
    lane.putZcopy = (...given) => (room-- > 0 ? putZcopy.apply(lane, given) : Status.NO_RESOURCE);
    const request = peer.endpoint.putListNbx(entries) as Request;
    lane.started[0]!.end();
    expect([request.isCompleted, lane.corks]).toEqual([false, 0]);
    room = 10;
    stack.worker.progress();
    expect(lane.started.map(({ remoteOffset }) => remoteOffset)).toEqual([8, 208, 408]);
    for (const block of lane.started.slice(1)) block.end();
    expect(request.status).toBe(Status.OK);
  });

  it('starts no more blocks after a failure', () => {
    const { stack, peer, entries, lane } = listed();
    const { putZcopy } = lane;
    let room = 1;
    lane.putZcopy = (...given) => (room-- > 0 ? putZcopy.apply(lane, given) : Status.NO_RESOURCE);
    const request = peer.endpoint.putListNbx(entries) as Request;
    lane.started[0]!.end(Status.IO_ERROR);
    room = 10;
    stack.worker.progress();
    expect([request.status, lane.started.length]).toEqual([Status.IO_ERROR, 1]);
  });

  it('moves the selected blocks of a prepared list, each time', () => {
    const { peer, entries, lane } = listed();
    const list = peer.endpoint.prepareList('put', entries);
    peer.endpoint.putListNbx(list, { blocks: [2, 0] });
    expect(lane.started.map(({ remoteOffset }) => remoteOffset)).toEqual([408, 8]);
    peer.endpoint.putListNbx(list, { blocks: [1] });
    expect(lane.started.map(({ remoteOffset }) => remoteOffset)).toEqual([408, 8, 208]);
  });

  it('registers memory that is not mapped once, until its end', () => {
    const { stack, peer, entries, lane } = listed();
    const before = stack.memories;
    const local = new Uint8Array(600);
    const request = peer.endpoint.putListNbx(entries.map((entry) => ({ ...entry, local }))) as Request;
    expect(stack.memories).toBe(before + 1);
    for (const block of lane.started) block.end();
    expect([request.status, stack.memories, stack.mds[0]!.lostInFlight]).toEqual([Status.OK, before, []]);
  });

  it('that is refused, or ends in its call, registers nothing', () => {
    const { stack, peer, entries, lane } = listed();
    const before = stack.memories;
    const local = new Uint8Array(600);
    const resizable = new Uint8Array(new ResizableBuffer(600, { maxByteLength: 700 }));
    const refused = entries.map((entry, i) => ({ ...entry, local: i === 2 ? resizable : local }));
    expect(() => peer.endpoint.putListNbx(refused)).toThrow();
    expect(stack.memories).toBe(before);
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect(peer.endpoint.putListNbx(entries.map((entry) => ({ ...entry, local })))).toBe(Status.ENDPOINT_TIMEOUT);
    expect([stack.memories, lane.started]).toEqual([before, []]);
  });

  it('ends with the failure of a block that its lane refuses', () => {
    const { peer, entries, lane } = listed();
    const { putZcopy } = lane;
    let room = 1;
    lane.putZcopy = (...given) => (room-- > 0 ? putZcopy.apply(lane, given) : Status.IO_ERROR);
    const request = peer.endpoint.putListNbx(entries) as Request;
    lane.started[0]!.end();
    expect([request.status, lane.started.length, lane.corks]).toEqual([Status.IO_ERROR, 1, 0]);
  });

  it('flushes a lane once that carried several blocks', () => {
    const { peer, entries, lane } = listed();
    lane.answers.flush = Status.INPROGRESS;
    const request = peer.endpoint.putListNbx(entries, { flush: true }) as Request;
    for (const block of lane.started) block.end();
    expect([request.isCompleted, lane.flushes.length]).toEqual([false, 1]);
    lane.flushes[0]!.end();
    expect(request.status).toBe(Status.OK);
  });

  it('flushes each of two lanes once that have carried blocks in turns', () => {
    const { peer, entries } = listed(TWO_RAILS, 4);
    for (const { answers } of peer.lanes) answers.flush = Status.INPROGRESS;
    peer.endpoint.putListNbx(entries, { flush: true });
    for (const { started } of peer.lanes) for (const block of started) block.end();
    expect(peer.lanes.map(({ started, flushes }) => [started.length, flushes.length])).toEqual([
      [2, 1],
      [2, 1],
    ]);
  });

  it('ends when its peer is gone and no lane uses its memory', () => {
    const { stack, peer, entries, lane } = listed();
    const { putZcopy } = lane;
    let room = 1;
    lane.putZcopy = (...given) => (room-- > 0 ? putZcopy.apply(lane, given) : Status.NO_RESOURCE);
    const request = peer.endpoint.putListNbx(entries) as Request;
    peer.connection.fail(Status.ENDPOINT_TIMEOUT);
    expect(request.isCompleted).toBe(false);
    lane.started[0]!.end(Status.ENDPOINT_TIMEOUT);
    stack.worker.progress();
    expect([request.status, lane.started.length]).toEqual([Status.ENDPOINT_TIMEOUT, 1]);
  });
});

describe('a notification', () => {
  it('is sent when the lanes are flushed that carried blocks, all of them', () => {
    const { peer, entries } = listed(TWO_RAILS, 2);
    const [one, two] = peer.lanes;
    for (const { answers } of peer.lanes) answers.flush = Status.INPROGRESS;
    const request = peer.endpoint.putListNbx(entries, { notify }) as Request;
    one!.started[0]!.end();
    expect([one!.flushes.length, two!.flushes.length]).toEqual([0, 0]);
    two!.started[0]!.end();
    expect([one!.flushes.length, two!.flushes.length]).toEqual([1, 1]);
    two!.flushes[0]!.end();
    expect(peer.got(MessageId.AM)).toEqual([]);
    one!.flushes[0]!.end();
    const [message] = peer.got(MessageId.AM);
    const { headerAt, headerBytes } = readAm(message!);
    expect([message!.bytes.slice(headerAt, headerAt + headerBytes), request.status]).toEqual([notify, Status.OK]);
  });

  it('is not sent if a block or a flush has failed', () => {
    const { peer, entries, lane } = listed();
    const request = peer.endpoint.putListNbx(entries, { notify }) as Request;
    for (const [i, block] of lane.started.entries()) block.end(i === 1 ? Status.IO_ERROR : Status.OK);
    lane.started.length = 0;
    lane.answers.flush = Status.IO_ERROR;
    const flushed = peer.endpoint.putListNbx(entries, { notify }) as Request;
    for (const block of lane.started) block.end();
    expect([request.status, flushed.status, peer.got(MessageId.AM)]).toEqual([Status.IO_ERROR, Status.IO_ERROR, []]);
  });

  it('is sent behind the blocks at once on a lane that keeps the order', () => {
    const { peer, entries, lane } = listed([{ ...RMA, keepsOrder: true }]);
    const request = peer.endpoint.putListNbx(entries, { notify }) as Request;
    expect([peer.got(MessageId.AM).length, lane.failedIds]).toEqual([1, [MessageId.AM_VOID]]);
    for (const block of lane.started) block.end();
    expect([request.status, peer.got(MessageId.AM).length]).toEqual([Status.OK, 1]);
  });

  it('is not sent behind blocks of another lane, or gets', () => {
    const lanes = [
      { ...RMA, keepsOrder: true },
      { ...RMA, name: 'b', am: { shortBytesMax: 0, bcopyBytesMax: 0 } },
    ].map((lane) => ({ ...lane, deviceType: DeviceType.SHM }));
    const { peer, entries } = listed(lanes, 2);
    peer.endpoint.putListNbx(entries, { notify });
    expect(peer.got(MessageId.AM)).toEqual([]);
  });

  it('is not sent behind blocks that were started in several steps', () => {
    const { stack, peer, entries, lane } = listed([{ ...RMA, keepsOrder: true }]);
    const { putZcopy } = lane;
    let room = 1;
    lane.putZcopy = (...given) => (room-- > 0 ? putZcopy.apply(lane, given) : Status.NO_RESOURCE);
    peer.endpoint.putListNbx(entries, { notify });
    room = 10;
    stack.worker.progress();
    expect([lane.started.length, peer.got(MessageId.AM)]).toEqual([3, []]);
  });

  it('waits for that of an earlier list, also if its own blocks end first', () => {
    const { peer, entries, lane } = listed([RMA], 1);
    const first = peer.endpoint.putListNbx(entries, { notify: Uint8Array.of(1) }) as Request;
    const second = peer.endpoint.putListNbx(entries, { notify: Uint8Array.of(2) }) as Request;
    lane.started[1]!.end();
    expect([second.isCompleted, peer.got(MessageId.AM)]).toEqual([false, []]);
    lane.started[0]!.end();
    const sent = peer.got(MessageId.AM).map((message) => message.bytes[readAm(message).headerAt]);
    expect([first.status, second.status, sent]).toEqual([Status.OK, Status.OK, [1, 2]]);
  });

  it('does not overtake that of an earlier list on a lane that keeps the order', () => {
    const { peer, entries, lane } = listed([{ ...RMA, keepsOrder: true }], 1);
    lane.answers.amAfterPuts = Status.UNSUPPORTED;
    peer.endpoint.putListNbx(entries, { notify: Uint8Array.of(1) });
    delete lane.answers.amAfterPuts;
    peer.endpoint.putListNbx(entries, { notify: Uint8Array.of(2) });
    expect(peer.got(MessageId.AM)).toEqual([]);
    for (const block of lane.started) block.end();
    expect(peer.got(MessageId.AM).map((message) => message.bytes[readAm(message).headerAt])).toEqual([1, 2]);
  });

  it('of a list that is cancelled in flight is not sent', () => {
    const { peer, entries, lane } = listed();
    const request = peer.endpoint.putListNbx(entries, { notify }) as Request;
    expect(request.cancel()).toBe(false);
    for (const block of lane.started) block.end();
    expect([request.status, peer.got(MessageId.AM)]).toEqual([Status.CANCELED, []]);
  });

  it('ends a list without blocks with the message', () => {
    const { peer } = listed();
    expect(peer.endpoint.notifyNbx(notify)).toBe(Status.OK);
    expect(peer.got(MessageId.AM).length).toBe(1);
  });
});

describe('blocks that the worker of the peer moves', () => {
  it('go in as few transfers as their messages can name', () => {
    const stack = new FakeLanes([MESSAGES]);
    const peer = stack.peer();
    const remote = stack.mds[0]!.add(new Uint8Array(40_000));
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(remote, new Uint8Array(MEMORY_KEY_BYTES)));
    const bytes = new Uint8Array(40_000);
    fillPattern(bytes, 6);
    const local = stack.map(bytes);
    const list = Array.from({ length: 100 }, (_, i) => {
      return { local, rkey, offset: 200 * i, remoteOffset: 200 * i + 8, byteLength: 50 + i };
    });
    peer.endpoint.putListNbx(list);
    const named = peer.got(MessageId.PUT).map((message) => readRmaBlocks(message, readRma(message), MEMORY_KEY_BYTES)!);
    // A frame of 1000 bytes: 24 of the header, 24 of the key, 16 for each block.
    expect(named.map(({ length }) => length)).toEqual([59, 41]);
    expect(named.flat()).toEqual(list.map(({ remoteOffset, byteLength }) => ({ remoteOffset, byteLength })));
    const { request } = readRma(peer.got(MessageId.PUT)[0]!);
    const rtr = { request, peerRequest: 9, targetBytes: 0, from: 0, byteLength: 900, targetOffset: 0 };
    peer.deliver(MessageId.RTR, writeRtr(peer.connection.id, rtr));
    const [part] = peer.got(MessageId.DATA);
    const { start, byteLength } = readData(part!);
    const sent = list.map(({ offset, byteLength: length }) => bytes.subarray(offset, offset + length));
    expect(Buffer.from(part!.bytes.slice(start, start + byteLength))).toEqual(Buffer.concat(sent).subarray(0, 900));
  });
});
