/**
 * Runs tests on a version of Node.js or of TypeScript that npm brings: `npm run test:node -- 24 [arguments of vitest]`, `npm run test:typescript -- 5.7`. Does not
 * build; the build is the same for all versions.
 */

import { spawnSync } from 'node:child_process';
import { NODE_RELEASES, nodePackage } from './node-releases.ts';

/** What can be tried: the package of a release, and the tests that depend on it; all unless it says. */
interface Tool {
  readonly releases: Readonly<Record<string, string>>;
  packageOf(release: string): string;
  readonly tests: readonly string[];
}

const TOOLS: Readonly<Record<string, Tool>> = {
  node: {
    releases: NODE_RELEASES,
    packageOf: nodePackage,
    tests: [],
  },
  typescript: {
    // The tests use 7.0 by themselves.
    releases: { '5.7': '5.7.3', '5.8': '5.8.3', '5.9': '5.9.3', '6.0': '6.0.3' },
    packageOf: (release) => `typescript@${release}`,
    tests: ['test/integration/package/package.test.ts'],
  },
};

const [tool = '', version = '', ...rest] = process.argv.slice(2);
const { releases, packageOf, tests } = TOOLS[tool]!;
const release = releases[version];
if (release === undefined) {
  console.error(`the version must be one of ${Object.keys(releases).join(', ')}, not ${JSON.stringify(version)}`);
  process.exitCode = 2;
} else {
  const vitest = ['node', 'node_modules/vitest/vitest.mjs', 'run', ...tests, ...rest];
  const { status } = spawnSync('npm', ['exec', '--yes', `--package=${packageOf(release)}`, '--', ...vitest], {
    stdio: 'inherit',
    env: { ...process.env, ...(tool === 'typescript' ? { GAUDI_UCX_TEST_TYPESCRIPT: release } : {}) },
  });
  process.exitCode = status ?? 1;
}
