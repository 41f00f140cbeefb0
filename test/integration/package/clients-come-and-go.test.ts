/** The servers that users start from (examples/service, templates, `explain --serve`) outlive their clients: no endpoint of one that has left stays, and no client ends them. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { HELLO, StoreClient } from '../../../examples/service/store-client.ts';
import { inspectProcesses } from '../../../src/assembly/inspect/inspect-client.ts';
import type { Worker } from '../../../src/index.ts';
import { askPeer } from '../../../src/tools/explain/remote-peer.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { Started } from '../../fixtures/processes/started.ts';
import { built, builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, withoutSettings } from '../../fixtures/tools/command-line.ts';

const CLIENTS = 300;
const WAIT_MS = 20_000;
const HOST = '127.0.0.1';
const TLS = 'self,tcp';
/** Id of the calls of templates/rpc. */
const CALL = 1;

/** A server, as a user starts it. */
interface Server {
  readonly name: string;
  readonly module: string;
  readonly args: readonly string[];
  /** What it prints before it serves, with its port. */
  readonly ready: RegExp;
  /** Sends it what it cannot read. */
  readonly mistake: { readonly id: number; readonly header: Uint8Array };
  /** Has it serve a client, and compares what comes back. */
  readonly use: (worker: Worker, port: number) => Promise<void>;
}

