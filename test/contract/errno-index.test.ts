import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Errno } from '../../src/sys/index.ts';
import { ERRNO_INDEX } from './errno-index.ts';

const EMULATOR = join(import.meta.dirname, '../../src/emulator');

/** The source of every test of the title. */
function testsByTitle(): ReadonlyMap<string, string> {
  const files = [
    ...readdirSync(import.meta.dirname)
      .filter((name) => name.startsWith('driver-file-'))
      .map((name) => join(import.meta.dirname, name)),
    ...readdirSync(EMULATOR)
      .filter((name) => name.endsWith('.test.ts'))
      .map((name) => join(EMULATOR, name)),
  ];
  const tests = new Map<string, string>();
  for (const file of files) {
    const [, ...bodies] = readFileSync(file, 'utf8').split(/^ +it\((?=')/m);
    for (const body of bodies) {
      const title = /^'((?:[^'\\]|\\.)*)'/.exec(body)?.[1];
      if (title !== undefined) tests.set(title, body);
    }
  }
  return tests;
}

describe('the index of errnos', () => {
  const tests = testsByTitle();

  it.each(ERRNO_INDEX.map((entry) => [`${entry.call}: ${entry.rule}`, entry] as const))('%s', (_, { errno, test }) => {
    expect(Errno[errno]).toBeGreaterThan(0);
    const body = tests.get(test);
    expect(body, `no test "${test}"`).toBeDefined();
    expect(body!.includes(`Errno.${errno}`), `"${test}" does not mention ${errno}`).toBe(true);
  });

  it('has every rule once', () => {
    const rules = ERRNO_INDEX.map((entry) => `${entry.call}: ${entry.rule}`);
    expect(new Set(rules).size).toBe(rules.length);
  });
});
