import { spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { builtSpecifier } from '../../../test/fixtures/tools/built.ts';
import { loadConfig } from '../config/config.ts';
import { createLog, LogLevel } from '../debug/log.ts';
import { ManualClock } from '../sys/clock.ts';
import { STATS_CONFIG_TABLE, type StatsConfig } from './stats-config.ts';
import { filterStats, mergeStats, type StatsNode, statsNode, sumByClass } from './stats-node.ts';
import { statsDatagrams, statsText } from './stats-output.ts';
import { StatsReporter } from './stats-reporter.ts';

const iface = (name: string, put: number, get: number): StatsNode => statsNode('uct_iface', name, { put, get });
const TREE = statsNode('ucp_context', '', {}, [
  statsNode('ucp_worker', '', { tx_eager: 3 }, [iface('posix/memory', 5, 0), iface('self/memory', 7, 2)]),
]);
const HEADING = { host: 'here', pid: 12, time: new Date(0) };

function configOf(env: Record<string, string>): StatsConfig {
  return loadConfig([STATS_CONFIG_TABLE], { env }).get(STATS_CONFIG_TABLE);
}

describe('a tree', () => {
  it('is summed by class', () => {
    expect(sumByClass(TREE)).toEqual([
      statsNode('ucp_worker', '', { tx_eager: 3 }),
      statsNode('uct_iface', '', { put: 12, get: 2 }),
    ]);
  });

  it('is filtered by counter, and loses empty nodes', () => {
    expect(filterStats(TREE, (name) => name === 'tx_eager')).toEqual(
      statsNode('ucp_context', '', {}, [statsNode('ucp_worker', '', { tx_eager: 3 })]),
    );
  });

  it('is merged by class and name', () => {
    const other = statsNode('ucp_context', '', { errors: 1 }, [
      statsNode('ucp_worker', '', { tx_eager: 1, am_tx: 4 }, [iface('posix/memory', 1, 1), iface('cma/memory', 9, 9)]),
    ]);
    expect(mergeStats(TREE, other)).toEqual(
      statsNode('ucp_context', '', { errors: 1 }, [
        statsNode('ucp_worker', '', { tx_eager: 4, am_tx: 4 }, [
          iface('posix/memory', 6, 1),
          iface('self/memory', 7, 2),
          iface('cma/memory', 9, 9),
        ]),
      ]),
    );
  });
});

describe('text', () => {
  it.each([
    ['full', 'ucp_context:\n  ucp_worker:\n    tx_eager: 3\n    uct_iface posix/memory:\n      put: 5\n      get: 0\n'],
    ['agg', 'ucp_worker:\n  tx_eager: 3\nuct_iface:\n  put: 12\n  get: 2\n'],
    ['summary', 'ucp_worker: {tx_eager:3}\nuct_iface: {put:12 get:2}\n'],
  ] as const)('in format %s', (format, expected) => {
    const text = statsText(TREE, format, HEADING);
    expect(text.startsWith(`# here:12 1970-01-01T00:00:00.000Z\n${expected}`)).toBe(true);
    expect(text.endsWith('\n')).toBe(true);
  });

  it('omits zero counters from a summary', () => {
    expect(statsText(statsNode('a', '', { x: 0 }), 'summary', HEADING)).not.toContain('a:');
  });

  it('is split into datagrams that fit, each with its path', () => {
    const leaf = (name: string): StatsNode => statsNode('leaf', name, { ['long'.repeat(10_000)]: 1 });
    const root = statsNode('root', 'r', { own: 1 }, [leaf('a'), leaf('b')]);
    const datagrams = statsDatagrams(root, HEADING).map((each) => JSON.parse(each.toString()));
    expect(datagrams.map(({ className, name, path }) => [className, name, path])).toEqual([
      ['root', 'r', []],
      ['leaf', 'a', ['root r']],
      ['leaf', 'b', ['root r']],
    ]);
    expect(statsDatagrams(TREE, HEADING)).toHaveLength(1);
  });
});

describe('configuration', () => {
  it.each([
    ['', { kind: 'none' }],
    ['stdout', { kind: 'stdout' }],
    ['file:a:b_%p', { kind: 'file', template: 'a:b_%p', isBinary: false }],
    ['file:x:bin', { kind: 'file', template: 'x', isBinary: true }],
    ['file:bin', { kind: 'file', template: 'bin', isBinary: false }],
    ['udp:box', { kind: 'udp', host: 'box', port: 37873 }],
    ['udp:box:99', { kind: 'udp', host: 'box', port: 99 }],
    ['udp:[::1]:99', { kind: 'udp', host: '::1', port: 99 }],
  ])('STATS_DEST=%s', (text, expected) => {
    const field = STATS_CONFIG_TABLE.fields[0]!;
    expect(configOf({ UCX_STATS_DEST: text }).STATS_DEST).toEqual(expected);
    expect(field.type.parse((field.type.print as (value: unknown) => string)(expected))).toEqual(expected);
  });

  it.each([
    ['exit', { kind: 'exit' }],
    ['signal:usr1', { kind: 'signal', signal: 'SIGUSR1' }],
    ['signal:SIGUSR2', { kind: 'signal', signal: 'SIGUSR2' }],
    ['signal:10', { kind: 'signal', signal: 'SIGUSR1' }],
    ['timer:2s', { kind: 'timer', intervalNs: 2e9 }],
  ])('STATS_TRIGGER=%s', (text, expected) => {
    expect(configOf({ UCX_STATS_TRIGGER: text }).STATS_TRIGGER).toEqual(expected);
  });

  it.each([
    ['STATS_DEST', 'somewhere'],
    ['STATS_DEST', 'file:'],
    ['STATS_DEST', 'udp:box:0'],
    ['STATS_DEST', 'udp:box:70000'],
    ['STATS_TRIGGER', 'never'],
    ['STATS_TRIGGER', 'signal:SIGKILL'],
    ['STATS_TRIGGER', 'signal:9'],
    ['STATS_TRIGGER', 'signal:'],
    ['STATS_TRIGGER', 'timer:0'],
    ['STATS_TRIGGER', 'timer:inf'],
    ['STATS_FORMAT', 'loud'],
  ])('refuses %s=%s', (name, text) => {
    expect(() => configOf({ [`UCX_${name}`]: text })).toThrow(expect.objectContaining({ code: 'ERR_CONFIG_VALUE' }));
  });
});

describe('a reporter', () => {
  let folder: string;
  const warnings: string[] = [];
  let onWarning = (): void => {};
  const log = createLog('test', LogLevel.WARN, (_level, _component, message) => {
    warnings.push(message);
    onWarning();
  });
  let count = 0;
  const read = (): StatsNode => statsNode('counter', '', { count, other: 1 });
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-stats-'));
    count = 0;
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
    expect(warnings.splice(0)).toEqual([]);
  });
  const open = (env: Record<string, string>, clock = new ManualClock()): StatsReporter =>
    new StatsReporter({ config: configOf(env), read, clock, log });
  const lines = (path: string): string[] => readFileSync(path, 'utf8').match(/count: \d+/g) ?? [];

  it('writes once at the end', () => {
    const path = join(folder, 'stats');
    const reporter = open({ UCX_STATS_DEST: `file:${path}` });
    count = 5;
    expect(lines(path)).toEqual([]);
    reporter.close();
    reporter.close();
    expect(lines(path)).toEqual(['count: 5']);
  });

  it('writes lines of JSON for programs', () => {
    const path = join(folder, 'stats');
    const reporter = open({ UCX_STATS_DEST: `file:${path}:bin`, UCX_STATS_FORMAT: 'summary' });
    count = 5;
    reporter.close();
    const reports = readFileSync(path, 'utf8').trimEnd().split('\n');
    expect(reports.map((line) => JSON.parse(line))).toMatchObject([{ pid: process.pid, path: [] }]);
    expect(reports[0]).toContain('"count":5');
  });

  it('writes periodically and at the end', () => {
    const path = join(folder, 'stats');
    const clock = new ManualClock();
    const reporter = open({ UCX_STATS_DEST: `file:${path}`, UCX_STATS_TRIGGER: 'timer:1s' }, clock);
    for (count = 1; count <= 3; count++) clock.advance(1e9);
    reporter.close();
    clock.advance(5e9);
    expect(lines(path)).toEqual(['count: 1', 'count: 2', 'count: 3', 'count: 4']);
  });

  it('reports a destination that takes nothing once, and not at every tick', () => {
    const clock = new ManualClock();
    const reporter = open({ UCX_STATS_DEST: 'file:/dev/full', UCX_STATS_TRIGGER: 'timer:1s' }, clock);
    for (count = 1; count <= 5; count++) clock.advance(1e9);
    reporter.close();
    expect(warnings.splice(0)).toEqual([expect.stringMatching(/cannot write statistics: ENOSPC/)]);
  });

  it('writes at a signal until it is closed', async () => {
    const path = join(folder, 'stats');
    const others = process.listenerCount('SIGUSR2');
    const reporter = open({ UCX_STATS_DEST: `file:${path}`, UCX_STATS_TRIGGER: 'signal:usr2' });
    count = 1;
    const heard = new Promise<void>((resolve) => process.once('SIGUSR2', () => resolve()));
    process.kill(process.pid, 'SIGUSR2');
    await heard;
    count = 2;
    reporter.close();
    expect(lines(path)).toEqual(['count: 1', 'count: 2']);
    expect(process.listenerCount('SIGUSR2')).toBe(others);
  });

  it('writes the counters that the filter names', () => {
    const path = join(folder, 'stats');
    open({ UCX_STATS_DEST: `file:${path}`, UCX_STATS_FILTER: '^cou*' }).close();
    expect(readFileSync(path, 'utf8')).toMatch(/^counter:\n {2}other: 1\n$/m);
    expect(lines(path)).toEqual([]);
  });

  it('warns of names in the filter that no counter has, with the nearest one', () => {
    open({ UCX_STATS_DEST: `file:${join(folder, 'stats')}`, UCX_STATS_FILTER: 'coumt,other' }).close();
    expect(warnings.splice(0)).toEqual([
      "UCX_STATS_FILTER: no counter matches 'coumt' (maybe: count?); the counters are: count, other",
    ]);
  });

  it('expands the process in the name of its file', () => {
    open({ UCX_STATS_DEST: `file:${folder}/stats_%p` }).close();
    expect(lines(join(folder, `stats_${process.pid}`))).toEqual(['count: 0']);
  });

  it('sends datagrams', async () => {
    const socket = createSocket('udp4');
    const messages: string[] = [];
    const came = new Promise<void>((resolve) => {
      socket.on('message', (message) => {
        messages.push(message.toString());
        resolve();
      });
    });
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
    open({ UCX_STATS_DEST: `udp:127.0.0.1:${socket.address().port}` }).close();
    await came;
    socket.close();
    expect(messages.map((message) => JSON.parse(message))).toMatchObject([
      { pid: process.pid, className: 'counter', counters: { count: 0, other: 1 } },
    ]);
  });

  it('refuses a file that cannot be written', () => {
    const path = join(folder, 'missing', 'stats');
    expect(() => open({ UCX_STATS_DEST: `file:${path}` })).toThrow(
      expect.objectContaining({ code: 'ERR_STATS_FILE', details: { path } }),
    );
  });

  it('leaves no listener behind, whatever their number', () => {
    const before = process.listenerCount('exit');
    const reporters = Array.from({ length: 20 }, (_, i) => open({ UCX_STATS_DEST: `file:${folder}/${i}` }));
    expect(process.listenerCount('exit')).toBeLessThanOrEqual(before + 1);
    for (const reporter of reporters) reporter.close();
    expect(process.listenerCount('exit')).toBe(before);
  });

  it('appends to a file of this process, and truncates a file of another', () => {
    const path = join(folder, 'stats');
    writeFileSync(path, 'of another process\n');
    const [first, second] = [open({ UCX_STATS_DEST: `file:${path}` }), open({ UCX_STATS_DEST: `file:${path}` })];
    first.close();
    count = 1;
    second.close();
    count = 2;
    open({ UCX_STATS_DEST: `file:${path}` }).close();
    expect(lines(path)).toEqual(['count: 0', 'count: 1', 'count: 2']);
    expect(readFileSync(path, 'utf8')).not.toContain('another');
  });

  it('has one listener for a signal, whatever the number of reporters', () => {
    const before = process.listenerCount('SIGUSR2');
    const env = (i: number): Record<string, string> => {
      return { UCX_STATS_DEST: `file:${folder}/${i}`, UCX_STATS_TRIGGER: 'signal:usr2' };
    };
    const reporters = Array.from({ length: 20 }, (_, i) => open(env(i)));
    expect(process.listenerCount('SIGUSR2')).toBe(before + 1);
    for (const reporter of reporters) reporter.close();
    expect(process.listenerCount('SIGUSR2')).toBe(before);
  });

  it.each(['udp:255.255.255.255', 'udp:no-such-host.invalid'])(
    'that cannot be sent to %s logs one warning',
    async (destination) => {
      const warned = new Promise<void>((resolve) => {
        onWarning = resolve;
      });
      const reporter = open({ UCX_STATS_DEST: destination });
      for (let i = 0; i < 3; i++) reporter.report();
      await warned;
      for (let i = 0; i < 3; i++) reporter.report();
      reporter.close();
      await new Promise(setImmediate);
      expect(warnings.splice(0)).toEqual([expect.stringMatching(/^cannot send statistics: /)]);
    },
  );

  it('waits for the reader of a pipe that Node has opened', () => {
    // A pipe refuses only if Node writes to it; the output is longer than its capacity.
    const program = `
      import { StatsReporter } from ${builtSpecifier(new URL('./stats-reporter.ts', import.meta.url))};
      import { loadConfig } from ${builtSpecifier(new URL('../config/config.ts', import.meta.url))};
      import { STATS_CONFIG_TABLE } from ${builtSpecifier(new URL('./stats-config.ts', import.meta.url))};
      process.stdout.write('begin\\n');
      const counters = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => ['counter_' + i, i]));
      const config = loadConfig([STATS_CONFIG_TABLE], { env: { UCX_STATS_DEST: 'stdout' } }).get(STATS_CONFIG_TABLE);
      const read = () => ({ className: 'c', name: '', counters, children: [] });
      new StatsReporter({ config, read, clock: undefined, log: { warn: (text) => console.error(text) } }).close();`;
    const flags = ['--input-type=module', '-e', program];
    const { stdout, stderr } = spawnSync(process.execPath, flags, { encoding: 'utf8', maxBuffer: 2 ** 24 });
    expect(stderr).toBe('');
    expect(stdout.trimEnd().split('\n')).toHaveLength(20_003);
  });
});
