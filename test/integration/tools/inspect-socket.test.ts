/** Inspecting processes by their sockets: what they show, who may ask, and what killed, stopped, hostile and slow processes leave. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { WorkerSnapshot } from '../../../src/api/contract/snapshot.ts';
import { type InspectAnswer, inspectProcesses } from '../../../src/assembly/inspect/inspect-client.ts';
import { ownSocketPath } from '../../../src/assembly/inspect/inspect-sockets.ts';
import { listContext, unlistContext } from '../../../src/assembly/inspect/process-snapshot.ts';
import { Context } from '../../../src/index.ts';
import {
  close,
  connectUnix,
  listenUnix,
  memfdCreate,
  pipe2,
  pollReadable,
  SocketType,
  type UnixListener,
  type UnixSocket,
} from '../../../src/sys/index.ts';
import { statsNode } from '../../../src/ucs/stats/stats-node.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { packageVersion } from '../../../src/ucs/sys/package.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { Child } from '../../fixtures/processes/child.ts';
import type { InspectedAnswer, InspectedRequest } from '../../fixtures/programs/inspected-program.ts';
import { MAIN, useCommandLine } from '../../fixtures/tools/command-line.ts';
import { environment } from '../../fixtures/tools/run-command.ts';

const OTHER_USER = { uid: 65_534, gid: 65_534 };
const canBeOther = process.getuid!() === 0 && spawnSync(process.execPath, ['-e', ''], OTHER_USER).status === 0;

const PROGRAM = 'test/fixtures/programs/inspected-program.ts';
const NO_SOCKETS: readonly string[] = [];

let runtimeDirectory: string;
beforeEach(() => {
  runtimeDirectory = mkdtempSync(join(tmpdir(), 'gaudi-ucx-inspect-'));
});
afterEach(() => rmSync(runtimeDirectory, { recursive: true }));

/** The files in the folder of the sockets. */
function sockets(): readonly string[] {
  const folder = join(runtimeDirectory, 'gaudi-ucx');
  return readdirSync(runtimeDirectory).length === 0 ? NO_SOCKETS : readdirSync(folder);
}

function inspect(timeoutNs = 10e9, pid?: number): Promise<InspectAnswer[]> {
  return inspectProcesses({ runtimeDirectory, clock: systemClock, timeoutNs, pid });
}

/** A pipe without data. */
function readEnd(): number {
  const [reader, writer] = pipe2();
  close(writer);
  return reader;
}

/** The only worker of this process. */
async function onlyWorker(): Promise<WorkerSnapshot> {
  const [answer, ...others] = await inspect();
  expect(others).toEqual([]);
  const [worker, ...rest] = answer!.snapshot!.contexts[0]!.workers;
  expect(rest).toEqual([]);
  return worker!;
}

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('the snapshot of a process over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('has its contexts, workers, endpoints, memory, and pending requests (needs libucp)', async () => {
    const env = { XDG_RUNTIME_DIR: runtimeDirectory };
    const { context, worker, endpoint } = await fixture.open({ context: { env } });
    const memory = context.memMap({ allocate: 4096, memoryType: 'gaudi' });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    await endpoint.put(new Uint8Array(4096), rkey);
    rkey.release();
    // So many requests that a list of them would be long.
    const pending = engine === 'native' ? 100_000 : 1000;
    const receives = Array.from({ length: pending }, (_, index) =>
      worker.tagRecvNbx(new Uint8Array(64), 0, 64, 9000 + index),
    );
    const [answer] = await inspect();
    expect(answer).toMatchObject({ pid: process.pid, failure: undefined });
    const { contexts, ...head } = answer!.snapshot!;
    expect(head).toMatchObject({
      format: 3,
      pid: process.pid,
      version: packageVersion(),
      nodeVersion: process.version,
    });
    expect(contexts).toHaveLength(1);
    expect(contexts[0]).toMatchObject({
      engine: { name: engine },
      emulated: true,
      memory: [{ memoryType: 'gaudi', sysDevice: 0, mappings: 1, byteLength: memory.byteLength }],
    });
    expect(contexts[0]!.resources).toContain('gaudi_cpy/gaudi0');
    expect(contexts[0]!.cards).toContainEqual({
      name: 'gaudi0',
      label: 'card 0 (accel0, 0000:19:00.0)',
      moduleId: expect.any(Number),
      submissionsInFlight: 0,
      arenas: [{ byteLength: expect.any(Number), blocks: expect.any(Number), usedPercent: expect.any(Array) }],
      transfers: [{ direction: 'host_to_device', inFlight: 0, operations: 1, byteLength: 4096, errors: 0 }],
    });
    const [seen] = contexts[0]!.workers;
    expect(seen).toMatchObject({ clientId: `0x${worker.clientId.toString(16)}`, endpointCount: 1 });
    expect(seen!.endpoints[0]!.lanes.map(({ transport }) => transport)).toEqual(endpoint.transports);
    expect(seen!.requests).toMatchObject({
      pending,
      ended: 0,
      groups: [
        { protocol: expect.stringMatching(/^tag/), reason: 'message', count: pending, byteLength: 64 * pending },
      ],
    });
    expect(seen!.requests.oldest).toHaveLength(64);
    // JSON has carried what the context says of itself.
    const own = JSON.parse(JSON.stringify(context.snapshot())) as (typeof contexts)[0];
    expect(contexts[0]!.stats).toMatchObject({ className: own!.stats.className, name: own!.stats.name });
    for (const receive of receives) {
      if (typeof receive === 'number' || !receive.cancel()) expect.fail('the receive has ended');
      while (!receive.isCompleted) worker.progress();
      receive.free();
    }
    expect((await onlyWorker()).requests).toMatchObject({ pending: 0, ended: 0, groups: [], oldest: [] });
  });
});

