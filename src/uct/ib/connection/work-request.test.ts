/** Work requests of a connection and what they hold until they end: memory, slots of copied bytes, operations that are repeated. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { EndedCompletion, type FakeIb, fakeIb, ibMemory } from '../../../../test/fixtures/transports/fake-ib.ts';
import { Status } from '../../../ucs/type/status.ts';
import { WrOpcode } from '../../../verbs/abi.ts';
import { type AtomicCall, AtomicOperation } from '../../api/iface.ts';
import { IbKey } from '../base/key.ts';
import type { IbMemory } from '../base/memory.ts';
import type { IbConnection } from './connection.ts';
import { isNative, newWord, TxEntry } from './work-request.ts';

expectNoLeaks();

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing) close();
  closing = [];
});

function open(): FakeIb & { readonly connection: IbConnection; post(fill: (entry: TxEntry) => void): EndedCompletion } {
  const made = fakeIb();
  const connection = made.connect();
  closing.push(() => {
    connection.destroy();
    made.close();
  });
  /** Posts a request with an operation. */
  const post = (fill: (entry: TxEntry) => void): EndedCompletion => {
    const completion = new EndedCompletion();
    made.shared.outstanding += 1;
    const { entry } = connection.sends;
    entry.completion = completion;
    fill(entry);
    connection.post(connection.begin(WrOpcode.RDMA_READ, true));
    return completion;
  };
  return { ...made, connection, post };
}

const iovOf = (...memories: readonly IbMemory[]) =>
  memories.map((memory) => ({ memory, offset: 0, byteLength: memory.byteLength }));
const keyOf = (memory: IbMemory): IbKey =>
  new IbKey({ memoryType: 0, sysDevice: undefined, byteLength: 64, iova: 0, rkeys: Uint32Array.of(1), memory });
const detach = ({ bytes }: IbMemory): unknown =>
  structuredClone(bytes!.buffer, { transfer: [bytes!.buffer as ArrayBuffer] });
const call = (operation: AtomicOperation): AtomicCall => {
  const operands = { value32: 0, value64: 6n, compare32: 0, compare64: 0n };
  return { operation, wordBytes: 8, ...operands, result32: 0, result64: 0n };
};

describe('memory', () => {
  const [one, two, remote] = [0, 1, 2].map(() => ibMemory(new Uint8Array(64))) as [IbMemory, IbMemory, IbMemory];
  const uses = (): number[] => [one, two, remote].map(({ inFlight }) => inFlight);

  it('is in use until its request ends, each time that the list names it, and is released once', () => {
    const entry = new TxEntry();
    entry.hold(iovOf(one, two, one), keyOf(remote));
    expect(uses()).toEqual([2, 1, 1]);
    expect([entry.release(), uses()]).toEqual([true, [0, 0, 0]]);
    expect([entry.release(), uses()]).toEqual([true, [0, 0, 0]]);
    entry.hold(iovOf(two), undefined);
    expect(uses()).toEqual([0, 1, 0]);
    expect([entry.release(), uses()]).toEqual([true, [0, 0, 0]]);
  });

  it.each(['local', 'remote'] as const)('that is detached makes its operation fail: %s', (which) => {
    const { connection, post } = open();
    const memories = { local: ibMemory(new Uint8Array(64)), remote: ibMemory(new Uint8Array(64)) };
    const requests = [0, 1].map(() => post((entry) => entry.hold(iovOf(memories.local), keyOf(memories.remote))));
    connection.retire(0, Status.OK);
    detach(memories[which]);
    connection.retire(1, Status.OK);
    expect(requests.map(({ calls, failure }) => [calls, failure])).toEqual([
      [1, Status.OK],
      [1, Status.INVALID_ADDR],
    ]);
    expect([memories.local.inFlight, memories.remote.inFlight]).toEqual([0, 0]);
  });
});

