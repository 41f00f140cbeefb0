/** The warm-up of perftest: as many iterations as ucx_perftest runs, none of which is in the results. */

import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { specOf } from '../options.ts';
import { runTest } from '../session.ts';

const OPERATIONS = 'gaudi-ucx:operation:end';

/** Operations of a run of 200 iterations, and the iterations that it reports. */
async function operationsOf(w: string): Promise<{ readonly operations: number; readonly reported: number }> {
  vi.stubEnv('UCX_GAUDI_DRIVER', 'emulator').stubEnv('UCX_TLS', 'self');
  onTestFinished(() => {
    vi.unstubAllEnvs();
  });
  let operations = 0;
  let reported = 0;
  const count = (): void => {
    operations += 1;
  };
  subscribe(OPERATIONS, count);
  try {
    await runTest({
      role: 'loopback',
      spec: specOf({ t: 'tag_lat', n: '200', w }),
      interrupt: new AbortController().signal,
      onStart: () => {},
      onReport: ({ iterations }) => {
        reported = iterations;
      },
    });
  } finally {
    unsubscribe(OPERATIONS, count);
  }
  return { operations, reported };
}

describe('perftest -w', () => {
  it('runs exactly the iterations that are given, a tenth of -n at most', async () => {
    const [none, ten, twenty, many] = [
      await operationsOf('0'),
      await operationsOf('10'),
      await operationsOf('20'),
      await operationsOf('10000'),
    ];
    // An iteration is a send and a receive; further ones, as many in each run, separate warm-up and measurement.
    expect(twenty!.operations - ten!.operations).toBe(20);
    expect(many!.operations).toBe(twenty!.operations);
    expect(ten!.operations - none!.operations).toBeLessThan(30);
    expect([none, ten, twenty, many].map((run) => run!.reported)).toEqual([200, 200, 200, 200]);
  });
});
