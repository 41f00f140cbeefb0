/** `gaudi-ucx web` and `node up --web` as processes: the addresses that they print, the exchange of the demo over the node of the page, and wrong options. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { WebModel } from '../../../src/tools/model/web-model.ts';
import { MAIN, refusal, useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
let child: ChildProcess | undefined;

afterEach(async () => {
  if (child?.exitCode === null && child.signalCode === null) {
    child.kill('SIGKILL');
    await once(child, 'close');
  }
});

/** Starts a command, and waits for the address of the page. */
async function start(args: readonly string[]): Promise<{ readonly url: string; readonly out: string }> {
  const env = {
    ...process.env,
    UCX_GAUDI_DRIVER: 'emulator',
    UCX_GAUDI_EMULATOR_CARDS: '2',
    XDG_RUNTIME_DIR: cli.folder,
  };
  child = spawn(process.execPath, [MAIN, ...args], {
    env: { ...env, HOME: cli.folder },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let out = '';
  child.stdout!.on('data', (bytes: Buffer) => {
    out += bytes.toString();
  });
  await vi.waitFor(() => expect(out).toMatch(/token=\S+\n/), { timeout: 30_000 });
  return { url: /http:\S+/.exec(out)![0], out };
}

async function end(): Promise<void> {
  const closed = once(child!, 'close');
  child!.kill('SIGTERM');
  expect(await closed).toEqual([0, null]);
}

/** The models of the page, as they come. */
async function* models(url: string, signal: AbortSignal): AsyncGenerator<WebModel, void, void> {
  const response = await fetch(url.replace('/?', '/events?'), { signal });
  let text = '';
  for await (const bytes of response.body!) {
    text += Buffer.from(bytes).toString();
    const events = text.split('\n\n');
    text = events.pop()!;
    for (const event of events) yield JSON.parse(event.replace(/^data: /, '')) as WebModel;
  }
}

describe('gaudi-ucx web', { timeout: 120_000 }, () => {
  it('serves its own node, over which the exchange of the demo runs; its traffic is seen', async () => {
    const { url, out } = await start(['web', '--port', '0', '--interval', '100ms']);
    expect(out).toMatch(
      /^to use the cards of this page, start programs with UCX_GAUDI_DRIVER=emulator:\S+\nhttp:\/\/127\.0\.0\.1:\d+\/\?token=\S+\n$/,
    );
    const headers = { 'x-gaudi-ucx-token': /token=(\S+)/.exec(url)![1]! };
    const ask = async (): Promise<[number, string]> => {
      const response = await fetch(new URL('/exchange', url), { method: 'POST', headers });
      return [response.status, await response.text()];
    };
    expect(await ask()).toEqual([200, 'the exchange has started']);
    expect(await ask()).toEqual([400, expect.stringContaining('the exchange is already running')]);
    const ending = new AbortController();
    let last: WebModel | undefined;
    let [linkBytes, programs, pids] = [0, 0, new Set<number>()];
    for await (const model of models(url, ending.signal)) {
      last = model;
      linkBytes += model.top.links.reduce((sum, { bytesPerSecond = 0 }) => sum + bytesPerSecond, 0);
      programs = Math.max(programs, model.processCount);
      for (const { pid } of model.top.cards) if (pid !== undefined) pids.add(pid);
      if (model.exchange.state !== 'running') break;
    }
    ending.abort();
    expect(last!.exchange.state).toBe('done');
    expect(last!.exchange.output).toContain('emulated');
    expect([linkBytes > 0, programs >= 1, pids.size >= 2]).toEqual([true, true, true]);
    await end();
  });

  it('is a part of a node server with --web, and ends with it', async () => {
    const socket = join(cli.folder, 'web-node.sock');
    const { url, out } = await start(['node', 'up', '--foreground', '--socket', socket, '--web', '0']);
    expect(out).toMatch(/^node server up: 2 x gaudi2, .*\nhttp:/);
    expect((await fetch(url)).status).toBe(200);
    expect(cli.output(['node', 'down', '--socket', socket])).toMatch(/has ended/);
    if (child!.exitCode === null) await once(child!, 'close');
    expect(child!.exitCode).toBe(0);
  });

  it.each([
    [['web', '--port', '65536'], /--port must be a port from 0 to 65535/],
    [['web', '--port', 'http'], /--port must be a port/],
    [['web', '--interval', '1ms'], /--interval must be a time from 100ms/],
    [['node', 'up', '--foreground', '--web', 'x'], /--web must be a port/],
  ])('refuses %j', async (args, message) => {
    const { code, out, err } = await refusal(args);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
  });
});