describe('the snapshot of a process', () => {
  const fixture = useContexts('native');
  const open = () => fixture.open({ context: { env: { XDG_RUNTIME_DIR: runtimeDirectory } } });

  it('says what requests wait for', async () => {
    const { context, worker, endpoint } = await open();
    const peer = context.worker();
    const to = worker.endpoint(peer.address());
    const offered = to.tagSendNbx(new Uint8Array(1e6), 0, 1e6, 5);
    const queued = to.tagSendNbx(new Uint8Array(100), 0, 100, 6, { noImmediateCompletion: true });
    const received = worker.tagRecvNbx(new Uint8Array(8), 0, 8, 0xabcdn, 0xffffn);
    const streamed = endpoint.streamRecvNbx(new Uint8Array(8), 0, 8, { waitAll: true });
    const waits = async (): Promise<Record<string, string>> => {
      const [answer] = await inspect();
      const workers = answer!.snapshot!.contexts[0]!.workers;
      const seen = workers.find(({ clientId }) => clientId === `0x${worker.clientId.toString(16)}`)!;
      return Object.fromEntries(seen.requests.oldest.map(({ protocol, waitsFor }) => [protocol, waitsFor]));
    };
    expect(await waits()).toEqual({
      'tag/rndv': 'the reply to the connection request',
      'tag/eager/short': 'the reply to the connection request',
      'tag/recv': 'a message with tag 0xabcd in the bits 0xffff',
      'stream/recv': 'bytes of the stream',
    });
    const first = new Uint8Array(100);
    const sent = peer.tagRecvNbx(first, 0, 100, 6);
    for (let i = 0; i < 100; i++) {
      worker.progress();
      peer.progress();
    }
    expect(await waits()).toMatchObject({ 'tag/rndv': 'the reply of the peer' });
    const long = peer.tagRecvNbx(new Uint8Array(1e6), 0, 1e6, 5);
    for (const cancelled of [received, streamed])
      if (typeof cancelled === 'object') expect(cancelled.cancel()).toBe(true);
    for (const request of [offered, queued, sent, long, received, streamed]) {
      if (typeof request !== 'object') continue;
      while (!request.isCompleted) {
        worker.progress();
        peer.progress();
      }
      request.free();
    }
  });

  it('has unexpected messages, and names the worker at the other end', async () => {
    const { context, worker } = await open();
    const peer = context.worker();
    const to = peer.endpoint(worker.address());
    const sends = [0x10, 0x20].map((tag) => to.tagSend(new Uint8Array(100 + tag), { tag }));
    const seen = async (id: bigint): Promise<WorkerSnapshot> => {
      const [answer] = await inspect();
      return answer!.snapshot!.contexts[0]!.workers.find(({ clientId }) => clientId === `0x${id.toString(16)}`)!;
    };
    while (worker.tagProbe(0x20) === undefined) {
      worker.progress();
      peer.progress();
    }
    const [own, other] = [await seen(worker.clientId), await seen(peer.clientId)];
    expect(own.unexpected).toMatchObject({
      messages: 2,
      first: [
        { tag: '0x10', byteLength: 116 },
        { tag: '0x20', byteLength: 132 },
      ],
    });
    expect(other.endpoints).toMatchObject([{ peer: own.id, state: 'connected', isClaimed: true }]);
    for (const tag of [0x10, 0x20]) await worker.tagRecv(new Uint8Array(200), { tag });
    await Promise.all(sends);
    expect((await seen(worker.clientId)).unexpected).toMatchObject({ messages: 0, messageBytes: 0, first: [] });
  });
});

