/** Atomic operations over fake lanes: what an owner executes for peers, what it refuses, and the keys that it keeps. */

import { describe, expect, it } from 'vitest';
import {
  FakeLanes,
  type FakePeer,
  type LaneOptions,
  LOOPBACK,
  MESSAGES,
  RMA,
} from '../../../test/fixtures/lanes/fake-lanes.ts';
import { messageFrame } from '../../../test/fixtures/messages/message-frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readReply, writeReply } from '../../api/layout/rendezvous.ts';
import { type AtomicFields, readAtomic, writeAtomic } from '../../api/layout/rma.ts';
import type { Request } from '../../index.ts';
import { Status } from '../../ucs/type/status.ts';
import { AtomicOperation, DeviceType, IfaceFlag } from '../../uct/api/iface.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';

/** A lane to the worker itself, with atomic operations of this processor. */
const ATOMIC_LOOPBACK: LaneOptions = {
  ...LOOPBACK,
  flags: IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64 | IfaceFlag.CPU_ACCESS,
};

/** The key by which peers ask for operations on memory. */
function memoryKeyOf({ context }: FakeLanes, memory: MemoryHandle): Uint8Array {
  const connection = { lanes: [] } as unknown as Parameters<FakeLanes['context']['unpackRkey']>[1];
  return context.unpackRkey(context.packRkey(memory), connection).memoryKey!;
}

/** The answer to an operation that a peer asks for, by default an addition of 5 to the word of 8 bytes at 8. */
function ask(peer: FakePeer, key: Uint8Array, requested: Partial<AtomicFields> = {}) {
  peer.am.sent.length = 0;
  const fields = { request: 7, remoteOffset: 8, operation: AtomicOperation.ADD, wordBytes: 8, value: 5n, compare: 0n };
  peer.deliver(MessageId.ATOMIC, writeAtomic(peer.connection.id, { ...fields, ...requested }), key);
  const [reply] = peer.got(MessageId.REPLY);
  return reply && readReply(reply);
}

function wordsOf(bytes: Uint8Array): BigInt64Array {
  return new BigInt64Array(bytes.buffer);
}

/** An owner with memory of 3 words, and the key of the memory. */
function owner(lanes: readonly LaneOptions[] = [MESSAGES, LOOPBACK]) {
  const stack = new FakeLanes(lanes);
  const bytes = new Uint8Array(24);
  wordsOf(bytes).set([1n, 10n, 100n]);
  const memory = stack.map(bytes);
  return { stack, bytes, memory, key: memoryKeyOf(stack, memory), peer: stack.peer() };
}

describe('an owner', () => {
  it('executes what a peer asks for, and answers with the word before it', () => {
    const { bytes, key, peer } = owner();
    expect(ask(peer, key)).toMatchObject({ request: 7, status: Status.OK, low: 10, high: 0 });
    expect([...wordsOf(bytes)]).toEqual([1n, 15n, 100n]);
    expect(ask(peer, key, { remoteOffset: 20, wordBytes: 4, value: 2n })).toMatchObject({ status: Status.OK, low: 0 });
    expect([...wordsOf(bytes)]).toEqual([1n, 15n, 100n + 2n ** 33n]);
  });

  it.each([
    ['behind the memory', { remoteOffset: 24 }],
    ['whose last bytes are behind the memory', { remoteOffset: 20, wordBytes: 8 }],
    ['across two words', { remoteOffset: 4, wordBytes: 8 }],
    ['that is not aligned', { remoteOffset: 2, wordBytes: 4 }],
    ['for an operation that does not exist', { operation: 6 }],
  ])('refuses a word %s', (_name, requested) => {
    const { bytes, key, peer } = owner();
    expect(ask(peer, key, requested)).toMatchObject({ request: 7, status: Status.INVALID_ADDR });
    expect([...wordsOf(bytes)]).toEqual([1n, 10n, 100n]);
  });

  it('refuses a key that is cut, or wrong', () => {
    const { bytes, key, peer } = owner();
    const wrong = key.slice();
    wrong[23]! ^= 1;
    for (const sent of [key.subarray(0, 23), new Uint8Array(0), wrong]) {
      expect(ask(peer, sent)?.status).toBe(Status.INVALID_ADDR);
    }
    // The rest of the key is behind the message, in memory of the transport.
    const fields = { request: 7, remoteOffset: 8, operation: 0, wordBytes: 8, value: 5n, compare: 0n };
    const frame = messageFrame(writeAtomic(peer.connection.id, fields), key, peer.source);
    peer.am.sent.length = 0;
    peer.deliverFrame(MessageId.ATOMIC, { ...frame, byteLength: frame.byteLength - 1 });
    expect(readReply(peer.got(MessageId.REPLY)[0]!).status).toBe(Status.INVALID_ADDR);
    expect([...wordsOf(bytes)]).toEqual([1n, 10n, 100n]);
  });

  it('refuses memory without atomic access', () => {
    const { stack, peer } = owner();
    const bytes = new Uint8Array(16);
    const memory = stack.context.memMap({ buffer: bytes, protection: ['remote-read'] });
    expect(ask(peer, memoryKeyOf(stack, memory))?.status).toBe(Status.INVALID_ADDR);
    expect([...wordsOf(bytes)]).toEqual([0n, 0n]);
  });

  it('ignores what comes from another peer than that of the connection', () => {
    const { stack, bytes, key, peer } = owner();
    const other = stack.peer();
    const fields = { request: 7, remoteOffset: 8, operation: 0, wordBytes: 8, value: 5n, compare: 0n };
    peer.deliver(MessageId.ATOMIC, writeAtomic(peer.connection.id, fields), key, other.source);
    expect([peer.got(MessageId.REPLY), other.got(MessageId.REPLY), wordsOf(bytes)[1]]).toEqual([[], [], 10n]);
  });

  it('modifies the word by a local transport with atomic operations, so that both exclude each other', () => {
    const { stack, key, peer } = owner([MESSAGES, ATOMIC_LOOPBACK]);
    expect(ask(peer, key)?.status).toBe(Status.OK);
    const [endpoint] = stack.ifaces[1]!.endpoints;
    expect(endpoint!.started).toMatchObject([{ call: 'atomic', remoteOffset: 8, word: { value64: 5n, wordBytes: 8 } }]);
  });

  it('keeps one key of its memory for that, until the memory is unmapped', () => {
    const { stack, memory, key, peer } = owner([MESSAGES, ATOMIC_LOOPBACK]);
    const before = stack.keys;
    ask(peer, key);
    ask(peer, key);
    expect(stack.keys).toBe(before + 1);
    stack.context.memUnmap(memory);
    expect(stack.keys).toBe(before);
  });
});

