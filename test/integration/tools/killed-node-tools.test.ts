/** The command line after the node server was killed, which leaves its socket: no command shows separate cards as if they were those of the server. */

import { existsSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import { useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const { socket } = cli;
const KILLED =
  /no node server at \S+node\.sock \(ECONNREFUSED\): it was killed and left its socket; start one by gaudi-ucx node up, or remove the socket by gaudi-ucx node down \(ERR_NODE_UNREACHABLE\)\n$/;

describe('after the node server was killed', { timeout: 120_000 }, () => {
  beforeEach(async () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    const { pid } = JSON.parse((await cli.runHere(['node', 'status', '--json'])).out);
    process.kill(pid, 'SIGKILL');
    await expect.poll(async () => (await cli.runHere(['node', 'status'])).err).toMatch(KILLED);
    expect(existsSync(socket)).toBe(true);
  });

  it('no command shows other cards, the doctor fails, and node up replaces the socket', async () => {
    for (const args of [
      ['smi'],
      ['smi', 'topo'],
      ['top', '--once'],
      ['info', '-s'],
      ['info', '-d'],
      ['node', 'status'],
    ]) {
      const { code, out, err } = await cli.runHere(args);
      expect.soft({ code, out }, args.join(' ')).toEqual({ code: 1, out: '' });
      expect.soft(err, args.join(' ')).toMatch(KILLED);
    }
    const doctor = await cli.runHere(['doctor', '--json']);
    expect(doctor.code).toBe(1);
    expect(JSON.parse(doctor.out)).toContainEqual({
      name: 'driver',
      state: 'failure',
      found: expect.stringMatching(/no node server at \S+node\.sock \(ECONNREFUSED\)/),
      remedy: expect.any(String),
    });
    const metrics = await cli.runHere(['metrics', '--once']);
    expect(metrics).toMatchObject({ code: 1, err: expect.stringMatching(KILLED) });
    expect(metrics.out).not.toMatch(/^habanalabs_device_up\{/m);
    expect(metrics.out).toMatch(/^ucx_node_up 0$/m);
    expect(cli.run(['node', 'up', '--cards', '2']).out).toMatch(/2 x gaudi2/);
    expect((await cli.outputHere(['smi', '-L'])).trim().split('\n')).toHaveLength(2);
    expect((await cli.runHere(['node', 'down'])).code).toBe(0);
  });

  it('node down removes the socket, and programs emulate a node of their own', async () => {
    expect(await cli.runHere(['node', 'down'])).toEqual({
      code: 0,
      out: `the node server at ${socket} was killed earlier: its socket was removed\n`,
      err: '',
    });
    expect(existsSync(socket)).toBe(false);
    expect((await cli.runHere(['node', 'down'])).err).toMatch(/ENOENT.*ERR_NODE_UNREACHABLE/);
    const env = { UCX_GAUDI_EMULATOR_CARDS: '5' };
    expect((await cli.runHere(['info', '-s'], env)).out).toMatch(/5 Gaudi cards/);
  });

  it('programs say that they emulate a node of their own', async () => {
    const { code, err } = await cli.runHere(['perftest', '-l', '-t', 'ucp_put_bw', '-n', '10', '-w', '1']);
    expect(code).toBe(0);
    expect(err).toMatch(
      /WARN {2}the node server at \S+node\.sock has ended, so this process has its own emulated cards, which other processes do not see; start it again by gaudi-ucx node up, then restart this program\n/,
    );
  });
});
