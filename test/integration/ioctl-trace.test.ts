/** Traces of ioctls: recorded by a node server and by run, and compared by the command line. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { NO_ADDRESS } from '../../src/emulator/driver/memory/user-memory.ts';
import { connectEmulatedNode, NodeServer } from '../../src/emulator/index.ts';
import { normalizeTrace } from '../../src/emulator/trace/trace-diff.ts';
import { HL_MEM_ARGS, HL_MEM_OP } from '../../src/uapi/index.ts';
import { built, ROOT } from '../fixtures/built.ts';
import { CompilerFolder, compilerSkipReason } from '../fixtures/c-library.ts';
import { MAIN } from '../fixtures/command-line.ts';

const EXAMPLE = built(join(ROOT, 'examples/hlthunk-dma.ts'));
const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-trace-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function command(...args: readonly string[]): readonly [number | null, string, string] {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/UCX_|^VITEST|^NODE_ENV$/.test(name)));
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    encoding: 'utf8',
    env,
    timeout: 60_000,
  });
  return [status, stdout, stderr];
}

/** A trace of a client that allocates and frees device memory as often as `rounds` says. */
function record(name: string, rounds: number): string {
  const path = join(folder, name);
  const socket = join(folder, `${name}.sock`);
  expect(command('node', 'up', '--cards', '1', '--socket', socket, '--trace', path)[0]).toBe(0);
  try {
    const node = connectEmulatedNode(socket);
    const file = node.open(0);
    for (let round = 0; round < rounds; round++) {
      const words = new Uint32Array(HL_MEM_ARGS.size / 4);
      words[HL_MEM_ARGS.words.alloc_mem_size] = 2 ** 21;
      expect(file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words })).toBe(0);
      words[HL_MEM_ARGS.words.op] = HL_MEM_OP.FREE;
      expect(file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words })).toBe(0);
    }
    file.close();
    node.close();
  } finally {
    expect(command('node', 'down', '--socket', socket)[0]).toBe(0);
  }
  return path;
}

describe('traces', () => {
  it('of clients of a node server are equal for equal calls; one more call differs', async () => {
    const [a, b, c] = [record('first', 1), record('second', 1), record('third', 2)];
    // The server writes what is left after it has answered.
    await vi.waitFor(() => expect([a, b, c].map((path) => lines(path).length)).toEqual([2, 2, 4]), TIMEOUT);
    expect(JSON.parse(lines(a)[0]!)).toMatchObject({
      pid: process.pid,
      card: 0,
      request: 'MEMORY',
      op: 'ALLOC',
      result: 0,
    });
    expect(command('trace', 'diff', a, b)).toEqual([0, '', '']);
    expect(command('trace', 'diff', a, c)).toEqual([
      1,
      expect.stringMatching(/^call 3 differs\n< nothing\n> process 1 card 0: MEMORY ALLOC /),
      '',
    ]);
  });

  it('are refused where they cannot be written', () => {
    const trace = join(folder, 'no', 'x');
    expect(() => new NodeServer({ socketPath: join(folder, 'x.sock'), trace })).toThrow(/ENOENT/);
    const args = ['node', 'up', '--socket', join(folder, 'y.sock'), '--trace', '-'];
    expect(command(...args)).toEqual([2, '', expect.stringContaining('--foreground')]);
  });

  it('end with a warning when the disk is full; the server goes on', async () => {
    const socket = join(folder, 'full.sock');
    expect(command('node', 'up', '--cards', '1', '--socket', socket, '--trace', '/dev/full')[0]).toBe(0);
    try {
      const node = connectEmulatedNode(socket);
      const file = node.open(0);
      const words = new Uint32Array(HL_MEM_ARGS.size / 4);
      words[HL_MEM_ARGS.words.alloc_mem_size] = 2 ** 21;
      expect(file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words })).toBe(0);
      const log = `${socket}.log`;
      await vi.waitFor(() => expect(readFileSync(log, 'utf8')).toMatch(/trace of ioctls has ended: ENOSPC/), TIMEOUT);
      words[HL_MEM_ARGS.words.op] = HL_MEM_OP.FREE;
      expect(file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words })).toBe(0);
      node.close();
    } finally {
      expect(command('node', 'down', '--socket', socket)[0]).toBe(0);
    }
  });
});

describe('live lines on standard output', () => {
  it('appear with each call; when their reader ends, the trace does, with a warning, and the server goes on', async () => {
    const socket = join(folder, 'live.sock');
    const args = ['node', 'up', '--foreground', '--cards', '1', '--socket', socket, '--trace', '-'];
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/UCX_|^VITEST/.test(name)));
    const server = spawn(process.execPath, [MAIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    onTestFinished(() => void server.kill('SIGKILL'));
    const exit = once(server, 'exit');
    const texts = { out: '', err: '' };
    server.stdout.on('data', (piece) => {
      texts.out += String(piece);
    });
    server.stderr.on('data', (piece) => {
      texts.err += String(piece);
    });
    await vi.waitFor(() => expect(texts.out).toContain('node server up'), TIMEOUT);
    const node = connectEmulatedNode(socket);
    const file = node.open(0);
    const words = new Uint32Array(HL_MEM_ARGS.size / 4);
    const allocate = (): number => {
      words.fill(0);
      words[HL_MEM_ARGS.words.alloc_mem_size] = 2 ** 21;
      return file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words });
    };
    expect(allocate()).toBe(0);
    const line =
      /^\[\d+\/\d+\] ioctl\(accel0, MEMORY ALLOC, \{.*alloc_mem_size=0x200000.*\}\) = 0 \{.*handle=0x1.*<0\.\d{6}>$/m;
    await vi.waitFor(() => expect(texts.out).toMatch(line), TIMEOUT);
    server.stdout.destroy();
    await vi.waitFor(() => {
      expect(allocate()).toBe(0);
      expect(texts.err).toMatch(/the trace of ioctls has ended: .*EPIPE/);
    }, TIMEOUT);
    expect(allocate()).toBe(0);
    node.close();
    server.kill('SIGTERM');
    expect((await exit)[0]).toBe(0);
  });
});

