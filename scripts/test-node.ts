/**
 * Runs the tests on a version of Node.js from the npm package `node`: `npm run test:node -- 24 [arguments of vitest]`. Does not build; the build is
 * the same for
 * all versions.
 */

import { spawnSync } from 'node:child_process';

/** The tested releases, by major version; `engines` of package.json promises no others. */
const RELEASES: Readonly<Record<string, string>> = { 20: '20.20.2', 22: '22.23.3', 24: '24.21.0' };

const [major = '', ...rest] = process.argv.slice(2);
const release = RELEASES[major];
if (release === undefined) {
  console.error(`the version must be one of ${Object.keys(RELEASES).join(', ')}, not ${JSON.stringify(major)}`);
  process.exitCode = 2;
} else {
  const node = ['exec', '--yes', `--package=node-linux-${process.arch}@${release}`, '--', 'node'];
  const { status } = spawnSync('npm', [...node, 'node_modules/vitest/vitest.mjs', 'run', ...rest], {
    stdio: 'inherit',
  });
  process.exitCode = status ?? 1;
}
