/** Device nodes of emulated cards: programs in C and Python use them as they use real ones. Needs root, FUSE, a compiler and Python. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { EVENT_INJECTION } from '../../../src/emulator/driver/base/firmware.ts';
import { connectEmulatedNode } from '../../../src/emulator/index.ts';
import { ASIC_PROFILES } from '../../../src/uapi/index.ts';
import { CompilerFolder, compilerSkipReason } from '../../fixtures/libucp/c-library.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';
import { deviceNodesSkipReason, environment, run } from '../../fixtures/tools/run-command.ts';

const FIXTURES = join(ROOT, 'test/fixtures/device-nodes');
const CHECKS = join(FIXTURES, 'checks.py');
/** Gaudi3 submits nothing through the driver. */
const GENERATIONS = ['gaudi', 'gaudi2', 'gaudi3'] as const;
const FUZZ_SEED = process.env['GAUDI_UCX_FUZZ_SEED'] ?? '20240';
const FUZZ_CALLS = process.env['GAUDI_UCX_TEST_FULL'] === '1' ? '1000000' : '10000';

/** The interpreter itself: `python3` may be a script of a version manager, which takes longer to choose one than the checks. */
const { status: found, stdout: printed } = spawnSync('python3', ['-c', 'import sys; print(sys.executable)']);
const PYTHON = found === 0 ? printed.toString().trim() : undefined;

function skipReason(): string | undefined {
  if (PYTHON === undefined) return 'no python3';
  return deviceNodesSkipReason() ?? compilerSkipReason();
}

const reason = skipReason();
if (reason !== undefined) console.log(`device nodes skipped: ${reason}`);
const hasUserNamespaces = spawnSync('unshare', ['-Ur', 'true']).status === 0;

/** Marks the processes that these tests start. */
process.env['DEVICE_NODES_TEST'] = String(process.pid);

/** Servers that `run` has started for these tests. */
function servers(): readonly string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('device-server-program')) return false;
      return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`DEVICE_NODES_TEST=${process.pid}\0`);
    } catch {
      return false;
    }
  });
}

const python = (
  args: readonly string[],
  options: readonly string[] = ['--socket', shared.socketPath],
): readonly [number | null, string, string] => run([...options, '--', PYTHON!, CHECKS, ...args]);
const DONE = [0, 'done\n', ''];

/** A node with two cards, for all tests that need no other one. */
let shared: TestNodeServer;

const onShared = (
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  input = '',
): readonly [number | null, string, string] => run(['--socket', shared.socketPath, ...args], env, input);

