/** `gaudi-ucx node` as a user runs it, and programs that find the server automatically. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { processExists } from '../../../src/sys/index.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, refusal, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const MODE_BITS = 0o777;

const cli = useNodeCommandLine();
const { folder, socket } = cli;

async function status(): Promise<{
  pid: number;
  cards: { status: string; dramBytes: number; faultsWaiting: number }[];
  links: string;
}> {
  return JSON.parse((await cli.runHere(['node', 'status', '--json'])).out);
}

describe('gaudi-ucx node', { timeout: 120_000 }, () => {
  it('starts a server for this user alone, shows it, and ends it', async () => {
    const started = cli.run(['node', 'up', '--cards', '3', '--asic', 'gaudi2', '--hbm', '8448MiB', '--links', '^0-1']);
    expect(started).toMatchObject({ code: 0, err: '' });
    expect(started.out).toMatch(/^node server up: 3 x gaudi2, links \^0-1, socket \S+node\.sock, pid \d+\n$/);
    expect(statSync(socket).mode & MODE_BITS).toBe(0o600);
    expect(statSync(join(folder, 'gaudi-ucx')).mode & MODE_BITS).toBe(0o700);
    const { pid, cards, links } = await status();
    expect(links).toBe('^0-1');
    expect(cards.map(({ dramBytes }) => dramBytes)).toEqual([8448, 8448, 8448].map((mib) => mib * 2 ** 20));
    expect(processExists(pid)).toBe(true);
    expect((await cli.runHere(['node', 'status'])).out).toMatch(
      /^node server \d+ at .*: 3 x gaudi2, links \^0-1\ncard /,
    );
    const second = cli.run(['node', 'up']);
    expect(second).toMatchObject({ code: 1, out: '' });
    expect(second.err).toMatch(/a node server already runs at/);
    // The running server is not affected.
    expect((await status()).pid).toBe(pid);
    expect(await cli.runHere(['node', 'down'])).toEqual({ code: 0, out: `node server ${pid} has ended\n`, err: '' });
    expect(existsSync(socket)).toBe(false);
    const gone = await cli.runHere(['node', 'status']);
    expect(gone.code).toBe(1);
    expect(gone.err).toMatch(/no node server at .*ERR_NODE_UNREACHABLE/);
  });

  it('reads a file, which options override', () => {
    const file = join(folder, 'node.json');
    writeFileSync(file, JSON.stringify({ cards: 2, asic: 'gaudi', links: 'full' }));
    expect(cli.run(['node', 'up', '--config', file, '--cards', '1']).out).toMatch(/1 x gaudi, links full/);
  });

  it('gives each client RDMA devices, over which HBM goes from process to process', async () => {
    expect(cli.run(['node', 'up', '--cards', '2', '--nics', '1']).out).toMatch(
      /: 2 x gaudi2, links full, RDMA devices 1, socket/,
    );
    expect((await cli.runHere(['node', 'status'])).out).toMatch(/links full, RDMA devices 1\n/);
    const env = { UCX_TLS: 'rc,gaudi_cpy,self' };
    const args = ['explain', '--peer', 'process', '--local', 'gaudi', '--remote', 'gaudi', '--size', '1M'];
    const { code, out, err } = cli.run(args, env);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toMatch(/^1\.0 MiB +put\/zcopy +rc\/hca0:1 .*\n +dma-buf, PCI switch/m);
  });

  it.each([
    [['--cards', '9'], /cards must be an integer from 1 to 8/],
    [['--cards', 'many'], /cards must be an integer/],
    [['--hbm', '5 apples'], /hbm must be a size/],
    [['--nics', '9'], /nics must be an integer from 0 to 8/],
    [['--links', '0-1'], /links must be full/],
    [['--links', '^0-9'], /--links must be pairs/],
    [['--asic', 'gaudi9'], /asic must be/],
  ])('refuses up %o', async (args, message) => {
    const { code, err } = await refusal(['node', 'up', '--foreground', '--socket', socket, ...args]);
    expect(code).toBe(2);
    expect(err).toMatch(message);
    expect(existsSync(socket)).toBe(false);
  });

  it('is refused where a server runs already, with one code', () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    const { code, err } = cli.run(['node', 'up', '--cards', '1']);
    expect(code).toBe(1);
    expect(err).toMatch(/did not start: a node server already runs at \S+ \(ERR_NODE_RUNNING\)\n$/);
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)(
    'in the foreground ends at %s and leaves no socket',
    async (signal) => {
      const path = join(folder, 'foreground.sock');
      const args = [MAIN, 'node', 'up', '--foreground', '--cards', '1', '--socket', path];
      const server = spawn(process.execPath, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
      const ended = once(server, 'exit');
      await once(server.stdout, 'data');
      server.kill(signal);
      expect(await ended).toEqual([0, null]);
      expect(existsSync(path)).toBe(false);
    },
  );

  it('does not replace other files by its socket', () => {
    const file = join(folder, 'node.json');
    writeFileSync(file, '{}');
    expect(cli.run(['node', 'up', '--socket', file])).toMatchObject({
      code: 2,
      err: expect.stringContaining('must be the path of a socket, not of another file'),
    });
    expect(readFileSync(file, 'utf8')).toBe('{}');
  });

  it('does not trust a folder that other users can access', async () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    chmodSync(join(folder, 'gaudi-ucx'), 0o777);
    expect((await cli.runHere(['node', 'status'])).err).toMatch(/must be a folder that this user owns, with mode 0700/);
    chmodSync(join(folder, 'gaudi-ucx'), 0o700);
    expect((await cli.runHere(['node', 'status'])).code).toBe(0);
  });

  it('names the folder that it cannot create', () => {
    const { code, err } = cli.run(['node', 'up'], { XDG_RUNTIME_DIR: '/proc/none' });
    expect({ code, err }).toEqual({ code: 1, err: expect.stringMatching(/mkdir.*ENOENT.*\/proc\/none/) });
  });

  it.each([
    ['relative', 'none'],
    ['too long', `/tmp/${'x'.repeat(83)}`],
  ])('ignores a %s XDG_RUNTIME_DIR', async (_, runtimeDirectory) => {
    const { err } = await cli.runHere(['node', 'status'], { XDG_RUNTIME_DIR: runtimeDirectory });
    expect(err).toMatch(/ \/tmp\/gaudi-ucx-\d+\/node\.sock/);
  });

  it('is not looked for where XDG_RUNTIME_DIR cannot be entered, and doctor says so', async () => {
    const file = join(folder, 'no-folder');
    writeFileSync(file, '');
    const env = { XDG_RUNTIME_DIR: file };
    expect(await cli.runHere(['info', '-s'], env)).toMatchObject({ code: 0, out: expect.stringContaining('emulated') });
    expect(await cli.runHere(['inspect'], env)).toMatchObject({ code: 1, out: '' });
    expect((await cli.runHere(['doctor'], env)).out).toMatch(
      /^failure +socket folder .*no-folder\/gaudi-ucx: mkdir: ENOTDIR/m,
    );
    const reason = `no node server at ${file}/gaudi-ucx/node.sock: lstat: ENOTDIR`;
    expect(await cli.runHere(['node', 'status'], env)).toMatchObject({ code: 1, err: expect.stringContaining(reason) });
  });

  it('that does not start gives the reason, and leaves no log that it has made', () => {
    const log = `${socket}.log`;
    rmSync(log, { force: true });
    expect(cli.run(['node', 'up', '--config', '/nonexistent'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('ENOENT'),
    });
    expect(cli.run(['node', 'up', '--cards', '9'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('cards must be'),
    });
    expect(existsSync(log)).toBe(false);
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    expect(cli.run(['node', 'up']).code).toBe(1);
    expect(existsSync(log)).toBe(true);
  });

  it('injects faults', async () => {
    expect(cli.run(['node', 'up', '--cards', '2']).code).toBe(0);
    expect(
      (await cli.runHere(['node', 'fault', '1', 'ioctl', '--ioctl', 'memory', '--errno', 'ENOMEM', '--nth', '2'])).code,
    ).toBe(0);
    expect((await cli.runHere(['node', 'fault', '0', 'status', '--status', 'needs_reset'])).code).toBe(0);
    expect((await status()).cards.map((card) => [card.status, card.faultsWaiting])).toEqual([
      ['needs reset', 0],
      ['operational', 1],
    ]);
    expect((await cli.runHere(['node', 'fault', '0', 'recover'])).code).toBe(0);
    expect((await status()).cards[0]!.status).toBe('operational');
    expect((await cli.runHere(['node', 'fault', '0', 'nonsense'])).err).toMatch(/kind must be one of/);
    expect((await cli.runHere(['node', 'fault', '7', 'unplug'])).err).toMatch(/card must be the index/);
    expect((await cli.runHere(['node', 'fault', '0', 'hang', '--delay', 'soon'])).err).toMatch(/delay must be a time/);
  });
});

describe('a program', { timeout: 60_000 }, () => {
  const body = `
    import { Context, MemoryType } from ${builtSpecifier(join(ROOT, 'src/index.ts'))};
    const context = await Context.create({ config: { TLS: 'gaudi_cpy' } });
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const cards = endpoint.transports.filter((name) => name.startsWith('gaudi_cpy/')).length;
    const hbm = context.memMap({ allocate: 2 ** 24, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    for (const length of [1, 8, 4096, 4097, 2 ** 20 + 3, 2 ** 24]) {
      const sent = Uint8Array.from({ length }, (_, i) => i * 7 + (i >> 8));
      await endpoint.put(sent, rkey);
      const received = new Uint8Array(length);
      await endpoint.get(received, rkey);
      if (Buffer.compare(sent, received) !== 0) throw new Error('wrong bytes of ' + length);
    }
    await context.close();
    console.log(cards, context.emulated);
  `;

  it.each([
    ['finds the server without options', (): Record<string, string> => ({})],
    ['names its socket', (): Record<string, string> => ({ UCX_GAUDI_DRIVER: `emulator:${socket}` })],
  ])('puts and gets on a server that it %s', async (_how, env) => {
    expect(cli.run(['node', 'up', '--cards', '3']).code).toBe(0);
    const file = join(folder, 'program.mjs');
    writeFileSync(file, body);
    const options = { cwd: ROOT, encoding: 'utf8', env: cli.environment(env()) } as const;
    expect(spawnSync(process.execPath, [file], options)).toMatchObject({ status: 0, stdout: '3 true\n', stderr: '' });
    expect((await status()).cards).toHaveLength(3);
  });

  it('that names a missing server fails with that reason', async () => {
    const { code, err } = await cli.runHere(['info', '-s'], { UCX_GAUDI_DRIVER: `emulator:${folder}/none.sock` });
    expect(code).toBe(1);
    expect(err).toMatch(/no node server at .*none\.sock.*ERR_NODE_UNREACHABLE/);
  });

  it.each(['emulator:', 'emulator:relative/path'])('refuses UCX_GAUDI_DRIVER=%s', async (value) => {
    const { code, err } = await cli.runHere(['info', '-s'], { UCX_GAUDI_DRIVER: value });
    expect(code).toBe(1);
    expect(err).toMatch(/UCX_GAUDI_DRIVER.*emulator:<absolute path/);
  });
});
