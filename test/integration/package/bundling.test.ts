/** docs/guide/service.md on bundling: the package in bundles of esbuild, in both formats, and outside of them. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BuildOptions, build, type Format } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT } from '../../fixtures/tools/built.ts';
import { withoutSettings } from '../../fixtures/tools/command-line.ts';
import { installPackage, ROUND_TRIP } from '../../fixtures/tools/installed-package.ts';

const PROGRAM = `import { Context, MemoryType } from 'gaudi-ucx';
async function main() {
${ROUND_TRIP}
}
void main();
`;
const EXTENSIONS = { cjs: 'cjs', esm: 'mjs' } as const;
const PAGE = readFileSync(join(ROOT, 'docs/guide/service.md'), 'utf8');
const FORMATS = ['esm', 'cjs'] as const;

describe('a bundle of esbuild', { timeout: 60_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-bundling-'));
  const elsewhere = mkdtempSync(join(tmpdir(), 'gaudi-ucx-elsewhere-'));
  afterAll(() => {
    for (const each of [folder, elsewhere]) rmSync(each, { recursive: true });
  });
  beforeAll(() => {
    installPackage(folder);
    writeFileSync(join(folder, 'program.mjs'), PROGRAM);
  }, 120_000);

  /** Bundles the program, and runs the bundle. */
  async function run(format: Format & keyof typeof EXTENSIONS, external: readonly string[], place = folder) {
    const outfile = join(place, `bundle.${EXTENSIONS[format]}`);
    await build({
      entryPoints: [join(folder, 'program.mjs')],
      outfile,
      format,
      external: [...external],
      bundle: true,
      platform: 'node',
      logLevel: 'silent',
    });
    const env = { ...withoutSettings(), UCX_GAUDI_DRIVER: 'emulator' };
    const { status, stdout, stderr } = spawnSync(process.execPath, [outfile], { cwd: place, encoding: 'utf8', env });
    return { status, stdout, stderr };
  }

  describe.each(FORMATS)('in the format %s', (format) => {
    it.each([[['koffi']], [[]]])('runs, with %j left out', async (external) => {
      expect(await run(format, external)).toEqual({ status: 0, stdout: 'the same bytes came back\n', stderr: '' });
    });

    it('runs with the options of the page', async () => {
      const options = JSON.parse(PAGE.match(/^```json\n(\{ "bundle".*)\n```$/m)![1]!) as BuildOptions;
      expect(await run(format, options.external!)).toMatchObject({ status: 0, stdout: 'the same bytes came back\n' });
      expect({ ...options, external: [] }).toEqual({ bundle: true, platform: 'node', format: 'cjs', external: [] });
    });

    it('says what to do where the package is not installed', async () => {
      const { status, stderr } = await run(format, [], elsewhere);
      expect(status).toBe(1);
      expect(stderr).toMatch(
        /UcxError: gaudi-ucx is not installed where \S+ can find it\. .*external: \['gaudi-ucx'\]/,
      );
      expect(stderr).toContain("code: 'ERR_NOT_INSTALLED'");
    });
  });
});
