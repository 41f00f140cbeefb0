/** `gaudi-ucx perftest` as a user runs it: every test between two processes, over shared memory and over emulated cards, with all data checked. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { connectChannel, placeOf } from '../../../src/tools/perftest/channel.ts';
import { TESTS } from '../../../src/tools/perftest/spec.ts';
import { findPerftest, startPerftestServer, UcxProgram } from '../../fixtures/libucp/ucx-programs.ts';
import { freePort } from '../../fixtures/processes/free-port.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, withoutSettings } from '../../fixtures/tools/command-line.ts';

const HOST: Environment = { UCX_TLS: 'posix,cma,self', UCX_GAUDI_DRIVER: 'kernel' };
const ucxPerftest = findPerftest();
const TIMEOUT = { timeout: 60_000 };
const HEADER = 'b.txt,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr';

type Environment = Readonly<Record<string, string>>;

interface End {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** One process of the tool. */
class Tool {
  readonly child: ChildProcess;
  readonly end: Promise<End>;
  #out = '';
  #err = '';

  constructor(args: readonly string[], env: Environment) {
    this.child = spawn(process.execPath, [MAIN, 'perftest', ...args], {
      cwd: ROOT,
      env: { ...withoutSettings(), HOME: folder, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child.stdout!.on('data', (data: Buffer) => {
      this.#out += data.toString();
    });
    this.child.stderr!.on('data', (data: Buffer) => {
      this.#err += data.toString();
    });
    this.end = once(this.child, 'close').then(([code]) => ({ code, out: this.#out, err: this.#err }));
    running.push(this);
  }

  /** Resolves when it has printed this. */
  async prints(text: string): Promise<void> {
    while (!this.#out.includes(text)) {
      const isOver = await Promise.race([
        once(this.child.stdout!, 'data').then(() => false),
        this.end.then(() => true),
      ]);
      if (isOver && !this.#out.includes(text)) throw new Error(`ended without "${text}": ${this.#out}${this.#err}`);
    }
  }
}

const running: Tool[] = [];
let folder = '';
let sockets = 0;
let node: TestNodeServer;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-perftest-'));
  node = await TestNodeServer.start({ cards: 2 });
});
afterEach(async () => {
  for (const { child, end } of running.splice(0)) {
    child.kill('SIGKILL');
    await end;
  }
});
afterAll(async () => {
  await node.stop();
  rmSync(folder, { recursive: true });
});

/** A server that waits for its client at its own socket. */
async function serve(env: Environment): Promise<{ readonly server: Tool; readonly socket: string }> {
  const socket = join(folder, `socket${sockets++}`);
  const server = new Tool(['-p', socket], env);
  await server.prints('Waiting for connection...');
  return { server, socket };
}

/** Runs both sides, which must succeed, and returns their output. */
async function both(
  args: readonly string[],
  env: Environment,
): Promise<{ readonly client: string; readonly server: string }> {
  const { server, socket } = await serve(env);
  const client = new Tool([socket, ...args], env);
  const [clientEnd, serverEnd] = await Promise.all([client.end, server.end]);
  expect([clientEnd, serverEnd].map(({ code, err }) => ({ code, err }))).toEqual([
    { code: 0, err: '' },
    { code: 0, err: '' },
  ]);
  return { client: clientEnd.out, server: serverEnd.out };
}

function batch(lines: readonly string[]): string {
  const path = join(folder, 'b.txt');
  writeFileSync(path, lines.join('\n'));
  return path;
}

/** The last row of each test, after the header of the CSV; every value is a number, and no rate is 0. A slow machine has rows in between. */
function rowsOf(out: string): Map<string, readonly number[]> {
  const [header, ...lines] = out.trimEnd().split('\n');
  expect(header).toBe(HEADER);
  return new Map(
    lines.map((line) => {
      const [name, ...cells] = line.split(',');
      const numbers = cells.map(Number);
      expect(numbers).toHaveLength(8);
      for (const number of numbers) expect(number).toBeGreaterThanOrEqual(0);
      expect(numbers[3]).toBeGreaterThan(0);
      expect(numbers[7]).toBeGreaterThan(0);
      return [name!, numbers];
    }),
  );
}

const UCT_OPTIONS = (transport: string): string => `-x ${transport} -d memory`;
const linesFor = (transport: string): string[] =>
  TESTS.map(({ name }) => `${name} -t ${name} ${UCT_OPTIONS(transport)}`);

describe('perftest between two processes', TIMEOUT, () => {
  it('runs on several threads, each with its own worker and partner (-T)', async () => {
    const args = ['-b', batch(['tag_bw -t tag_bw', 'put -t ucp_put_lat'])];
    const { client, server } = await both([...args, '-T', '2', '-V', '-n', '200', '-w', '0', '-v', '-f'], HOST);
    expect([...rowsOf(client)].map(([name, [iterations]]) => [name, iterations])).toEqual([
      ['tag_bw', 400],
      ['put', 400],
    ]);
    expect(server).toContain('| Threads:      2');
  });

  it('ends all threads of both sides when one side is killed, or interrupted', async () => {
    for (const signal of ['SIGKILL', 'SIGINT'] as const) {
      const { server, socket } = await serve(HOST);
      const client = new Tool([socket, '-t', 'tag_lat', '-T', '2', '-n', '1000000000', '-v'], HOST);
      await client.prints('iterations,');
      await client.prints('\n');
      client.child.kill(signal);
      const [clientEnd, serverEnd] = await Promise.all([client.end, server.end]);
      expect(clientEnd.code).toBe(signal === 'SIGINT' ? 130 : null);
      expect(serverEnd.code).toBe(1);
      expect(serverEnd.err).toMatch(/^gaudi-ucx: .+ \(ERR_\w+\)\n$/);
    }
  });

  it('sleeps while there is nothing to do (-E sleep)', async () => {
    const lines = ['tag_lat', 'tag_bw', 'tag_sync_lat', 'ucp_am_bw', 'stream_lat'].map((t) => `${t} -t ${t}`);
    for (const tls of ['posix,cma,self', 'tcp']) {
      const args = ['-b', batch(lines), '-E', 'sleep', '-V', '-s', '3000', '-n', '100', '-w', '0', '-v', '-f'];
      const { client, server } = await both(args, { ...HOST, UCX_TLS: tls });
      expect([...rowsOf(client)].map(([name, [iterations]]) => [name, iterations])).toEqual(
        ['tag_lat', 'tag_bw', 'tag_sync_lat', 'ucp_am_bw', 'stream_lat'].map((name) => [name, 100]),
      );
      expect(server).toContain('| Wait mode:    sleep');
    }
  });

  it('runs every test, with all data checked', async () => {
    const lines = [
      ...linesFor('posix'),
      ...TESTS.filter(({ operation }) => !/am|put|get/.test(operation))
        .map(({ name }) => `${name}_32 -t ${name} -s 4 ${UCT_OPTIONS('posix')}`)
        .filter((line) => /add|swap/.test(line)),
      'bcopy -t am_bw -x posix -d memory -D bcopy -s 1000 -W 4',
      'zcopy -t put_lat -x cma -d memory -D zcopy -s 100000',
      'short -t get -x posix -d memory -D short -s 100',
      'iov -t tag_lat -s 16,1000,8 -i 2000 -D iov',
      'gather -t ucp_am_bw -s 16,1000,8 -D contig,iov -H 24',
      'scatter -t stream_lat -s 16,1000,8 -D iov,contig',
      'wild -t tag_bw -C -U -e',
      'data -t stream_bw -r recv_data -s 50000',
      'long -t tag_lat -s 300000',
      'mapped -t tag_bw -s 300000 -z',
      'am -t ucp_am_lat -s 300000',
      'put -t ucp_put_lat -s 300000',
      'pieces -t ucp_put_lat -s 1024:16 -i 2048 -D iov',
      'gathered -t ucp_get -s 100:7,9 -D iov',
      'passive -t ucp_put_bw -o',
    ];
    const { client, server } = await both(['-b', batch(lines), '-v', '-V', '-n', '20', '-w', '0'], HOST);
    const rows = rowsOf(client);
    expect([...rows.keys()]).toEqual(lines.map((line) => line.split(' ')[0]));
    for (const [iterations] of rows.values()) expect(iterations).toBe(20);
    expect(server.match(/^\| Test: /gm)).toHaveLength(lines.length);
    expect(server).not.toContain('emulated');
  });

  it('runs windows of unchecked messages', async () => {
    const names = TESTS.filter(({ api, pattern }) => api === 'UCP' && pattern === 'stream').map(({ name }) => name);
    const lines = [...names.map((name) => `${name} -t ${name} -O 7`), 'am_bw -t am_bw -x posix -d memory'];
    const { client } = await both(['-b', batch(lines), '-v', '-n', '201', '-w', '0'], HOST);
    expect([...rowsOf(client).keys()]).toEqual([...names, 'am_bw']);
  });

  it('prints the table of ucx_perftest', async () => {
    const { client, server } = await both(['-t', 'tag_lat', '-n', '1200', '-w', '0', '-N', '-I', '-R', '99.9'], HOST);
    const lines = client.trimEnd().split('\n');
    expect(lines[1]).toBe(
      '|              |              |        latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |',
    );
    expect(lines[3]).toContain('# iterations | 99.9%ile | average | overall |');
    expect(lines.at(-1)).toMatch(
      /^Final: +1,200 +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d,]+ +[\d,]+ {2}posix\/memory$/,
    );
    expect(server).toMatch(
      /^Waiting for connection\.\.\.\nListening on .+\nAccepted connection from .+\n\+-+\+\n\| API: +protocol layer/,
    );
  });

  it('moves device memory of one card each, and reports that it is emulated', async () => {
    const names = TESTS.filter(({ api }) => api === 'UCP').map(({ name }) => name);
    const lines = [
      ...names.map((name) => `${name} -t ${name} -m gaudi`),
      'to -t ucp_put_bw -m host,gaudi -s 100000',
      'from -t ucp_get -m host,gaudi -s 100000',
      'back -t ucp_put_lat -m gaudi,host -s 1000',
      'tag -t tag_lat -m gaudi,host -s 100000',
      'am -t ucp_am_bw -m host,gaudi -s 100000',
      'uct -t put_bw -x gaudi_ipc -d gaudi0 -D zcopy -m gaudi -s 4096',
      'read -t get -x gaudi_ipc -d gaudi0 -D zcopy -m gaudi -s 4096',
      'mark -t put_lat -x gaudi_ipc -d gaudi0 -D zcopy -m gaudi -s 4096',
    ];
    const env = { UCX_GAUDI_DRIVER: `emulator:${node.socketPath}` };
    const { client, server } = await both(['-b', batch(lines), '-v', '-V', '-n', '8', '-w', '0'], env);
    const [mark, ...rest] = client.split('\n');
    expect(mark).toBe('# emulated cards');
    expect([...rowsOf(rest.join('\n')).keys()]).toEqual(lines.map((line) => line.split(' ')[0]));
    expect(server.match(/gaudi \(emulated\)/g)!.length).toBeGreaterThanOrEqual(lines.length);
    expect(node.errors).toBe('');
  });

  it('ends on both sides with the reason of the one that fails', async () => {
    const { server, socket } = await serve({ ...HOST, UCX_TLS: 'self' });
    const client = new Tool([socket, '-t', 'tag_lat'], { ...HOST, UCX_TLS: 'posix,self' });
    const [clientEnd, serverEnd] = await Promise.all([client.end, server.end]);
    for (const { code, err } of [clientEnd, serverEnd]) {
      expect(code).toBe(1);
      expect(err).toMatch(/^gaudi-ucx: .*\(ERR_\w+\)\n$/);
    }
    expect(clientEnd.err + serverEnd.err).toMatch(/ERR_UNREACHABLE/);
  });

  it.each(['client', 'server'] as const)('notices that its peer was killed: the %s', async (killed) => {
    const { server, socket } = await serve(HOST);
    const client = new Tool([socket, '-t', 'ucp_put_lat', '-n', '1000000000', '-w', '0'], HOST);
    await client.prints('[thread 0]');
    const [victim, other] = killed === 'client' ? [client, server] : [server, client];
    victim.child.kill('SIGKILL');
    const { code, err } = await other.end;
    expect({ code, err }).toEqual({ code: 1, err: expect.stringMatching(/the peer has left.*ERR_CONNECTION_RESET/) });
  });

  it('ends with a signal, and so does its peer', async () => {
    const { server, socket } = await serve(HOST);
    const client = new Tool([socket, '-t', 'tag_bw', '-n', '1000000000', '-w', '0'], HOST);
    await client.prints('[thread 0]');
    client.child.kill('SIGINT');
    const [clientEnd, serverEnd] = await Promise.all([client.end, server.end]);
    expect(clientEnd).toMatchObject({ code: 130, err: 'gaudi-ucx: interrupted\n' });
    expect(serverEnd).toMatchObject({ code: 1, err: expect.stringContaining('ERR_PERFTEST_PEER') });
  });

  it('warms up, with its data checked too, and measures the given number of times', async () => {
    const lines = ['ping -t tag_lat', 'stream -t tag_bw', 'access -t ucp_put_bw'];
    const { client } = await both(['-b', batch(lines), '-v', '-V', '-n', '300', '-w', '300'], HOST);
    for (const [iterations] of rowsOf(client).values()) expect(iterations).toBe(300);
  });

  it('sends active messages by zero copy if the transport has them, and reports if it has not', async () => {
    const args = ['-t', 'am_bw', '-D', 'zcopy', '-s', '30000', '-n', '200', '-w', '0', '-V', '-v'];
    const env = { ...HOST, UCX_TLS: 'tcp,posix', UCX_NET_DEVICES: 'lo' };
    const { client } = await both([...args, '-x', 'tcp', '-d', 'lo'], env);
    expect(client).toMatch(/\n200,/);
    const { code, err } = await new Tool(['-l', ...args, '-x', 'posix', '-d', 'memory'], env).end;
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(/posix\/memory does not support these active messages/),
    });
  });

  it('prints results as lines of JSON', async () => {
    const { client } = await both(['-t', 'tag_lat', '-s', '8..16', '--json', '-n', '100', '-w', '0'], HOST);
    const lines = client.trimEnd().split('\n');
    // A busy machine needs more than a second for it, and then there are lines in between.
    const results = lines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ isFinal }) => isFinal === true);
    expect(results).toMatchObject([
      { test: 'tag_lat', names: ['8'], bytes: 8, isFinal: true, emulated: false, iterations: 100 },
      { test: 'tag_lat', names: ['16'], bytes: 16, isFinal: true, emulated: false, iterations: 100 },
    ]);
    for (const { overallNs, medianNs, carrier } of results) {
      expect(overallNs).toBeGreaterThan(0);
      expect(medianNs).toBeGreaterThan(0);
      expect(carrier).toContain('posix/memory');
    }
  });

