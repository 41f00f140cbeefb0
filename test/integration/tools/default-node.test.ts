/** Commands that start programs find the running node server of the user by themselves, as programs do: web shows its cards, and demo uses them. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type { WebModel } from '../../../src/tools/model/web-model.ts';
import { MAIN, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const DRIVER = `to use the cards of this page, start programs with UCX_GAUDI_DRIVER=emulator:${cli.socket}\n`;

describe('a running node server', { timeout: 120_000 }, () => {
  it('is the one that gaudi-ucx web shows', async () => {
    expect(cli.run(['node', 'up', '--cards', '3']).code).toBe(0);
    cli.output(['node', 'fault', '1', 'status', '--status', 'in_reset']);
    const web = spawn(process.execPath, [MAIN, 'web', '--port', '0', '--interval', '100ms'], {
      env: { ...cli.environment() },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(web, 'close');
    try {
      let out = '';
      web.stdout.on('data', (bytes: Buffer) => {
        out += bytes.toString();
      });
      await vi.waitFor(() => expect(out).toMatch(/token=\S+\n/), { timeout: 30_000 });
      expect(out.startsWith(DRIVER), out).toBe(true);
      const { top } = await firstModel(/http:\S+/.exec(out)![0]);
      expect(top.cards.map(({ status }) => status === 'operational')).toEqual([true, false, true]);
    } finally {
      web.kill('SIGTERM');
      expect(await ended).toEqual([0, null]);
    }
  });

  it('is the one whose cards the demo uses', async () => {
    expect(cli.run(['node', 'up', '--cards', '3']).code).toBe(0);
    const { cards } = JSON.parse(cli.output(['demo', '--bytes', '64k', '--repetitions', '1', '--json'])).exchange;
    expect(cards).toEqual([0, 1, 2]);
  });

  it('that was killed is not replaced by another node on the page', async () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    process.kill(JSON.parse(cli.output(['node', 'status', '--json'])).pid, 'SIGKILL');
    await expect.poll(() => cli.run(['node', 'status']).code).toBe(1);
    const { code, out, err } = cli.run(['web', '--port', '0']);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(/it was killed and left its socket.*\(ERR_NODE_UNREACHABLE\)\n$/);
  });

  it('whose folder others may enter is not used, and the reason is logged', async () => {
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    const folder = dirname(cli.socket);
    chmodSync(folder, 0o755);
    try {
      const { code, err } = cli.run(['perftest', '-l', '-t', 'ucp_put_bw', '-n', '10', '-w', '1']);
      expect(code).toBe(0);
      const warned = `no node server at ${cli.socket}: open: EPERM \\([^)]*\\): ${folder} must be a folder that this user owns, with mode 0700`;
      expect(err).toMatch(
        new RegExp(`${warned}, so this process has its own emulated cards, which other processes do not see\n`),
      );
    } finally {
      chmodSync(folder, 0o700);
    }
  });

  it('is described by a file whose unknown field is named', async () => {
    const file = join(cli.folder, 'node.json');
    writeFileSync(file, '{ "crads": 2 }');
    const { code, err } = await cli.runHere(['node', 'up', '--foreground', '--config', file]);
    expect(code).toBe(2);
    expect(err).toMatch(/argument --config must not have the field "crads", only asic, cards, .*, got ".*node\.json"/);
  });
});

async function firstModel(url: string): Promise<WebModel> {
  const response = await fetch(url.replace('/?', '/events?'));
  let text = '';
  // Leaving the loop ends the request.
  for await (const bytes of response.body!) {
    text += Buffer.from(bytes).toString();
    const end = text.indexOf('\n\n');
    if (end >= 0) return JSON.parse(text.slice(0, end).replace(/^data: /, '')) as WebModel;
  }
  throw new Error('the page ended without a model');
}
