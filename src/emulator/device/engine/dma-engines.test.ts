import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import type { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, it } from 'vitest';
import { builtSpecifier } from '../../../../test/fixtures/tools/built.ts';
import { mapAnonymous } from '../../../sys/index.ts';
import { createLog, LogLevel } from '../../../ucs/debug/log.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { createRandom } from '../../../ucs/sys/random.ts';
import { type DmaChannel, DmaEngines } from './dma-engines.ts';
import { Opcode } from './dma-ring.ts';

const MIB = 2 ** 20;
const SECOND_NS = 1e9;

let engines: DmaEngines;
const memory = mapAnonymous(64 * MIB);
afterEach(() => engines.close());

function open(threads: number): DmaEngines {
  const log = createLog('test', LogLevel.FATAL, () => {});
  engines = new DmaEngines({ threads, spinNs: 1000, clock: systemClock, log, random: createRandom(1) });
  return engines;
}

function publish(channel: DmaChannel, byteLength: number): void {
  channel.immediate(Opcode.FILL, 1, 1, memory.address, byteLength);
  channel.publish();
}

/** Waits as a blocking ioctl does; returns false on time-out. */
function block(done: () => boolean): boolean {
  const end = systemClock.nowNs() + 20 * SECOND_NS;
  while (!done() && systemClock.nowNs() < end) engines.waitProgress(end - systemClock.nowNs(), done);
  return done();
}

describe('waiters for progress', () => {
  for (const threads of [1, 3]) {
    it(`are notified by event even if another call blocks meanwhile (${threads} threads)`, async () => {
      open(threads);
      const channels = Array.from({ length: threads }, () => engines.channel());
      const heard = new Promise<void>((resolve) => engines.listen(resolve));
      engines.requestProgressEvent();
      for (const channel of channels) publish(channel, MIB);
      expect(block(() => engines.idle)).toBe(true);
      await heard;
    });

    it(`are woken by every engine (${threads} threads)`, () => {
      open(threads);
      for (let round = 0; round < 3 * threads; round++) {
        const channel = engines.channel();
        publish(channel, 16 * MIB);
        expect(block(() => channel.idle)).toBe(true);
      }
    });
  }
});

describe('an engine that dies', () => {
  for (const threads of [0, 1]) {
    it(`leaves its channels idle and is detected without the event loop (${threads} threads)`, () => {
      open(threads);
      const channel = engines.channel();
      engines.crash();
      publish(channel, MIB);
      expect(block(() => engines.failed)).toBe(true);
      const { position } = channel;
      publish(channel, 8);
      expect(channel.idle).toBe(true);
      expect(channel.isDone(position + 1)).toBe(false);
    });
  }
});

/** Opens engines and starts their threads. */
async function started(threads: number): Promise<readonly Worker[]> {
  // Node reports new workers one tick later: wait for those of earlier tests.
  await new Promise(setImmediate);
  const workers: Worker[] = [];
  const online: Promise<unknown>[] = [];
  const onWorker = (worker: Worker): void => {
    workers.push(worker);
    // On a busy machine, a worker may be online before the test continues.
    online.push(once(worker, 'online'));
  };
  process.on('worker', onWorker);
  open(threads);
  engines.channel();
  await new Promise(setImmediate);
  process.off('worker', onWorker);
  await Promise.all(online);
  return workers;
}

it('a thread that was terminated is not waited for', async () => {
  const [worker] = await started(1);
  publish(engines.channel(), 8);
  expect(block(() => engines.idle)).toBe(true);
  await worker!.terminate();
  expect(engines.failed).toBe(false);
  engines.close();
});

describe('threads that are still loading', () => {
  // An interrupt while a thread loads koffi aborts the process; an interrupted thread ends with code 1.
  it('end by themselves when the engines are closed', async () => {
    const workers = await started(2);
    const teardown = workers.map((worker) => once(worker, 'exit'));
    engines.close();
    expect(await Promise.all(teardown)).toEqual([[0], [0]]);
  });

  for (const ending of ['', 'process.exit();', 'process.exitCode = 0; setImmediate(() => engines.close());']) {
    it(`are waited for by a process that ends: ${ending}`, () => {
      const program = `
        import { DmaEngines } from ${builtSpecifier(new URL('./dma-engines.ts', import.meta.url))};
        const log = { error: (message) => console.error(message) };
        const engines = new DmaEngines({ threads: 2, spinNs: 1000, clock: { nowNs: () => 0 }, log, random: { below: () => 0 } });
        engines.channel();
        ${ending}`;
      const flags = ['--input-type=module', '-e', program];
      const { status, signal, stderr } = spawnSync(process.execPath, flags, { encoding: 'utf8' });
      expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: '' });
    });
  }
});