describe.each(ENGINES)('clients that come and go over the engine %s', { timeout: 60_000 }, (engine) => {
  const fixture = useContexts(engine);
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-clients-'));
  const rpc = join(folder, 'rpc.mjs');
  const programs: Started[] = [];
  /** Writes a template as a program of this build, with a change. */
  function writeTemplate(name: string, path: string, change = (source: string): string => source): void {
    const source = change(readFileSync(join(ROOT, 'templates', name, `${name}.ts`), 'utf8'));
    const own = source.replace(/'gaudi-ucx'/g, builtSpecifier(join(ROOT, 'src/index.ts')));
    const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 };
    writeFileSync(path, ts.transpileModule(own, { compilerOptions }).outputText);
  }

  beforeAll(() => writeTemplate('rpc', rpc));
  afterAll(() => rmSync(folder, { recursive: true }));
  afterEach(async () => {
    for (const { child } of programs) child.kill('SIGKILL');
    for (const { ended } of programs.splice(0)) await ended;
  });

  function start(module: string, ...args: readonly string[]): Started {
    const env = { ...withoutSettings(), UCX_GAUDI_DRIVER: 'emulator', UCX_ENGINE: engine, UCX_TLS: `${TLS},gaudi_cpy` };
    const started = new Started(module, args, { env });
    programs.push(started);
    return started;
  }

  async function useStore(worker: Worker, port: number): Promise<void> {
    const client = new StoreClient(worker, port);
    const [source, target] = [Buffer.alloc(4096, `store of port ${port}`), new Uint8Array(4096)];
    await client.write(5, source, AbortSignal.timeout(WAIT_MS));
    await client.read(5, target, AbortSignal.timeout(WAIT_MS));
    expect(Buffer.compare(target, source)).toBe(0);
  }

  async function useRpc(_worker: Worker, port: number): Promise<void> {
    const call = start(rpc, 'call', HOST, String(port), 'upper', 'gaudi');
    expect([await call.ended, call.printed]).toEqual([0, 'GAUDI\n']);
  }

  async function useMemory(worker: Worker, port: number): Promise<void> {
    const { endpoint, key } = await askPeer(worker, { host: HOST, port });
    const rkey = endpoint.unpackRkey(key);
    const [source, target] = [Uint8Array.of(1, 2, 3), new Uint8Array(3)];
    await endpoint.put(source, rkey);
    await endpoint.get(target, rkey);
    expect(target).toEqual(source);
    rkey.release();
    await endpoint.close();
  }

  const servers: readonly Server[] = [
    {
      name: 'store-server.ts',
      module: built(join(ROOT, 'examples/service/store-server.ts')),
      args: [],
      ready: /ready at port (\d+)/,
      mistake: { id: HELLO, header: Uint8Array.of(1) },
      use: useStore,
    },
    {
      name: 'the template rpc',
      module: rpc,
      args: ['serve'],
      ready: /serving at \S+ (\d+)/,
      mistake: { id: CALL, header: Buffer.from('{') },
      use: useRpc,
    },
    {
      name: 'explain --serve',
      module: MAIN,
      args: ['explain', '--serve', HOST],
      ready: /--peer 127\.0\.0\.1:(\d+)/,
      mistake: { id: CALL, header: Uint8Array.of(1) },
      use: useMemory,
    },
  ];

  async function serving({ module, args, ready }: Server): Promise<{ server: Started; port: number }> {
    const server = start(module, ...args);
    const [, port] = await server.saw(ready);
    return { server, port: Number(port) };
  }

  async function endpointsOf({ child }: Started): Promise<number> {
    const runtimeDirectory = process.env['XDG_RUNTIME_DIR'];
    const query = { runtimeDirectory, clock: systemClock, timeoutNs: 20e9, pid: child.pid! };
    const [answer] = await inspectProcesses(query);
    const workers = answer!.snapshot!.contexts.flatMap((context) => context.workers);
    return workers.reduce((sum, { endpointCount }) => sum + endpointCount, 0);
  }

  it.each(servers)('leave no endpoint at $name', async (each) => {
    const { server, port } = await serving(each);
    const before = await endpointsOf(server);
    const { worker } = await fixture.open({ context: { engine, config: { TLS } } });
    for (let index = 0; index < CLIENTS; index++) {
      const endpoint = await worker.connect({ address: HOST, port });
      await endpoint.close({ force: index % 2 === 1 });
    }
    await vi.waitFor(async () => expect(await endpointsOf(server)).toBe(before), { timeout: WAIT_MS });
    await each.use(worker, port);
  });

  it.each(servers)('do not end $name by what it cannot read', async (each) => {
    const { server, port } = await serving(each);
    const { worker } = await fixture.open({ context: { engine, config: { TLS } } });
    const endpoint = await worker.connect({ address: HOST, port });
    await endpoint.amSend(each.mistake.id, new Uint8Array(0), { header: each.mistake.header });
    await endpoint.flush();
    await endpoint.close();
    await each.use(worker, port);
    expect(server.child.exitCode).toBeNull();
  });

  it.each(servers)('do not end $name by having no transport in common with it', async (each) => {
    const { server, port } = await serving(each);
    const { worker: other } = await fixture.open({ context: { engine, config: { TLS: 'self,posix' } } });
    await expect(other.connect({ address: HOST, port })).rejects.toMatchObject({ code: 'ERR_UNREACHABLE' });
    const { worker } = await fixture.open({ context: { engine, config: { TLS } } });
    await each.use(worker, port);
    expect(server.child.exitCode).toBeNull();
  });

  it('leave the template chat waiting for the next one if they have no transport in common with it', async () => {
    const chat = join(folder, 'chat.mjs');
    writeTemplate('chat', chat);
    const listening = start(chat, 'listen');
    const [, port] = await listening.saw(/waiting at \S+ (\d+)/);
    const { worker: other } = await fixture.open({ context: { engine, config: { TLS: 'self,posix' } } });
    await expect(other.connect({ address: HOST, port: Number(port) })).rejects.toMatchObject({
      code: 'ERR_UNREACHABLE',
    });
    const connecting = start(chat, 'connect', HOST, port!);
    connecting.child.stdin!.write('hello\n');
    await listening.saw(/^hello$/m);
    connecting.child.stdin!.end();
    expect([await connecting.ended, await listening.ended]).toEqual([0, 0]);
  });

  it('get an answer of the template rpc for a procedure that throws, rejects or returns nothing, and wait no longer than they say', async () => {
    const [changed, impatient] = [join(folder, 'changed.mjs'), join(folder, 'impatient.mjs')];
    const procedures = `nothing: () => undefined,
      rejects: () => Promise.reject(new Error('the disk is full')),
      circular: () => { const value: unknown[] = []; value.push(value); return value; },
      never: () => new Promise(() => {}),`;
    writeTemplate('rpc', changed, (source) => source.replace('  add: (', () => `${procedures}\n  add: (`));
    writeTemplate('rpc', impatient, (source) => source.replace('ANSWER_MS = 10_000', 'ANSWER_MS = 100'));
    const server = start(changed, 'serve');
    const [, port] = await server.saw(/serving at \S+ (\d+)/);
    const names = ['nothing', 'upper', 'rejects', 'circular', 'never'];
    const calls = names.map((name) => start(name === 'never' ? impatient : changed, 'call', HOST, port!, name));
    expect(await Promise.all(calls.map(({ ended }) => ended))).toEqual([0, 1, 1, 1, 1]);
    const reasons = [
      'null\n',
      "reading 'toUpperCase'",
      'Error: the disk is full',
      'circular structure',
      'TimeoutError',
    ];
    for (const [index, reason] of reasons.entries()) expect(calls[index]!.printed).toContain(reason);
    expect(server.child.exitCode).toBeNull();
  });
});
