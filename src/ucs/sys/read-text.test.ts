/** Text files that users name are read to their end and closed; devices are refused. */

import { closeSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tty from 'node:tty';
import { expect, it, vi } from 'vitest';
import { openOutputFile, readText } from './file-name.ts';

it('leaves no descriptor open, and refuses devices by the name of the argument', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-text-'));
  try {
    const file = join(folder, 'a.txt');
    const descriptors = (): number => readdirSync('/proc/self/fd').length;
    const before = descriptors();
    writeFileSync(file, 'text');
    expect(readText('config', file)).toBe('text');
    expect(() => readText('config', '/dev/zero')).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining('config') as string }),
    );
    expect(descriptors()).toBe(before);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('reads a terminal until the user ends the input', () => {
  // /dev/null is a device whose input ends at once.
  expect(() => readText('config', '/dev/null')).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
  const spy = vi.spyOn(tty, 'isatty').mockReturnValue(true);
  syncBuiltinESMExports();
  try {
    expect(readText('config', '/dev/null')).toBe('');
  } finally {
    spy.mockRestore();
    syncBuiltinESMExports();
  }
});

it('an output file is truncated at its first use in the process only, unless its contents are kept', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-output-'));
  try {
    const use = { variable: 'UCX_X', code: 'ERR_STATS_FILE' } as const;
    const write = (path: string, text: string, isKept: boolean): string => {
      const fd = openOutputFile(path, isKept, use);
      writeSync(fd, text);
      closeSync(fd);
      return readFileSync(path, 'utf8');
    };
    const [fresh, kept] = [join(folder, 'fresh'), join(folder, 'kept')];
    for (const path of [fresh, kept]) writeFileSync(path, 'old ');
    expect([write(fresh, 'one ', false), write(fresh, 'two', false)]).toEqual(['one ', 'one two']);
    expect(write(kept, 'more', true)).toBe('old more');
    expect(() => openOutputFile(join(folder, 'none/x'), false, use)).toThrow(
      expect.objectContaining({ code: 'ERR_STATS_FILE', message: expect.stringContaining('UCX_X') as string }),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});