  it.each(['8..64', '8:64'])('runs every power of two of sizes %s', async (sizes) => {
    const { client } = await both(['-t', 'tag_lat', '-s', sizes, '-v', '-n', '20', '-w', '0'], HOST);
    const [header, ...rows] = client.trimEnd().split('\n');
    expect(header).toMatch(/^size,iterations,/);
    expect(rows.map((row) => row.split(',')[0])).toEqual(['8', '16', '32', '64']);
  });

  it('uses the card that UCX_ACC_DEVICES names, under its name', async () => {
    const args = ['-t', 'ucp_put_bw', '-m', 'host,gaudi', '-s', '64k', '-n', '10', '-w', '0', '-f', '-I'];
    for (const card of ['gaudi1', 'gaudi3']) {
      const env = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '4', UCX_ACC_DEVICES: card };
      const { code, out, err } = await new Tool(['-l', ...args], env).end;
      expect({ code, err }).toEqual({ code: 0, err: '' });
      expect(out).toContain(`gaudi_cpy/${card}`);
    }
  });

  it('listens on loopback, or at the address of --bind, and prints how to reach it', async () => {
    const port = String(await freePort());
    const local = new Tool(['-p', port], HOST);
    await local.prints(
      `Listening on 127.0.0.1:${port}, reachable only from this host (use --bind ADDRESS for other hosts)`,
    );
    const elsewhere = Object.values(networkInterfaces())
      .flat()
      .find((address) => address?.internal === false && address.family === 'IPv4');
    if (elsewhere !== undefined) {
      const { code, err } = await new Tool([elsewhere.address, '-p', port, '-t', 'tag_lat'], HOST).end;
      expect({ code, err }).toEqual({
        code: 1,
        err: expect.stringMatching(/with --bind ADDRESS.*ERR_PERFTEST_REFUSED/),
      });
    }
    local.child.kill('SIGINT');
    await local.end;
    const open = new Tool(['-p', port, '--bind', '0.0.0.0'], HOST);
    await open.prints(`Listening on 0.0.0.0:${port}\n`);
    const host = elsewhere?.address ?? '127.0.0.1';
    expect(await new Tool([host, '-p', port, '-t', 'tag_lat', '-n', '10', '-w', '0'], HOST).end).toMatchObject({
      code: 0,
    });
    expect(await open.end).toMatchObject({ code: 0 });
  });

  it.skipIf(ucxPerftest.path === undefined)(
    'detects ucx_perftest by its first bytes (needs ucx_perftest)',
    async () => {
      const port = String(await freePort());
      const server = new Tool(['-p', port], HOST);
      await server.prints('Listening on');
      new UcxProgram(ucxPerftest.path!, ['127.0.0.1', '-p', port, '-t', 'tag_lat', '-n', '10']);
      const { code, err } = await server.end;
      expect({ code, err }).toEqual({
        code: 1,
        err: expect.stringMatching(/ucx_perftest of UCX has a different protocol/),
      });
    },
  );

  it.skipIf(ucxPerftest.path === undefined)('detects ucx_perftest by its silence (needs ucx_perftest)', async () => {
    const { port } = await startPerftestServer(ucxPerftest.path!);
    const channel = await connectChannel(placeOf('127.0.0.1', String(port), false));
    await expect(channel.hello(2, 100)).rejects.toMatchObject({
      code: 'ERR_PERFTEST_PROTOCOL',
      message: expect.stringMatching(/no reply of the peer within .*ucx_perftest of UCX/),
    });
    await channel.close();
  });

  it('refuses a client with another protocol', async () => {
    const { server, socket } = await serve(HOST);
    const raw = connect(socket);
    raw.on('error', () => undefined);
    raw.write('{"type":"hello","protocol":2}\n{"type":"test","spec":{"kind":"tag_lat","sizes":[8]}}\n');
    const { code, err } = await server.end;
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining('ERR_INVALID_PARAM') });
    raw.destroy();
  });
});

