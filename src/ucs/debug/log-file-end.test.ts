/** A log file is closed after each record, also when it was rotated. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { LogLevel } from './log.ts';
import { openLogSink } from './log-file.ts';

it('leaves no descriptor open, keeps as many files as are wanted, and counts bytes', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-log-'));
  try {
    const file = join(folder, 'a.log');
    const descriptors = (): number => readdirSync('/proc/self/fd').length;
    const sink = openLogSink({ file, sizeMax: 300, rotate: 2, nowMs: () => 1000 });
    const before = descriptors();
    for (let record = 0; record < 12; record++) sink(LogLevel.WARN, 'c', `${record} ${'\u00e9'.repeat(80)}`);
    expect(descriptors()).toBe(before);
    expect(readdirSync(folder).sort()).toEqual(['a.log', 'a.log.1', 'a.log.2']);
    expect(readFileSync(file, 'utf8')).toContain(' 11 ');
    expect(readFileSync(`${file}.1`, 'utf8')).toContain(' 10 ');
    expect(readFileSync(`${file}.2`, 'utf8')).toContain(' 9 ');
    rmSync(folder, { recursive: true });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it('writes a record that is longer than the limit into an empty file as it is', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-log-'));
  try {
    const sink = openLogSink({ file: join(folder, 'a.log'), sizeMax: 10, rotate: 1 });
    sink(LogLevel.WARN, 'c', 'long');
    expect(readdirSync(folder)).toEqual(['a.log']);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
