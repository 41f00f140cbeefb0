/** The command line while the node server is stopped (SIGSTOP): no command waits for it, and each says that it is stopped. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { isProcessAlive } from '../../../src/sys/index.ts';
import { MAIN, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
let pid = 0;

describe('while the node server is stopped', { timeout: 120_000 }, () => {
  beforeEach(async () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    pid = JSON.parse(await cli.outputHere(['node', 'status', '--json'])).pid;
    await signalAndWait('SIGSTOP', /\) T /);
  });
  afterEach(() => {
    if (isProcessAlive(pid)) process.kill(pid, 'SIGCONT');
  });

  it('commands that show the cards fail', async () => {
    for (const args of [['smi'], ['top', '--once'], ['info', '-s'], ['web', '--port', '0'], ['node', 'status']]) {
      const { code, out, err } = cli.run(args);
      expect.soft({ code, out }, args.join(' ')).toEqual({ code: 1, out: '' });
      expect.soft(err, args.join(' ')).toMatch(`node server ${pid} is stopped`);
      expect.soft(err, args.join(' ')).toMatch(/\(ERR_NODE_REFUSED\)\n$/);
    }
    const doctor = cli.run(['doctor', '--json']);
    expect(doctor.code).toBe(1);
    expect(doctor.out).toContain(`node server ${pid} is stopped`);
    await signalAndWait('SIGCONT', /\) [RS] /);
    expect((await cli.outputHere(['smi', '-L'])).trim().split('\n')).toHaveLength(1);
  });

  it.each([['down'], ['fault', '0', 'malfunction'], ['status']])(
    'node %s fails, and has no effect later',
    async (...args) => {
      const { code, err } = cli.run(['node', ...args]);
      expect(code).toBe(1);
      expect(err).toMatch(`node server ${pid} is stopped`);
      await signalAndWait('SIGCONT', /\) [RS] /);
      // Connections are served in their order: that of the failed command was first.
      for (let i = 0; i < 2; i++) {
        const status = JSON.parse(await cli.outputHere(['node', 'status', '--json']));
        expect(status).toMatchObject({ pid, cards: [{ status: 'operational' }], clients: [] });
      }
      expect(isProcessAlive(pid)).toBe(true);
    },
  );

  it('node up says that the server is stopped', () => {
    const { code, err } = cli.run(['node', 'up', '--cards', '1']);
    expect(code).toBe(1);
    expect(err).toMatch(`already runs at ${cli.socket}: node server ${pid} is stopped`);
  });

  it('node down ends the server after it has continued, and programs that use it meanwhile keep it', async () => {
    expect(cli.run(['node', 'down']).code).toBe(1);
    await signalAndWait('SIGCONT', /\) [RS] /);
    const context = await Context.create({ driver: `emulator:${cli.socket}` });
    const memory = context.memMap({ allocate: 4096, memoryType: 'gaudi' });
    const bytes = Uint8Array.from({ length: 4096 }, (_, index) => index % 251);
    await memory.write(bytes);
    const read = new Uint8Array(4096);
    await memory.read(read);
    expect(read).toEqual(bytes);
    await context.close();
    expect(await cli.outputHere(['node', 'down'])).toBe(`node server ${pid} has ended\n`);
    await expect.poll(() => isProcessAlive(pid)).toBe(false);
  });

  it('metrics has what there is, and says that the cards are not read', async () => {
    const once = await cli.runHere(['metrics', '--once']);
    expect(once.code).toBe(1);
    expect(once.err).toMatch(`node server ${pid} is stopped`);
    expect(once.out).toMatch(/^ucx_node_up 0$/m);
    expect(once.out).toMatch(/^# TYPE ucx_process_answers gauge$/m);
    expect(once.out).not.toMatch(/^habanalabs_device_up\{/m);
    await signalAndWait('SIGCONT', /\) [RS] /);
    const again = await cli.outputHere(['metrics', '--once']);
    expect(again).toMatch(/^ucx_node_up 1$/m);
    expect(again.match(/^habanalabs_device_up\{/gm)).toHaveLength(1);
  });

  it('the server of metrics answers, and warns once', async () => {
    const exporter = spawn(process.execPath, [MAIN, 'metrics', '--port', '0'], {
      env: { ...cli.environment() },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const ended = once(exporter, 'close');
    let warnings = '';
    exporter.stderr.on('data', (bytes: Buffer) => {
      warnings += bytes.toString();
    });
    try {
      const [url] = (await once(exporter.stdout, 'data')) as [Buffer];
      const scrape = async (): Promise<string> => (await fetch(url.toString().trim())).text();
      for (let i = 0; i < 2; i++) expect(await scrape()).toMatch(/^ucx_node_up 0$/m);
      await signalAndWait('SIGCONT', /\) [RS] /);
      expect(await scrape()).toMatch(/^ucx_node_up 1$/m);
    } finally {
      exporter.kill('SIGTERM');
      await ended;
    }
    expect(warnings.match(/the cards cannot be read: /g)).toHaveLength(1);
    expect(warnings).toContain(`node server ${pid} is stopped`);
  });
});

describe('smi -l', { timeout: 60_000 }, () => {
  it('ends when the node server is killed, and says that it has ended', async () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    const { pid: server } = JSON.parse(await cli.outputHere(['node', 'status', '--json']));
    const smi = spawn(process.execPath, [MAIN, 'smi', '-L', '-l', '1'], {
      env: { ...cli.environment() },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    smi.stderr.on('data', (bytes: Buffer) => {
      said += bytes.toString();
    });
    await once(smi.stdout, 'data');
    process.kill(server, 'SIGKILL');
    const [code] = await once(smi, 'close');
    expect({ code, said }).toEqual({
      code: 1,
      said: expect.stringMatching(/the node server at \S+ has ended \(ERR_NODE_UNREACHABLE\)\n$/),
    });
  });
});

/** Sends the signal to the node server, and waits for the state of its process. */
async function signalAndWait(signal: NodeJS.Signals, state: RegExp): Promise<void> {
  process.kill(pid, signal);
  await expect.poll(() => readFileSync(`/proc/${pid}/stat`, 'latin1')).toMatch(state);
}
