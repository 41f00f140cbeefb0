import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Errno } from '../../../src/sys/index.ts';
import { ERRNO_INDEX } from './errno-index.ts';

const EMULATOR = join(import.meta.dirname, '../../../src/emulator');

/** The source of the test file that runs the test of each title. */
function testsByTitle(): ReadonlyMap<string, string> {
  const contract = readFileSync(join(import.meta.dirname, 'driver-file.test.ts'), 'utf8');
  const files = [
    ...filesOf(import.meta.dirname, /^driver-file-[a-z]+\.ts$/).map((source) => [source, contract] as const),
    ...filesOf(EMULATOR, /\.test\.ts$/).map((source) => [source, source] as const),
  ];
  const tests = new Map<string, string>();
  for (const [source, runner] of files) {
    for (const [, title] of source.matchAll(/^ +it\('((?:[^'\\]|\\.)*)'/gm)) tests.set(title!, runner);
  }
  return tests;
}

function filesOf(folder: string, pattern: RegExp): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => pattern.test(name));
  return names.map((name) => readFileSync(join(folder, name), 'utf8'));
}

describe('the index of errnos', () => {
  const tests = testsByTitle();

  it.each(ERRNO_INDEX.map((entry) => [`${entry.call}: ${entry.rule}`, entry] as const))('%s', (_, { errno, test }) => {
    expect(Errno[errno]).toBeGreaterThan(0);
    const runner = tests.get(test);
    expect(runner, `no test "${test}"`).toBeDefined();
    // It records the answers of each test, and compares them with the index.
    expect(runner).toMatch(/^useErrnoRecord\(\);$/m);
  });

  it('has every rule once', () => {
    const rules = ERRNO_INDEX.map((entry) => `${entry.call}: ${entry.rule}`);
    expect(new Set(rules).size).toBe(rules.length);
  });
});
