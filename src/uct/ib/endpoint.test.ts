/** An endpoint of ib over a queue pair that executes nothing: slots and credits that are given back, what is posted, what ends. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { EndedCompletion, fakeIb, ibMemory } from '../../../test/fixtures/transports/fake-ib.ts';
import { Errno } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { SendFlag, SendWr, Sge, WrOpcode } from '../../verbs/abi.ts';
import { type AtomicCall, AtomicOperation, type IovEntry } from '../api/iface.ts';
import { IbKey } from './base/key.ts';
import type { Completions } from './connection/completions.ts';
import { IbEndpoint } from './endpoint.ts';

expectNoLeaks();

/** Node.js 20 has resizable ArrayBuffers (ES2024); the library types of ES2023 do not. */
const ResizableBuffer = ArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => ArrayBuffer & { resize(byteLength: number): void };

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

const SLOT_BYTES = 256;

function open(more: Parameters<typeof fakeIb>[0] = {}) {
  const made = fakeIb(more);
  const connection = made.connect();
  connection.isUp = true;
  const state = { receives: 0, closes: 0 };
  const completions = {
    shared: made.shared,
    receive: () => {
      state.receives += 1;
    },
  };
  const endpoint = new IbEndpoint(connection, 2, completions as unknown as Completions, () => {
    state.closes += 1;
  });
  closing.push(() => {
    connection.destroy();
    made.close();
  });
  const { shared, qp } = made;
  /** Slots of bytes, credits, slots of work requests, and operations that are in use. */
  const used = () => [4 - shared.tx.numFree, 3 - connection.credits, 400 - shared.sendSlots, shared.outstanding];
  /** The last work request that was posted. */
  const last = () => qp.posted.at(-1)!;
  /** Ends everything that was posted. */
  const end = (status: Status = Status.OK): void => connection.retire(qp.posted.length - 1, status);
  return { ...made, connection, endpoint, completionState: state, used, last, end };
}

const bytesOf = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => i + 1);
const entry = (memory: IovEntry['memory'], offset: number, byteLength: number): IovEntry => ({
  memory,
  offset,
  byteLength,
});
const detach = ({ buffer }: Uint8Array): void => void structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });

