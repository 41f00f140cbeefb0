/** The queues of emulated RDMA devices: full, wrapped, overrun, armed, and entries that are used again. */

import { describe, expect, it } from 'vitest';
import { allocateScratch, Errno, type ScratchBlock } from '../../../sys/index.ts';
import { RecvWr, SendFlag, SendWr, Sge, Wc, WcStatus, WrOpcode } from '../../../verbs/abi.ts';
import { type EmulatedChannel, EmulatedCq, failed, flushed } from './completion-queue.ts';
import { ReceiveRing } from './receive-queue.ts';
import { SendQueue } from './send-queue.ts';

function cqOf(depth: number) {
  const state = { signals: 0, polls: 0 };
  const channel = { signal: () => (state.signals += 1) } as unknown as EmulatedChannel;
  const cq = new EmulatedCq(
    depth,
    channel,
    () => undefined,
    () => (state.polls += 1),
  );
  /** The ids of the completions that are there. */
  const ids = (count: number): number[] | number => {
    using block = allocateScratch(count * Wc.WORDS * 4);
    const taken = cq.poll(block, count);
    return taken < 0 ? taken : Array.from({ length: taken }, (_, i) => block.words[i * Wc.WORDS + Wc.WR_ID]!);
  };
  return { cq, state, ids };
}

describe('a completion queue', () => {
  it('keeps its order when it wraps, and lets the device progress', () => {
    const { cq, ids, state } = cqOf(3);
    for (const id of [1, 2, 3]) expect(cq.push(flushed(id, 0, 7))).toBe(true);
    expect(ids(2)).toEqual([1, 2]);
    for (const id of [4, 5]) expect(cq.push(flushed(id, 0, 7))).toBe(true);
    expect([ids(9), ids(9), state.polls]).toEqual([[3, 4, 5], [], 3]);
    for (const id of [6, 7, 8]) cq.push(flushed(id, 0, 7));
    expect(ids(9)).toEqual([6, 7, 8]);
  });

  it('that has overrun gives what came before, and then an error', () => {
    const { cq, ids } = cqOf(2);
    for (const id of [1, 2]) cq.push(flushed(id, 0, 7));
    expect(cq.push(flushed(3, 0, 7))).toBe(false);
    expect(ids(1)).toEqual([1]);
    expect(cq.push(flushed(4, 0, 7))).toBe(false);
    expect([ids(9), ids(9)]).toEqual([[2], -Errno.EIO]);
  });

  it('raises one event for each request', () => {
    const { cq, state } = cqOf(8);
    cq.push(flushed(1, 0, 7));
    expect(state.signals).toBe(0);
    cq.requestNotify();
    for (const id of [2, 3]) cq.push(flushed(id, 0, 7));
    expect(state.signals).toBe(1);
  });

  it('forgets the completions of one queue pair, and those of no other', () => {
    const { cq, ids } = cqOf(4);
    for (const id of [1, 2]) cq.push(flushed(id, 0, 7));
    expect(ids(1)).toEqual([1]);
    cq.push(failed(3, 0, 8, WcStatus.REM_OP_ERR));
    cq.push(flushed(4, 0, 7));
    cq.forget(7);
    expect(ids(9)).toEqual([3]);
  });
});

/** A block with a chain of requests, each with a list of one entry of these bytes. */
function sendChain(
  requests: readonly {
    readonly id: number;
    readonly opcode?: number;
    readonly flags?: number;
    readonly bytes?: number;
    readonly sges?: number;
  }[],
): ScratchBlock {
  const block = allocateScratch(4096);
  block.words.fill(0);
  const each = SendWr.WORDS + Sge.WORDS;
  for (const [i, { id, opcode = WrOpcode.RDMA_WRITE, flags = 0, bytes = 8, sges = 1 }] of requests.entries()) {
    const at = i * each;
    const { words, address } = block;
    const list = address + (at + SendWr.WORDS) * 4;
    words[at + SendWr.WR_ID] = id;
    words[at + SendWr.OPCODE] = opcode;
    words[at + SendWr.SEND_FLAGS] = flags;
    words[at + SendWr.NUM_SGE] = sges;
    words[at + SendWr.SG_LIST] = list;
    words[at + SendWr.SG_LIST + 1] = Math.floor(list / 2 ** 32);
    words[at + SendWr.RDMA_RKEY] = 70 + id;
    words[at + SendWr.ATOMIC_RKEY] = 90 + id;
    words[at + SendWr.WORDS + Sge.ADDR] = address + 3000;
    words[at + SendWr.WORDS + Sge.ADDR + 1] = Math.floor((address + 3000) / 2 ** 32);
    words[at + SendWr.WORDS + Sge.LENGTH] = bytes;
    if (i + 1 === requests.length) continue;
    const next = address + (at + each) * 4;
    words[at + SendWr.NEXT] = next;
    words[at + SendWr.NEXT + 1] = Math.floor(next / 2 ** 32);
  }
  return block;
}