describe('the socket', () => {
  const fixture = useContexts('native');
  const env = () => ({ XDG_RUNTIME_DIR: runtimeDirectory });

  it('is for this user only, is shared by the contexts of a thread, and goes with the last', async () => {
    const node = fixture.node();
    const first = await Context.create(fixture.quiet({ node, env: env() }));
    const path = ownSocketPath(runtimeDirectory);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(runtimeDirectory, 'gaudi-ucx')).mode & 0o777).toBe(0o700);
    const second = await Context.create(fixture.quiet({ node, env: env(), config: { ACC_DEVICES: '^gaudi*' } }));
    expect(sockets()).toHaveLength(1);
    expect((await inspect())[0]!.snapshot!.contexts).toHaveLength(2);
    await first.close();
    expect((await inspect())[0]!.snapshot!.contexts).toHaveLength(1);
    await second.close();
    expect(sockets()).toEqual([]);
  });

  it('is not made with UCX_INSPECT=n, and its folder may be unusable unless UCX_INSPECT=y', async () => {
    const node = fixture.node();
    const create = (mode: string) => Context.create(fixture.quiet({ node, env: env(), config: { INSPECT: mode } }));
    const silent = await create('n');
    expect(sockets()).toEqual([]);
    await silent.close();
    const folder = join(runtimeDirectory, 'gaudi-ucx');
    mkdirSync(folder);
    chmodSync(folder, 0o755);
    const served = await create('try');
    expect(sockets()).toEqual([]);
    await served.close();
    await expect(create('y')).rejects.toMatchObject({ code: 'ERR_SYSCALL_EPERM' });
  });

  it('holds nothing for clients that connect and never read', async () => {
    await fixture.open({ context: { env: env() } });
    const clients = Array.from({ length: 100 }, () =>
      connectUnix(ownSocketPath(runtimeDirectory), SocketType.SEQPACKET),
    );
    // All of them were answered before this one.
    expect((await inspect())[0]!.failure).toBeUndefined();
    for (const client of clients) {
      const fds: number[] = [];
      expect(client.recvmsg(new Uint8Array(8), fds)).toBe(1);
      for (const fd of fds) close(fd);
      client.close();
    }
  });

  it.skipIf(!canBeOther)('refuses other users (needs root, and a Node.js that others may execute)', async () => {
    await fixture.open({ context: { env: env() } });
    const path = ownSocketPath(runtimeDirectory);
    const connect = `require('net').connect(${JSON.stringify(path)}).on('error', ({ code }) => console.log(code))`;
    const asOther = () => spawnSync(process.execPath, ['-e', connect], { ...OTHER_USER, encoding: 'utf8' });
    expect(asOther().stdout).toBe('EACCES\n');
    // Also where the folders would let them in.
    for (const folder of [runtimeDirectory, join(runtimeDirectory, 'gaudi-ucx')]) chmodSync(folder, 0o755);
    expect(asOther().stdout).toBe('EACCES\n');
  });

  it('of a process that has ended is removed, and one that cannot be judged is kept', async () => {
    await fixture.open({ context: { env: env() } });
    const own = ownSocketPath(runtimeDirectory);
    const [namespace] = /(?<=\/inspect-)\d+/.exec(own)!;
    const folder = join(runtimeDirectory, 'gaudi-ucx');
    const { pid } = spawnSync('true');
    const stale = `inspect-${namespace}-${pid}-${pid}-1-00000000.sock`;
    const unready = `${stale}.new`;
    const ended = `inspect-${namespace}-${process.pid}-4194304-${/\d+-[\da-f]+(?=\.sock)/.exec(own)![0]}.sock`;
    const elsewhere = `inspect-1-${pid}-${pid}-1-00000000.sock`;
    for (const name of [stale, unready, ended, elsewhere, 'node.sock']) writeFileSync(join(folder, name), '');
    expect(await inspect()).toHaveLength(1);
    // Nothing listens there: that is seen by connecting.
    expect(sockets()).toEqual([own.slice(folder.length + 1), 'node.sock'].sort());
  });

  it('survives a snapshot that fails, and tells the client why', async () => {
    await fixture.open({ context: { env: env() } });
    fixture.allow(/^inspect: cannot send a snapshot: broken$/);
    const broken = {
      snapshot() {
        throw new TypeError('broken');
      },
      stats: () => statsNode('ucp_context', '', {}),
    };
    listContext(broken, true);
    try {
      expect(await inspect()).toMatchObject([{ snapshot: undefined, failure: 'no snapshot: broken' }]);
    } finally {
      unlistContext(broken);
    }
    const text = 'inspect: cannot send a snapshot: broken';
    expect(fixture.records.filter(({ message }) => message === text)).toHaveLength(1);
    // After the pause of the server.
    expect((await inspect())[0]!.failure).toBeUndefined();
  });

  it('shows the contexts that are served only', async () => {
    const node = fixture.node();
    const silent = await Context.create(fixture.quiet({ node, env: env(), config: { INSPECT: 'n' } }));
    const shown = await Context.create(
      fixture.quiet({ node, env: env(), config: { INSPECT: 'y', ACC_DEVICES: '^gaudi*' } }),
    );
    expect((await inspect())[0]!.snapshot!.contexts).toHaveLength(1);
    await shown.close();
    await silent.close();
  });

  it.skipIf(process.getuid!() !== 0)('of another user is inspected by the superuser (needs root)', async () => {
    const path = ownSocketPath(runtimeDirectory);
    for (const folder of [runtimeDirectory, join(runtimeDirectory, 'gaudi-ucx')]) chmodSync(folder, 0o777);
    process.seteuid!(65_534);
    let listener: UnixListener;
    try {
      listener = listenUnix(path, SocketType.SEQPACKET);
    } finally {
      process.seteuid!(0);
    }
    const subscription = pollReadable(listener.fd, () => {
      const client = listener.accept();
      client?.sendmsg(Buffer.from('no snapshot: \x1b[2Jtest'));
      client?.close();
    });
    expect(await inspect()).toMatchObject([{ failure: 'no snapshot: ?[2Jtest' }]);
    subscription.close();
    listener.close();
  });

  it('of a process that closes the connection is not taken for one that has ended', async () => {
    const listener = listenUnix(ownSocketPath(runtimeDirectory), SocketType.SEQPACKET);
    const subscription = pollReadable(listener.fd, () => {
      for (let client = listener.accept(); client !== undefined; client = listener.accept()) client.close();
    });
    expect(await inspect()).toMatchObject([{ pid: process.pid, failure: 'connection closed without a reply' }]);
    subscription.close();
    listener.close();
  });

  it.each([
    ['a pipe', readEnd, 'the reply is not sealed memory'],
    ['memory that it can change', () => memfdCreate('changing', { sealing: true }), 'the reply is not sealed memory'],
    ['no descriptor', () => undefined, 'the reply has no snapshot'],
  ])('of a hostile process that answers with %s is reported as such', async (_what, answer, failure) => {
    const path = ownSocketPath(runtimeDirectory);
    const listener = listenUnix(path, SocketType.SEQPACKET);
    const accepted: UnixSocket[] = [];
    const subscription = pollReadable(listener.fd, () => {
      for (let client = listener.accept(); client !== undefined; client = listener.accept()) {
        const fd = answer();
        client.sendmsg(new Uint8Array(1), fd === undefined ? [] : [fd]);
        if (fd !== undefined) close(fd);
        accepted.push(client);
      }
    });
    expect(await inspect()).toEqual([{ pid: process.pid, tid: process.pid, snapshot: undefined, failure }]);
    subscription.close();
    for (const client of accepted) client.close();
    listener.close();
  });
});

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('UCX_PRINT_TRANSPORT_TABLES over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere).each([
    [{ PRINT_TRANSPORT_TABLES: 'y' }, 1],
    [{ PRINT_TRANSPORT_TABLES: 'n', LOG_LEVEL: 'info' }, 0],
    [{ LOG_LEVEL: 'info' }, 1],
    [{}, 0],
  ])('%j prints %i table with what is used and what is not (needs libucp)', async (config, count) => {
    await fixture.open({ context: { config: { TLS: 'tcp,self,gaudi_cpy', ACC_DEVICES: 'gaudi1', ...config } } });
    const lines = fixture.records.map(({ message }) => message);
    expect(lines.filter((line) => line.startsWith(`transports and devices of the engine ${engine} `))).toHaveLength(
      count,
    );
    expect(lines.filter((line) => line === '  gaudi_cpy/gaudi1')).toHaveLength(count);
    // posix is one of the transports of libucp there.
    const unused = engine === 'native' ? /^ {2}posix\S* is unusable: \S/ : /^ {2}gaudi_ipc\S* is unusable: \S/;
    expect(lines.some((line) => unused.test(line))).toBe(count === 1);
  });
});

