/** The output of perftest, line by line, as ucx_perftest 1.13 prints the same values. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Measurement } from './measure.ts';
import { specOf } from './options.ts';
import { batchLine, describeTest, ReportFile, type ReportOptions, resultHeader, resultLine } from './report.ts';

const PLAIN: ReportOptions = { csv: false, finalOnly: false, numeric: false, extra: false, batchFiles: [] };
const MEASUREMENT: Measurement = {
  iterations: 10_000,
  medianNs: 1,
  lowNs: 1,
  highNs: 1,
  percentileNs: 110,
  averageNs: 35_943,
  overallNs: 85_717,
  averageBytes: 0.21 * 2 ** 20,
  overallBytes: 0.09 * 2 ** 20,
  averageMessages: 27_822.4,
  overallMessages: 11_666,
};

describe('resultLine', () => {
  it('has the columns of ucx_perftest', () => {
    expect(resultLine(MEASUREMENT, { isFinal: true, names: [], extra: '' }, PLAIN)).toBe(
      'Final:                 10000      0.110    35.943    85.717        0.21       0.09       27822       11666',
    );
    expect(resultLine({ ...MEASUREMENT, iterations: 119 }, { isFinal: false, names: [], extra: '' }, PLAIN)).toBe(
      '[thread 0]               119      0.110    35.943    85.717        0.21       0.09       27822       11666',
    );
  });

  it('prints the final line alone', () => {
    const options = { ...PLAIN, finalOnly: true };
    expect(resultLine(MEASUREMENT, { isFinal: false, names: [], extra: '' }, options)).toBeUndefined();
    expect(resultLine(MEASUREMENT, { isFinal: true, names: ['a', 'b'], extra: '' }, options)).toMatch(
      /^ {7}a\/b {13}10000 /,
    );
  });

  it('separates thousands, and adds what carries the messages', () => {
    expect(
      resultLine(
        MEASUREMENT,
        { isFinal: true, names: [], extra: 'posix/memory' },
        { ...PLAIN, numeric: true, extra: true },
      ),
    ).toBe(
      'Final:                10,000      0.110    35.943    85.717        0.21       0.09      27,822      11,666  posix/memory',
    );
  });

  it('prints CSV', () => {
    const options = { ...PLAIN, csv: true, extra: true };
    expect(resultLine(MEASUREMENT, { isFinal: true, names: ['small'], extra: 'posix' }, options)).toBe(
      'small,10000,0.110,35.943,85.717,0.21,0.09,27822,11666',
    );
  });
});

describe('resultHeader', () => {
  it('is that of ucx_perftest', () => {
    expect(resultHeader(specOf({ t: 'ucp_put_lat' }), PLAIN, false).split('\n')).toEqual([
      '+--------------+--------------+------------------------------+---------------------+-----------------------+',
      '|              |              |        latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |',
      '+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+',
      '|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |',
      '+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+',
    ]);
    const bandwidth = resultHeader(specOf({ t: 'tag_bw', R: '99.9' }), { ...PLAIN, finalOnly: true }, false).split(
      '\n',
    );
    expect(bandwidth[1]).toContain('|       overhead (usec)        |');
    expect(bandwidth[3]).toContain('|     Test     | # iterations | 99.9%ile |');
  });

  it('names emulated cards', () => {
    const lines = resultHeader(specOf({ t: 'tag_bw' }), PLAIN, true).split('\n');
    expect(lines[1]).toMatch(/^\| Cards: emulated +\|$/);
    expect(new Set(lines.map(({ length }) => length)).size).toBe(1);
    expect(resultHeader(specOf({ t: 'tag_bw' }), { ...PLAIN, csv: true }, true)).toMatch(/^# emulated cards\n/);
  });

  it('names the columns of CSV', () => {
    const options = { ...PLAIN, csv: true, batchFiles: ['b.txt'] };
    expect(resultHeader(specOf({ t: 'tag_bw' }), options, false)).toBe(
      'b.txt,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr',
    );
  });
});

describe('describeTest', () => {
  it('is a box with straight edges', () => {
    const lines = describeTest(specOf({ t: 'ucp_am_bw', m: 'host,gaudi', H: '16', s: '8,8' }), true).split('\n');
    expect(new Set(lines.map(({ length }) => length))).toEqual(new Set([lines[0]!.length]));
    expect(lines.map((line) => line.slice(2).split(/ {2,}/)[0])).toEqual(expect.arrayContaining(['API:', 'Test:']));
    const text = lines.join('\n');
    for (const part of ['protocol layer', 'am bandwidth / message rate', 'gaudi (emulated)', 'Message size: 16']) {
      expect(text).toContain(part);
    }
    expect(text).toMatch(/AM header size: 16 /);
    expect(describeTest(specOf({ t: 'ucp_am_bw', m: 'gaudi' }), false)).not.toContain('emulated');
    expect(describeTest(specOf({ t: 'put_lat', x: 'gaudi_ipc', d: 'gaudi0' }), true)).toMatch(/Cards: +emulated/);
  });
});

describe('a test', () => {
  it('is described with its threads and its wait mode, if they are not the usual ones', () => {
    const rows = (options: Parameters<typeof specOf>[0]): string =>
      describeTest(specOf(options), false).replaceAll(/ +/g, ' ');
    expect(rows({ t: 'tag_bw', T: '2', E: 'sleep' })).toMatch(/Threads: 2 [\s\S]*Wait mode: sleep /);
    expect(rows({ t: 'tag_bw' })).not.toMatch(/Threads|Wait mode/);
  });

  it('is part of a report, which is closed when it is written, and removed after a failure', () => {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-report-'));
    const path = join(folder, 'report.html');
    const descriptors = (): number => readdirSync('/proc/self/fd').length;
    try {
      const before = descriptors();
      const report = new ReportFile(path);
      report.begin(true);
      report.add(specOf({ t: 'tag_bw' }), MEASUREMENT, 'posix/memory');
      report.begin(false);
      report.write();
      expect(descriptors()).toBe(before);
      expect(readFileSync(path, 'utf8')).toMatch(/Measured with emulated cards/);
      new ReportFile(path).discard();
      expect([existsSync(path), descriptors()]).toEqual([false, before]);
      expect(() => new ReportFile(join(folder, 'missing', 'x'))).toThrow(/--report/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('batchLine', () => {
  it('shows the names in the rule', () => {
    expect(batchLine(['small', 'tag'], PLAIN)).toMatch(/^\+small\/tag-+\+-{14}\+/);
    expect(batchLine([], PLAIN)).toBeUndefined();
    expect(batchLine(['a'], { ...PLAIN, csv: true })).toBeUndefined();
  });
});