describe('a requester', () => {
  const memoryKey = new Uint8Array(24).fill(9);

  /** An addition to memory of a peer that its worker executes. */
  function asking(lanes: readonly LaneOptions[] = [MESSAGES]) {
    const stack = new FakeLanes(lanes);
    const peer = stack.peer();
    const remote = stack.mds[0]!.add(new Uint8Array(64));
    const rkey = peer.endpoint.unpackRkey(peer.keyOf(remote, memoryKey));
    return { stack, peer, remote, rkey };
  }

  it('asks the owner where no lane has atomic operations, and gets the word before', () => {
    const { peer, rkey } = asking();
    const request = peer.endpoint.atomicNbx('add', 3, rkey, 16, { bits: 64 }) as Request;
    const [message] = peer.got(MessageId.ATOMIC);
    const requested = readAtomic(message!);
    expect(requested).toMatchObject({ remoteOffset: 16, wordBytes: 8, value: 3n });
    expect(message!.bytes.subarray(requested.keyAt, requested.keyAt + requested.keyBytes)).toEqual(memoryKey);
    expect([request.isCompleted, peer.connection.remoteOperations]).toEqual([false, 1]);
    const word = { request: requested.request, status: Status.OK, low: -1, high: 1 };
    peer.deliver(MessageId.REPLY, writeReply(peer.connection.id, word));
    expect([request.status, request.atomicResult]).toEqual([Status.OK, 2n ** 33n - 1n]);
    expect(peer.connection.remoteOperations).toBe(0);
  });

  it('ends with the failure of the owner, once', () => {
    const { peer, rkey } = asking();
    const ends: Status[] = [];
    peer.endpoint.atomicNbx('add', 3, rkey, 16, { bits: 64, callback: (_request, status) => ends.push(status) });
    const { request } = readAtomic(peer.got(MessageId.ATOMIC)[0]!);
    for (const status of [Status.INVALID_ADDR, Status.OK]) {
      peer.deliver(MessageId.REPLY, writeReply(peer.connection.id, { request, status, low: 0, high: 0 }));
    }
    expect(ends).toEqual([Status.INVALID_ADDR]);
  });

  it('sends the request once, with one id, if there are no resources at first', () => {
    const { stack, peer, rkey } = asking();
    peer.am.answers.amShort = Status.NO_RESOURCE;
    const request = peer.endpoint.atomicNbx('add', 3, rkey, 16, { bits: 64 }) as Request;
    stack.worker.progress();
    delete peer.am.answers.amShort;
    stack.worker.progress();
    stack.worker.progress();
    expect(peer.got(MessageId.ATOMIC).length).toBe(1);
    expect([request.isCompleted, peer.connection.waiting.size, peer.connection.remoteOperations]).toEqual([
      false,
      1,
      1,
    ]);
  });

  it('takes the fastest lane that has operations on words of this length and a key', () => {
    const slow = { ...RMA, flags: IfaceFlag.ATOMIC64, deviceType: DeviceType.SHM } as const;
    const lanes: LaneOptions[] = [
      { ...slow, name: 'a', latencyNs: 300 },
      { ...slow, name: 'b', latencyNs: 200 },
      { ...slow, name: 'c', latencyNs: 100, flags: IfaceFlag.ATOMIC32 },
    ];
    const stack = new FakeLanes(lanes);
    const peer = stack.peer();
    const memories = stack.mds.map((md) => md.add(new Uint8Array(64)));
    const usedBy = (indices: readonly number[], bits: 32 | 64) => {
      const rkey = peer.endpoint.unpackRkey(
        peer.keyOf(
          indices.map((index) => memories[index]!),
          memoryKey,
        ),
      );
      peer.endpoint.atomicNbx('add', 3, rkey, 16, { bits });
      return peer.lanes.map(({ started }) => started.splice(0).length);
    };
    expect([usedBy([0], 64), usedBy([0, 1, 2], 64), usedBy([2], 64), usedBy([0, 1, 2], 32)]).toEqual([
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 0],
      [0, 0, 1],
    ]);
  });
});