/** The calls of libhlthunk.c, each of which is one ioctl, for the job of examples/hlthunk-dma.ts: its own waits apart. */
const C_LIBRARY = {
  gaudi2: [
    // hlthunk_open asks for the name of each card that it opens.
    'INFO HW_IP_INFO',
    'INFO HW_IP_INFO',
    'MEMORY ALLOC',
    'MEMORY MAP',
    // Source, target, and command buffers in memory of the program.
    'MEMORY MAP',
    'MEMORY MAP',
    'MEMORY MAP',
    'CS',
    'CS',
    'MEMORY UNMAP',
    'MEMORY UNMAP',
    'MEMORY UNMAP',
    'MEMORY FREE',
  ],
  gaudi: [
    ...[
      'INFO HW_IP_INFO',
      'INFO HW_IP_INFO',
      'MEMORY ALLOC',
      'MEMORY MAP',
      'MEMORY MAP',
      'CB CREATE',
      'CS',
      'CB CREATE',
      'CS',
    ],
    ...['MEMORY UNMAP', 'MEMORY UNMAP', 'MEMORY FREE'],
  ],
};

describe.each(['gaudi', 'gaudi2'] as const)('the calls of our hl-thunk on %s', (asic) => {
  it('for a copy are those that are recorded; those of the C library are among them, in its order', async () => {
    const socket = join(folder, `${asic}.sock`);
    const path = join(folder, `${asic}.jsonl`);
    expect(command('node', 'up', '--cards', '1', '--asic', asic, '--socket', socket, '--trace', path)[0]).toBe(0);
    const env = { ...process.env, UCX_GAUDI_DRIVER: `emulator:${socket}` };
    expect(spawnSync(process.execPath, [EXAMPLE], { env, encoding: 'utf8' }).stdout).toContain(
      'the same bytes came back',
    );
    expect(command('node', 'down', '--socket', socket)[0]).toBe(0);
    // How often it polls is a matter of time.
    const calls = (text: string): readonly string[] =>
      normalizeTrace(text)
        .filter((call) => !call.includes('WAIT_CS'))
        .map((call) => call.replace('process 1 card 0: ', ''));
    const recorded = readFileSync(join(ROOT, `test/fixtures/device-nodes/hlthunk-copy-${asic}.txt`), 'utf8');
    await vi.waitFor(() => expect(calls(readFileSync(path, 'utf8'))).toEqual(recorded.trimEnd().split('\n')), TIMEOUT);
    let next = 0;
    const names = recorded.split('\n').map((call) => call.slice(0, call.indexOf(' {')));
    for (const name of names) if (name === C_LIBRARY[asic][next]) next += 1;
    expect(C_LIBRARY[asic].slice(next)).toEqual([]);
  });
});

const lines = (path: string): readonly string[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
const TIMEOUT = { timeout: 10_000 };

const reason = process.getuid!() !== 0 ? 'not root' : existsSync('/dev/fuse') ? compilerSkipReason() : 'no /dev/fuse';
if (reason !== undefined) console.log(`traces of device nodes skipped: ${reason}`);

describe.skipIf(reason !== undefined)(`traces of device nodes${reason === undefined ? '' : ` (${reason})`}`, () => {
  it('of two runs of a C program are equal; those of another differ', async () => {
    using compiler = new CompilerFolder();
    const source = readFileSync(join(ROOT, 'test/fixtures/device-nodes/copy.c'), 'utf8');
    const copy = compiler.program('copy', source);
    const [a, b, c] = ['a', 'b', 'c'].map((name) => join(folder, name)) as [string, string, string];
    for (const path of [a, b])
      expect(command('run', '--trace', path, '--', copy, '0000:19:00.0')).toEqual([0, 'equal\n', '']);
    // The server ends after the program.
    await vi.waitFor(() => {
      expect(readFileSync(a, 'utf8')).toContain('"op":"ALLOC"');
      expect(command('trace', 'diff', a, b)).toEqual([0, '', '']);
    }, TIMEOUT);
    expect(command('run', '--trace', c, '--', 'sh', '-c', `${copy} 0000:19:00.0 && ${copy} 0000:19:00.0`)[0]).toBe(0);
    const differs = expect.stringMatching(/^call \d+ differs\n< nothing\n> process 2 /);
    await vi.waitFor(() => expect(command('trace', 'diff', a, c)).toEqual([1, differs, '']), TIMEOUT);
  });
});