describe.skipIf(reason !== undefined)('device nodes (needs root, /dev/fuse, python3 and cc)', () => {
  const folder = new CompilerFolder();
  const copy = reason === undefined ? folder.program('copy', readFileSync(join(FIXTURES, 'copy.c'), 'utf8')) : '';
  beforeAll(async () => {
    shared = await TestNodeServer.start({ cards: 2 });
  });
  afterAll(async () => {
    folder[Symbol.dispose]();
    await shared.stop();
    expect(shared.errors).toBe('');
  });

  it('run a C program that copies with a card found by its bus id', () => {
    const [first, second] = ['0000:19:00.0', '0000:9b:00.0'];
    const both = `${copy} ${first} && ${copy} ${second}`;
    expect(run(['--', 'sh', '-c', both])).toEqual([0, 'equal\nequal\n', '']);
    expect(onShared(['--', copy, second])).toEqual([1, '', `no card ${second}\n`]);
  });

  it('run a C program that copies by a channel of a gaudi3 card which it maps', () => {
    const program = folder.program('channel-copy', readFileSync(join(FIXTURES, 'channel-copy.c'), 'utf8'));
    expect(run(['--asic', 'gaudi3', '--', program])).toEqual([0, 'equal, counter 3, consumed 72\n', '']);
  });

  it.each(['gaudi', 'gaudi2'])('run a C program that copies between host mappings with a card of %s', (asic) => {
    const program = folder.program('host-copy', readFileSync(join(FIXTURES, 'host-copy.c'), 'utf8'));
    expect(run(['--cards', '1', '--asic', asic, '--', program])).toEqual([0, 'linear equal, strided equal\n', '']);
  });

  it('run a 32-bit program', () => {
    const flags = ['-m32', '-static', '-nostdlib', '-fno-stack-protector', '-fno-pie', '-no-pie'];
    const program = folder.program('compat', readFileSync(join(FIXTURES, 'compat.c'), 'utf8'), flags);
    for (const asic of GENERATIONS) expect(run(['--cards', '1', '--asic', asic, '--', program])).toEqual([0, '', '']);
  });

  it('pass on exit code, standard input and signals, and end with the program', async () => {
    expect(onShared(['--', 'sh', '-c', 'cat; exit 7'], {}, 'text')).toEqual([7, 'text', '']);
    const killed = ['run', '--socket', shared.socketPath, '--', 'sh', '-c', 'kill -TERM $$'];
    expect(spawnSync(process.execPath, [MAIN, ...killed]).signal).toBe('SIGTERM');
    const [code, , text] = onShared(['--', '/no/such/program']);
    expect([code, text]).toEqual([127, expect.stringContaining('ENOENT')]);
    expect(onShared(['--', '/etc/passwd'])[0]).toBe(126);
    expect(run(['--cards', '9', '--', 'true'])).toEqual([2, '', expect.stringContaining('argument cards must be')]);
    await vi.waitFor(() => expect(servers()).toEqual([]), { timeout: 10_000 });
    const reader = spawn(process.execPath, [MAIN, 'run', '--', 'cat'], {
      env: environment(),
      stdio: ['pipe', 'ignore', 2],
    });
    await vi.waitFor(() => expect(servers()).toHaveLength(1), { timeout: 10_000 });
    const exit = once(reader, 'exit');
    reader.stdin!.end();
    expect((await exit)[0]).toBe(0);
    // The program has no children that it did not start.
    expect(run(['--', PYTHON!, '-c', 'import os\ntry: os.wait()\nexcept ChildProcessError: print("none")'])).toEqual([
      0,
      'none\n',
      '',
    ]);
    await vi.waitFor(() => expect(servers()).toEqual([]), { timeout: 10_000 });
  });

  it('run refuses to run inside itself, with the reason', () => {
    const nested = spawnSync(process.execPath, [MAIN, 'run', '--', process.execPath, MAIN, 'run', '--', 'true'], {
      env: environment(),
      encoding: 'utf8',
    });
    expect(nested.status).toBe(1);
    expect(nested.stderr).toContain('this process already has device nodes of emulated cards');
  });

  const refusal = /requires CAP_SYS_ADMIN in the initial user namespace.*\(ERR_DEVICE_NODES\)\n$/;
  it('need CAP_SYS_ADMIN, and say so', () => {
    const without = ['--bounding-set', '-sys_admin', process.execPath, MAIN, 'run', '--', 'true'];
    const { status, stderr } = spawnSync('setpriv', without, { encoding: 'utf8', env: environment() });
    expect([status, stderr]).toEqual([1, expect.stringMatching(refusal)]);
  });

  // The kernel registers files behind device nodes for the first user namespace only.
  it.skipIf(!hasUserNamespaces)('are not helped by a user namespace (needs user namespaces)', () => {
    const inside = spawnSync('unshare', ['-Ur', process.execPath, MAIN, 'run', '--', 'true'], {
      encoding: 'utf8',
      env: environment(),
    });
    expect([inside.status, inside.stderr]).toEqual([1, expect.stringMatching(refusal)]);
  });

  it('run on one processor, with the smallest HBM and a time-out, by options', () => {
    const files = '/sys/kernel/debug/accel/0000:19:00.0/timeout_locked';
    const shown = ['--', 'sh', '-c', `grep Cpus_allowed_list /proc/self/status | cut -f2; cat ${files}`];
    const [code, text] = run(['--cards', '1', '--one-processor', '--hbm', 'min', '--timeout-locked', '7', ...shown]);
    expect([code, text]).toEqual([0, expect.stringMatching(/^\d+\n7\n$/)]);
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

  it.each(GENERATIONS)('of %s are character devices, beside a /sys that is a sysfs, whoever looks', (asic) => {
    expect(python(['kinds,bound'], ['--cards', '2', '--asic', asic])).toEqual(DONE);
  });

  it('map whole buffers by their handles, and nothing else; refuse arguments in bad memory', () => {
    expect(python(['buffers,shared_buffers,arguments,attributes'])).toEqual(DONE);
  });

  it('are released by the last descriptor; descriptors cross in both directions, and to another user', () => {
    expect(python(['descriptors,other_user'])).toEqual(DONE);
  });

  it('have thousands of waits at the same time, which end by signals and SIGKILL, and outlast their descriptor', () => {
    expect(python(['waits,signals,closing,killed,without_main_thread'])).toEqual(DONE);
  });

  it('outlast their mount if it is detached, and fail if it is aborted', async () => {
    expect(python(['detached,forced'])).toEqual(DONE);
    await vi.waitFor(() => expect(servers()).toEqual([]), { timeout: 10_000 });
  });

  it.each(GENERATIONS)('of %s come with the files of debugfs and hwmon, through which errors are injected', (asic) => {
    const { cfg, sram, cardName } = ASIC_PROFILES[asic];
    const { register } = EVENT_INJECTION[asic];
    const event = register === undefined ? 'none' : `0x${(cfg.start + register).toString(16)}`;
    const checked = ['debugfs', cardName, event, sram.start.toString(16)];
    expect(python(checked, ['--cards', '1', '--asic', asic])).toEqual(DONE);
  });

  it.each(GENERATIONS)('of %s take submissions, requests and descriptors of a program in Python', (asic) => {
    const options = ['--cards', '2', '--asic', asic];
    expect(python(['copies', asic], options)).toEqual(DONE);
    expect(python(['buffers,shared_buffers,arguments'], options)).toEqual(DONE);
    // Gaudi has no allocated HBM that could be exported.
    if (asic !== 'gaudi') expect(python(['descriptors'], options)).toEqual(DONE);
    // Gaudi has no user interrupts, which these wait for.
    if (asic !== 'gaudi') expect(python(['waits,signals,closing,killed'], options)).toEqual(DONE);
  });

  it.each(GENERATIONS)(
    'of %s answer random requests with errors of the driver',
    (asic) => {
      expect(python(['fuzz', FUZZ_SEED, FUZZ_CALLS], ['--cards', '1', '--asic', asic])).toEqual(DONE);
    },
    1_200_000,
  );

  it.each([
    ['gaudi2', 'C', [copy, '0000:19:00.0', 'work'], 'equal\n'],
    ['gaudi2', 'Python', [PYTHON!, CHECKS, 'works', 'gaudi2'], 'working\n'],
    ['gaudi', 'Python', [PYTHON!, CHECKS, 'works', 'gaudi'], 'working\n'],
  ] as const)('of %s release everything of a program in %s that is killed at work', async (asic, _, program, begun) => {
    const server = await TestNodeServer.start({ asic, cards: 1 });
    const args = [MAIN, 'run', '--socket', server.socketPath, '--', ...program];
    const child: ChildProcess = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const [text] = await once(child.stdout!, 'data');
    expect(String(text)).toBe(begun);
    const node = connectEmulatedNode(server.socketPath);
    const moved = (): number => {
      const { hostToDevice, deviceToHost } = node.transfers()!.cards[0]!;
      return hostToDevice.bytes + deviceToHost.bytes;
    };
    const before = moved();
    await vi.waitFor(() => expect(moved()).toBeGreaterThan(before));
    const { owner } = node.status().cards[0]!;
    expect(owner).not.toBeNull();
    const exit = once(child, 'exit');
    process.kill(owner!, 'SIGKILL');
    await exit;
    await vi.waitFor(() => expect(node.status().cards[0]).toMatchObject({ owner: null, dramUsedBytes: 0 }));
    // The card works for the next program.
    expect(python(['copies', asic], ['--socket', server.socketPath])).toEqual(DONE);
    node.close();
    await server.stop();
    expect(server.errors).toBe('');
  });

  it.each(GENERATIONS)('of %s fail when the server is killed, and nothing else does', async (asic) => {
    const server = await TestNodeServer.start({ cards: 1, asic });
    expect(python(['server_ends', String(server.pid), asic], ['--socket', server.socketPath])).toEqual(DONE);
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
      const resets = join(place, 'sys/class/accel/accel0/device/hard_reset');
      writeFileSync(resets, '1\n');
      expect(readFileSync(`${resets}_cnt`, 'utf8')).toBe('1\n');
      expect(() => writeFileSync(resets, 'x')).toThrow('EINVAL');
      const { stdout, stderr } = spawnSync(PYTHON!, [CHECKS, 'refused', place], { encoding: 'utf8' });
      expect([stdout, stderr]).toEqual(['done\n', '']);
      expect(readFileSync(`${socket}.log`, 'utf8')).toContain(
        'cannot export a dma-buf: start the program by gaudi-ucx run',
      );
    } finally {
      node('down');
    }
    // It is empty again: the mount has ended.
    rmdirSync(place);
    for (const path of [socket, `${place}.other`])
      for (const end of ['', '.log', '.lock']) rmSync(path + end, { force: true });
  });
});
