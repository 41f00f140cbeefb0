/** Put and get of memory of a card through fragments, over a fake card and a fake endpoint. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeCore, FakeEndpoint, FRAGMENT_BYTES } from '../../../test/fixtures/libucp/fake-core.ts';
import { Operation } from '../../api/operation/call.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UcpMemory } from '../mem/memory-handle.ts';
import { StagedTransfer } from './staged-transfer.ts';

const DEVICE = { nativeHandle: 'card' } as unknown as UcpMemory;
const DEPTH = 4;

let fake: FakeCore;
let endpoint: FakeEndpoint;
let rkey: { released: boolean };
beforeEach(() => {
  fake = new FakeCore(undefined, 8);
  endpoint = new FakeEndpoint();
  rkey = { released: false };
});
afterEach(() => fake[Symbol.dispose]());

function start(operation: Operation, byteLength: number) {
  const request = fake.requests.requests.beginComposite('put/staged')!;
  const transfer = { operation, endpoint, local: DEVICE, localOffset: 1000, byteLength, rkey, remoteOffset: 5000 };
  const staged = new StagedTransfer(fake.tracker, request, transfer as never, DEVICE);
  staged.start();
  return { request, staged };
}

/** Ends a copy of the card. */
function copied(index: number, status: Status = Status.OK): void {
  fake.copies[index]!.end(status, status < 0 ? 'card' : undefined);
  fake.progress();
}

/** Ends an operation of the endpoint. */
function moved(index: number, status: Status = Status.OK): void {
  endpoint.calls[index]!.end(status);
  fake.progress();
}

const movedRange = (index: number): unknown[] => {
  const [operation, move] = endpoint.calls[index]!.values as [Operation, Record<string, unknown>];
  return [operation, move['localOffset'], move['byteLength'], move['remoteOffset']];
};
const copyOf = (index: number): unknown[] => {
  const { isToCard, copy } = fake.copies[index]!;
  return [isToCard, copy.device, copy.offset, copy.hostOffset, copy.byteLength];
};

describe('a put', () => {
  it('copies each slice from the card, then sends it from its fragment', () => {
    const { request } = start(Operation.PUT, FRAGMENT_BYTES + 6);
    expect([copyOf(0), copyOf(1), endpoint.started]).toEqual([
      [false, 'card', 1000, 0, FRAGMENT_BYTES],
      [false, 'card', 1000 + FRAGMENT_BYTES, 0, 6],
      [],
    ]);
    copied(1);
    copied(0);
    expect([movedRange(0), movedRange(1)]).toEqual([
      [Operation.PUT, 0, 6, 5000 + FRAGMENT_BYTES],
      [Operation.PUT, 0, FRAGMENT_BYTES, 5000],
    ]);
    const fragmentOf = (index: number): unknown =>
      (endpoint.calls[index]!.values[1] as { local: UcpMemory }).local.nativeHandle;
    expect([fragmentOf(0), fragmentOf(1)]).toEqual([fake.copies[1]!.copy.host, fake.copies[0]!.copy.host]);
    moved(0);
    expect(request.isCompleted).toBe(false);
    moved(1);
    expect([request.status, fake.fragments.inUse, fake.tracker.isEmpty]).toEqual([Status.OK, 0, true]);
  });

  it('has 4 slices in flight at most', () => {
    start(Operation.PUT, 6 * FRAGMENT_BYTES);
    expect([fake.copies.length, fake.fragments.inUse]).toEqual([DEPTH, DEPTH]);
    copied(0);
    expect(fake.copies.length).toBe(DEPTH);
    moved(0);
    expect(fake.copies.length).toBe(DEPTH + 1);
  });

  it('fails with the copy, sends nothing more, and gives its fragments back when all slices have ended', () => {
    const { request } = start(Operation.PUT, 6 * FRAGMENT_BYTES);
    copied(0);
    copied(1, Status.IO_ERROR);
    copied(2);
    copied(3);
    expect([endpoint.calls.length, fake.copies.length, request.isCompleted]).toEqual([1, DEPTH, false]);
    expect(fake.fragments.inUse).toBe(1);
    moved(0);
    expect([request.status, request.error, fake.fragments.inUse]).toEqual([Status.IO_ERROR, 'card', 0]);
  });

  it('whose key is released meanwhile is canceled', () => {
    const { request } = start(Operation.PUT, FRAGMENT_BYTES);
    rkey.released = true;
    copied(0);
    expect([request.status, endpoint.started, fake.fragments.inUse]).toEqual([Status.CANCELED, [], 0]);
  });

  it('whose endpoint is gone waits for the card, which still uses the fragments', () => {
    const { request, staged } = start(Operation.PUT, FRAGMENT_BYTES);
    staged.abort(Status.CONNECTION_RESET);
    fake.progress();
    expect([request.isCompleted, fake.fragments.inUse]).toEqual([false, 1]);
    copied(0);
    expect([request.status, endpoint.started, fake.fragments.inUse]).toEqual([Status.CONNECTION_RESET, [], 0]);
  });
});

describe('a get', () => {
  it('reads each slice into its fragment, then copies it to the card', () => {
    const { request } = start(Operation.GET, FRAGMENT_BYTES + 6);
    expect([movedRange(0), movedRange(1), fake.copies.length]).toEqual([
      [Operation.GET, 0, FRAGMENT_BYTES, 5000],
      [Operation.GET, 0, 6, 5000 + FRAGMENT_BYTES],
      0,
    ]);
    moved(1);
    expect(copyOf(0)).toEqual([true, 'card', 1000 + FRAGMENT_BYTES, 0, 6]);
    moved(0);
    copied(0);
    expect(request.isCompleted).toBe(false);
    copied(1);
    expect([request.status, fake.fragments.inUse]).toEqual([Status.OK, 0]);
  });

  it('whose endpoint is gone copies nothing to the card any more', () => {
    const { request, staged } = start(Operation.GET, 2 * FRAGMENT_BYTES);
    staged.abort(Status.CANCELED);
    fake.progress();
    moved(0);
    moved(1);
    expect([request.status, fake.copies, fake.fragments.inUse]).toEqual([Status.CANCELED, [], 0]);
  });

  it('fails with the endpoint, and copies nothing that has not come', () => {
    const { request } = start(Operation.GET, 2 * FRAGMENT_BYTES);
    moved(0, Status.CONNECTION_RESET);
    moved(1, Status.OK);
    expect([request.status, fake.copies, fake.fragments.inUse]).toEqual([Status.CONNECTION_RESET, [], 0]);
  });
});
