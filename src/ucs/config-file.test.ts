import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { configDirectories, parseConfigFile, readConfigFiles } from './config-file.ts';

describe('parseConfigFile', () => {
  it('reads assignments with their lines', () => {
    const text =
      '\uFEFF# comment\r\nUCX_TLS = self,tcp  # why\n\n; other\nUCX_LOG_FILE=a#b\nUCX_EMPTY=\nUCX_X=# none\n';
    expect(parseConfigFile(text, '/etc/ucx/ucx.conf')).toEqual({
      path: '/etc/ucx/ucx.conf',
      assignments: [
        { name: 'UCX_TLS', value: 'self,tcp', line: 2 },
        { name: 'UCX_LOG_FILE', value: 'a#b', line: 5 },
        { name: 'UCX_EMPTY', value: '', line: 6 },
        { name: 'UCX_X', value: '', line: 7 },
      ],
      skippedSections: [],
    });
  });

  it('skips the lines of sections and names the sections', () => {
    const file = parseConfigFile('UCX_A=1\n[Grace Hopper]\nCPU model=Grace Hopper\n'.replace('CPU model', 'CPU_model'));
    expect(file.assignments).toHaveLength(1);
    expect(file.skippedSections).toEqual(['Grace Hopper']);
    expect(file.path).toBe('ucx.conf');
  });

  it('names path and line of what it cannot read', () => {
    for (const line of ['nonsense', '=1', '1X=2', 'A B=1']) {
      expect(() => parseConfigFile(`UCX_A=1\n${line}`, '/x')).toThrow(
        expect.objectContaining({ code: 'ERR_CONFIG_FILE', details: { path: '/x', line: 2 } }),
      );
    }
  });
});

describe('configDirectories', () => {
  it('has the order of UCX and no folder twice', () => {
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

describe('readConfigFiles', () => {
  let folder = '';
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'ucx-conf-'));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  it('reads the files that are there, in order', () => {
    for (const name of ['a', 'b', 'c']) mkdirSync(join(folder, name));
    writeFileSync(join(folder, 'a', 'ucx.conf'), 'UCX_A=1');
    writeFileSync(join(folder, 'c', 'ucx.conf'), 'UCX_C=1');
    const files = readConfigFiles(['c', 'b', 'missing', 'a', 'a/ucx.conf'].map((name) => join(folder, name)));
    expect(files.map((file) => file.path)).toEqual([join(folder, 'c/ucx.conf'), join(folder, 'a/ucx.conf')]);
  });

  it('reports a file that cannot be read', () => {
    mkdirSync(join(folder, 'ucx.conf'));
    expect(() => readConfigFiles([folder])).toThrow(expect.objectContaining({ code: 'ERR_CONFIG_FILE' }));
  });
});
