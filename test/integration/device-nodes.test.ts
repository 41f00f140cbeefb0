/** Device nodes of emulated cards: programs in C and Python, and the contract of driver files, use them as they use real ones. Needs root, FUSE, a compiler and Python. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { connectEmulatedNode } from '../../src/emulator/index.ts';
import { GAUDI_PROFILE } from '../../src/uapi/asic/asic-profile-gaudi.ts';
import { built, ROOT } from '../fixtures/built.ts';
import { CompilerFolder, compilerSkipReason } from '../fixtures/c-library.ts';
import { MAIN } from '../fixtures/command-line.ts';
import { TestNodeServer } from '../fixtures/node-server.ts';

const FIXTURES = join(ROOT, 'test/fixtures/device-nodes');
const PYTHON = join(FIXTURES, 'checks.py');
const FUZZ_SEED = process.env['GAUDI_UCX_FUZZ_SEED'] ?? '20240';
const FUZZ_CALLS = process.env['GAUDI_UCX_TEST_FULL'] === '1' ? '1000000' : '10000';

function skipReason(): string | undefined {
  if (process.getuid!() !== 0) return 'not root';
  if (!existsSync('/dev/fuse')) return 'no /dev/fuse';
  if (spawnSync('python3', ['--version']).status !== 0) return 'no python3';
  return compilerSkipReason();
}

const reason = skipReason();
if (reason !== undefined) console.log(`device nodes skipped: ${reason}`);

/** Servers that `run` has started. */
function servers(): readonly string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`${ROOT}/dist/lib/device-server-program`);
    } catch {
      return false;
    }
  });
}

function environment(env: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const clean = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/UCX_|^GAUDI_|^UCT_|^VITEST|^NODE_ENV$/.test(name)),
  );
  return { ...clean, ...env };
}

function run(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  input = '',
): readonly [number | null, string, string] {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, 'run', ...args], {
    encoding: 'utf8',
    cwd: ROOT,
    env: environment(env),
    input,
    timeout: 120_000,
  });
  return [status, stdout, stderr];
}

const python = (
  args: readonly string[],
  options: readonly string[] = ['--socket', shared.socketPath],
): readonly [number | null, string, string] => run([...options, '--', 'python3', PYTHON, ...args]);
const DONE = [0, 'done\n', ''];
/** Programs of this package use the device nodes. */
const KERNEL = { UCX_GAUDI_DRIVER: 'kernel' };
const PUT_GET = built(join(ROOT, 'examples/put-get.ts'));

/** A node with two cards, for all tests that need no other one. */
let shared: TestNodeServer;
const place = mkdtempSync(join(tmpdir(), 'gaudi-ucx-devices-'));

const onShared = (
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  input = '',
): readonly [number | null, string, string] => run(['--socket', shared.socketPath, ...args], env, input);