describe('a message', () => {
  it.each([-1, 1.5, Number.NaN, SLOT_BYTES + 1])(
    'of a packer with the bad length %d gives its slot back, and no credit is used',
    (length) => {
      const { endpoint, used, qp } = open();
      expect(endpoint.amBcopy(3, { pack: () => length })).toBe(Status.INVALID_PARAM);
      expect([used(), qp.posted]).toEqual([[0, 0, 0, 0], []]);
    },
  );

  it('of a packer that throws, or without a header, takes no slot', () => {
    const { endpoint, used, qp } = open();
    const pack = (): number => {
      throw new Error('not packed');
    };
    expect(() => endpoint.amBcopy(3, { pack })).toThrow('not packed');
    expect(() => endpoint.amShort(3, undefined as unknown as Int32Array, 200, undefined, 0, 0)).toThrow(TypeError);
    expect(endpoint.amShort(3, new Int32Array(199), 200, undefined, 0, 0)).toBe(Status.INVALID_PARAM);
    expect([used(), qp.posted]).toEqual([[0, 0, 0, 0], []]);
  });

  it('is packed into a slot, which is free again when it has been sent', () => {
    const { endpoint, used, last, end, shared } = open();
    const pack = (frame: { bytes: Uint8Array; offset: number; byteLength: number }): number => {
      frame.bytes.set([7, 8, 9], frame.offset);
      return frame.byteLength;
    };
    expect(endpoint.amBcopy(31, { pack })).toBe(Status.OK);
    expect(used()).toEqual([1, 1, 1, 0]);
    const { opcode, flags, words } = last();
    expect([opcode, flags & SendFlag.SOLICITED, words[SendWr.IMM_DATA], words[SendWr.NUM_SGE]]).toEqual([
      WrOpcode.SEND_WITH_IMM,
      SendFlag.SOLICITED,
      31,
      1,
    ]);
    expect([words[SendWr.WORDS + Sge.LENGTH], words[SendWr.WORDS + Sge.LKEY]]).toEqual([SLOT_BYTES, 77]);
    expect([...shared.tx.bytes.subarray(0, 3)]).toEqual([7, 8, 9]);
    end();
    expect(used()).toEqual([0, 1, 0, 0]);
  });

  it('takes a credit, and none is sent without one', () => {
    const { endpoint, used, connection } = open();
    const send = () => endpoint.amShort(1, Int32Array.of(5), 1, undefined, 0, 0);
    expect([send(), send(), send(), send()]).toEqual([Status.OK, Status.OK, Status.OK, Status.NO_RESOURCE]);
    expect(endpoint.amBcopy(1, { pack: () => 1 })).toBe(Status.NO_RESOURCE);
    expect(endpoint.amZcopy(1, Int32Array.of(5), 1, [], new EndedCompletion())).toBe(Status.NO_RESOURCE);
    expect(used()).toEqual([0, 3, 3, 0]);
    connection.credits = 1;
    expect(send()).toBe(Status.OK);
  });

  it('that finds no slot takes no credit', () => {
    const { endpoint, used, shared } = open();
    while (shared.tx.numFree > 0) shared.tx.take();
    expect(endpoint.amBcopy(1, { pack: () => 1 })).toBe(Status.NO_RESOURCE);
    expect(endpoint.amShort(1, Int32Array.of(5), 1, bytesOf(100), 0, 100)).toBe(Status.NO_RESOURCE);
    expect(endpoint.amZcopy(1, Int32Array.of(5), 1, [], new EndedCompletion())).toBe(Status.NO_RESOURCE);
    expect(used()).toEqual([4, 0, 0, 0]);
    // A short one, and one without a header, need none.
    expect(endpoint.amShort(1, Int32Array.of(5), 1, undefined, 0, 0)).toBe(Status.OK);
    const memory = ibMemory(bytesOf(64));
    expect(endpoint.amZcopy(1, Int32Array.of(5), 0, [entry(memory, 0, 8)], new EndedCompletion())).toBe(
      Status.INPROGRESS,
    );
    for (let slot = 0; slot < 4; slot++) shared.tx.give(slot);
  });

  it('has its header before its payload, inline up to 64 bytes and in a slot beyond', () => {
    const { endpoint, qp, connection, shared, used } = open();
    const header = Int32Array.of(0x0403_0201, 0x0807_0605);
    expect(endpoint.amShort(2, header, 2, bytesOf(60), 4, 56)).toBe(Status.OK);
    expect(qp.posted[0]!.flags & SendFlag.INLINE).toBe(SendFlag.INLINE);
    const list = SendWr.WORDS + 5 * Sge.WORDS;
    const sent = new Uint8Array(connection.sends.words.slice(list, list + 16).buffer);
    expect([...sent]).toEqual([...[1, 2, 3, 4, 5, 6, 7, 8], ...bytesOf(60).subarray(4)]);
    expect(endpoint.amShort(2, header, 2, bytesOf(60), 3, 57)).toBe(Status.OK);
    expect(qp.posted[1]!.flags & SendFlag.INLINE).toBe(0);
    expect([...shared.tx.bytes.subarray(0, 65)]).toEqual([...[1, 2, 3, 4, 5, 6, 7, 8], ...bytesOf(60).subarray(3)]);
    expect(used()).toEqual([1, 2, 2, 0]);
  });

  it('without a copy has its header in a slot before its memory, which is held until the end', () => {
    const { endpoint, last, end, used } = open();
    const bytes = bytesOf(64);
    const memory = ibMemory(bytes, 0x40);
    const completion = new EndedCompletion();
    const list = [entry(memory, 8, 16), entry(memory, 0, 0)];
    expect(endpoint.amZcopy(4, Int32Array.of(1, 2), 2, list, completion)).toBe(Status.INPROGRESS);
    const { words } = last();
    expect([words[SendWr.NUM_SGE], words[SendWr.WORDS + Sge.LENGTH], memory.inFlight]).toEqual([2, 8, 2]);
    const second = SendWr.WORDS + Sge.WORDS;
    expect([words[second + Sge.ADDR], words[second + Sge.LENGTH], words[second + Sge.LKEY]]).toEqual([0x48, 16, 501]);
    detach(bytes);
    end();
    expect([completion.calls, completion.failure, memory.inFlight]).toEqual([1, Status.INVALID_ADDR, 0]);
    expect(used()).toEqual([0, 1, 0, 0]);
  });

  it('is of an id below 32, and fits into a buffer of the peer', () => {
    const { endpoint, used } = open();
    expect(endpoint.amBcopy(32, { pack: () => 1 })).toBe(Status.INVALID_PARAM);
    expect(endpoint.amShort(32, Int32Array.of(1), 1, undefined, 0, 0)).toBe(Status.INVALID_PARAM);
    const largest = SLOT_BYTES - 4;
    expect(endpoint.amShort(1, Int32Array.of(1), 1, bytesOf(300), 0, largest + 1)).toBe(Status.INVALID_PARAM);
    const memory = ibMemory(bytesOf(300));
    const zcopy = (byteLength: number) =>
      endpoint.amZcopy(1, Int32Array.of(1), 1, [entry(memory, 0, byteLength)], new EndedCompletion());
    expect(zcopy(largest + 1)).toBe(Status.INVALID_PARAM);
    expect(endpoint.amZcopy(1, Int32Array.of(1), 2, [], new EndedCompletion())).toBe(Status.INVALID_PARAM);
    expect([used(), memory.inFlight]).toEqual([[0, 0, 0, 0], 0]);
    expect([zcopy(largest), endpoint.amShort(1, Int32Array.of(1), 1, bytesOf(300), 0, largest)]).toEqual([
      Status.INPROGRESS,
      Status.OK,
    ]);
  });
});

