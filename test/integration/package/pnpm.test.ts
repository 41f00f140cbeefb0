/** docs/guide/service.md on pnpm: the packed package in the strict layout of pnpm, as itself and in bundles. */

import { execFile, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { requires } from '../../fixtures/requires.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { withoutSettings } from '../../fixtures/tools/command-line.ts';
import { packPackage } from '../../fixtures/tools/installed-package.ts';
import { FolderRegistry } from '../../fixtures/transports/folder-registry.ts';

/** The pnpm of the machine, or one that is in the cache of npm; undefined without either. */
function findPnpm(): string | undefined {
  const search = { cwd: tmpdir(), encoding: 'utf8' } as const;
  if (spawnSync('pnpm', ['--version'], search).status === 0) return 'pnpm';
  const cached = ['exec', '--offline', '--yes', '--package=pnpm@10', '--call=command -v pnpm'];
  const { status, stdout } = spawnSync('npm', cached, search);
  return status === 0 ? stdout.trim() : undefined;
}
const PNPM = findPnpm();

const PROGRAM = `import { Context } from 'gaudi-ucx';
Context.create({ config: { TLS: 'self' } }).then(async (context) => {
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const target = new Uint8Array(5);
  await Promise.all([endpoint.tagSend(Buffer.from('hello')), worker.tagRecv(target)]);
  console.log(Buffer.from(target).toString());
  await context.close();
});
`;

describe('the package installed by pnpm', { timeout: 60_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-pnpm-'));
  const project = join(folder, 'project');
  const env = { ...withoutSettings(), CI: '1', XDG_CACHE_HOME: folder, XDG_DATA_HOME: folder, XDG_STATE_HOME: folder };
  let registry: FolderRegistry;
  afterAll(async () => {
    await registry[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });

  /** Installs into a new project. */
  async function install(place: string, ...options: readonly string[]): Promise<void> {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    mkdirSync(place);
    writeFileSync(
      join(place, 'package.json'),
      JSON.stringify({ type: 'module', dependencies: { 'gaudi-ucx': version } }),
    );
    writeFileSync(join(place, 'program.mjs'), PROGRAM);
    const settings = [`--registry=${registry.url}`, `--store-dir=${join(folder, 'store')}`, '--ignore-scripts'];
    await promisify(execFile)(PNPM!, ['install', ...settings, ...options], { cwd: place, env });
  }

  beforeAll(async () => {
    registry = await FolderRegistry.open(new Map([['gaudi-ucx', readFileSync(packPackage(folder))]]));
    if (PNPM !== undefined) await install(project);
  }, 120_000);

  function run(program: string): { readonly status: number | null; readonly stdout: string; readonly stderr: string } {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program], { encoding: 'utf8', env });
    return { status, stdout, stderr };
  }

  it('is alone in the folder of the program, without its dependencies, and runs', () => {
    requires(PNPM !== undefined, 'pnpm');
    expect(existsSync(join(project, 'node_modules/gaudi-ucx'))).toBe(true);
    expect(existsSync(join(project, 'node_modules/koffi'))).toBe(false);
    expect(run(join(project, 'program.mjs'))).toEqual({ status: 0, stdout: 'hello\n', stderr: '' });
  });

  it.each(['esm', 'cjs'] as const)('runs in a bundle of the format %s', async (format) => {
    requires(PNPM !== undefined, 'pnpm');
    const outfile = join(project, `bundle.${format === 'esm' ? 'mjs' : 'cjs'}`);
    const entryPoints = [join(project, 'program.mjs')];
    await build({ entryPoints, outfile, format, bundle: true, platform: 'node', logLevel: 'silent' });
    expect(run(outfile)).toEqual({ status: 0, stdout: 'hello\n', stderr: '' });
  });

  it('says what is missing without optional dependencies', async () => {
    requires(PNPM !== undefined, 'pnpm');
    const place = join(folder, 'without');
    await install(place, '--no-optional');
    const { status, stderr } = run(join(place, 'program.mjs'));
    expect(status).toBe(1);
    expect(stderr).toMatch(
      /UcxError: koffi, a dependency of gaudi-ucx, cannot be loaded: Cannot find the native .*--omit=optional/,
    );
  });
});
