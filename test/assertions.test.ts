/** Every test reaches an assertion, and the check finds one that does not. */

import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AssertionCheck } from '../scripts/assertions.ts';
import { textFiles } from '../scripts/tidy.ts';

const ROOT = join(import.meta.dirname, '..');

describe('tests', () => {
  it('assert something', { timeout: 60_000 }, () => {
    const check = new AssertionCheck();
    const files = textFiles(ROOT)
      .map(({ file }) => file)
      .filter((file) => /^(src|test)\/.*\.ts$/.test(file));
    const found = files.flatMap((file) =>
      check.emptyTests(join(ROOT, file)).map(({ line, title }) => `${file}:${line}: ${title}`),
    );
    expect(files.length).toBeGreaterThan(300);
    expect(found).toEqual([]);
  });

  it('are found if they assert nothing, also by helpers', () => {
    const sources = new Map([
      [
        '/test/a.test.ts',
        `
        import { check, run } from './b.ts';
        it('asserts', () => expect(1).toBe(1));
        it('asserts by a helper of a fixture', async () => { await check(); });
        it('asserts by a helper beside it', { timeout: 1 }, () => { beside(); });
        it.each([1])('asserts %i', () => { fc.assert(property); });
        function beside() { expect.fail(); }
        const LIST = [['a', beside]];
        it('asserts by functions of a list', () => { for (const [, run] of LIST) run(); });
        it('asserts nothing', () => { run(); });
        it.skipIf(false)('asserts nothing either', () => { nothing(); });
        const nothing = () => { nothing(); };
        `,
      ],
      [
        '/test/b.ts',
        'export const check = () => { inner(); }; function inner() { expectSame(); } export const run = () => 1;',
      ],
    ]);
    const found = new AssertionCheck((file) => sources.get(file)).emptyTests('/test/a.test.ts');
    expect(found).toEqual([
      { line: 10, title: "'asserts nothing'" },
      { line: 11, title: "'asserts nothing either'" },
    ]);
  });
});
