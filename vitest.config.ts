/** How the tests run: files that keep to themselves share processes, the others have one each. The tiers are folders (see docs/TESTING.md). */

import { defineConfig, type ViteUserConfig } from 'vitest/config';

/**
 * Unit tests with a process of their own: two replace modules of the sources, which no other file of the process may have loaded; two force garbage
 * collections, each of which takes as long as the heap of the process is large.
 */
const OWN_PROCESS = [
  'src/emulator/node-construction.test.ts',
  'src/hlthunk/memory/arena.test.ts',
  'src/ucs/rcache/model.test.ts',
  'src/ucs/rcache/rcache.test.ts',
];

/**
 * Tests of more than one module that load no foreign library and start no process to kill. What else is in test/ has processes of its own: a fault in
 * foreign code takes down that file and not the run.
 */
const SHARED = [
  'test/property/{model,tag-matching}.test.ts',
  'test/contract/{connection-manager,dma-faults,driver-file,endpoint-*,errno-index,memory-domain}.test.ts',
];

const SETUP = ['test/fixtures/signal-storm.ts', 'test/fixtures/fail-on-warnings.ts'];

const config: ViteUserConfig = defineConfig({
  test: {
    // Emulated cards are what the tests ask for, unless the environment says otherwise.
    env: { UCX_GAUDI_DRIVER: process.env['UCX_GAUDI_DRIVER'] ?? 'emulator' },
    globalSetup: ['test/fixtures/build.ts'],
    maxWorkers: 2,
    watch: false,
    teardownTimeout: 5_000,
    // A test that cannot fail is no test.
    passWithNoTests: false,
    allowOnly: false,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['src/**/*.test.ts', ...SHARED],
          exclude: OWN_PROCESS,
          setupFiles: SETUP,
          pool: 'forks',
          isolate: false,
          testTimeout: 20_000,
          hookTimeout: 20_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'process',
          include: ['test/**/*.test.ts', ...OWN_PROCESS],
          exclude: SHARED,
          setupFiles: SETUP,
          pool: 'forks',
          isolate: true,
          testTimeout: 20_000,
          hookTimeout: 20_000,
        },
      },
    ],
  },
});

export default config;
