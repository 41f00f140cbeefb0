/** `gaudi-ucx profile` on files of the profile itself, and on files that are none. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chromeTrace, type TraceSpan } from '../../ucs/profile/trace.ts';
import { readProfile } from './read-profile.ts';
import { summarize, summaryText } from './summary.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-profile-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function file(text: string): string {
  const path = join(folder, 'profile');
  writeFileSync(path, text);
  return path;
}

function put(startNs: number, endNs: number, status = 'OK'): TraceSpan {
  const details = { transport: 'posix', device: 'memory', bytes: 1000, status };
  return { timeline: 'worker 1', isCard: false, category: 'request', name: 'put/zcopy', startNs, endNs, details };
}

const SUBMISSION: TraceSpan = {
  timeline: 'card 0',
  isCard: true,
  category: 'cs',
  name: 'CS on queue 8',
  startNs: 3000,
  endNs: 4000,
  details: { queue: 8, sequence: 1 },
};
const BY = { pid: 1, tid: 1, title: 'program on host' };

describe('the summary of a profile', () => {
  it('has counts, times, bytes, the rate of the busy time, and failures', () => {
    // Two that overlap, and one after a pause: 3 us busy.
    const spans = [put(1000, 2000), put(1500, 3000), put(10_000, 11_000, 'CANCELED'), SUBMISSION];
    const summary = summarize(readProfile(file(chromeTrace(spans, [], 5, BY))));
    expect(summary).toMatchObject({ title: 'program on host', lost: 5, events: 4, spanNs: 10_000, sums: [] });
    expect(summary.rows).toEqual([
      {
        timeline: 'worker 1',
        name: 'put/zcopy',
        count: 3,
        totalNs: 3500,
        meanNs: 3500 / 3,
        p50Ns: 1000,
        p99Ns: 1500,
        minNs: 1000,
        maxNs: 1500,
        bytes: 3000,
        bytesPerSecond: 1e9,
        failed: { CANCELED: 1 },
      },
      expect.objectContaining({
        timeline: 'card 0',
        name: 'CS on queue 8',
        count: 1,
        bytesPerSecond: undefined,
        failed: {},
      }),
    ]);
    const text = summaryText(summary);
    expect(text).toContain('4 events in 10.00 us; 5 older events were overwritten (UCX_PROFILE_LOG_SIZE)');
    expect(text).toMatch(/^worker 1 +put\/zcopy +3 +3\.50 us .* 2\.9 KiB +1\.00 +CANCELED 1$/m);
  });

  it('has the busy time once where events contain each other, and the longest total first', () => {
    const short = { ...put(0, 100), name: 'short' };
    const spans = [put(1000, 5000), put(2000, 2500), put(3000, 4000), short, short, short, short, SUBMISSION];
    const { rows } = summarize(readProfile(file(chromeTrace(spans, [], 0, BY))));
    expect(rows.map(({ name, count, totalNs }) => [name, count, totalNs])).toEqual([
      ['put/zcopy', 3, 5500],
      ['CS on queue 8', 1, 1000],
      ['short', 4, 400],
    ]);
    expect(rows[0]).toMatchObject({ meanNs: 5500 / 3, bytesPerSecond: (3000 * 1e9) / 4000 });
    expect(rows[1]!.failed).toEqual({});
  });

  it('has no event that ends twice', () => {
    const event = { id: 1, cat: 'request', name: 'x', ts: 1, args: { on: 'worker 1' } };
    const traceEvents = [
      { ...event, ph: 'b' },
      { ...event, ph: 'e' },
      { ...event, ph: 'e' },
    ];
    const path = file(JSON.stringify({ traceEvents, otherData: { title: 'x', lost: 0, accumulated: [] } }));
    expect(() => readProfile(path)).toThrow(/event 1 has an end but no begin/);
  });

  it('has the sums of mode accum', () => {
    const sum = { timeline: 'worker 1', name: 'tag/short', count: 4, totalNs: 40, minNs: 5, maxNs: 20, bytes: 32 };
    const summary = summarize(readProfile(file(chromeTrace([], [sum], 0, BY))));
    expect(summary).toMatchObject({ events: 0, spanNs: 0, rows: [], sums: [{ ...sum, meanNs: 10, p50Ns: undefined }] });
    expect(summaryText(summary)).toMatch(
      /sums of all events \(accum\):\non .*\nworker 1 +tag\/short +4 +40 ns +10 ns +- +- /,
    );
  });

  it('says that there were no events', () => {
    expect(summaryText(summarize(readProfile(file(chromeTrace([], [], 0, BY)))))).toBe(
      'program on host\n\n0 events in 0 ns',
    );
  });

  it.each([
    ['', /the file is empty: its process has not ended yet/],
    ['[', /JSON/],
    ['null', /it does not have the fields of a profile/],
    ['{"traceEvents":[]}', /it does not have the fields of a profile/],
    ['{"traceEvents":[],"otherData":{"title":"x","lost":0}}', /the sums are missing/],
    [
      '{"traceEvents":[{"ph":"e","id":1}],"otherData":{"title":"x","lost":0,"accumulated":[]}}',
      /event 1 has an end but no begin/,
    ],
    [
      '{"traceEvents":[{"ph":"b","id":1},{"ph":"e","id":1}],"otherData":{"title":"x","lost":0,"accumulated":[]}}',
      /ts of event 1 is undefined, not a number/,
    ],
    [
      '{"traceEvents":[],"otherData":{"title":"x","lost":0,"accumulated":[{}]}}',
      /count of a sum is undefined, not a number/,
    ],
  ])('refuses %j', (text, message) => {
    const path = file(text);
    expect(() => readProfile(path)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringMatching(message) }),
    );
  });

  it('refuses a device, which has no end', () => {
    expect(() => readProfile('/dev/zero')).toThrow(
      expect.objectContaining({
        code: 'ERR_INVALID_PARAM',
        message: expect.stringMatching(/^argument file .*not a device/),
      }),
    );
  });

  it('refuses a file that is not there, by the name of the call', () => {
    expect(() => readProfile(join(folder, 'missing'))).toThrow(expect.objectContaining({ code: 'ENOENT' }));
  });
});
