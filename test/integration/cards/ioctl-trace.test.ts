/** Traces of ioctls: recorded by a node server and by run, and compared by the command line. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { NO_ADDRESS } from '../../../src/emulator/driver/memory/user-memory.ts';
import { connectEmulatedNode, NodeServer } from '../../../src/emulator/index.ts';
import type { IoctlRecord } from '../../../src/emulator/trace/ioctl-record.ts';
import { diffTraces } from '../../../src/emulator/trace/trace-diff.ts';
import { type AsicName, HL_MEM, HL_MEM_ARGS, HL_MEM_OP, type PacketAsic } from '../../../src/uapi/index.ts';
import { CompilerFolder, compilerSkipReason } from '../../fixtures/libucp/c-library.ts';
import { requires } from '../../fixtures/requires.ts';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';

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

  it('end with a warning when the disk is full; the server continues', async () => {
    const socket = join(folder, 'full.sock');
    expect(command('node', 'up', '--cards', '1', '--socket', socket, '--trace', '/dev/full')[0]).toBe(0);
    try {
      const node = connectEmulatedNode(socket);
      const file = node.open(0);
      const words = new Uint32Array(HL_MEM_ARGS.size / 4);
      words[HL_MEM_ARGS.words.alloc_mem_size] = 2 ** 21;
      expect(file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words })).toBe(0);
      const log = `${socket}.log`;
      await vi.waitFor(() => expect(readFileSync(log, 'utf8')).toMatch(/ioctl trace has ended: ENOSPC/), TIMEOUT);
      words[HL_MEM_ARGS.words.op] = HL_MEM_OP.FREE;
      expect(file.ioctl(file.numbers.MEMORY, { address: NO_ADDRESS, words })).toBe(0);
      node.close();
    } finally {
      expect(command('node', 'down', '--socket', socket)[0]).toBe(0);
    }
  });
});

describe('live lines on standard output', () => {
  it('appear with each call; when their reader ends, the trace does, with a warning, and the server continues', async () => {
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
      expect(texts.err).toMatch(/the ioctl trace has ended: .*EPIPE/);
    }, TIMEOUT);
    expect(allocate()).toBe(0);
    node.close();
    server.kill('SIGTERM');
    expect((await exit)[0]).toBe(0);
  });
});

/** Calls that only one side makes for the job of examples/hlthunk-dma.ts: those of docs/HARDWARE.md. */
interface Difference {
  readonly call: string;
  /** How often; any number of times if absent. */
  readonly times?: number;
  readonly is?: (record: IoctlRecord) => boolean;
}

/** Mappings of command buffers, and of words in which transfers complete: not those of the data. */
const isMappedForCommands = ({ in: { flags, map_host_mem_size } }: IoctlRecord): boolean =>
  (Number(flags) & HL_MEM.USERPTR) !== 0 && Number(map_host_mem_size) !== 2 ** 20;

const IN_C_LIBRARY: Readonly<Record<PacketAsic, readonly Difference[]>> = {
  gaudi2: [
    { call: 'INFO HW_IP_INFO', times: 2, is: ({ control }) => control },
    { call: 'MEMORY MAP', times: 1, is: isMappedForCommands },
    // Of the command buffer: before those of the data.
    { call: 'MEMORY UNMAP', times: 1 },
    { call: 'WAIT_CS', times: 2 },
  ],
  gaudi: [
    { call: 'INFO HW_IP_INFO', times: 2, is: ({ control }) => control },
    { call: 'CB CREATE', times: 2 },
    { call: 'CB DESTROY', times: 2 },
    { call: 'WAIT_CS', times: 2 },
  ],
};

const IN_OURS: Readonly<Record<PacketAsic, readonly Difference[]>> = {
  gaudi2: [
    { call: 'INFO HW_IP_INFO', times: 1 },
    { call: 'INFO REGISTER_EVENTFD', times: 1 },
    { call: 'MEMORY MAP', times: 2, is: isMappedForCommands },
    { call: 'WAIT_CS' },
  ],
  gaudi: [
    { call: 'INFO HW_IP_INFO', times: 1 },
    { call: 'INFO REGISTER_EVENTFD', times: 1 },
    { call: 'MEMORY MAP', times: 2, is: isMappedForCommands },
    { call: 'CB CREATE', times: 2 },
    { call: 'WAIT_CS' },
  ],
};

/** The calls of a trace as records. */
function recordsOf(path: string): readonly IoctlRecord[] {
  return lines(path).map((line): IoctlRecord => JSON.parse(line));
}

const nameOf = ({ request, op }: IoctlRecord): string => (op === undefined ? request : `${request} ${op}`);

/** The calls without those that only one side makes. Fails if there are not as many of them. */
function withoutDifferences(records: readonly IoctlRecord[], differences: readonly Difference[]): typeof records {
  let left = records;
  for (const { call, times, is } of differences) {
    const found = left.filter((record) => nameOf(record) === call && is?.(record) !== false).slice(0, times);
    if (times !== undefined) expect([call, found.length]).toEqual([call, times]);
    left = left.filter((record) => !found.includes(record));
  }
  return left;
}

