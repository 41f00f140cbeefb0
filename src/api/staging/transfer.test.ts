/** The transfer machine: the cells of its table, the order and number of slices, and fragments that come late. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../ucs/type/status.ts';
import type { CopyDone } from './device-copier.ts';
import type { FragmentUser } from './fragment-pool.ts';
import { type Slice, TransferMachine, Verb } from './transfer.ts';

type Call = [Slice<number>, CopyDone];

/** A port whose verbs end when the test ends them, and its fragments: all calls are recorded. */
class Port {
  readonly acquiring: FragmentUser<number>[] = [];
  readonly copying: Call[] = [];
  readonly putting: Call[] = [];
  readonly released: number[] = [];
  readonly stops: [Status, unknown][] = [];
  readonly ends: [Status, unknown][] = [];

  acquire(run: FragmentUser<number>): void {
    this.acquiring.push(run);
  }

  release(fragment: number): void {
    this.released.push(fragment);
  }

  copy(slice: Slice<number>, done: CopyDone): void {
    this.copying.push([slice, done]);
  }

  put(slice: Slice<number>, done: CopyDone): void {
    this.putting.push([slice, done]);
  }

  stopped(status: Status, error: unknown): void {
    this.stops.push([status, error]);
  }

  ended(status: Status, error: unknown): void {
    this.ends.push([status, error]);
  }
}

type Verbs = typeof Verb.COPY | typeof Verb.PUT;

/** A transfer of slices of 10 through fragments. */
function staged(port: Port, range: readonly [number, number], depth = 2): TransferMachine<number, Verbs> {
  const route = { fill: Verb.COPY, drain: Verb.PUT, fragments: port, sliceLength: 10, depth };
  return new TransferMachine<number, Verbs>(port, route, range);
}

/** A transfer of slices of 10 from where they are. */
function direct(port: Port, length: number, depth = 2): TransferMachine<number, Verbs> {
  return new TransferMachine<number, Verbs>(port, { drain: Verb.PUT, sliceLength: 10, depth }, [0, length]);
}

const rangesOf = (calls: readonly Call[]) => calls.map(([{ from, length }]) => [from, length]);