describe('perftest in one process', TIMEOUT, () => {
  it('runs every test with itself', async () => {
    const tool = new Tool(['-l', '-b', batch(linesFor('self')), '-v', '-V', '-n', '20', '-w', '0'], HOST);
    const { code, out, err } = await tool.end;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect([...rowsOf(out).keys()]).toEqual(TESTS.map(({ name }) => name));
  });

  it('runs as in the guide', async () => {
    const guide = readFileSync(join(ROOT, 'docs/guide/several-processes.md'), 'utf8');
    const [, alone] = /^npx gaudi-ucx perftest (-l .+)$/m.exec(guide)!;
    const { code, out, err } = await new Tool(alone!.split(' '), HOST).end;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toMatch(/^Final: +10000 /m);
    const [, client] = /npx gaudi-ucx perftest localhost (-t .+)$/m.exec(guide)!;
    const env = { UCX_GAUDI_DRIVER: `emulator:${node.socketPath}` };
    expect((await both(client!.split(' '), env)).client).toMatch(/^Final: +1000 /m);
  });

  it('ends with a signal while it waits for a client', async () => {
    const { server } = await serve(HOST);
    server.child.kill('SIGINT');
    expect(await server.end).toMatchObject({ code: 130, err: 'gaudi-ucx: interrupted\n' });
  });

  it('says once why no card can be used', async () => {
    const env = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '8', UCX_TLS: 'gaudi_ipc' };
    const { code, err } = await new Tool(['-l', '-t', 'ucp_put_bw', '-m', 'host,gaudi'], env).end;
    expect(code).not.toBe(0);
    expect(err).toMatch(
      /^gaudi-ucx: gaudi memory is not supported: cards 0-7: gaudi_cpy: excluded by UCX_TLS \(ERR_UNSUPPORTED\)$/m,
    );
  });

  it('reports bad options before it connects', async () => {
    const tools = [
      new Tool(['localhost', '-t', 'tag_lat', '-M', 'multi'], HOST),
      new Tool(['-l', '-t', 'put_lat', '-x', 'rc', '-d', 'mlx5_0'], HOST),
    ];
    const [mode, transport] = await Promise.all(tools.map(({ end }) => end));
    expect(mode).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringMatching(/-M multi .*one thread.*ERR_UNSUPPORTED/),
    });
    expect(transport).toMatchObject({ code: 2, err: expect.stringMatching(/-x must be one of .*posix\/memory.*"rc"/) });
  });
});
