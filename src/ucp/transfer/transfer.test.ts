/** Transfers of the protocols themselves over fake lanes, and copies between fragments and memory of any kind. */

import { describe, expect, it } from 'vitest';
import { CARD, FakeLanes, MESSAGES, RMA } from '../../../test/fixtures/lanes/fake-lanes.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { Operation } from '../../api/operation/call.ts';
import { Status } from '../../ucs/type/status.ts';
import { SendRequest } from '../base/request/operation-requests.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { moveRemote, transfersOf } from './move.ts';
import { carriersOf, initTransfer } from './transfer.ts';

function pattern(byteLength: number): Uint8Array {
  const bytes = new Uint8Array(byteLength);
  fillPattern(bytes, 9);
  return bytes;
}

function reached(byteLength = 4096) {
  const stack = new FakeLanes([RMA]);
  const peer = stack.peer();
  const remote = stack.mds[0]!.add(new Uint8Array(byteLength));
  const rkey = peer.endpoint.unpackRkey(peer.keyOf(remote)) as RemoteKey;
  const of = (local: LocalMemory, remoteOffset = 0, bytes = 1000) => {
    return {
      operation: Operation.PUT,
      connection: peer.connection,
      local,
      localOffset: 0,
      byteLength: bytes,
      rkey,
      remoteOffset,
    };
  };
  return { stack, peer, remote, rkey, of };
}

describe('a transfer', () => {
  it('is carried within the remote memory only, wherever its range comes from', () => {
    const { stack, of } = reached(4096);
    const { rmaRails } = stack.context;
    const local = new Uint8Array(1000);
    for (const at of [0, 3096]) expect(carriersOf(of(local, at), rmaRails)?.length).toBe(1);
    for (const at of [-1, 3097, 4096, Number.NaN, 2 ** 53]) expect(carriersOf(of(local, at), rmaRails)).toBe(undefined);
  });

  it('is counted until it ends, so that a worker that closes waits for it', () => {
    const { stack, peer, remote, of } = reached();
    const ends: Status[] = [];
    const before = stack.memories;
    const request = initTransfer(stack.worker, of(pattern(1000), 8), (status) => ends.push(status));
    expect([stack.worker.internalTransfers, stack.memories]).toEqual([1, before + 1]);
    peer.connection.run(request);
    expect(ends).toEqual([]);
    peer.lanes[0]!.started[0]!.end();
    expect([ends, stack.worker.internalTransfers, stack.memories]).toEqual([[Status.OK], 0, before]);
    expect(remote.storage.slice(8, 1008)).toEqual(pattern(1000));
  });

  it('registers a small ArrayBuffer as a whole, and starts at the place of its bytes in it', () => {
    const { stack, peer, remote, of } = reached();
    const buffer = pattern(3000);
    peer.connection.run(initTransfer(stack.worker, of(buffer.subarray(500, 1600)), () => {}));
    expect([...stack.mds[0]!.memories].at(-1)!.byteLength).toBe(3000);
    peer.lanes[0]!.started[0]!.end();
    expect(remote.storage.slice(0, 1000)).toEqual(buffer.slice(500, 1500));
  });

  it('starts at the place of its bytes in mapped memory', () => {
    const { stack, peer, remote, of } = reached();
    const bytes = pattern(5000);
    stack.map(bytes.subarray(100));
    const before = stack.memories;
    peer.connection.run(initTransfer(stack.worker, { ...of(bytes.subarray(500)), localOffset: 50 }, () => {}));
    expect(stack.memories).toBe(before);
    peer.lanes[0]!.started[0]!.end();
    expect(remote.storage.slice(0, 1000)).toEqual(bytes.slice(550, 1550));
  });

  it('does not begin with a key that was released', () => {
    const { stack, rkey, of } = reached();
    rkey.release();
    expect(() => initTransfer(stack.worker, of(pattern(1000)), () => {})).toThrow('remote key');
    expect(stack.worker.internalTransfers).toBe(0);
  });
});

describe('a move of several pieces', () => {
  const pieces = [
    { memory: pattern(1500), offset: 500, byteLength: 1000, start: 0 },
    { memory: pattern(700), offset: 0, byteLength: 700, start: 1000 },
  ];
  const moved = (byteLength = 4096) => {
    const made = reached(byteLength);
    const { stack, peer, rkey } = made;
    const move = {
      operation: Operation.PUT,
      connection: peer.connection,
      pieces,
      from: 100,
      byteLength: 1500,
      rkey,
      offset: 8,
    };
    return { ...made, transfers: transfersOf(stack.worker, move), by: new SendRequest(stack.worker) };
  };

  it('ends with the last of them, or with the first failure, when no lane works on them', () => {
    for (const failure of [Status.OK, Status.IO_ERROR]) {
      const { stack, peer, remote, transfers, by } = moved();
      const ends: Status[] = [];
      moveRemote(stack.worker, by, transfers!, (status) => ends.push(status));
      const [one, two] = peer.lanes[0]!.started;
      one!.end(failure);
      expect(ends).toEqual([]);
      two!.end();
      expect(ends).toEqual([failure]);
      const expected = Buffer.concat([pieces[0]!.memory.subarray(600), pieces[1]!.memory.subarray(0, 600)]);
      if (failure === Status.OK) expect(Buffer.from(remote.storage.slice(8, 1508))).toEqual(expected);
    }
  });

  it('is not begun if lanes do not move all of its bytes', () => {
    expect(moved(1507).transfers).toBe(undefined);
    expect(moved(1508).transfers?.length).toBe(2);
  });

  it('that cannot be started ends with the reason, which its request gets', () => {
    const { stack, rkey, transfers, by } = moved();
    rkey.release();
    const ends: Status[] = [];
    moveRemote(stack.worker, by, transfers!.slice(0, 1), (status) => ends.push(status));
    expect([ends.length, ends[0]! < 0, by.error instanceof Error]).toEqual([1, true, true]);
  });
});