describe('a transfer through fragments', () => {
  it('has so many slices in flight, in order, and ends with the last', () => {
    const port = new Port();
    staged(port, [5, 25]).advance();
    expect(port.acquiring.length).toBe(2);
    port.acquiring[0]!(100, Status.OK);
    port.acquiring[1]!(101, Status.OK);
    expect(rangesOf(port.copying)).toEqual([
      [5, 10],
      [15, 10],
    ]);
    port.copying[1]![1](Status.OK);
    port.putting[0]![1](Status.OK);
    expect([port.released, port.acquiring.length]).toEqual([[101], 3]);
    port.acquiring[2]!(101, Status.OK);
    expect(port.copying[2]![0]).toEqual({ fragment: 101, from: 25, length: 5 });
    port.copying[2]![1](Status.OK);
    port.putting[1]![1](Status.OK);
    expect([port.acquiring.length, port.ends]).toEqual([3, []]);
    port.copying[0]![1](Status.OK);
    port.putting[2]![1](Status.OK);
    expect([port.released, port.ends, port.stops]).toEqual([[101, 101, 100], [[Status.OK, undefined]], []]);
  });

  it('begins more slices when its depth grows', () => {
    const port = new Port();
    const transfer = staged(port, [0, 100]);
    transfer.advance();
    transfer.depth = 5;
    transfer.advance();
    expect(port.acquiring.length).toBe(5);
  });

  it('goes through any number of slices that end at once, without recursion', () => {
    const port = new Port();
    port.acquire = (run) => run(1, Status.OK);
    port.copy = (_slice, done) => done(Status.OK);
    port.put = (_slice, done) => done(Status.OK);
    staged(port, [0, 2_000_000], 1).advance();
    expect([port.released.length, port.ends.length]).toEqual([200_000, 1]);
  });

  it('ends with the first failure, when nothing is in flight, and gives late fragments back', () => {
    const port = new Port();
    const transfer = staged(port, [0, 100], 3);
    transfer.advance();
    port.acquiring[0]!(100, Status.OK);
    port.acquiring[1]!(101, Status.OK);
    const cause = new Error('a card');
    port.copying[0]![1](Status.IO_ERROR, cause);
    expect([port.stops, port.ends]).toEqual([[[Status.IO_ERROR, cause]], []]);
    // Filled after the failure: it is not drained.
    port.copying[1]![1](Status.OK);
    expect([port.putting, port.ends]).toEqual([[], [[Status.IO_ERROR, cause]]]);
    port.acquiring[2]!(102, Status.OK);
    transfer.stop(Status.CANCELED);
    expect([port.released, port.ends.length, port.copying.length]).toEqual([[100, 101, 102], 1, 2]);
  });

  it('keeps the first of several failures', () => {
    const port = new Port();
    staged(port, [0, 20]).advance();
    for (const [i, run] of port.acquiring.entries()) run(100 + i, Status.OK);
    port.copying[0]![1](Status.IO_ERROR);
    port.copying[1]![1](Status.TIMED_OUT);
    expect([port.stops.length, port.ends]).toEqual([1, [[Status.IO_ERROR, undefined]]]);
  });

  it('ends with the refusal of a fragment', () => {
    const port = new Port();
    staged(port, [0, 100], 1).advance();
    port.acquiring[0]!(undefined, Status.NO_MEMORY);
    expect([port.released, port.ends]).toEqual([[], [[Status.NO_MEMORY, undefined]]]);
  });

  it('can be stopped without a failure, and does nothing after its end', () => {
    const port = new Port();
    const transfer = staged(port, [0, 100]);
    transfer.advance();
    transfer.stop(Status.OK);
    transfer.advance();
    expect([port.ends, port.acquiring.length]).toEqual([[[Status.OK, undefined]], 2]);
  });
});

describe('a transfer without fragments', () => {
  it('moves every slice by one verb', () => {
    const port = new Port();
    direct(port, 25, 8).advance();
    expect(rangesOf(port.putting)).toEqual([
      [0, 10],
      [10, 10],
      [20, 5],
    ]);
    for (const [, done] of port.putting) done(Status.OK);
    expect([port.copying, port.ends]).toEqual([[], [[Status.OK, undefined]]]);
  });

  it('ends at once if the range is empty', () => {
    const port = new Port();
    direct(port, 0).advance();
    expect([port.putting, port.ends]).toEqual([[], [[Status.OK, undefined]]]);
  });

  it('begins no slice while one waits for resources, and continues with the end of any', () => {
    const port = new Port();
    const transfer = direct(port, 40, 4);
    const { put } = port;
    port.put = (slice, done) => {
      put.call(port, slice, done);
      if (slice.from === 10) transfer.block();
    };
    transfer.advance();
    transfer.advance();
    expect(port.putting.length).toBe(2);
    port.putting[0]![1](Status.OK);
    expect(port.putting.length).toBe(4);
    for (const [, done] of port.putting.slice(1)) done(Status.OK);
    expect(port.ends).toEqual([[Status.OK, undefined]]);
  });

  it('can be stopped, or fail, while it is blocked', () => {
    for (const end of ['stop', 'fail'] as const) {
      const port = new Port();
      const transfer = direct(port, 40, 4);
      const { put } = port;
      port.put = (slice, done) => {
        put.call(port, slice, done);
        transfer.block();
      };
      transfer.advance();
      if (end === 'stop') transfer.stop(Status.CANCELED);
      port.putting[0]![1](end === 'stop' ? Status.OK : Status.CANCELED);
      expect([end, port.putting.length, port.ends]).toEqual([end, 1, [[Status.CANCELED, undefined]]]);
    }
  });
});