const traceOf = (records: readonly IoctlRecord[]): string => records.map((record) => JSON.stringify(record)).join('\n');

const recordOfLibrary = (asic: PacketAsic): string => join(ROOT, `test/fixtures/device-nodes/c-library-${asic}.jsonl`);

/** The trace of examples/hlthunk-dma.ts on a node server. */
async function traceOfExample(name: string, asic: AsicName): Promise<string> {
  const socket = join(folder, `${name}.sock`);
  const path = join(folder, `${name}.jsonl`);
  expect(command('node', 'up', '--cards', '1', '--asic', asic, '--socket', socket, '--trace', path)[0]).toBe(0);
  const env = { ...process.env, UCX_GAUDI_DRIVER: `emulator:${socket}` };
  expect(spawnSync(process.execPath, [EXAMPLE], { env, encoding: 'utf8' }).stdout).toContain(
    'the same bytes came back',
  );
  expect(command('node', 'down', '--socket', socket)[0]).toBe(0);
  await vi.waitFor(() => expect(nameOf(recordsOf(path).at(-1)!)).toBe('MEMORY FREE'), TIMEOUT);
  expect(recordsOf(path).filter(({ errno }) => errno !== undefined)).toEqual([]);
  return path;
}

it('a transfer of gaudi3 is recorded by its ioctls, and runs of one program are equal', async () => {
  const [a, b] = [await traceOfExample('channel', 'gaudi3'), await traceOfExample('channel again', 'gaudi3')];
  const names = recordsOf(a).map(nameOf);
  // A channel for each direction. Stores to its registers, which start transfers, are not ioctls.
  expect(names.filter((name) => name === 'MEMORY MAP_BLOCK')).toHaveLength(2);
  expect(names).not.toContain('CS');
  expect(command('trace', 'diff', a, b)).toEqual([0, '', '']);
});

describe.each(['gaudi', 'gaudi2'] as const)('the calls of our hl-thunk on %s', (asic) => {
  it('for a copy and an export are those of the C library, but for the expected differences', async () => {
    const path = await traceOfExample(asic, asic);
    const ours = recordsOf(path);
    const theirs = withoutDifferences(recordsOf(recordOfLibrary(asic)), IN_C_LIBRARY[asic]);
    expect(diffTraces(traceOf(theirs), traceOf(withoutDifferences(ours, IN_OURS[asic])))).toBeUndefined();
    // What is compared is the job.
    expect(theirs.map(nameOf)).toEqual([
      'INFO HW_IP_INFO',
      'MEMORY ALLOC',
      ...(asic === 'gaudi' ? [] : ['MEMORY MAP']),
      ...['MEMORY MAP', 'MEMORY MAP', 'CS', 'CS', 'MEMORY EXPORT_DMABUF_FD', 'MEMORY UNMAP', 'MEMORY UNMAP'],
      ...(asic === 'gaudi' ? [] : ['MEMORY UNMAP']),
      'MEMORY FREE',
    ]);
  });
});

/** Compiles the job for an installed C library. Returns the program; undefined without the library. */
function compileJob(compiler: CompilerFolder): string | undefined {
  const source = readFileSync(join(ROOT, 'test/fixtures/device-nodes/hlthunk-dma.c'), 'utf8');
  const library = '/usr/lib/habanalabs';
  const flags = ['-I/usr/include/habanalabs', `-L${library}`, `-Wl,-rpath,${library}`, '-lhl-thunk'];
  try {
    return compiler.program('hlthunk-dma', source, flags);
  } catch (error) {
    if (error instanceof Error && /hlthunk\.h: No such file|cannot find -lhl-thunk/.test(error.message))
      return undefined;
    throw error;
  }
}

const lines = (path: string): readonly string[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
const TIMEOUT = { timeout: 10_000 };

const reason = process.getuid!() !== 0 ? 'not root' : existsSync('/dev/fuse') ? compilerSkipReason() : 'no /dev/fuse';
if (reason !== undefined) console.log(`traces of device nodes skipped: ${reason}`);

describe.skipIf(reason !== undefined)('traces of device nodes (needs root, /dev/fuse and cc)', () => {
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

  it.each(['gaudi', 'gaudi2'] as const)('of the C library on %s are those that are recorded', async (asic) => {
    using compiler = new CompilerFolder();
    const job = compileJob(compiler);
    requires(job !== undefined, 'the C library hl-thunk');
    const path = join(folder, `c-library-${asic}`);
    const ran = command('run', '--asic', asic, '--cards', '1', '--trace', path, '--', job);
    expect(ran).toEqual([0, 'the same bytes came back\n', '']);
    // Versions differ in the sizes of answers.
    const names = recordsOf(recordOfLibrary(asic)).map(nameOf);
    await vi.waitFor(() => expect(recordsOf(path).map(nameOf)).toEqual(names), TIMEOUT);
  });
});