describe.skipIf(reason !== undefined)(`device nodes${reason === undefined ? '' : ` (${reason})`}`, () => {
  const folder = new CompilerFolder();
  const copy = reason === undefined ? folder.program('copy', readFileSync(join(FIXTURES, 'copy.c'), 'utf8')) : '';
  beforeAll(async () => {
    shared = await TestNodeServer.start({ cards: 2 });
  });
  afterAll(async () => {
    folder[Symbol.dispose]();
    await shared.stop();
    expect(shared.errors).toBe('');
    rmSync(place, { recursive: true });
  });

  it('run a C program that copies with a card found by its bus id', () => {
    const [first, second] = ['0000:19:00.0', '0000:9b:00.0'];
    const both = `${copy} ${first} && ${copy} ${second}`;
    expect(run(['--', 'sh', '-c', both])).toEqual([0, 'equal\nequal\n', '']);
    expect(onShared(['--', copy, second])).toEqual([1, '', `no card ${second}\n`]);
  });

  it('pass on exit code, standard input and signals, and end with the program', async () => {
    expect(onShared(['--', 'sh', '-c', 'cat; exit 7'], {}, 'text')).toEqual([7, 'text', '']);
    const killed = ['run', '--socket', shared.socketPath, '--', 'sh', '-c', 'kill -TERM $$'];
    expect(spawnSync(process.execPath, [MAIN, ...killed]).signal).toBe('SIGTERM');
    const [code, , text] = onShared(['--', '/no/such/program']);
    expect([code, text]).toEqual([127, expect.stringContaining('ENOENT')]);
    expect(onShared(['--', '/etc/passwd'])[0]).toBe(126);
    expect(run(['--cards', '9', '--', 'true'])).toEqual([2, '', expect.stringContaining('argument cards must be')]);
    // The program has no children that it did not start.
    expect(run(['--', 'python3', '-c', 'import os\ntry: os.wait()\nexcept ChildProcessError: print("none")'])).toEqual([
      0,
      'none\n',
      '',
    ]);
    await vi.waitFor(() => expect(servers()).toEqual([]), { timeout: 10_000 });
  });

  it('need CAP_SYS_ADMIN, and say so', () => {
    const without = ['--bounding-set', '-sys_admin', process.execPath, MAIN, 'run', '--', 'true'];
    const { status, stderr } = spawnSync('setpriv', without, { encoding: 'utf8', env: environment() });
    const refusal = /needs CAP_SYS_ADMIN, outside of user namespaces.*\(ERR_DEVICE_NODES\)\n$/;
    expect([status, stderr]).toEqual([1, expect.stringMatching(refusal)]);
    // Where users may make namespaces, those do not help: the kernel registers files behind device nodes for the first one only.
    if (spawnSync('unshare', ['-Ur', 'true']).status !== 0) return;
    const inside = spawnSync('unshare', ['-Ur', process.execPath, MAIN, 'run', '--', 'true'], {
      encoding: 'utf8',
      env: environment(),
    });
    expect([inside.status, inside.stderr]).toEqual([1, expect.stringMatching(refusal)]);
  });

  it('are invisible outside of the program', () => {
    const before = readFileSync('/proc/self/mountinfo', 'utf8');
    const [, mounts] = onShared(['--', 'cat', '/proc/self/mountinfo']);
    expect(mounts).toContain('/dev/accel');
    expect(readFileSync('/proc/self/mountinfo', 'utf8')).toBe(before);
  });

  it('have device numbers, of eight cards in one process', () => {
    expect(python(['cards', '8'], [])).toEqual(DONE);
  });

  it('map whole buffers by their handles, and nothing else; refuse arguments in bad memory', () => {
    expect(python(['buffers,arguments'])).toEqual(DONE);
  });

  it('are released by the last descriptor; descriptors cross in both directions, and to another user', () => {
    expect(python(['descriptors,other_user'])).toEqual(DONE);
  });

  it('have thousands of waits at the same time, which end by signals and SIGKILL, and outlast their descriptor', () => {
    expect(python(['waits,signals,closing,killed'])).toEqual(DONE);
  });

  it('outlast their mount if it is detached, and fail if it is aborted', async () => {
    expect(python(['detached,forced'])).toEqual(DONE);
    await vi.waitFor(() => expect(servers()).toEqual([]), { timeout: 10_000 });
  });

  it('come with the files of debugfs and hwmon, through which errors are injected', () => {
    const { cfg, sram } = GAUDI_PROFILE;
    const addresses = [cfg.start, sram.start].map((address) => address.toString(16));
    expect(python(['debugfs', ...addresses], ['--cards', '1', '--asic', 'gaudi'])).toEqual(DONE);
  });

  it('answer random requests with errors of the driver', () => {
    expect(python(['fuzz', FUZZ_SEED, FUZZ_CALLS])).toEqual(DONE);
    const isFull = process.env['GAUDI_UCX_TEST_FULL'] === '1';
    if (isFull) expect(python(['fuzz', FUZZ_SEED, FUZZ_CALLS], ['--cards', '1', '--asic', 'gaudi'])).toEqual(DONE);
  }, 1_200_000);

  it('release everything of a program that is killed, and fail when the server is', async () => {
    const server = await TestNodeServer.start({ cards: 1 });
    const child: ChildProcess = spawn(
      process.execPath,
      [MAIN, 'run', '--socket', server.socketPath, '--', copy, '0000:19:00.0', 'hold'],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const [text] = await once(child.stdout!, 'data');
    expect(String(text)).toBe('equal\n');
    const node = connectEmulatedNode(server.socketPath);
    expect(node.status().cards[0]).toMatchObject({ owner: child.pid });
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    await vi.waitFor(() => expect(node.status().cards[0]).toMatchObject({ owner: null, dramUsedBytes: 0 }));
    node.close();
    expect(python(['server_ends', String(server.pid)], ['--socket', server.socketPath])).toEqual(DONE);
    await vi.waitFor(() => expect(server.exited).toBe(true));
    await server.stop();
  });

  it('are mounted on a folder by a server, also after one that was killed, and refuse exports there', async () => {
    const place = mkdtempSync(join(tmpdir(), 'gaudi-ucx-devices-'));
    const socket = `${place}.sock`;
    const node = (...args: string[]): string =>
      spawnSync(process.execPath, [MAIN, 'node', ...args, '--socket', socket], { encoding: 'utf8', env: environment() })
        .stdout;
    const up = (): string => node('up', '--cards', '1', '--devices', place);
    const pid = Number(/pid (\d+)/.exec(up())![1]);
    process.kill(pid, 'SIGKILL');
    await vi.waitFor(() => expect(() => readdirSync(place)).toThrow('ENOTCONN'));
    try {
      expect(up()).toContain('node server up');
      // The device nodes of a server that runs stay.
      const second = spawnSync(
        process.execPath,
        [MAIN, 'node', 'up', '--devices', place, '--socket', `${place}.other`],
        {
          encoding: 'utf8',
          env: environment(),
        },
      );
      expect([second.status, second.stderr]).toEqual([1, expect.stringContaining('(ERR_NODE_RUNNING)')]);
      const addr = join(place, 'sys/kernel/debug/habanalabs/hl0/addr');
      writeFileSync(addr, '0x10\n');
      expect(readFileSync(addr, 'utf8')).toBe('0x0000000000000010\n');
      expect(Number(readFileSync(join(place, 'sys/class/hwmon/hwmon100/temp1_input'), 'utf8'))).toBeGreaterThan(0);
      const { stdout, stderr } = spawnSync('python3', [PYTHON, 'refused', place], { encoding: 'utf8' });
      expect([stdout, stderr]).toEqual(['done\n', '']);
      expect(readFileSync(`${socket}.log`, 'utf8')).toContain(
        'gives descriptors only to programs that gaudi-ucx run has started',
      );
    } finally {
      node('down');
    }
    // It is empty again: the mount has ended.
    rmdirSync(place);
    for (const path of [socket, `${place}.other`])
      for (const end of ['', '.log', '.lock']) rmSync(path + end, { force: true });
  });

  for (const asic of process.env['GAUDI_UCX_TEST_FULL'] === '1' ? ['gaudi', 'gaudi2'] : ['gaudi2']) {
    it(`fulfil the contract of driver files, through the kernel driver port, on ${asic}`, () => {
      const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
      const command = [process.execPath, vitest, 'run', '--reporter=json', 'test/contract/driver-file.test.ts'];
      const [code, text] = run(['--cards', '1', '--asic', asic, '--', ...command], { UCX_GAUDI_DRIVER: 'kernel' });
      const report = JSON.parse(text.slice(text.indexOf('{'))) as { numPassedTests: number; numFailedTests: number };
      expect([code, report.numFailedTests]).toEqual([0, 0]);
      expect(report.numPassedTests).toBeGreaterThan(60);
    }, 120_000);
  }

  it('carry the demo of this package: discovery, DMA, dma-bufs between processes', () => {
    const [code, text, errors] = onShared(['--', process.execPath, MAIN, 'demo'], KERNEL);
    expect([code, errors]).toEqual([0, '']);
    expect(text).toContain('the file came back as it went');
    expect(text).toContain('gaudi_ipc');
    expect(text).toContain('GB/s (emulated)');
  }, 60_000);

  it('carry put and get, and say that the cards are emulated', () => {
    const tools = `${process.execPath} ${PUT_GET} && ${process.execPath} ${MAIN} info -s`;
    const [code, text, errors] = onShared(['--', 'sh', '-c', tools], KERNEL);
    expect([code, errors]).toEqual([0, '']);
    expect(text).toMatch(/^put 1048576 bytes by gaudi_cpy .*\nthe same bytes came back\n/);
    expect(text).toContain('2 Gaudi cards (emulated node)');
  });

  it('carry perftest between processes with a card each, over gaudi_ipc', async () => {
    const socket = join(place, 'perftest.sock');
    const batch = join(place, 'batch');
    const lines = ['put -t ucp_put_bw', 'get -t ucp_get', 'ipc -t put_bw -x gaudi_ipc -d gaudi0 -D zcopy'];
    writeFileSync(batch, lines.map((line) => `${line} -m gaudi -s 65536\n`).join(''));
    const perftest = [
      '--socket',
      shared.socketPath,
      '--',
      process.execPath,
      MAIN,
      'perftest',
      '-V',
      '-n',
      '16',
      '-w',
      '0',
    ];
    const server = spawn(process.execPath, [MAIN, 'run', ...perftest, '-p', socket], { env: environment(KERNEL) });
    server.stdout.setEncoding('utf8');
    let printed = '';
    server.stdout.on('data', (piece: string) => {
      printed += piece;
    });
    await vi.waitFor(() => expect(printed).toContain('Waiting for connection...'), { timeout: 30_000 });
    const exit = once(server, 'exit');
    const [code, text, errors] = run([...perftest, socket, '-b', batch, '-v'], KERNEL);
    expect([code, errors, (await exit)[0]]).toEqual([0, '', 0]);
    expect(text).toMatch(/^# emulated cards\n.*\nput,16,.*\nget,16,.*\nipc,16,/);
    await vi.waitFor(() => expect(printed).toContain('gaudi (emulated)'));
  }, 60_000);
});
