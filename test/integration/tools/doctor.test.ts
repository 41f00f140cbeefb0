/** `gaudi-ucx doctor` on machines that have a fault: it tries what programs do, and leaves nothing behind. */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Check } from '../../../src/tools/doctor/checks.ts';
import { requires } from '../../fixtures/requires.ts';
import { MAIN, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const unshared = spawnSync('unshare', ['--mount', 'true'], { encoding: 'utf8' });
const folder = join(cli.folder, 'm');
mkdirSync(folder);

/** The checks in a mount namespace of their own, in which a shell command has prepared {@link folder}. */
function checksAfter(prepare: string, env: Readonly<Record<string, string>>): { code: number | null; checks: Check[] } {
  const script = `${prepare} && exec "$0" "$@"`;
  const { status, stdout } = spawnSync(
    'unshare',
    ['--mount', 'sh', '-c', script, process.execPath, MAIN, 'doctor', '--json'],
    { encoding: 'utf8', cwd: folder, env: cli.environment(env), timeout: 30_000 },
  );
  return { code: status, checks: JSON.parse(stdout) };
}

describe('the doctor', { timeout: 60_000 }, () => {
  it('warns of links that are down, by the pairs of cards, until they are up', async () => {
    expect(cli.run(['node', 'up', '--cards', '3']).code).toBe(0);
    const links = async (): Promise<Check | undefined> => {
      const { code, out } = await cli.runHere(['doctor', '--json']);
      expect(code).toBe(0);
      return (JSON.parse(out) as Check[]).find(({ name }) => name === 'links');
    };
    expect(await links()).toMatchObject({
      state: 'ok',
      found: expect.stringMatching(/^\d+ between cards, none down$/),
    });
    for (const peer of ['1', '2']) await cli.outputHere(['node', 'fault', '0', 'link-down', '--peer', peer]);
    const down = await links();
    expect(down).toMatchObject({ state: 'warning', remedy: expect.stringContaining('link-up') });
    const [first, second, ...rest] = down!.found.split('\n');
    expect(first).toMatch(/^card 0 \(accel0, 0000:19:00\.0\) to card 1 \(accel1, 0000:1a:00\.0\): (\d+) of \1 down$/);
    expect(second).toMatch(/^card 0 \(accel0, 0000:19:00\.0\) to card 2 \(accel2, 0000:33:00\.0\): (\d+) of \1 down$/);
    expect(rest).toEqual([]);
    for (const peer of ['1', '2']) await cli.outputHere(['node', 'fault', '0', 'link-up', '--peer', peer]);
    expect(await links()).toMatchObject({ state: 'ok' });
  });

  it.each([
    ['is mounted read-only', `mount -t tmpfs -o ro,size=256m none "${folder}"`, 'EROFS'],
    ['has no free inode', `mount -t tmpfs -o nr_inodes=2,size=256m none "${folder}" && touch "${folder}/x"`, 'ENOSPC'],
  ])('fails where the folder of posix %s, whatever space it has', (_what, prepare, errno) => {
    requires(unshared.status === 0, `unshare --mount: ${unshared.stderr}`);
    const { code, checks } = checksAfter(prepare, {
      UCX_POSIX_DIR: folder,
      UCX_GAUDI_DRIVER: 'emulator',
    });
    const check = checks.find(({ name }) => name === 'shared memory');
    expect(check).toMatchObject({ state: 'failure', remedy: expect.stringContaining('inodes') });
    expect(check!.found).toContain(errno);
    expect(code).toBe(1);
  });

  it('fails where no socket can be created though the folder exists', () => {
    requires(unshared.status === 0, `unshare --mount: ${unshared.stderr}`);
    const prepare = `mount -t tmpfs -o nr_inodes=2,mode=0700 none "${folder}" && mkdir -m 0700 "${folder}/gaudi-ucx"`;
    const { code, checks } = checksAfter(prepare, { XDG_RUNTIME_DIR: folder, UCX_GAUDI_DRIVER: 'emulator' });
    const check = checks.find(({ name }) => name === 'socket folder');
    expect(check).toMatchObject({ state: 'failure', found: expect.stringContaining('ENOSPC') });
    expect(code).toBe(1);
  });

  it('leaves no folder and no file', async () => {
    const absent = join(cli.folder, 'a');
    const env = { XDG_RUNTIME_DIR: join(absent, 'b'), UCX_POSIX_DIR: folder, UCX_GAUDI_DRIVER: 'emulator' };
    const { out } = await cli.runHere(['doctor', '--json'], env);
    expect(JSON.parse(out)).toContainEqual({
      name: 'socket folder',
      state: 'ok',
      found: `${join(absent, 'b/gaudi-ucx')}, sockets of 0 processes that have a context`,
    });
    expect(existsSync(absent)).toBe(false);
    expect(readdirSync(folder)).toEqual([]);
  });
});
