/** Node servers and clients of different versions: a client says who is in its way, shows the server, and ends it. And a server whose package is replaced. */

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { NODE_PROTOCOL_VERSION } from '../../../src/emulator/server/mailbox.ts';
import { packageVersion } from '../../../src/ucs/sys/package.ts';
import { useNodeCommandLine } from '../../fixtures/tools/command-line.ts';
import { PackageCopy } from '../../fixtures/tools/package-copy.ts';

const cli = useNodeCommandLine();
const LAYOUT = 'dist/src/emulator/server/mailbox.js';
const CLIENT = 'dist/src/emulator/server/served-client.js';
const OWN = `gaudi-ucx ${packageVersion()}, protocol ${NODE_PROTOCOL_VERSION}`;

/** A package of another version. */
function otherPackage(version: string, protocol: number): PackageCopy {
  const copy = new PackageCopy();
  copy.replace('package.json', `"version": "${packageVersion()}"`, `"version": "${version}"`);
  const assignment = 'NODE_PROTOCOL_VERSION = ';
  copy.replace(LAYOUT, `${assignment}${NODE_PROTOCOL_VERSION}`, `${assignment}${protocol}`);
  return copy;
}

/** Starts the node server of a package. Returns the process id. */
function start({ main }: PackageCopy): number {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, 'node', 'up', '--cards', '2'], {
    encoding: 'utf8',
    env: cli.environment(),
  });
  expect([status, stderr]).toEqual([0, '']);
  return Number(/pid (\d+)/.exec(stdout)?.[1]);
}

describe('a node server of another version', { timeout: 120_000 }, () => {
  it('is shown and ended, and its clients are told both versions and what helps', async () => {
    using copy = otherPackage('9.9.9', 99);
    const pid = start(copy);
    const about = `node server ${pid} at ${cli.socket} is gaudi-ucx 9.9.9, protocol 99`;
    const shown = await cli.outputHere(['node', 'status']);
    expect(shown).toBe(`${about}; this is gaudi-ucx ${packageVersion()}, which can only end it: gaudi-ucx node down\n`);
    expect(JSON.parse(await cli.outputHere(['node', 'status', '--json']))).toEqual({
      pid,
      socket: cli.socket,
      package: '9.9.9',
      protocol: 99,
      upSeconds: expect.any(Number),
      usable: false,
    });
    const refused = await cli.runHere(['smi']);
    expect([refused.code, refused.out]).toEqual([1, '']);
    expect(refused.err).toContain(`${about}, but this client is ${OWN}: use the same version, or end the server by`);
    expect(await cli.outputHere(['node', 'down'])).toBe(`node server ${pid} has ended\n`);
    expect(existsSync(cli.socket)).toBe(false);
  });

  it('that answers no such question, as before protocol 8, is shown and ended', async () => {
    using copy = otherPackage('0.0.1', 7);
    for (const op of ['who', 'shutdown']) copy.replace(CLIENT, `op === '${op}'`, `op === 'never'`);
    const pid = start(copy);
    expect(await cli.outputHere(['node', 'status'])).toContain(
      `node server ${pid} at ${cli.socket} is an older gaudi-ucx;`,
    );
    expect(await cli.outputHere(['node', 'down'])).toBe(`node server ${pid} has ended\n`);
    expect(existsSync(cli.socket)).toBe(false);
  });
});

describe('a node server whose package is removed', { timeout: 120_000 }, () => {
  it('moves long transfers, for which it has loaded nothing before', () => {
    const copy = new PackageCopy();
    const pid = start(copy);
    copy[Symbol.dispose]();
    const program = ['perftest', '-l', '-t', 'ucp_put_bw', '-m', 'gaudi', '-s', '4m', '-n', '4'];
    expect(cli.output(program)).toMatch(/4194304|4m/i);
    expect(cli.output(['node', 'status'])).toContain(`node server ${pid} `);
    expect(cli.output(['node', 'status'])).not.toMatch(/disabled|malfunction/);
  });
});
