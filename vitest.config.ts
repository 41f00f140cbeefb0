/** How the tests run. Their tiers are folders: see docs/TESTING.md. */

import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config';
import { buildIfStale } from './test/run/build.ts';
import { beginRun } from './test/run/leftovers.ts';
import { RunReporter } from './test/run/run-reporter.ts';

/** Tests that need a process of their own: they force many garbage collections, or replace modules. */
const ALONE = 'src/**/*.alone.test.ts';

beginRun();
buildIfStale();
// Node.js 20 reads the certificates that this names at every start, which takes 0.03 s; no test makes a connection that needs them.
delete process.env['NODE_EXTRA_CA_CERTS'];

interface Files {
  readonly include: string[];
  readonly exclude?: string[];
  /** Whether each file has a process: a fault in foreign code then ends that file and not the run. */
  readonly isolate: boolean;
}

function project(name: string, files: Files): TestProjectInlineConfiguration {
  return { extends: true, test: { name, ...files } };
}

const config: ViteUserConfig = defineConfig({
  test: {
    // Emulated cards are what the tests ask for, unless the environment says otherwise.
    env: { UCX_GAUDI_DRIVER: process.env['UCX_GAUDI_DRIVER'] ?? 'emulator' },
    globalSetup: ['test/run/leftovers.ts'],
    setupFiles: ['test/run/every-file.ts'],
    reporters: ['default', new RunReporter()],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 20_000,
    teardownTimeout: 5_000,
    watch: false,
    // A test that cannot fail tests nothing.
    passWithNoTests: false,
    allowOnly: false,
    projects: [
      project('quick', {
        include: ['src/**/*.test.ts', 'test/*.test.ts', 'test/{quick,run}/**/*.test.ts'],
        exclude: [ALONE],
        isolate: false,
      }),
      project('quick, alone', { include: [ALONE], isolate: true }),
      project('ci', { include: ['test/*/**/*.test.ts'], exclude: ['test/{quick,run,foreign}/**'], isolate: true }),
      // Programs of other projects, where they are installed: `npm run test:foreign`.
      project('foreign', { include: ['test/foreign/**/*.test.ts'], isolate: true }),
    ],
  },
});

export default config;
