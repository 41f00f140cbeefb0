/** docs/guide/testing-your-program.md: its tests run in every test runner that it names, but for Jest, which is not a dependency. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { withoutSettings } from '../../fixtures/tools/command-line.ts';

const BUILT = join(ROOT, 'dist/examples/testing');
// Below the sources, so that packages are found.
const folder = mkdtempSync(join(ROOT, 'dist/runner-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs Node.js in the folder; returns its exit code and output. */
function run(args: readonly string[]): { readonly status: number | null; readonly out: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    cwd: folder,
    env: { ...withoutSettings(), NO_COLOR: '1' },
  });
  return { status, out: `${stdout}${stderr}` };
}

describe('the tests of the page', { timeout: 60_000 }, () => {
  it.each(['forks', 'threads', 'vmForks', 'vmThreads'])('pass in the pool %s of Vitest', (pool) => {
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
    const config = join(folder, 'vitest.config.js');
    writeFileSync(
      config,
      `export default { root: ${JSON.stringify(BUILT)}, test: { pool: '${pool}', include: ['*.vitest.js'] } };`,
    );
    const { status, out } = run([join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--config', config]);
    expect([status, out]).toEqual([0, expect.stringMatching(/Tests +2 passed/)]);
  });

  it('pass with node:test', () => {
    const { status, out } = run(['--test', join(BUILT, 'block-store.node-test.js')]);
    expect([status, out]).toEqual([0, expect.stringMatching(/^(# |ℹ )pass 2$/m)]);
  });

  it('are known to fail where one fails', () => {
    // A planted fault: the runners above report failures.
    const text = `import test from 'node:test'; test('fails', () => { throw new Error('planted'); });`;
    writeFileSync(join(folder, 'planted.mjs'), text);
    expect(run(['--test', join(folder, 'planted.mjs')]).status).toBe(1);
  });
});