describe('staging', () => {
  function staged() {
    const stack = new FakeLanes([MESSAGES, CARD], { RNDV_FRAG_SIZE: 2000, RNDV_FRAG_ALLOC_COUNT: 1 });
    const { staging } = stack.worker.protocols.rendezvous;
    const memory = stack.device(2000);
    const pieces = [{ memory, offset: 100, byteLength: 1000, start: 0 }];
    const ends: Status[] = [];
    const done = (status: Status): number => ends.push(status);
    const copies = () => stack.ifaces[1]!.endpoints.flatMap(({ started }) => started);
    return { stack, staging, memory, pieces, ends, done, copies };
  }

  it('delivers bytes to device memory through a fragment, which it gives back, from a copy', () => {
    const { stack, staging, memory, pieces, ends, done, copies } = staged();
    const frame = pattern(1010);
    const held = staging.tryAcquire()!;
    staging.deliver(pieces, { bytes: frame, start: 10, byteLength: 1000 }, done);
    // The transport uses its memory again.
    frame.fill(0xee);
    expect(copies()).toEqual([]);
    staging.release(held);
    expect([ends, staging.inUse]).toEqual([[], 1]);
    copies()[0]!.end();
    expect([ends, staging.inUse]).toEqual([[Status.OK], 0]);
    expect(stack.storageOf(memory).slice(100, 1100)).toEqual(pattern(1010).slice(10));
  });

  it('gives its fragment back if the copy fails', () => {
    const { staging, pieces, ends, done, copies } = staged();
    staging.deliver(pieces, { bytes: pattern(1000), start: 0, byteLength: 1000 }, done);
    copies()[0]!.end(Status.IO_ERROR);
    expect([ends, staging.inUse]).toEqual([[Status.IO_ERROR], 0]);
  });

  it('copies nothing to memory that was unmapped', () => {
    const { stack, staging, memory, pieces, ends, done, copies } = staged();
    stack.context.memUnmap(memory);
    staging.deliver(pieces, { bytes: pattern(1000), start: 0, byteLength: 1000 }, done);
    staging.copy(true, { device: memory, offset: 0, host: pattern(10), hostOffset: 0, byteLength: 10 }, done);
    expect([ends, copies(), staging.inUse]).toEqual([[Status.INVALID_ADDR, Status.INVALID_ADDR], [], 0]);
  });

  it('reads pieces of any kind, and ends when all are read', () => {
    const { stack, staging, memory, ends, done, copies } = staged();
    stack.storageOf(memory).set(pattern(2000));
    const host = pattern(50);
    const pieces = [
      { memory: host, offset: 10, byteLength: 40, start: 0 },
      { memory, offset: 100, byteLength: 60, start: 40 },
    ];
    const into = new Uint8Array(100);
    staging.read({ pieces, from: 10, byteLength: 90 }, into, done);
    expect(ends).toEqual([]);
    copies()[0]!.end();
    expect([ends, into.slice(0, 90)]).toEqual([
      [Status.OK],
      Uint8Array.of(...host.subarray(20), ...pattern(2000).subarray(100, 160)),
    ]);
  });

  it('reads and writes no bytes that were detached', () => {
    const { stack, staging, ends, done } = staged();
    const bytes = new Uint8Array(100);
    const pieces = [{ memory: bytes, offset: 0, byteLength: 100, start: 0 }];
    structuredClone(bytes, { transfer: [bytes.buffer] });
    staging.read({ pieces, from: 0, byteLength: 100 }, new Uint8Array(100), done);
    const fragment = stack.context.memMap({ allocate: 100 });
    staging.write({ pieces, from: 0, byteLength: 100 }, fragment, done);
    expect(ends).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
  });

  it('keeps one key of its device memory', () => {
    const { stack, staging, memory, done } = staged();
    const copy = { device: memory, offset: 0, host: pattern(1000), hostOffset: 0, byteLength: 1000 };
    for (let i = 0; i < 3; i++) staging.copy(true, copy, done);
    expect(stack.keys).toBe(1);
  });
});
