import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { configDirectories, parseConfigFile, readConfigFiles } from './file.ts';

describe('parseConfigFile', () => {
  it('reads assignments with their lines', () => {
    const text =
      '\uFEFF# comment\r\nUCX_TLS = self,tcp  ; why\n\n; other\nUCX_LOG_FILE=a #b;c\nUCX_EMPTY= ; none\nUCX_X=#\n';
    expect(parseConfigFile(text, '/etc/ucx/ucx.conf')).toEqual({
      path: '/etc/ucx/ucx.conf',
      assignments: [
        { name: 'UCX_TLS', value: 'self,tcp', line: 2, section: undefined },
        { name: 'UCX_LOG_FILE', value: 'a #b;c', line: 5, section: undefined },
        { name: 'UCX_EMPTY', value: '', line: 6, section: undefined },
        { name: 'UCX_X', value: '#', line: 7, section: undefined },
      ],
      skipped: [],
    });
  });

  /** The file that UCX installs. */
  const SECTIONS = [
    'UCX_A=1',
    '[Grace Hopper] ; a comment, as in UCX',
    'CPU model=Grace',
    'UCX_CUDA_COPY_BW=800GBs,d2d:3TBs',
    '',
    '[AMD]',
    'CPU vendor=amd ; any case',
    '# more',
    'UCX_DISTANCE_BW=auto,sys:5100MBs',
    '[Servers of one kind]',
    'CPU vendor = AMD',
    'UCX_TLS=self',
    'DMI product name=HLS*',
    '[for all]',
    'UCX_B=2',
  ].join('\n');

  it('applies sections whose conditions hold', () => {
    const machine: Readonly<Record<string, string>> = { 'CPU vendor': 'AMD', 'DMI product name': 'HLS-2' };
    const { assignments, skipped } = parseConfigFile(SECTIONS, '/x', (name) => machine[name]);
    expect(assignments.map(({ name, section, line }) => [name, section, line])).toEqual([
      ['UCX_A', undefined, 1],
      ['UCX_DISTANCE_BW', 'AMD', 9],
      ['UCX_TLS', 'Servers of one kind', 12],
      ['UCX_B', 'for all', 15],
    ]);
    expect(skipped).toEqual(['section [Grace Hopper] of /x does not apply to this machine: CPU model=Grace']);
  });

  it('skips the others, and names the first condition that does not hold', () => {
    const { assignments, skipped } = parseConfigFile(SECTIONS, '/x');
    expect(assignments.map(({ name }) => name)).toEqual(['UCX_A', 'UCX_B']);
    expect(skipped.map((text) => text.split(': ')[1])).toEqual(['CPU model=Grace', 'CPU vendor=amd', 'CPU vendor=AMD']);
  });

  it('names path and line of a syntax error', () => {
    for (const line of [
      'nonsense',
      '=1',
      '1X=2',
      'A B=1',
      '[s]\nnonsense',
      '[s',
      `[s]\nCPU model=${'x'.repeat(40_000)}`,
    ]) {
      expect(() => parseConfigFile(`UCX_A=1\n${line}`, '/x')).toThrow(
        expect.objectContaining({
          code: 'ERR_CONFIG_FILE',
          details: { path: '/x', line: 1 + line.split('\n').length },
        }),
      );
    }
  });
});

describe('configDirectories', () => {
  it('returns the order of UCX without duplicates', () => {
    expect(
      configDirectories({
        currentDirectory: '/cwd',
        configDirectory: '/conf',
        home: '/home/u',
        libraryEtc: '/lib/../etc/ucx',
        installEtc: '/etc/ucx',
      }),
    ).toEqual(['/etc/ucx', '/lib/../etc/ucx', '/home/u', '/conf', '/cwd']);
    expect(configDirectories({ home: '/u', configDirectory: '', currentDirectory: '/u' })).toEqual(['/u']);
    expect(configDirectories({})).toEqual([]);
  });
});

/** Runs a function without the rights of the superuser. */
function asNobody(action: () => void): void {
  process.seteuid!(65_534);
  try {
    action();
  } finally {
    process.seteuid!(0);
  }
}

describe('readConfigFiles', () => {
  let folder = '';
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'ucx-conf-'));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  it('reads the existing files, in order', () => {
    for (const name of ['a', 'b', 'c']) mkdirSync(join(folder, name));
    writeFileSync(join(folder, 'a', 'ucx.conf'), 'UCX_A=1');
    writeFileSync(join(folder, 'c', 'ucx.conf'), 'UCX_C=1');
    const files = readConfigFiles(['c', 'b', 'missing', 'a', 'a/ucx.conf'].map((name) => join(folder, name)));
    expect(files.map((file) => file.path)).toEqual([join(folder, 'c/ucx.conf'), join(folder, 'a/ucx.conf')]);
  });

  it.each([
    ['a folder', (path: string) => mkdirSync(path)],
    ['a pipe without a writer', (path: string) => execFileSync('mkfifo', [path])],
    ['a device without end', (path: string) => symlinkSync('/dev/zero', path)],
    ['a link to itself', (path: string) => symlinkSync(path, path)],
  ])('reports %s in the place of a file', (_, make) => {
    const path = join(folder, 'ucx.conf');
    make(path);
    expect(() => readConfigFiles([folder])).toThrow(
      expect.objectContaining({ code: 'ERR_CONFIG_FILE', message: expect.stringContaining(`cannot read ${path}: `) }),
    );
  });

  it('closes each file, also one that it does not read', () => {
    const descriptors = (): number => readdirSync('/proc/self/fd').length;
    const before = descriptors();
    writeFileSync(join(folder, 'ucx.conf'), 'UCX_A=1');
    readConfigFiles([folder]);
    rmSync(join(folder, 'ucx.conf'));
    symlinkSync('/dev/zero', join(folder, 'ucx.conf'));
    expect(() => readConfigFiles([folder])).toThrow();
    expect(descriptors()).toBe(before);
  });

  it('reads nothing from a file that is hidden behind /dev/null', () => {
    symlinkSync('/dev/null', join(folder, 'ucx.conf'));
    expect(readConfigFiles([folder])).toMatchObject([{ assignments: [], skipped: [] }]);
  });

  it.skipIf(process.geteuid?.() !== 0)(
    'skips a folder that this user must not search, and reports a file there that it must not read (needs root)',
    () => {
      const path = join(folder, 'ucx.conf');
      writeFileSync(path, 'UCX_A=1', { mode: 0o600 });
      asNobody(() => {
        expect(readConfigFiles([folder])).toEqual([
          { path, assignments: [], skipped: [`${folder} cannot be searched for ucx.conf: permission denied`] },
        ]);
      });
      chmodSync(folder, 0o755);
      asNobody(() => {
        expect(() => readConfigFiles([folder])).toThrow(expect.objectContaining({ code: 'ERR_CONFIG_FILE' }));
      });
    },
  );
});

it('a folder that occurs twice is read at its last place', () => {
  const places = { installEtc: '/a', libraryEtc: '/b', home: '/a', configDirectory: '', currentDirectory: '/c' };
  expect(configDirectories(places)).toEqual(['/b', '/a', '/c']);
  expect(configDirectories({ home: '/h', configDirectory: undefined, currentDirectory: '/c' })).toEqual(['/h', '/c']);
});