describe('a send queue', () => {
  const post = (queue: SendQueue, ...requests: Parameters<typeof sendChain>[0]): number => {
    using block = sendChain(requests);
    return queue.post(block, 0, () => 0);
  };

  it('takes as many requests as it has room for', () => {
    const queue = new SendQueue(2, 1, 16);
    expect(post(queue, { id: 1 }, { id: 2 }, { id: 3 })).toBe(Errno.ENOMEM);
    expect([queue.tail, queue.at(0).idLow, queue.at(1).idLow]).toEqual([2, 1, 2]);
    queue.head = 1;
    expect(post(queue, { id: 3 })).toBe(0);
    expect([queue.tail, queue.at(2).idLow]).toEqual([3, 3]);
  });

  it('has nothing of an earlier request in an entry', () => {
    const queue = new SendQueue(1, 1, 16);
    post(queue, { id: 1 });
    Object.assign(queue.at(0), { hasStarted: true, sent: 3, received: 2 });
    queue.head = 1;
    post(queue, { id: 2 });
    expect(queue.at(1)).toMatchObject({ idLow: 2, hasStarted: false, sent: 0, received: 0, byteLength: 8 });
  });

  it('refuses too many list entries, and inline data that are too long or of a read', () => {
    const queue = new SendQueue(8, 1, 16);
    const { INLINE } = SendFlag;
    expect(post(queue, { id: 1, sges: 2 })).toBe(Errno.EINVAL);
    expect(post(queue, { id: 1, flags: INLINE, bytes: 17 })).toBe(Errno.EINVAL);
    expect(post(queue, { id: 1, flags: INLINE, bytes: 8, opcode: WrOpcode.RDMA_READ })).toBe(Errno.EINVAL);
    expect(queue.tail).toBe(0);
    expect(post(queue, { id: 1, flags: INLINE, bytes: 16 })).toBe(0);
  });

  it('reads the key of an atomic operation from its place', () => {
    const queue = new SendQueue(8, 1, 16);
    post(queue, { id: 1 }, { id: 2, opcode: WrOpcode.ATOMIC_FETCH_AND_ADD });
    expect([queue.at(0).rkey, queue.at(1).rkey]).toEqual([71, 92]);
  });
});

describe('a ring of receives', () => {
  const post = (ring: ReceiveRing, id: number): number => {
    using block = allocateScratch(256);
    block.words.fill(0);
    block.words[RecvWr.WR_ID] = id;
    return ring.post(block, 0);
  };

  it('takes as many as it has room for, and gives each once, in order', () => {
    const ring = new ReceiveRing(2, 1);
    expect([1, 2, 3].map((id) => post(ring, id))).toEqual([0, 0, Errno.ENOMEM]);
    expect([ring.take().idLow, ring.length]).toEqual([1, 1]);
    expect(post(ring, 3)).toBe(0);
    expect([ring.take().idLow, ring.take().idLow, ring.length, ring.first]).toEqual([2, 3, 0, undefined]);
  });

  it('keeps a detached one as it is until its end', () => {
    const ring = new ReceiveRing(1, 1);
    post(ring, 1);
    const detached = ring.detach();
    post(ring, 2);
    expect([detached.idLow, ring.first?.idLow]).toEqual([1, 2]);
    ring.release(detached);
    expect(ring.detach().idLow).toBe(2);
    post(ring, 3);
    expect(ring.take().idLow).toBe(3);
  });
});
