/** What transports share: atomic words at any place of memory, completions, ranges and counters. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import { type AtomicCall, AtomicOperation } from '../api/iface.ts';
import { AtomicWords } from './atomic-word.ts';
import { completeOne, fitsMessage, isInBytes, isInside } from './checks.ts';
import { Transfer, TransferCounters } from './counters.ts';

const CALL: AtomicCall = {
  operation: AtomicOperation.ADD,
  wordBytes: 8,
  value32: 0,
  compare32: 0,
  result32: 0,
  value64: 0n,
  compare64: 0n,
  result64: 0n,
} as AtomicCall;

describe('an atomic word', () => {
  it.each([0, 4, 5, 8])('is aligned in memory, whose bytes begin at %s', (begin) => {
    const buffer = new ArrayBuffer(64);
    const words = new AtomicWords(new Uint8Array(buffer, begin, 40));
    for (const wordBytes of [4, 8] as const) {
      const good = Array.from({ length: 16 }, (_, offset) => words.run({ ...CALL, wordBytes }, offset) === Status.OK);
      expect(good).toEqual(Array.from({ length: 16 }, (_, offset) => (begin + offset) % wordBytes === 0));
    }
  });

  it('has the result before its operation, and is compared before it is swapped', () => {
    const buffer = new ArrayBuffer(32);
    const view = new DataView(buffer);
    const words = new AtomicWords(new Uint8Array(buffer, 4));
    const run = (operation: AtomicOperation, value: number, compare = 0): [number, number] => {
      const short = { ...CALL, operation, wordBytes: 4 as const, value32: value, compare32: compare };
      const long = { ...CALL, operation, wordBytes: 8 as const, value64: BigInt(value), compare64: BigInt(compare) };
      expect([words.run(short, 4), words.run(long, 12)]).toEqual([Status.OK, Status.OK]);
      return [short.result32, Number(long.result64)];
    };
    const now = (): [number, number] => [view.getInt32(8, true), Number(view.getBigInt64(16, true))];
    const steps = [
      [AtomicOperation.ADD, 12, 0],
      [AtomicOperation.OR, 3, 0],
      [AtomicOperation.AND, 6, 0],
      [AtomicOperation.XOR, 5, 0],
      [AtomicOperation.SWAP, 40, 0],
      [AtomicOperation.CSWAP, 50, 41],
      [AtomicOperation.CSWAP, 60, 40],
    ] as const;
    const seen = steps.map(([operation, value, compare]) => [run(operation, value, compare), now()]);
    const both = (value: number): [number, number] => [value, value];
    expect(seen).toEqual([
      [both(0), both(12)],
      [both(12), both(15)],
      [both(15), both(6)],
      [both(6), both(3)],
      [both(3), both(40)],
      [both(40), both(40)],
      [both(40), both(60)],
    ]);
  });
});

describe('a completion', () => {
  it('ends with its last operation, once, with the first failure', () => {
    let calls = 0;
    const completion = { count: 3, failure: Status.OK as Status, onComplete: () => (calls += 1) };
    completeOne(completion, Status.OK);
    completeOne(completion, Status.INVALID_ADDR);
    expect(calls).toBe(0);
    completeOne(completion, Status.IO_ERROR);
    expect([calls, completion.failure, completion.count]).toEqual([1, Status.INVALID_ADDR, 0]);
    completeOne(completion, Status.OK);
    expect(calls).toBe(1);
  });
});

describe('a range', () => {
  it('ends at its limit at most, and has no fractions or negative numbers', () => {
    const cases = [
      [0, 8, true],
      [8, 0, true],
      [3, 5, true],
      [3, 6, false],
      [9, 0, false],
      [-1, 4, false],
      [4, -1, false],
      [0.5, 1, false],
      [0, Number.NaN, false],
      [2 ** 53, 0, false],
    ] as const;
    for (const [offset, byteLength, expected] of cases) {
      expect([isInside(offset, byteLength, 8), isInBytes(offset, byteLength, new Uint8Array(8))]).toEqual([
        expected,
        expected,
      ]);
    }
    expect([isInside(2 ** 40, 2 ** 41, 2 ** 42), isInside(2 ** 40, -1, 2 ** 42)]).toEqual([true, false]);
  });

  it('of a message counts its header in bytes', () => {
    const payload = new Uint8Array(8);
    const fits = [
      fitsMessage(2, payload, 0, 8, 16),
      fitsMessage(2, payload, 0, 8, 15),
      fitsMessage(4, undefined, 0, 0, 16),
      fitsMessage(2, payload, 1, 8, 64),
      fitsMessage(2, undefined, 0, 1, 64),
      fitsMessage(-1, payload, 0, 8, 64),
    ];
    expect(fits).toEqual([true, false, true, false, false, false]);
  });
});

it('counts each operation and its bytes by its kind', () => {
  const counters = new TransferCounters();
  counters.short(Transfer.AM, 1);
  counters.short(Transfer.PUT, 20);
  counters.bcopy(Transfer.AM, 300);
  counters.zcopy(Transfer.GET, 4000);
  counters.zcopy(Transfer.GET, 50_000);
  counters.atomic();
  counters.received(600_000);
  expect([Status.NO_RESOURCE, Status.INVALID_PARAM].map((status) => counters.refused(status))).toEqual([
    Status.NO_RESOURCE,
    Status.INVALID_PARAM,
  ]);
  expect([Status.OK, Status.INPROGRESS].map((status) => counters.flush(status))).toEqual([
    Status.OK,
    Status.INPROGRESS,
  ]);
  for (const status of [Status.OK, Status.OK, Status.INPROGRESS]) counters.fence(status as Status);
  expect(counters.node({ transport: 'tcp', device: 'eth0' } as never)).toMatchObject({
    name: 'tcp/eth0',
    counters: {
      am: 2,
      put: 1,
      get: 2,
      atomic: 1,
      bytes_short: 21,
      bytes_bcopy: 300,
      bytes_zcopy: 54_000,
      no_res: 1,
      flush: 2,
      flush_wait: 1,
      fence: 3,
      rx_am: 1,
      rx_am_bytes: 600_000,
    },
  });
});
