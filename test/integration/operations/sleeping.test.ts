/** Sleeps over every kind of connection leave nothing behind, whatever their number when they are abandoned before their transports wake. */

import { describe, expect, it } from 'vitest';
import { type Request, Status, type Worker } from '../../../src/index.ts';
import { ManualClock } from '../../../src/ucs/sys/clock.ts';
import { collectGarbage } from '../../fixtures/collect-garbage.ts';
import { device, rkeyOf } from '../../fixtures/contexts.ts';
import { driveUntil, PAIR_KINDS, pattern, usePairs } from '../../fixtures/pair.ts';

const fixture = usePairs();

const BYTES = 65_536;
const SLEEPS = 100_000;
/** Memory that the test and the compiler may use: 10 bytes for each sleep, where one reaction of a promise has 60. */
const HEAP_BYTES = 1_000_000;

const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;

async function heapBytes(): Promise<number> {
  // Several turns of the event loop, because promises release their references in one.
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** Sleeps repeatedly in each way that a program can, woken by something else than a transport. */
async function sleepOften(worker: Worker, count: number): Promise<void> {
  const stop = new AbortController();
  const serving = worker.serve(stop.signal);
  for (let i = 0; i < count; i++) {
    const slept = worker.wait();
    worker.arm();
    worker.signal();
    await slept;
  }
  stop.abort();
  await serving;
}

/** Fails if sleeps of the worker keep memory or timers. */
async function expectNothingKept(worker: Worker): Promise<void> {
  await sleepOften(worker, SLEEPS / 50);
  const before = { timers: timers(), heap: await heapBytes() };
  await sleepOften(worker, SLEEPS);
  const grown = (await heapBytes()) - before.heap;
  // The test runner has temporary timers too; a timer that a sleep has left stays, and the test times out.
  while (timers() > before.timers) await new Promise(setImmediate);
  expect(grown).toBeLessThan(HEAP_BYTES);
}

describe('a sleep leaves nothing behind', () => {
  it.each(PAIR_KINDS.map((kind) => [kind.name, kind] as const))('over %s', { timeout: 60_000 }, async (_, kind) => {
    const pair = await fixture.pair(kind);
    const { worker } = pair.two;
    // A receive is pending, and loopback is connected.
    const receive = worker.tagRecvNbx(new Uint8Array(8), 0, 8, 1) as Request;
    await expectNothingKept(worker);
    receive.cancel();
    await driveUntil(pair, () => receive.isCompleted);
    expect(receive.status).toBe(Status.CANCELED);
    receive.free();
  });

  it('over a card with transfers in flight', { timeout: 60_000 }, async () => {
    const clock = new ManualClock(1e9);
    const stack = await fixture.open({ node: { cards: 1, dmaThreads: 0, clock } });
    const { endpoint, node, worker } = stack;
    const rkey = rkeyOf(stack, device(stack, BYTES));
    await endpoint.put(pattern(BYTES, 1), rkey);
    node.inject(0, { kind: 'hang', delayNs: 1e9 });
    const put = endpoint.put(pattern(BYTES, 2), rkey);
    await expectNothingKept(worker);
    clock.advance(2e9);
    await put;
    const result = new Uint8Array(BYTES);
    await endpoint.get(result, rkey);
    expect(Buffer.compare(result, pattern(BYTES, 2))).toBe(0);
  });
});
