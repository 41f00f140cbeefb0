/**
 * How the tests run: from bundles, as transforming and loading their modules one by one takes a minute; files that keep to themselves share processes,
 * the others have one each. The tiers are folders (see docs/TESTING.md).
 */

import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { BUNDLED_PARTS, MODULE_TESTS, SETUP_MODULES, TESTS_FOLDER } from './scripts/bundles.ts';
import { buildIfStale } from './test/fixtures/build.ts';
import { UnendedTests } from './test/fixtures/unended-tests.ts';

/** Unit tests with a process of their own: they force garbage collections, each of which takes as long as the heap of the process is large. */
const OWN_PROCESS = ['src/ucs/rcache/{model,rcache}.test.ts'];

/**
 * Tests of more than one module that load no foreign library and start no process to kill. What else is in test/ has processes of its own: a fault in
 * foreign code takes down that file and not the run.
 */
const SHARED = [
  'test/property/{model,tag-matching}.test.ts',
  'test/contract/{connection-manager,dma-faults,driver-file,endpoint-*,errno-index,memory-domain,ucp-dmabuf}.test.ts',
  'test/fixtures/{equal-bytes,test-log,unended-tests}.test.ts',
  'test/fuzz/{connect,ib-connect,messages,ring-contents,tcp-frames,wire}.test.ts',
  'test/integration/{distance,faults,halves,lifecycle,links,listener-native,log-contents,many-endpoints}.test.ts',
  'test/integration/{message-trace,misuse-hlthunk,misuse-uct,own-device-memory,protocol-names,protocol-settings}.test.ts',
  'test/integration/{put-get,resource-choice,wireup}.test.ts',
  'test/simulation/simulation.test.ts',
];

/** Files that take longest, though some are short: begun last, one of them would run alone at the end. Vitest knows durations only from an earlier run. */
const LONGEST =
  /(docs|law|simulation|chaos|perftest|libucx-gaudi|libucx-interop|libucx-tools|command-line|node-command|web-page|hardware-tools|demo-exchange|package|two-nodes|ucp-[a-z-]+)\.test\.ts\.js$/;

/** The same of the tests that share processes. */
const LONGEST_SHARED = /endpoint-(rma|messages)\.test\.ts\.js$/;

/** Runs the longest files first. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ project, moduleId }: TestSpecification): boolean =>
      (project.name === 'process' ? LONGEST : LONGEST_SHARED).test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

/**
 * Both processors have work: threads of the collector would take turns with the tests. Tests map much memory and run much code a few times, for which V8 collects
 * often, forgets the code, and compiles it again (4 % of the time of the contract tests). What is optimised late, which only Node.js 20 can be told, leaves the
 * compiler less to do (7 % of the time of all tests).
 */
const V8_OPTIONS: readonly string[] = [
  '--single-threaded-gc',
  '--initial-old-space-size=1024',
  '--no-memory-reducer',
  '--no-flush-bytecode',
  ...(process.versions.node.startsWith('20.') ? ['--interrupt-budget=1000000'] : []),
];

/** The bundles of files. */
const bundled = (files: readonly string[]): string[] => files.map((file) => `${TESTS_FOLDER}/${file}.js`);

buildIfStale();
// Node.js 20 reads the certificates that this names at every start, which takes 0.03 s; no test makes a connection that needs them.
delete process.env['NODE_EXTRA_CA_CERTS'];

const config: ViteUserConfig = defineConfig({
  test: {
    // Emulated cards are what the tests ask for, unless the environment says otherwise.
    env: { UCX_GAUDI_DRIVER: process.env['UCX_GAUDI_DRIVER'] ?? 'emulator' },
    reporters: ['default', new UnendedTests()],
    pool: 'forks',
    maxWorkers: 2,
    execArgv: [...V8_OPTIONS],
    testTimeout: 20_000,
    hookTimeout: 20_000,
    watch: false,
    sequence: { sequencer: LongestFirst },
    teardownTimeout: 5_000,
    // A test that cannot fail is no test.
    passWithNoTests: false,
    allowOnly: false,
    server: { deps: { external: [BUNDLED_PARTS] } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: bundled(['src/**/*.test.ts', ...SHARED]),
          exclude: bundled(OWN_PROCESS),
          setupFiles: bundled(SETUP_MODULES),
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: 'process',
          include: bundled(['test/**/*.test.ts', ...OWN_PROCESS]),
          exclude: bundled(SHARED),
          setupFiles: bundled(SETUP_MODULES),
          isolate: true,
        },
      },
      {
        extends: true,
        test: { name: 'modules', include: [...MODULE_TESTS], setupFiles: [...SETUP_MODULES], isolate: true },
      },
    ],
  },
});

export default config;
