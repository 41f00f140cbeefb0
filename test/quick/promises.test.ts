/** The table of promises: its tests exist and run over the engine that it names, and docs/guide/libucx.md has it. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { GUIDE_PROMISES } from '../../scripts/promises.ts';
import { promisesPage } from '../../scripts/promises-doc.ts';
import { ROOT } from '../fixtures/built.ts';

/** How a test names the engine over libucp: itself, or by the kinds of connections or fixtures that have it. */
const OVER_LIBUCP = /libucx|of ENGINES|each\(ENGINES|ENGINES\.flatMap|installedLibucp|CONNECTION_KINDS|engines\(/;

describe('the promises of the guides', () => {
  it('are those of docs/guide/libucx.md (npx tsx scripts/promises-doc.ts)', () => {
    const { page, generated } = promisesPage();
    expect(page).toBe(generated);
  });

  it.each(GUIDE_PROMISES)('$guide: $promise', ({ guide, native, libucx }) => {
    expect(existsSync(join(ROOT, `docs/guide/${guide}.md`))).toBe(true);
    for (const { test, reason } of [native, libucx]) {
      if (test === undefined) expect(reason).toMatch(/\S/);
      else expect(existsSync(join(ROOT, test)), test).toBe(true);
    }
    expect(native.test ?? libucx.test).toBeDefined();
    if (libucx.test !== undefined)
      expect(readFileSync(join(ROOT, libucx.test), 'utf8'), libucx.test).toMatch(OVER_LIBUCP);
  });
});
