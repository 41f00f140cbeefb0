/** What commands say to an administrator who names the wrong file or port, whose machine has no cards, or whose process or card hangs. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();

describe('commands', { timeout: 60_000 }, () => {
  it.each(['down', 'status'])('node %s fails for a file that is not a socket, and leaves it', async (command) => {
    const file = join(cli.folder, 'plain');
    writeFileSync(file, 'mine');
    const before = readdirSync(cli.folder);
    const { code, out, err } = await cli.runHere(['node', command, '--socket', file]);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toContain(`no node server at ${file}: the path is a file, not a socket`);
    expect(readdirSync(cli.folder)).toEqual(before);
  });

  it('smi -n link fails for a port that no card has', async () => {
    const { code, out, err } = await cli.runHere(['smi', '-n', 'link', '-P', '0,1,30'], {
      UCX_GAUDI_DRIVER: 'emulator',
    });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(/argument -P must be ports of the card 0000:19:00\.0: 0, 1, .*, 23, got "30"/);
  });

  it.skipIf(existsSync('/dev/accel'))('--once fails where the driver has no cards (needs no cards)', async () => {
    const env = { UCX_GAUDI_DRIVER: 'kernel' };
    const top = await cli.runHere(['top', '--once'], env);
    expect(top).toMatchObject({ code: 1, out: '', err: expect.stringContaining('the kernel node has no cards') });
    const metrics = await cli.runHere(['metrics', '--once'], env);
    expect(metrics).toMatchObject({ code: 1, err: expect.stringContaining('the kernel node has no cards') });
    expect(metrics.out).toMatch(/^ucx_node_up 0$/m);
  });

  it('inspect of one process fails if it does not answer', async () => {
    const program = built(join(ROOT, 'test/fixtures/programs/inspected-program.ts'));
    const child = spawn(process.execPath, [program], {
      env: cli.environment({ UCX_GAUDI_DRIVER: 'emulator' }),
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const ended = once(child, 'exit');
    try {
      await expect
        .poll(async () => (await cli.runHere(['inspect', String(child.pid)])).code, { timeout: 20_000 })
        .toBe(0);
      child.kill('SIGSTOP');
      const { code, out } = await cli.runHere(['inspect', String(child.pid), '--timeout', '300ms']);
      expect(code).toBe(1);
      expect(out).toMatch('no reply within 0.3 s');
      expect((await cli.runHere(['inspect', '--timeout', '300ms'])).code).toBe(0);
    } finally {
      child.kill('SIGKILL');
      await ended;
    }
  });
});

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('a card that hangs over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('works on after it has recovered, and has no fault that waits (needs libucp)', async () => {
    const { node, context, endpoint } = await fixture.open();
    const memory = context.memMap({ allocate: 1 << 20, memoryType: 'gaudi' });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const data = Uint8Array.from({ length: 1 << 20 }, (_, index) => index % 251);
    node.inject(0, { kind: 'hang' });
    node.inject(0, { kind: 'hang', nth: 1000 });
    const put = endpoint.put(data, rkey);
    await expect.poll(() => node.card(0).faults.fired).toHaveLength(1);
    expect(node.card(0).faults.pending).toMatchObject([{ kind: 'hang' }]);
    node.inject(0, { kind: 'recover' });
    expect(node.card(0).faults.waiting).toBe(0);
    await put;
    const got = new Uint8Array(1 << 20);
    await endpoint.get(got, rkey);
    expect(Buffer.compare(got, data)).toBe(0);
    rkey.release();
  });
});

it('node status names the faults that wait', { timeout: 60_000 }, async () => {
  expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
  await cli.outputHere(['node', 'fault', '0', 'hang']);
  await cli.outputHere(['node', 'fault', '0', 'exhausted', '--resource', 'hbm']);
  expect(await cli.outputHere(['node', 'status'])).toContain('2/0 (hang, exhausted)');
  await cli.outputHere(['node', 'fault', '0', 'recover']);
  const status = JSON.parse(await cli.outputHere(['node', 'status', '--json']));
  expect(status.cards).toMatchObject([{ faultsWaiting: 0, faultKinds: [] }]);
});
