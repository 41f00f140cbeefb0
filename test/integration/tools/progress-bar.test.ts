/** Progress of long work: a bar on a terminal, nothing in a pipe. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
const LONG = ['perftest', '-l', '-f', '-v', '-t', 'tag_lat', '-n', '1000000', '-w', '0'];
/** Work with a bar, by the text behind the bar. */
const WORK: readonly (readonly [label: string, args: readonly string[], env: Readonly<Record<string, string>>])[] = [
  ['tag_lat', ['perftest', '-l', '-f', '-T', '2', '-t', 'tag_lat', '-n', '300000', '-w', '0'], { UCX_TLS: 'self' }],
  ['many-to-one', ['perftest', '--pattern', 'many-to-one', '--ranks', '2', '-s', '1m', '-n', '8000'], {}],
  ['(all cards|card \\d+ -> card \\d+)', ['demo', '--cards', '2', '--bytes', '1M', import.meta.filename], {}],
];
const hasScript = spawnSync('script', ['--version'], { stdio: 'ignore' }).error === undefined;

describe('a long test', { timeout: 60_000 }, () => {
  it.skipIf(!hasScript)('has a progress bar on a terminal, which the result replaces (needs script)', () => {
    const command = [process.execPath, MAIN, ...LONG].join(' ');
    const { stdout, status } = spawnSync('script', ['-qec', command, '/dev/null'], {
      encoding: 'utf8',
      env: { ...process.env, HOME: cli.folder, UCX_TLS: 'self', UCX_GAUDI_DRIVER: 'kernel' },
    });
    expect(status).toBe(0);
    const pictures = stdout.split('\r').filter((text) => /^\[#*\.*\] +\d+ % {2}tag_lat/.test(text));
    expect(pictures.length).toBeGreaterThan(1);
    const percents = pictures.map((text) => Number(/(\d+) %/.exec(text)![1]));
    expect(percents).toEqual([...percents].sort((left, right) => left - right));
    expect(stdout.split('\r').at(-2)).toMatch(/^1000000,/);
  });

  it.skipIf(!hasScript).each(WORK)(
    'has a progress bar as threads, ranks or cards: %s (needs script)',
    (label, args, env) => {
      const command = [process.execPath, MAIN, ...args].join(' ');
      const { stdout, status } = spawnSync('script', ['-qec', command, '/dev/null'], {
        encoding: 'utf8',
        env: { ...process.env, HOME: cli.folder, ...env },
      });
      expect(status, stdout).toBe(0);
      const pictures = stdout.split('\r').filter((text) => new RegExp(`^\\[#*\\.*\\] +\\d+ % {2}${label}`).test(text));
      expect(pictures.length).toBeGreaterThan(0);
      const percents = pictures.map((text) => Number(/(\d+) %/.exec(text)![1]));
      expect(percents).toEqual([...percents].sort((left, right) => left - right));
    },
  );

  it.skipIf(!hasScript)('has a progress bar as the loading of a checkpoint (needs script)', () => {
    const command = `${process.execPath} ${built(join(ROOT, 'examples/checkpoint-load.ts'))}`;
    const { stdout, status } = spawnSync('script', ['-qec', command, '/dev/null'], { encoding: 'utf8' });
    expect(status, stdout).toBe(0);
    const percents = [...stdout.matchAll(/\r\[#*\.*\] +(\d+) % layers/g)].map(([, percent]) => Number(percent));
    expect(percents.at(-1)).toBe(100);
    expect(percents).toEqual([...percents].sort((left, right) => left - right));
    expect(stdout.trimEnd().split('\n').at(-1)).toBe('64 of 64 shards on 8 cards are as in the file');
  });

  it('has none in a pipe', () => {
    const text = cli.output(LONG, { UCX_TLS: 'self', UCX_GAUDI_DRIVER: 'kernel' });
    expect(text).toMatch(/\niterations,.*\n1000000,[\d.,]+\n$/);
  });
});
