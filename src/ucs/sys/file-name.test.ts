import { syncBuiltinESMExports } from 'node:module';
import os, { hostname, userInfo } from 'node:os';
import { basename } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { expandFileName } from './file-name.ts';

describe('expandFileName', () => {
  it('names process, host, user and executable', () => {
    const [host] = hostname().split('.');
    expect(expandFileName('ucx_%h_%p.prof')).toBe(`ucx_${host}_${process.pid}.prof`);
    expect(expandFileName('%u/%e')).toBe(`${userInfo().username}/${basename(process.execPath)}`);
    expect(expandFileName('%i')).toBe(String(process.geteuid!()));
    expect(expandFileName('cpu%c')).toMatch(/^cpu\d{2,}$/);
  });

  it('names the host without its domain', () => {
    const spy = vi.spyOn(os, 'hostname').mockReturnValue('node7.cluster.example');
    syncBuiltinESMExports();
    try {
      expect(expandFileName('%h.log')).toBe('node7.log');
    } finally {
      spy.mockRestore();
      syncBuiltinESMExports();
    }
  });

  it('writes the local time so that names sort by it', () => {
    expect(expandFileName('log-%t.txt', new Date(2026, 0, 2, 3, 4, 5))).toBe('log-2026-01-02-03-04-05.txt');
    expect(expandFileName('%t')).toMatch(/^\d{4}(-\d\d){5}$/);
  });

  it('keeps every other %, also at the end', () => {
    expect(expandFileName('100%')).toBe('100%');
    expect(expandFileName('%x%%z%')).toBe('%x%%z%');
    expect(expandFileName('%%p')).toBe(`%${process.pid}`);
  });

  it('changes nothing in a name without %', () => {
    fc.assert(
      fc.property(fc.string(), (text) => expandFileName(text.replaceAll('%', '')) === text.replaceAll('%', '')),
    );
  });

  it('replaces every occurrence once', () => {
    expect(expandFileName('%p-%p')).toBe(`${process.pid}-${process.pid}`);
  });
});