describe('a post that the device rejects', () => {
  it('gives its slot back with the end of the connection', () => {
    const { endpoint, connection, used, qp, failures } = open();
    qp.result = Errno.EINVAL;
    expect(endpoint.amBcopy(1, { pack: () => 8 })).toBe(Status.OK);
    expect([failures, endpoint.amBcopy(1, { pack: () => 8 })]).toEqual([[Status.IO_ERROR], Status.IO_ERROR]);
    connection.destroy();
    expect(used()).toEqual([0, 1, 0, 0]);
  });
});

describe('a put', () => {
  it('of a few bytes is inline, a longer one in a slot until it ends', () => {
    const { endpoint, key, last, used, end, qp } = open();
    expect(endpoint.putShort(bytesOf(80), 3, 64, 8, key)).toBe(Status.OK);
    expect([last().opcode, last().flags & SendFlag.INLINE, used()]).toEqual([
      WrOpcode.RDMA_WRITE,
      SendFlag.INLINE,
      [0, 0, 1, 0],
    ]);
    expect([last().words[SendWr.RDMA_REMOTE_ADDR], last().words[SendWr.RDMA_RKEY]]).toEqual([0x108, 902]);
    const completion = new EndedCompletion();
    expect(endpoint.putShort(bytesOf(80), 3, 65, 8, key, completion)).toBe(Status.INPROGRESS);
    expect([last().flags & SendFlag.SIGNALED, used()]).toEqual([SendFlag.SIGNALED, [1, 0, 2, 1]]);
    end();
    expect([completion.calls, used()]).toEqual([1, [0, 0, 0, 0]]);
    expect(endpoint.putShort(bytesOf(8), 0, 0, 4096, key)).toBe(Status.OK);
    expect(qp.posted).toHaveLength(2);
  });

  it('stays inside its memory and the key, and needs a live one', () => {
    const { endpoint, key, used } = open();
    const put = (offset: number, byteLength: number, remote: number) =>
      endpoint.putShort(bytesOf(300), offset, byteLength, remote, key);
    expect([put(0, 257, 0), put(299, 2, 0), put(0, 8, 4089), put(0, 8, 4088)]).toEqual([
      Status.INVALID_PARAM,
      Status.INVALID_PARAM,
      Status.INVALID_ADDR,
      Status.OK,
    ]);
    expect(endpoint.putShort(bytesOf(8), 0, 8, 0, {} as never)).toBe(Status.INVALID_PARAM);
    key.release();
    expect([put(0, 8, 0), used()]).toEqual([Status.INVALID_ADDR, [0, 0, 1, 0]]);
  });

  it('of a list holds its memory until it ends', () => {
    const { endpoint, key, last, end, used } = open();
    const memory = ibMemory(bytesOf(64), 0x40);
    const completion = new EndedCompletion();
    const list = [entry(memory, 0, 8), entry(memory, 3, 0), entry(memory, 40, 24)];
    expect(endpoint.putZcopy(list, 16, key, completion)).toBe(Status.INPROGRESS);
    const { words, opcode } = last();
    expect([opcode, words[SendWr.NUM_SGE], words[SendWr.RDMA_REMOTE_ADDR]]).toEqual([WrOpcode.RDMA_WRITE, 2, 0x110]);
    expect(words[SendWr.WORDS + Sge.WORDS + Sge.ADDR]).toBe(0x68);
    expect([memory.inFlight, used()]).toEqual([3, [0, 0, 1, 1]]);
    end();
    expect([memory.inFlight, completion.calls, used()]).toEqual([0, 1, [0, 0, 0, 0]]);
    expect(endpoint.putZcopy([entry(memory, 0, 0)], 0, key, completion)).toBe(Status.OK);
    expect(endpoint.getZcopy([entry(memory, 0, 8)], 0, key, completion)).toBe(Status.INPROGRESS);
    expect(last().opcode).toBe(WrOpcode.RDMA_READ);
    const long = ibMemory(new Uint8Array(10_001));
    const put = (bytes: number) => endpoint.putZcopy([entry(long, 0, bytes)], 0, whole, new EndedCompletion());
    const whole = new IbKey({ ...key, memoryType: key.memoryType, byteLength: 2 ** 20 } as never);
    expect([put(10_001), put(10_000)]).toEqual([Status.INVALID_PARAM, Status.INPROGRESS]);
    const five = new Array(5).fill(entry(memory, 0, 8));
    expect(() => endpoint.putZcopy(five, 0, key, completion)).toThrow(/at most 4 entries/);
    expect(() => endpoint.putZcopy([entry(memory, 60, 5)], 0, key, completion)).toThrow(/inside memory/);
  });
});

