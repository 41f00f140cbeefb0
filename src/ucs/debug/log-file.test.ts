import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LogLevel } from './log.ts';
import { openLogSink } from './log-file.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-log-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const UNBOUNDED = { sizeMax: Infinity, rotate: 0 };
const read = (name: string): string => readFileSync(join(folder, name), 'utf8');

describe('openLogSink', () => {
  it.each([
    ['', 'stderr'],
    ['stderr', 'stderr'],
    ['stdout', 'stdout'],
  ] as const)('%j is %s', (file, stream) => {
    const write = vi.spyOn(process[stream], 'write').mockReturnValue(true);
    try {
      openLogSink({ file, ...UNBOUNDED })(LogLevel.INFO, 'posix', 'three rings');
      expect(write).toHaveBeenCalledWith(
        expect.stringMatching(/ posix UCX {2}INFO {2}three rings\n$/),
        expect.any(Function),
      );
    } finally {
      write.mockRestore();
    }
  });

  it.each(['', 'file:'])('writes time, process, component and level into a file named with %j', (prefix) => {
    const nowMs = (): number => 1_700_000_000_250.125;
    const sink = openLogSink({ file: `${prefix}${join(folder, 'ucx_%p.log')}`, ...UNBOUNDED, nowMs });
    sink(LogLevel.WARN, 'gaudi0', 'the card is hot');
    sink(LogLevel.DEBUG, 'ucp', 'two');
    const lines = read(`ucx_${process.pid}.log`).split('\n');
    expect(lines[0]).toMatch(
      new RegExp(
        String.raw`^\[1700000000\.250125\] \[[^:]+:${process.pid}:\d+\] {11}gaudi0 UCX  WARN  the card is hot$`,
      ),
    );
    expect(lines[1]).toMatch(/ ucp UCX {2}DEBUG two$/);
    expect(lines).toHaveLength(3);
  });

  it('creates the file immediately and appends to an existing one', () => {
    const options = { file: join(folder, 'log'), ...UNBOUNDED };
    const first = openLogSink(options);
    expect(read('log')).toBe('');
    first(LogLevel.WARN, 'a', '1');
    openLogSink(options)(LogLevel.WARN, 'b', '2');
    first(LogLevel.WARN, 'a', '3');
    expect(read('log').match(/[ab] UCX {2}WARN {2}\d/g)).toEqual([
      'a UCX  WARN  1',
      'b UCX  WARN  2',
      'a UCX  WARN  3',
    ]);
  });

  it('refuses a file that cannot be written', () => {
    expect(() => openLogSink({ file: join(folder, 'missing', 'log'), ...UNBOUNDED })).toThrow(
      expect.objectContaining({
        code: 'ERR_LOG_FILE',
        message: expect.stringMatching(/UCX_LOG_FILE.*missing/) as string,
        details: { path: join(folder, 'missing', 'log') },
      }),
    );
    expect(() => openLogSink({ file: folder, ...UNBOUNDED })).toThrow(/EISDIR/);
  });

  it('keeps a file in its folder when the program changes to another one', () => {
    const home = process.cwd();
    process.chdir(folder);
    try {
      const sink = openLogSink({ file: 'log', ...UNBOUNDED });
      process.chdir(home);
      sink(LogLevel.WARN, 'c', 'later');
    } finally {
      process.chdir(home);
    }
    expect(read('log')).toMatch(/later\n$/);
  });

  it('falls back to standard error when the file cannot be written any more', () => {
    mkdirSync(join(folder, 'inner'));
    const sink = openLogSink({ file: join(folder, 'inner', 'log'), ...UNBOUNDED });
    rmSync(join(folder, 'inner'), { recursive: true });
    const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    try {
      sink(LogLevel.ERROR, 'ucp', 'still told');
      expect(write).toHaveBeenCalledWith(
        expect.stringMatching(/ ucp UCX {2}ERROR still told\n$/),
        expect.any(Function),
      );
    } finally {
      write.mockRestore();
    }
  });
});

describe('a bounded file', () => {
  const fill = (rotate: number, records: number): void => {
    const sink = openLogSink({ file: join(folder, 'log'), sizeMax: 250, rotate });
    for (let index = 0; index < records; index++) sink(LogLevel.WARN, 'c', `<${index}>${'x'.repeat(60)}`);
  };
  const records = (name: string): string[] => read(name).match(/<\d+>/g)!;

  it('is truncated when it is full', () => {
    fill(0, 4);
    expect(readdirSync(folder)).toEqual(['log']);
    expect(records('log').at(-1)).toBe('<3>');
    expect(Buffer.byteLength(read('log'))).toBeLessThanOrEqual(250);
  });

  it('is as long as its bytes, not as its characters', () => {
    const record = (sizeMax: number): void =>
      openLogSink({ file: join(folder, 'log'), sizeMax, rotate: 1 })(LogLevel.WARN, 'c', '\u00e9'.repeat(100));
    record(Number.POSITIVE_INFINITY);
    const line = read('log');
    // One more record would fit if a character were a byte.
    record(Buffer.byteLength(line) + line.length);
    expect(readdirSync(folder).sort()).toEqual(['log', 'log.1']);
    expect(read('log.1')).toBe(line);
  });

  it('keeps the latest files', () => {
    fill(2, 9);
    expect(readdirSync(folder).sort()).toEqual(['log', 'log.1', 'log.2']);
    const kept = ['log.2', 'log.1', 'log'].flatMap(records);
    expect(kept).toEqual(Array.from({ length: kept.length }, (_, index) => `<${9 - kept.length + index}>`));
  });

  it('accepts a record that is longer than the bound', () => {
    const sink = openLogSink({ file: join(folder, 'log'), sizeMax: 16, rotate: 1 });
    sink(LogLevel.WARN, 'c', 'first');
    sink(LogLevel.WARN, 'c', 'second');
    expect(read('log.1')).toMatch(/first\n$/);
    expect(read('log')).toMatch(/second\n$/);
  });
});
