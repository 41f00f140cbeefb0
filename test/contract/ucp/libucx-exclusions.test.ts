/**
 * The list of tests that are skipped for libucp: every entry has a reason and a file. The test files check that it matches a test
 * (messages/exclusions.ts).
 */

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { LIBUCX_EXCLUSIONS } from './libucx-exclusions.ts';

describe('exclusions for libucp', () => {
  it.each(LIBUCX_EXCLUSIONS)('$test is in a file, and has a reason', ({ file, test, reason }) => {
    expect(existsSync(file)).toBe(true);
    expect(reason).toMatch(/libucp \w+ /);
    // No test of the native engine is skipped.
    expect(test.source).toMatch(/libucx/);
  });

  it('is listed once', () => {
    const names = LIBUCX_EXCLUSIONS.map(({ file, test }) => `${file} ${test.source}`);
    expect(new Set(names).size).toBe(names.length);
  });
});
