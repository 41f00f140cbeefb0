/** Lists of puts over a fake endpoint: blocks, then a flush, then the notification in its turn, and what a failure leaves out. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeCore, FakeEndpoint } from '../../../test/fixtures/libucp/fake-core.ts';
import type { ListBlock } from '../../api/list/list.ts';
import { NotifyOrder } from '../../api/list/notify-order.ts';
import { Operation } from '../../api/operation/call.ts';
import { Status } from '../../ucs/type/status.ts';
import type { ListPlan } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import { ListOperation } from './list.ts';

const NOTIFY_ID = 65_532;
const BLOCKS_MAX = 256;
const NOTE = Uint8Array.of(1, 2, 3);

let fake: FakeCore;
let endpoint: FakeEndpoint;
let order: NotifyOrder;
beforeEach(() => {
  fake = new FakeCore();
  endpoint = new FakeEndpoint();
  order = new NotifyOrder();
});
afterEach(() => fake[Symbol.dispose]());

/** Blocks whose entry is ten times their number. */
function blocksOf(count: number): ListBlock[] {
  return Array.from({ length: count }, (_, index) => ({ entry: index * 10 })) as unknown as ListBlock[];
}

interface Options {
  readonly notification?: Uint8Array;
  readonly flushes?: boolean;
  readonly selected?: Int32Array;
}

function start(count: number, { notification, flushes = notification !== undefined, selected }: Options = {}) {
  const blocks = blocksOf(count);
  const list = { operation: 'put', blocks, blockCount: count };
  const plan = { list, selected, notification, flushes, notifyId: NOTIFY_ID, order } as unknown as ListPlan;
  const request = fake.requests.requests.beginComposite('put/list')!;
  const operation = new ListOperation(fake.tracker, [endpoint.engine, request], plan);
  const first = endpoint.calls.length;
  operation.start();
  return { request: request as UcpRequest, operation, blocks, calls: () => endpoint.calls.slice(first) };
}

/** Ends the operations of these numbers. */
function end(indices: readonly number[], status: Status = Status.OK): void {
  for (const index of indices) endpoint.calls[index]!.end(status);
  fake.progress();
}

describe('a list', () => {
  it('is in flight with all its blocks, and ends with the last, without a flush', () => {
    const { request, blocks, calls } = start(3);
    expect(calls().map(({ name, values }) => [name, ...values])).toEqual(
      blocks.map((block) => ['moveBlock', Operation.PUT, block]),
    );
    end([2, 0]);
    expect(request.isCompleted).toBe(false);
    end([1]);
    expect([request.status, request.transfers, fake.tracker.isEmpty, calls().length]).toEqual([Status.OK, 3, true, 3]);
    expect(calls().map(({ free }) => free.mock.calls.length)).toEqual([1, 1, 1]);
  });

  it('moves only selected blocks', () => {
    const { blocks, calls } = start(4, { selected: Int32Array.of(3, 1) });
    expect(calls().map(({ values }) => values[1])).toEqual([blocks[3], blocks[1]]);
  });

  it('has 256 blocks in flight at most', () => {
    const { calls } = start(BLOCKS_MAX + 2);
    expect(calls().length).toBe(BLOCKS_MAX);
    end([7]);
    expect(calls().length).toBe(BLOCKS_MAX + 1);
  });

  it('begins no block behind one that waits for a request', () => {
    endpoint.result = Status.NO_RESOURCE;
    const { request, calls } = start(3);
    fake.progress();
    expect([calls().length, fake.steps.isDue]).toEqual([0, true]);
    endpoint.result = undefined;
    fake.steps.progress();
    expect(calls().length).toBe(1);
    end([0]);
    expect(calls().length).toBe(3);
    end([1, 2]);
    expect(request.status).toBe(Status.OK);
  });

  it('flushes when all its blocks have ended, if it is to', () => {
    const { request, calls } = start(2, { flushes: true });
    end([0]);
    expect(calls().length).toBe(2);
    end([1]);
    expect(endpoint.started).toEqual(['moveBlock', 'moveBlock', 'flushUcp']);
    expect(request.isCompleted).toBe(false);
    end([2]);
    expect([request.status, endpoint.started.length]).toEqual([Status.OK, 3]);
  });

  it('that fails begins no more, names the entry, and waits for its blocks in flight', () => {
    const { request, calls } = start(BLOCKS_MAX + 2, { flushes: true });
    end([1], Status.IO_ERROR);
    expect([calls().length, request.isCompleted]).toEqual([BLOCKS_MAX, false]);
    end(
      Array.from({ length: BLOCKS_MAX }, (_, index) => index).filter((index) => index !== 1),
      Status.TIMED_OUT,
    );
    expect([request.status, calls().length]).toEqual([Status.IO_ERROR, BLOCKS_MAX]);
    expect(String((request.error as Error).message)).toMatch(/10/);
  });

  it('that fails is not flushed, and does not notify', () => {
    const { request } = start(2, { notification: NOTE });
    end([0], Status.IO_ERROR);
    end([1]);
    expect([request.status, endpoint.started]).toEqual([Status.IO_ERROR, ['moveBlock', 'moveBlock']]);
  });

  it('counts an empty one as a transfer: it is a notification', () => {
    const { request } = start(0, { notification: NOTE });
    expect(endpoint.started).toEqual(['flushUcp']);
    end([0]);
    end([1]);
    expect([request.status, request.transfers]).toEqual([Status.OK, 1]);
  });
});

