/** The end of a profile: it records nothing more, is written once, and leaves no descriptor and no callback. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { commandSubmissionEnd, operationEnd, transferEnd } from '../debug/diagnostics.ts';
import { Profile } from './profile.ts';
import { chromeTrace } from './trace.ts';

it('is reached when its last member leaves', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-profile-'));
  try {
    const state = (): unknown => [
      readdirSync('/proc/self/fd').length,
      process.listenerCount('exit'),
      ...[operationEnd, commandSubmissionEnd, transferEnd].map((channel) => channel.hasSubscribers),
    ];
    const before = state();
    const config = {
      PROFILE_MODE: ['accum' as const],
      PROFILE_FILE: join(folder, 'profile'),
      PROFILE_LOG_SIZE: 2 ** 20,
    };
    const { log } = createTestLog();
    const [first, second] = [Profile.acquire(config, log, 1)!, Profile.acquire(config, log, 1)!];
    const put = (byteLength: number, ns: number): void =>
      operationEnd.publish({
        protocol: 'put',
        transport: 't',
        device: undefined,
        byteLength,
        status: 0,
        startNs: 100,
        endNs: 100 + ns,
        worker: 3,
      });
    put(10, 30);
    first.release();
    expect(readFileSync(config.PROFILE_FILE, 'utf8')).toBe('');
    put(200, 20);
    put(4000, 70);
    second.release();
    const { otherData } = JSON.parse(readFileSync(config.PROFILE_FILE, 'utf8')) as { otherData: unknown };
    expect(otherData).toMatchObject({
      accumulated: [{ timeline: 'worker 3', name: 'put', count: 3, totalNs: 120, minNs: 20, maxNs: 70, bytes: 4210 }],
    });
    put(1, 1);
    expect(state()).toEqual(before);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('has the longest sum first', () => {
  const sum = { timeline: 't', count: 1, minNs: 0, maxNs: 0, bytes: 0 };
  const sums = [1, 9, 5].map((totalNs) => ({ ...sum, name: `n${totalNs}`, totalNs }));
  const { otherData } = JSON.parse(chromeTrace([], sums, 0, { pid: 1, tid: 2, title: 't' })) as {
    otherData: { accumulated: { name: string }[] };
  };
  expect(otherData.accumulated.map(({ name }) => name)).toEqual(['n9', 'n5', 'n1']);
});
