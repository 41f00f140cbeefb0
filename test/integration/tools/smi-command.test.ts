/** `gaudi-ucx smi` as users run it: on a node server whose card has an owner, in a loop, and with wrong options. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, refusal, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
let node: TestNodeServer;
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  node = await TestNodeServer.start({ cards: 2 });
  env = { UCX_GAUDI_DRIVER: `emulator:${node.socketPath}` };
});
afterAll(() => node.stop());

describe('gaudi-ucx smi', { timeout: 60_000 }, () => {
  it('shows the process that has a card, and the memory that it uses', async () => {
    await using context = await Context.create({ config: { ACC_DEVICES: 'gaudi1' }, env });
    context.memMap({ allocate: 2 ** 20, memoryType: 'gaudi' });
    const table = await cli.outputHere(['smi'], env);
    expect(table).toMatch(/\| {3}0 {8}N\/A {3}N\/A {4}N\/A {38}N\/A/);
    expect(table).toMatch(new RegExp(`\\| {3}1 +${process.pid} {3}C {6}\\S`));
    const [free, used] = (await cli.outputHere(['smi', '-Q', 'memory.used', '-f', 'csv,noheader,nounits'], env))
      .trim()
      .split('\n');
    expect([free, Number(used) > 0]).toEqual(['0', true]);
    const cards = JSON.parse(await cli.outputHere(['smi', '--json', '-i', '1a:00.0'], env));
    expect(cards).toMatchObject([{ minor: 1, pid: process.pid, busId: '0000:1a:00.0', state: 'operational' }]);
  });

  it('prints again after the seconds of -l, until it is interrupted', async () => {
    const child = spawn(process.execPath, [MAIN, 'smi', '-L', '-l', '0.1'], {
      env: { ...process.env, ...env, HOME: cli.folder },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let out = '';
    child.stdout.on('data', (bytes: Buffer) => {
      out += bytes.toString();
      if (out.split('AIP 0').length > 3) child.kill('SIGINT');
    });
    expect(await once(child, 'close')).toEqual([0, null]);
    expect(out).toMatch(/^(AIP 0: HL225 .*\nAIP 1: HL225 .*\n){3,}$/);
  });

  it('has the versions of hl-smi: of the program, and of the firmware', async () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(await cli.outputHere(['smi', '-v'], env)).toBe(`${version}\n`);
    expect(await cli.outputHere(['smi', '--fw-versions', '-i', '1a:00.0'], env)).toMatch(
      /^AIP 1 \(bus id: 0000:1a:00\.0\): firmware gaudi-ucx-emulator-fw\S+, preboot .*\n$/,
    );
  });

  it('refuses a bus id that no card has', async () => {
    const { code, out, err } = await cli.runHere(['smi', '-i', '0000:ff:00.0'], env);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(/-i must be one of 0000:19:00.0, 0000:1a:00.0/);
  });

  it.each([
    [['-Q', 'memory'], /-Q must be names from/],
    [['-L', '-q'], /must not be combined/],
    [['-d', 'ENGINE'], /-d must be one of PRODUCT/],
    [['-l', '0'], /-l must be a number of seconds from 0.1/],
    [['-Q', 'index', '-f', 'json'], /-f must be csv/],
    [['-f', 'bogus'], /-f must be used with -Q/],
    [['-i', '0000:19:00.0', 'topo'], /topo accepts only -c and -N/],
    [['dmon'], /unknown command 'dmon': use topo for the topology, gaudi-ucx top for a live view/],
  ])('refuses %j', async (args, message) => {
    const { code, out, err } = await refusal(['smi', ...args]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });
});
