/** The table of promises: its tests exist and run over the engine that it names, and docs/guide/libucx.md has it. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { GUIDE_PROMISES } from '../../scripts/promises.ts';
import { promisesPage } from '../../scripts/promises-doc.ts';
import { ROOT } from '../fixtures/tools/built.ts';

/** How a test names the engine over libucp: itself, or by the kinds of connections or fixtures that have it. */
const OVER_LIBUCP = /libucx|of ENGINES|each\(ENGINES|ENGINES\.flatMap|installedLibucp|CONNECTION_KINDS|engines\(/;

/** The first argument of each test: a string, which may have placeholders. Modifiers such as `it.each` may be of several lines. */
const TITLE = /^ *it\b(?:\.(?:(?!\n *it\b)[\s\S])*?\))?\(\s*(['"`])([^\n]*?)\1\s*,/gm;

/** The titles of the tests of a file, and of the suite beside it that it runs. */
function titlesIn(test: string): readonly string[] {
  const files = [test, test.replace(/\.test\.ts$/, '.ts')].map((file) => join(ROOT, file));
  expect(existsSync(files[0]!), test).toBe(true);
  const sources = files.filter((file) => existsSync(file)).map((file) => readFileSync(file, 'utf8'));
  return sources.flatMap((source) => [...source.matchAll(TITLE)].map(([, , title]) => title!));
}

describe('the promises of the guides', () => {
  it('are those of docs/guide/libucx.md (npx tsx scripts/promises-doc.ts)', () => {
    const { page, generated } = promisesPage();
    expect(page).toBe(generated);
  });

  it.each(GUIDE_PROMISES)('$guide: $promise', ({ guide, native, libucx }) => {
    expect(existsSync(join(ROOT, `docs/guide/${guide}.md`))).toBe(true);
    for (const { test, title, reason } of [native, libucx]) {
      if (test === undefined) expect(reason).toMatch(/\S/);
      else expect(titlesIn(test), test).toContain(title);
    }
    expect(native.test ?? libucx.test).toBeDefined();
    if (libucx.test !== undefined)
      expect(readFileSync(join(ROOT, libucx.test), 'utf8'), libucx.test).toMatch(OVER_LIBUCP);
  });
});

describe('titlesIn', () => {
  it('finds the titles of tests, and no comments, suites and other calls', () => {
    const source = [
      "it('one', () => {});",
      "  it.each([\n    ['a; b', 1],\n  ])('two %s', { timeout: 1 }, (a) => {});",
      '  it.skipIf(isMissing)(\n    `three`,\n    () => {},\n  );',
      "describe('a suite', () => {});",
      "// it('gone', () => {});",
      "  expect(it('other'));",
    ].join('\n');
    expect([...source.matchAll(TITLE)].map(([, , title]) => title)).toEqual(['one', 'two %s', 'three']);
  });
});
