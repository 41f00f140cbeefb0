/** How the tests run. One configuration for every tier; the tiers are folders (see docs/TESTING.md). */

import { defineConfig, type ViteUserConfig } from 'vitest/config';

const config: ViteUserConfig = defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    setupFiles: ['test/fixtures/fail-on-warnings.ts'],
    // A fault in foreign code (koffi, mapped memory) takes down one file's process and not the run.
    pool: 'forks',
    maxWorkers: 2,
    watch: false,
    testTimeout: 20_000,
    hookTimeout: 20_000,
    teardownTimeout: 5_000,
    // A test that cannot fail is no test.
    passWithNoTests: false,
    allowOnly: false,
  },
});

export default config;