describe('a get of a few bytes', () => {
  /** Posts a get into bytes 8 to 11 of the target; the device has written 1, 2, 3 and 4. */
  function get(target: Uint8Array) {
    const made = open();
    const { tx } = made.shared;
    const slot = tx.take();
    tx.bytes.set([1, 2, 3, 4], slot * tx.slotBytes);
    const completion = made.post((entry) => Object.assign(entry, { slot, target, targetOffset: 8, targetBytes: 4 }));
    expect(tx.numFree).toBe(tx.count - 1);
    return { ...made, completion, tx };
  }

  it('delivers its bytes at their offset, and returns its slot', () => {
    const target = new Uint8Array(12).fill(9);
    const { connection, completion, tx } = get(target);
    connection.retire(0, Status.OK);
    expect(target).toEqual(Uint8Array.of(9, 9, 9, 9, 9, 9, 9, 9, 1, 2, 3, 4));
    expect([completion.calls, completion.failure, tx.numFree]).toEqual([1, Status.OK, tx.count]);
  });

  it('that fails delivers nothing, and returns its slot', () => {
    const target = new Uint8Array(12).fill(9);
    const { connection, completion, tx } = get(target);
    connection.retire(0, Status.INVALID_ADDR);
    expect(target).toEqual(new Uint8Array(12).fill(9));
    expect([completion.failure, tx.numFree]).toEqual([Status.INVALID_ADDR, tx.count]);
  });

  it('fails if its target has become too short', () => {
    const target = new Uint8Array(11).fill(9);
    const { connection, completion, tx } = get(target);
    connection.retire(0, Status.OK);
    expect(target).toEqual(new Uint8Array(11).fill(9));
    expect([completion.failure, tx.numFree]).toEqual([Status.INVALID_ADDR, tx.count]);
  });
});

describe('an atomic operation', () => {
  /** Ends an operation that has assumed 40, where the word was `found`. */
  function end(operation: AtomicOperation, found: bigint) {
    const made = open();
    const { tx } = made.shared;
    const slot = tx.take();
    new DataView(tx.bytes.buffer, tx.bytes.byteOffset + slot * tx.slotBytes).setBigUint64(0, found, true);
    const memory = ibMemory(new Uint8Array(64));
    const key = keyOf(memory);
    const fields = { slot, call: call(operation), remoteOffset: 16, assumed: 40n };
    const completion = made.post((entry) => {
      Object.assign(entry, fields);
      entry.hold([], key);
    });
    made.connection.retire(0, Status.OK);
    expect([tx.numFree, memory.inFlight]).toEqual([tx.count, 0]);
    const { retries } = made.reports;
    return { ...made, key, completion, call: fields.call, retries };
  }

  it('that the device has itself ends with the word before it', () => {
    const { completion, call: made, retries } = end(AtomicOperation.ADD, 2n ** 63n + 41n);
    expect([completion.calls, completion.failure, made.result64, retries]).toEqual([1, Status.OK, 2n ** 63n + 41n, []]);
  });

  it('by compare and swap ends if the word was the assumed one', () => {
    const { completion, call: made, retries } = end(AtomicOperation.XOR, 40n);
    expect([completion.calls, made.result64, retries]).toEqual([1, 40n, []]);
  });

  it('by compare and swap is repeated with the word that was found', () => {
    const { connection, completion, call: made, key, retries } = end(AtomicOperation.XOR, 41n);
    expect(completion.calls).toBe(0);
    expect(retries).toEqual([{ connection, call: made, remoteOffset: 16, key, completion, assumed: 41n }]);
  });

  it.each([
    [AtomicOperation.AND, 0b1000n],
    [AtomicOperation.OR, 0b1110n],
    [AtomicOperation.XOR, 0b0110n],
    [AtomicOperation.SWAP, 0b1010n],
  ])('%i of the word 1100 and the operand 1010 has its result, and is made of compare and swap', (operation, word) => {
    expect(newWord({ ...call(operation), value64: 0b1010n }, 0b1100n)).toBe(word);
    expect(isNative(operation)).toBe(false);
  });

  it('is a single one if the device adds, or compares and swaps', () => {
    expect([AtomicOperation.ADD, AtomicOperation.CSWAP].map(isNative)).toEqual([true, true]);
  });
});

it('an entry that is used again has nothing of the request before', () => {
  const entry = new TxEntry();
  const completion = new EndedCompletion();
  const memory = ibMemory(new Uint8Array(8));
  const operation = { call: call(AtomicOperation.OR), target: new Uint8Array(8), flushes: [completion] };
  Object.assign(entry, { isSignaled: true, slot: 3, completion, ...operation });
  entry.hold(iovOf(memory), keyOf(memory));
  entry.release();
  entry.clear();
  expect({ ...entry }).toEqual({ ...new TxEntry() });
});