describe('a short get', () => {
  it('delivers nothing to a target that was shortened meanwhile', () => {
    const { endpoint, key, end } = open();
    const buffer = new ResizableBuffer(16, { maxByteLength: 16 });
    const target = new Uint8Array(buffer);
    const completion = new EndedCompletion();
    endpoint.getShort(target, 4, 8, 0, key, completion);
    buffer.resize(10);
    end();
    expect([completion.failure, target.byteLength]).toEqual([Status.INVALID_ADDR, 10]);
  });

  it('fits into a slot, and its target', () => {
    const { endpoint, key, used } = open();
    const get = (offset: number, byteLength: number) =>
      endpoint.getShort(new Uint8Array(300), offset, byteLength, 0, key, new EndedCompletion());
    expect([get(0, 257), get(299, 2), endpoint.getShort(new Uint8Array(8), 0, 8, 0, key, 5 as never)]).toEqual(
      new Array(3).fill(Status.INVALID_PARAM),
    );
    expect([used(), get(44, 256)]).toEqual([[0, 0, 0, 0], Status.INPROGRESS]);
  });

  it('delivers its bytes when it has ended with OK, to a target that has room for them', () => {
    const { endpoint, key, shared, used, connection } = open();
    const target = new Uint8Array(16);
    const all = [0, 1, 2].map(() => new EndedCompletion());
    for (const completion of all) expect(endpoint.getShort(target, 4, 8, 32, key, completion)).toBe(Status.INPROGRESS);
    expect(used()).toEqual([3, 0, 3, 3]);
    for (let slot = 0; slot < 3; slot++) shared.tx.bytes.fill(slot + 1, slot * SLOT_BYTES, slot * SLOT_BYTES + 8);
    connection.retire(0, Status.OK);
    expect([...target.subarray(3, 13)]).toEqual([0, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    connection.retire(1, Status.INVALID_ADDR);
    expect(target[4]).toBe(1);
    detach(target);
    connection.retire(2, Status.OK);
    expect(all.map(({ failure }) => failure)).toEqual([Status.OK, Status.INVALID_ADDR, Status.INVALID_ADDR]);
    expect(used()).toEqual([0, 0, 0, 0]);
  });
});

describe('memory of this process', () => {
  it('that is the remote side is held too, and fails the operation if it was detached', () => {
    const { endpoint, key, end } = open();
    const bytes = bytesOf(64);
    const [local, remote] = [ibMemory(bytesOf(64)), ibMemory(bytes)];
    const own = new IbKey({ ...key, memoryType: key.memoryType, memory: remote } as never);
    const completion = new EndedCompletion();
    expect(endpoint.putZcopy([entry(local, 0, 8)], 0, own, completion)).toBe(Status.INPROGRESS);
    expect([local.inFlight, remote.inFlight]).toEqual([1, 1]);
    let ends = 0;
    remote.retire(() => {
      ends += 1;
    });
    detach(bytes);
    expect(ends).toBe(0);
    end();
    expect([completion.failure, local.inFlight, remote.inFlight, ends]).toEqual([Status.INVALID_ADDR, 0, 0, 1]);
  });
});

describe('an atomic operation', () => {
  const call = (operation: AtomicOperation, more: Partial<AtomicCall> = {}): AtomicCall =>
    ({ operation, wordBytes: 8, value64: 5n, compare64: 6n, result64: 0n, ...more }) as AtomicCall;

  it('is of an aligned word of 64 bits inside the key', () => {
    const { endpoint, key, used } = open();
    const run = (offset: number, more = {}) =>
      endpoint.atomic(call(AtomicOperation.ADD, more), offset, key, new EndedCompletion());
    expect([run(4), run(4092), run(4096), run(0, { wordBytes: 4 })]).toEqual([
      Status.INVALID_ADDR,
      Status.INVALID_ADDR,
      Status.INVALID_ADDR,
      Status.UNSUPPORTED,
    ]);
    expect([used(), run(4088), used()]).toEqual([[0, 0, 0, 0], Status.INPROGRESS, [1, 0, 1, 1]]);
  });

  it('that the device has ends with the word from before', () => {
    const { endpoint, key, last, end, shared, used } = open();
    const completion = new EndedCompletion();
    const swap = call(AtomicOperation.CSWAP);
    endpoint.atomic(swap, 8, key, completion);
    const { words, opcode } = last();
    expect([opcode, words[SendWr.ATOMIC_REMOTE_ADDR], words[SendWr.ATOMIC_RKEY]]).toEqual([
      WrOpcode.ATOMIC_CMP_AND_SWP,
      0x108,
      902,
    ]);
    expect([words[SendWr.ATOMIC_COMPARE_ADD], words[SendWr.ATOMIC_SWAP]]).toEqual([6, 5]);
    shared.tx.words.set([0x1234, 0x77]);
    end();
    expect([swap.result64, completion.calls, used()]).toEqual([0x77_0000_1234n, 1, [0, 0, 0, 0]]);
    const failed = new EndedCompletion();
    const add = call(AtomicOperation.ADD);
    endpoint.atomic(add, 8, key, failed);
    expect([last().opcode, last().words[SendWr.ATOMIC_COMPARE_ADD]]).toEqual([WrOpcode.ATOMIC_FETCH_AND_ADD, 5]);
    end(Status.INVALID_ADDR);
    expect([failed.failure, add.result64, used()]).toEqual([Status.INVALID_ADDR, 0n, [0, 0, 0, 0]]);
  });

  it('that the device does not have is repeated with the word that was found, until it has not changed', () => {
    const { endpoint, key, end, shared, reports, last, used } = open();
    const completion = new EndedCompletion();
    const or = call(AtomicOperation.OR);
    endpoint.atomic(or, 8, key, completion);
    expect([last().words[SendWr.ATOMIC_COMPARE_ADD], last().words[SendWr.ATOMIC_SWAP]]).toEqual([0, 5]);
    shared.tx.words.set([8, 0]);
    end();
    expect([completion.calls, used(), reports.retries.length]).toEqual([0, [0, 0, 0, 1], 1]);
    const [retry] = reports.retries;
    expect(retry).toMatchObject({ call: or, remoteOffset: 8, key, completion, assumed: 8n });
    endpoint.postAtomic(or, 8, key, completion, 8n);
    expect([last().words[SendWr.ATOMIC_COMPARE_ADD], last().words[SendWr.ATOMIC_SWAP]]).toEqual([8, 13]);
    shared.tx.words.set([8, 0]);
    end();
    expect([completion.calls, or.result64, used()]).toEqual([1, 8n, [0, 0, 0, 0]]);
  });

  it('finds the failure of the connection, and no slot where there is none', () => {
    const { endpoint, key, shared, connection, used } = open();
    const post = () => endpoint.postAtomic(call(AtomicOperation.ADD), 8, key, new EndedCompletion(), 0n);
    shared.sendSlots = 0;
    expect([post(), 4 - shared.tx.numFree]).toEqual([Status.NO_RESOURCE, 0]);
    shared.sendSlots = 400;
    while (shared.tx.numFree > 0) shared.tx.take();
    expect(post()).toBe(Status.NO_RESOURCE);
    for (let slot = 0; slot < 4; slot++) shared.tx.give(slot);
    connection.fail(Status.ENDPOINT_TIMEOUT);
    expect([post(), used()]).toEqual([Status.ENDPOINT_TIMEOUT, [0, 0, 0, 0]]);
  });
});

describe('the order of an endpoint', () => {
  it('has the fence in the next request, once', () => {
    const { endpoint, key, qp } = open();
    endpoint.fence();
    endpoint.putShort(bytesOf(8), 0, 8, 0, key);
    endpoint.putShort(bytesOf(8), 0, 8, 0, key);
    expect(qp.posted.map(({ flags }) => flags & SendFlag.FENCE)).toEqual([SendFlag.FENCE, 0]);
  });

  it('has a flush that ends with what is in flight, or at once with the failure', () => {
    const { endpoint, key, end, used, connection } = open();
    expect([endpoint.flush(undefined), endpoint.flush(5 as never)]).toEqual([Status.OK, Status.INVALID_PARAM]);
    endpoint.putShort(bytesOf(80), 0, 80, 0, key);
    expect([endpoint.flush(undefined), used()]).toEqual([Status.INPROGRESS, [1, 0, 1, 0]]);
    const completion = new EndedCompletion();
    expect([endpoint.flush(completion), used()]).toEqual([Status.INPROGRESS, [1, 0, 1, 1]]);
    end();
    expect([completion.calls, used()]).toEqual([1, [0, 0, 0, 0]]);
    connection.fail(Status.IO_ERROR);
    expect(endpoint.flush(undefined)).toBe(Status.IO_ERROR);
  });
});

describe('an endpoint', () => {
  it('is ready once its connection is up, while it has slots, until it is closed', () => {
    const { endpoint, key, connection, shared, completionState } = open();
    const put = () => endpoint.putShort(bytesOf(8), 0, 8, 0, key);
    connection.isUp = false;
    expect(put()).toBe(Status.NO_RESOURCE);
    connection.isUp = true;
    shared.sendSlots = 64;
    expect(put()).toBe(Status.NO_RESOURCE);
    shared.sendSlots = 65;
    expect(put()).toBe(Status.OK);
    shared.sendSlots = 399;
    endpoint.close();
    endpoint.close();
    expect([put(), endpoint.check(), completionState.closes]).toEqual([Status.CANCELED, Status.CANCELED, 1]);
  });

  it('is checked with what has come, then by a request whose end is reported', () => {
    const { endpoint, connection, key, qp, completionState, end } = open();
    connection.isUp = false;
    expect([endpoint.check(), qp.posted, completionState.receives]).toEqual([Status.OK, [], 1]);
    connection.isUp = true;
    expect([endpoint.check(), qp.posted.length]).toEqual([Status.OK, 1]);
    // One is on its way: its end shows the same.
    expect([endpoint.check(), qp.posted.length]).toEqual([Status.OK, 1]);
    end();
    endpoint.putShort(bytesOf(8), 0, 8, 0, key);
    expect([endpoint.check(), qp.posted.length, qp.posted.at(-1)!.flags & SendFlag.SIGNALED]).toEqual([
      Status.OK,
      3,
      SendFlag.SIGNALED,
    ]);
    connection.fail(Status.ENDPOINT_TIMEOUT);
    expect(endpoint.check()).toBe(Status.ENDPOINT_TIMEOUT);
  });

  it('holds back what is corked', () => {
    const { endpoint, key, qp } = open();
    endpoint.cork();
    for (let i = 0; i < 2; i++) endpoint.putShort(bytesOf(8), 0, 8, 0, key);
    expect(qp.calls).toBe(0);
    endpoint.uncork();
    expect([qp.calls, qp.posted.length]).toEqual([1, 2]);
  });
});
