/** Which node has the cards of a context: in its attributes, in inspect and in metrics; and how systemd learns that a node server serves. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import type { InspectAnswer } from '../../../src/assembly/inspect/inspect-client.ts';
import { Context, type ContextOptions } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { MAIN, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const env = { XDG_RUNTIME_DIR: cli.folder };

/** What is shown of a context that is open meanwhile. */
async function shownOf(options: ContextOptions): Promise<{ node: unknown; text: string; info: string }> {
  const context = await Context.create({ env, ...options });
  try {
    const [answer] = JSON.parse(await cli.outputHere(['inspect', '--json'])) as InspectAnswer[];
    const { node } = answer!.snapshot!.contexts[0]!;
    expect(JSON.parse(JSON.stringify(context.query().node))).toEqual(node);
    const text = (await cli.outputHere(['inspect'])).split('\n').find((line) => line.includes('engine'))!;
    const metrics = await cli.outputHere(['metrics', '--once']);
    return { node, text, info: /^ucx_context_info\{.*/m.exec(metrics)![0] };
  } finally {
    await context.close();
  }
}

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('the node of a context over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('is its node server, also after another has started, or private (needs libucp)', async () => {
    const up = async (): Promise<number> => {
      expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
      return JSON.parse(await cli.outputHere(['node', 'status', '--json'])).pid;
    };
    const first = await up();
    const driver = `emulator:${cli.socket}` as const;
    const old = await Context.create({ env, driver, engine });
    await cli.outputHere(['node', 'down']);
    const second = await up();
    expect(old.query().node).toEqual({ kind: 'server', pid: first, socket: cli.socket });
    await old.close();
    const served = await shownOf({ driver, engine });
    expect(served.node).toEqual({ kind: 'server', pid: second, socket: cli.socket });
    expect(served.text).toMatch(new RegExp(`, cards emulated by node server ${second} at ${cli.socket}$`));
    expect(served.info).toContain(`cards="emulated",node="${cli.socket}",node_pid="${second}"`);
    const own = await shownOf({ ...fixture.quiet({ env, node: fixture.node() }) });
    expect(own.node).toEqual({ kind: 'private' });
    expect(own.text).toMatch(/, cards emulated in this process only$/);
    expect(own.info).toContain('cards="emulated",node="private"}');
  });
});

/** Receives one datagram at a socket, as systemd does, and prints it. */
const RECEIVER = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1].replace('@', '\\0', 1))
print('bound', flush=True)
print(s.recv(100).decode(), flush=True)
`;

describe('a node server of a unit with Type=notify', () => {
  it.each([
    ['a path', (name: string) => join(cli.folder, name)],
    ['an abstract socket', (name: string) => `@gaudi-ucx-test-${process.pid}-${name}`],
  ])('tells that it serves, at %s', async (_what, socketOf) => {
    const socket = socketOf('notify');
    const receiver = spawn('python3', ['-c', RECEIVER, socket], { stdio: ['ignore', 'pipe', 'inherit'] });
    const received = once(receiver, 'close');
    const lines = createInterface({ input: receiver.stdout });
    expect(await once(lines, 'line')).toEqual(['bound']);
    const server = spawn(process.execPath, [MAIN, 'node', 'up', '--foreground', '--cards', '1'], {
      env: cli.environment({ NOTIFY_SOCKET: socket }),
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const ended = once(server, 'close');
    try {
      expect(await once(lines, 'line')).toEqual(['READY=1']);
      expect(JSON.parse(await cli.outputHere(['node', 'status', '--json']))).toMatchObject({ pid: server.pid });
    } finally {
      server.kill('SIGTERM');
      await Promise.all([received, ended]);
    }
  });
});
