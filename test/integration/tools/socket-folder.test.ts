/** What inspect, metrics and doctor say where they find no process: the folder that was searched, and why it cannot be read or made. */

import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { requires } from '../../fixtures/requires.ts';
import { MAIN, type Run, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
const unshared = spawnSync('unshare', ['--mount', 'true'], { encoding: 'utf8' });
const folder = join(cli.folder, 'm');
mkdirSync(folder);
const sockets = join(folder, 'gaudi-ucx');
const env = { XDG_RUNTIME_DIR: folder };

/** A command in its own mount namespace, in which a shell command has prepared {@link folder}. */
function after(prepare: string, args: readonly string[]): Run {
  requires(unshared.status === 0, `unshare --mount: ${unshared.stderr}`);
  const command = ['--mount', 'sh', '-c', `${prepare} && exec "$0" "$@"`, process.execPath, MAIN, ...args];
  const { status, stdout, stderr } = spawnSync('unshare', command, {
    encoding: 'utf8',
    cwd: folder,
    env: cli.environment(env),
    timeout: 30_000,
  });
  return { code: status, out: stdout, err: stderr };
}

describe('the folder of the sockets of processes', { timeout: 60_000 }, () => {
  it('is named by inspect and metrics if it does not exist, and not left behind', async () => {
    const text = await cli.outputHere(['inspect'], env);
    expect(text).toContain(`${sockets} does not exist`);
    expect(text).toContain('XDG_RUNTIME_DIR');
    const json = await cli.runHere(['inspect', '--json'], env);
    expect(json).toEqual({ code: 0, out: '[]\n', err: text });
    expect(await cli.outputHere(['metrics', '--once'], env)).toContain(
      `ucx_socket_folder_readable{folder="${sockets}"} 0\n`,
    );
    expect(readdirSync(folder)).toEqual([]);
  });

  it('is named by all if it has no socket', async () => {
    const other = join(cli.folder, 'o');
    mkdirSync(join(other, 'gaudi-ucx'), { recursive: true, mode: 0o700 });
    const otherEnv = { XDG_RUNTIME_DIR: other };
    expect(await cli.outputHere(['inspect'], otherEnv)).toContain(`no socket in ${other}/gaudi-ucx`);
    expect(await cli.outputHere(['metrics', '--once'], otherEnv)).toContain(
      `ucx_socket_folder_readable{folder="${other}/gaudi-ucx"} 1\n`,
    );
    const { out } = await cli.runHere(['doctor', '--json'], otherEnv);
    expect(out).toContain(`${other}/gaudi-ucx, sockets of 0 processes`);
    const one = await cli.runHere(['inspect', '1'], otherEnv);
    expect(one).toMatchObject({
      code: 1,
      err: expect.stringContaining(`process 1 has no inspect socket in ${other}/gaudi-ucx`),
    });
  });

  it.each([
    ['is mounted read-only', `mount -t tmpfs -o ro none "${folder}"`, 'EROFS'],
    ['has no free inode', `mount -t tmpfs -o nr_inodes=2 none "${folder}" && touch "${folder}/x"`, 'ENOSPC'],
  ])('is an error of inspect if it does not exist and its file system %s', (_what, prepare, errno) => {
    const { code, out, err } = after(prepare, ['inspect']);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(errno);
    expect(err).toContain(sockets);
  });

  it('is an error of all if it cannot be read', async () => {
    const broken = join(cli.folder, 'b');
    mkdirSync(broken);
    writeFileSync(join(broken, 'gaudi-ucx'), '');
    const brokenEnv = { XDG_RUNTIME_DIR: broken };
    const inspected = await cli.runHere(['inspect'], brokenEnv);
    expect(inspected).toMatchObject({ code: 1, out: '' });
    expect(inspected.err).toContain(`${broken}/gaudi-ucx`);
    const scraped = await cli.runHere(['metrics', '--once'], brokenEnv);
    expect(scraped).toMatchObject({ code: 1, err: expect.stringContaining('ENOTDIR') });
    expect(scraped.out).toContain(`ucx_socket_folder_readable{folder="${broken}/gaudi-ucx"} 0\n`);
    const checked = await cli.runHere(['doctor', '--json'], brokenEnv);
    expect(checked).toMatchObject({ code: 1, out: expect.stringContaining(`"found": "${broken}/gaudi-ucx: `) });
  });

  it('is an error of inspect for a user who may not read it', () => {
    const other = { uid: 65_534, gid: 65_534 };
    const canBeOther = process.getuid!() === 0 && spawnSync(process.execPath, ['-e', ''], other).status === 0;
    requires(canBeOther, 'another user');
    const secret = join(cli.folder, 's');
    mkdirSync(join(secret, 'gaudi-ucx'), { recursive: true, mode: 0o700 });
    chmodSync(cli.folder, 0o711);
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, 'inspect'], {
      encoding: 'utf8',
      env: cli.environment({ XDG_RUNTIME_DIR: secret }),
      timeout: 30_000,
      ...other,
    });
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toContain('EACCES');
    expect(stderr).toContain(`${secret}/gaudi-ucx`);
  });
});
