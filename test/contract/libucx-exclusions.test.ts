/** The list of tests that are left out for libucp: every entry has a reason and a file. That it matches a test is checked where the tests are (fixtures/exclusions.ts). */

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { LIBUCX_EXCLUSIONS } from './libucx-exclusions.ts';

describe('what is left out for libucp', () => {
  it.each(LIBUCX_EXCLUSIONS)('$test is in a file, and says why', ({ file, test, reason }) => {
    expect(existsSync(file)).toBe(true);
    expect(reason).toMatch(/libucp \w+ /);
    // Nothing of the native engine is left out.
    expect(test.source).toMatch(/libucx/);
  });

  it('is listed once', () => {
    const names = LIBUCX_EXCLUSIONS.map(({ file, test }) => `${file} ${test.source}`);
    expect(new Set(names).size).toBe(names.length);
  });
});
