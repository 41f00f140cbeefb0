/** The pages of the API reference in docs/api are those that typedoc makes from the sources. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';

const PAGES = join(ROOT, 'docs/api');
/** What a clone can carry. */
const BYTES_MAX = 1.5 * 2 ** 20;

it('they are current (else: npm run docs), and small', { timeout: 240_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-api-'));
  try {
    const args = [join(ROOT, 'node_modules/typedoc/bin/typedoc'), '--out', folder, '--logLevel', 'Error'];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const names = readdirSync(folder).sort();
    expect(names).toEqual(['README.md', 'coll.md', 'emulator.md', 'hlthunk.md', 'index.md', 'uct.md']);
    expect(readdirSync(PAGES).sort()).toEqual(names);
    const stale = names.filter(
      (name) => readFileSync(join(PAGES, name), 'utf8') !== readFileSync(join(folder, name), 'utf8'),
    );
    expect(stale).toEqual([]);
    expect(names.reduce((sum, name) => sum + statSync(join(PAGES, name)).size, 0)).toBeLessThan(BYTES_MAX);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
