/** The end of statistics and latencies: files are closed, triggers and callbacks are gone, and limits hold. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { loadConfig } from '../config/config.ts';
import { operationEnd } from '../debug/diagnostics.ts';
import { ManualClock } from '../sys/clock.ts';
import { acquireLatencies, latencies, releaseLatencies } from './latency-histograms.ts';
import { STATS_CONFIG_TABLE } from './stats-config.ts';
import { filterStats, statsNode } from './stats-node.ts';
import { signalNumber } from './stats-output.ts';
import { StatsReporter } from './stats-reporter.ts';

describe('a reporter that is closed', () => {
  it('has written the last report once, and leaves no descriptor, no timer and no callback', () => {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-stats-'));
    try {
      const file = join(folder, 'stats');
      const descriptors = (): number => readdirSync('/proc/self/fd').length;
      const reports = (): number =>
        readFileSync(file, 'utf8')
          .split('\n')
          .filter((line) => line.startsWith('#')).length;
      const before = [descriptors(), process.listenerCount('exit')];
      const clock = new ManualClock();
      const env = { UCX_STATS_DEST: `file:${file}`, UCX_STATS_TRIGGER: 'timer:1s' };
      const config = loadConfig([STATS_CONFIG_TABLE], { env }).get(STATS_CONFIG_TABLE);
      const { log } = createTestLog();
      const read = () => statsNode('a', '', { ops: 1 });
      const reporter = new StatsReporter({ config, read, clock, log });
      clock.advance(2e9);
      expect(reports()).toBe(2);
      reporter.close();
      reporter.close();
      expect(reports()).toBe(3);
      clock.advance(5e9);
      expect([reports(), clock.pendingTimers]).toEqual([3, 0]);
      expect([descriptors(), process.listenerCount('exit')]).toEqual(before);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('latencies', () => {
  const end = (protocol: string, ns: number, byteLength = 64, status = 0): void =>
    operationEnd.publish({
      protocol,
      transport: 't',
      device: undefined,
      byteLength,
      status,
      startNs: 1000,
      endNs: 1000 + ns,
      worker: 1,
    });
  const of = (protocol: string) => latencies().filter((each) => each.protocol === protocol);

  it('are measured once for several users, until the last one leaves', () => {
    acquireLatencies();
    acquireLatencies();
    end('users', 250);
    releaseLatencies();
    end('users', 251);
    releaseLatencies();
    end('users', 252);
    const [found] = of('users');
    expect(found).toMatchObject({ size: '<=64', count: 2, sumNs: 501, bytes: 128, failures: 0 });
    expect(found!.buckets.slice(0, 3)).toEqual([1, 1, 0]);
  });

  it('have failures in no bucket, classes that include their bounds, and copies for readers', () => {
    acquireLatencies();
    end('kinds', 5e9, 1024);
    const before = of('kinds')[0]!;
    end('kinds', 10, 1024);
    end('kinds', 10, 1024, -3);
    end('kinds', 10, 1025);
    releaseLatencies();
    expect(before).toMatchObject({ size: '<=1K', count: 1, failures: 0 });
    expect([before.buckets[0], before.buckets.at(-1)]).toEqual([0, 1]);
    expect(of('kinds').map(({ size, count, failures }) => [size, count, failures])).toEqual([
      ['<=1K', 2, 1],
      ['<=16K', 1, 0],
    ]);
  });
});

it('a filter keeps a node without counters for the sake of its children', () => {
  const tree = statsNode('a', '', { x: 1 }, [
    statsNode('b', '', { x: 2 }, [statsNode('c', '', { y: 3 })]),
    statsNode('d', '', { x: 4 }),
  ]);
  expect(filterStats(tree, (counter) => counter === 'y')).toEqual(
    statsNode('a', '', {}, [statsNode('b', '', {}, [statsNode('c', '', { y: 3 })])]),
  );
});

it('a signal that a program can handle has a name or a number', () => {
  expect(['usr1', 'SIGUSR1', '10', 'KILL', 'SIGSTOP', '9', '19', 'x'].map(signalNumber)).toEqual([
    'SIGUSR1',
    'SIGUSR1',
    'SIGUSR1',
    undefined,
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});