describe('the notification of a list', () => {
  it('follows the flush, and the list ends with it', () => {
    const { request } = start(1, { notification: NOTE });
    end([0]);
    end([1]);
    expect(endpoint.started).toEqual(['moveBlock', 'flushUcp', 'sendOwn']);
    expect([endpoint.calls[2]!.values, request.isCompleted]).toEqual([[NOTIFY_ID, NOTE, undefined], false]);
    end([2]);
    expect([request.status, order.isEmpty]).toEqual([Status.OK, true]);
  });

  it('is not sent after a failed flush', () => {
    const { request } = start(1, { notification: NOTE });
    end([0]);
    end([1], Status.IO_ERROR);
    expect([request.status, endpoint.started, order.isEmpty]).toEqual([
      Status.IO_ERROR,
      ['moveBlock', 'flushUcp'],
      true,
    ]);
  });

  it.each([
    ['has ended', Status.OK],
    ['has failed', Status.IO_ERROR],
  ])('waits for that of an earlier list, which %s', (_name, status) => {
    const first = start(1, { notification: NOTE });
    const second = start(1, { notification: NOTE });
    end([1]);
    end([2]);
    // Its own blocks and flush have ended: only its turn has not come.
    expect([endpoint.started, second.operation.isDue]).toEqual([['moveBlock', 'moveBlock', 'flushUcp'], true]);
    end([0], status);
    if (status === Status.OK) {
      end([3]);
      expect(endpoint.started.slice(3)).toEqual(['flushUcp', 'sendOwn']);
      end([4]);
    }
    expect([first.request.status, endpoint.started.at(-1)]).toEqual([status, 'sendOwn']);
    end([endpoint.calls.length - 1]);
    expect([second.request.status, order.isEmpty]).toEqual([Status.OK, true]);
  });

  it('is not waited for by a list whose flush has failed', () => {
    start(1, { notification: NOTE });
    const second = start(1, { notification: NOTE });
    end([1]);
    end([2], Status.IO_ERROR);
    expect([second.request.status, endpoint.started]).toEqual([
      Status.IO_ERROR,
      ['moveBlock', 'moveBlock', 'flushUcp'],
    ]);
  });

  it('is withdrawn by a cancellation that comes before it is sent', () => {
    const { request, operation } = start(1, { notification: NOTE });
    operation.cancel();
    fake.progress();
    expect(request.isCompleted).toBe(false);
    end([0]);
    expect([request.status, endpoint.started]).toEqual([Status.CANCELED, ['moveBlock']]);
  });

  it('that was sent is not withdrawn; nor is a list without one', () => {
    const { request, operation } = start(0, { notification: NOTE });
    end([0]);
    operation.cancel();
    end([1]);
    expect(request.status).toBe(Status.OK);
    const plain = start(1);
    plain.operation.cancel();
    end([2]);
    expect(plain.request.status).toBe(Status.OK);
  });

  it('gives the turn on although a callback of the program throws', () => {
    const first = start(0, { notification: NOTE });
    const second = start(0, { notification: NOTE });
    first.request.callback = () => {
      throw new Error('thrown');
    };
    end([0, 1]);
    endpoint.calls[2]!.end();
    expect(() => fake.progress()).toThrow('thrown');
    fake.progress();
    expect(endpoint.started).toEqual(['flushUcp', 'flushUcp', 'sendOwn', 'sendOwn']);
    end([3]);
    expect(second.request.status).toBe(Status.OK);
  });
});
