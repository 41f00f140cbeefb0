/** A node server with few descriptors: refused at its start, and named by the commands that it cannot serve. */

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { requires } from '../../fixtures/requires.ts';
import { MAIN, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const hasPrlimit = spawnSync('prlimit', ['--version']).error === undefined;

/** A command in a shell with a limit. */
function under(limit: number, ...args: readonly string[]): { readonly code: number | null; readonly err: string } {
  const script = `ulimit -n ${limit} && exec "$0" "$@"`;
  const { status, stderr } = spawnSync('sh', ['-c', script, process.execPath, MAIN, ...args], {
    encoding: 'utf8',
    env: cli.environment(),
    timeout: 30_000,
  });
  return { code: status, err: stderr };
}

describe('a node server with few descriptors', { timeout: 120_000 }, () => {
  it.each([36, 40, 44])(
    'is refused under ulimit -n %d, with the number that it needs, and works with that',
    (limit) => {
      const { code, err } = under(limit, 'node', 'up', '--cards', '8');
      expect(code).toBe(1);
      expect(err).toContain(`ulimit -n is ${limit}`);
      const needed = Number(/a node server with 8 cards needs at least (\d+) file descriptors/.exec(err)![1]);
      expect(existsSync(cli.socket)).toBe(false);
      expect(under(needed - 1, 'node', 'up', '--cards', '8').code).toBe(1);
      expect(under(needed, 'node', 'up', '--cards', '8')).toEqual({ code: 0, err: '' });
      expect(cli.output(['perftest', '-l', '-t', 'ucp_put_bw', '-s', '8m', '-n', '3', '-m', 'host,gaudi'])).not.toBe(
        '',
      );
      const { pid, cards } = JSON.parse(cli.output(['node', 'status', '--json']));
      expect(cards.map(({ status }: { status: string }) => status)).toEqual(Array(8).fill('operational'));
      expect(readdirSync(`/proc/${pid}/fd`).length).toBeLessThan(needed - 40);
      cli.output(['node', 'down']);
    },
  );

  it('whose descriptors have run out is named with its limit by its clients', async () => {
    requires(hasPrlimit, 'prlimit');
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    const { pid } = JSON.parse(await cli.outputHere(['node', 'status', '--json']));
    const limit = (soft: number): void => void execFileSync('prlimit', ['--pid', String(pid), `--nofile=${soft}:`]);
    const open = readdirSync(`/proc/${pid}/fd`).length;
    // Below what is open, also once the server has closed the connection of the command above.
    const max = open - 4;
    limit(max);
    for (const args of [
      ['node', 'status'],
      ['smi', '-L'],
    ]) {
      const { code, err } = await cli.runHere(args);
      expect({ code, args }).toEqual({ code: 1, args });
      expect(err, args.join(' ')).toMatch(
        new RegExp(`process ${pid} has \\d+ of at most ${max} file descriptors open`),
      );
    }
    limit(1024);
    expect((await cli.runHere(['node', 'status'])).code).toBe(0);
  });
});