describe('other processes', () => {
  const cli = useCommandLine();
  const children: Child<InspectedRequest, InspectedAnswer>[] = [];
  const start = async (settings: Record<string, string> = {}) => {
    const env = { ...process.env, XDG_RUNTIME_DIR: runtimeDirectory, UCX_GAUDI_EMULATOR_CARDS: '1', ...settings };
    const child = new Child<InspectedRequest, InspectedAnswer>(PROGRAM, [], { env });
    children.push(child);
    await child.next();
    return child;
  };
  afterEach(async () => {
    for (const child of children.splice(0)) await child.kill();
  });

  it('are shown by the command, one or all, and by their log at a signal; those that end, and those that are stopped, too', async () => {
    const [one, two] = await Promise.all([start({ UCX_DEBUG_SIGNO: 'USR2', UCX_STATS_LATENCY: 'y' }), start()]);
    await one.ask({ do: 'work' });
    const env = { XDG_RUNTIME_DIR: runtimeDirectory };
    const both = cli.output(['inspect'], env);
    expect(both.match(/^process \d+ on /gm)).toHaveLength(2);
    expect(both).toMatch(/pending: 1 tag\/recv, 100 bytes, wait for: message/);
    expect(both).toMatch(/waits for a message with tag 0x4d/);
    const json = cli.output(['inspect', String(one.pid), '--json'], env);
    const [answer, ...others] = JSON.parse(json) as InspectAnswer[];
    expect(others).toEqual([]);
    expect(answer).toMatchObject({ pid: one.pid, tid: one.pid });
    expect(answer!.snapshot!.latencies).toContainEqual(
      expect.objectContaining({ transport: 'gaudi_cpy', size: '<=16K', count: 1, bytes: 4096, failures: 0 }),
    );
    const watch = spawn(process.execPath, [MAIN, 'inspect', '--watch', '100ms', '--json'], {
      env: environment(env),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let lines = 0;
    for await (const line of createInterface({ input: watch.stdout })) {
      expect((JSON.parse(line) as InspectAnswer[]).map(({ pid }) => pid)).toEqual(
        [one.pid, two.pid].sort((a, b) => a - b),
      );
      lines += 1;
      if (lines === 3) break;
    }
    watch.kill('SIGINT');
    expect(await once(watch, 'exit')).toEqual([0, null]);
    // The dump is in the log of the process when it has answered the next request.
    process.kill(one.pid, 'SIGUSR2');
    for (let asked = 0; asked < 1000 && !one.errors.includes('waits for'); asked++) await one.ask({ do: 'work' });
    expect(one.errors).toMatch(/UCX {2}INFO {2}process \d+ on /);
    expect(one.errors).toMatch(/waits for a message with tag 0x4d/);
    expect(one.isRunning).toBe(true);
    two.signal('SIGSTOP');
    const silent = await inspect(200e6, two.pid);
    expect(silent).toMatchObject([
      { pid: two.pid, snapshot: undefined, failure: expect.stringMatching(/^no reply within 0.2 s/) },
    ]);
    // It is killed during the request.
    const asked = inspect(20e9, two.pid);
    await two.kill();
    expect(await asked).toEqual([]);
    expect(await inspect(20e9, two.pid)).toEqual([]);
    expect(sockets()).toHaveLength(1);
    await one.ask({ do: 'close' });
    expect(await one.end()).toBe(0);
    expect(sockets()).toEqual([]);
    const none = cli.run(['inspect', String(one.pid)], env);
    expect(none).toMatchObject({ code: 1, out: '' });
    expect(none.err).toContain('ERR_INSPECT_NOT_FOUND');
  });
});
