/** `gaudi-ucx demo` between cards: its output, and leaks when its processes are ended. */

import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { processExists } from '../../../src/sys/index.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, refusal, withoutSettings } from '../../fixtures/tools/command-line.ts';
import { segmentsOf } from '../../run/leftovers.ts';

const COLUMNS = 80;
const ROUNDS = ['put', 'get', 'tag'];

let folder = '';
let temporary = '';
let file = '';
const bytes = randomBytes(1_000_003);
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-demo-test-'));
  temporary = join(folder, 'tmp');
  mkdirSync(temporary);
  file = join(folder, 'file');
  writeFileSync(file, bytes);
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A running demonstration. */
class Demo {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  out = '';
  err = '';

  constructor(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.child = spawn(process.execPath, [MAIN, 'demo', ...args], {
      cwd: ROOT,
      env: { ...withoutSettings(), HOME: folder, TMPDIR: temporary, UCX_GAUDI_DRIVER: 'emulator', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child.stdout!.on('data', (data: Buffer) => {
      this.out += data.toString();
    });
    this.child.stderr!.on('data', (data: Buffer) => {
      this.err += data.toString();
    });
    this.ended = once(this.child, 'close').then(([code]) => code as number | null);
  }

  /** Its processes with cards. */
  workers(): number[] {
    const { pid } = this.child;
    if (!existsSync(`/proc/${pid}/task/${pid}/children`)) return [];
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);
    return children.filter((child) => commandOf(child).includes('card-program'));
  }

  /** Resolves with its processes when there are `count` of them, and they have opened their cards. */
  async atWork(count: number): Promise<number[]> {
    let workers: number[] = [];
    await until(() => {
      workers = this.workers();
      return (
        workers.length === count && workers.every((pid) => segmentsOf([pid]).some((name) => name.endsWith('.ipc')))
      );
    });
    return workers;
  }
}

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 2));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return ''; // It has ended.
  }
}

function expectNothingLeft(pids: readonly number[]): void {
  for (const pid of pids) expect([processExists(pid), segmentsOf([pid])]).toEqual([false, []]);
  expect(readdirSync(temporary).filter((name) => name.startsWith('gaudi-ucx'))).toEqual([]);
}

/** The rows of the rounds: transport, protocol, cards with the same file. */
function roundsOf(text: string): string[][] {
  const row = /^(put|get|tag) +[\d.]+ (?:B|KiB|MiB) +[\d.]+ (?:ns|us|ms|s) +[\d.]+ +(\S+) +(\S+) +(\d+ of \d+)$/gm;
  return [...text.matchAll(row)].map((match) => match.slice(1));
}

describe('demo between nodes', { timeout: 120_000 }, () => {
  it('brings the file to every card over RDMA, and names the path as explain does', async () => {
    const demo = new Demo([file, '--nodes', '2']);
    expect([await demo.ended, demo.err]).toEqual([0, '']);
    expect(demo.out).toContain('2 nodes with an emulated Gaudi card each');
    expect(demo.out).toMatch(/, HBM to HBM over rc\/hca0:1$/m);
    expect(demo.out).toContain(`sha-256 sent   ${createHash('sha256').update(bytes).digest('hex')}`);
    const rounds = roundsOf(demo.out);
    expect(rounds.slice(0, 2)).toEqual([
      ['put', 'rc/hca0:1', 'put/zcopy', '2 of 2'],
      ['get', 'rc/hca0:1', 'get/zcopy', '2 of 2'],
    ]);
    expect(rounds[2]).toEqual(['tag', 'rc/hca0:1', expect.stringMatching(/^tag\/rndv\//), '2 of 2']);
    for (const round of ['put', 'get']) {
      expect(demo.out).toContain(`${round}: ${round}/zcopy on rc/hca0:1 (dma-buf, `);
    }
    expect(demo.out).toMatch(/^GB\/s \(emulated\).*:$/m);
    expect(demo.out).toMatch(/^emulated: /m);
    for (const line of demo.out.replaceAll(file, 'file').split('\n')) expect(line.length).toBeLessThanOrEqual(COLUMNS);
    expectNothingLeft([demo.child.pid!]);
  });

  it('names the transport that carried the bytes, not the one of another node', async () => {
    const demo = new Demo([file, '--nodes', '2', '--bytes', '64K'], { UCX_TLS: 'tcp,self,gaudi_cpy' });
    expect([await demo.ended, demo.err]).toEqual([0, '']);
    expect(demo.out).toMatch(/, HBM to HBM over tcp\/\w+$/m);
    expect(demo.out).not.toContain('rc/');
  });

  it('as JSON, with three nodes', async () => {
    const demo = new Demo([file, '--nodes', '3', '--bytes', '64K', '--json']);
    expect([await demo.ended, demo.err]).toEqual([0, '']);
    const { oneCard, exchange } = JSON.parse(demo.out) as Record<string, unknown>;
    expect(oneCard).toBeUndefined();
    expect(exchange).toMatchObject({ unit: 'node', cards: [0, 1, 2], emulated: true, byteLength: 65_536 });
    const rounds = (exchange as { readonly rounds: readonly object[] }).rounds;
    for (const round of rounds) expect(round).toMatchObject({ transport: 'rc/hca0:1', different: [] });
    expect(rounds[0]).toMatchObject({
      round: 'put',
      protocol: 'put/zcopy',
      note: expect.stringMatching(/^dma-buf, PCI switch/),
    });
    expectNothingLeft([demo.child.pid!]);
  });

  it('ends with a message when the process of a node is killed, and leaves nothing', async () => {
    const demo = new Demo([file, '--nodes', '2']);
    await until(() => demo.workers().length === 2);
    const workers = demo.workers();
    process.kill(workers[1]!, 'SIGKILL');
    expect(await demo.ended).toBe(1);
    expect(demo.err).toMatch(
      new RegExp(`^gaudi-ucx: the process of node 1 \\(pid ${workers[1]}\\) was ended by SIGKILL.*\\n$`),
    );
    expectNothingLeft([demo.child.pid!, ...workers]);
  });

  it.each(['SIGINT', 'SIGTERM'] as const)('leaves nothing after %s', async (signal) => {
    const demo = new Demo([file, '--nodes', '2']);
    await until(() => demo.workers().length === 2);
    const workers = demo.workers();
    demo.child.kill(signal);
    expect(await demo.ended).toBe(130);
    expect(demo.err).toBe(`gaudi-ucx: interrupted by ${signal} (ERR_CANCELED)\n`);
    expectNothingLeft([demo.child.pid!, ...workers]);
  });

  it.each([
    [['--nodes', '1'], {}, 2, /nodes must be an integer from 2 to 8/],
    [['--nodes', '2', '--cards', '2'], {}, 2, /cards must not be given with --nodes/],
    [['--nodes', '2'], { UCX_GAUDI_DRIVER: 'kernel' }, 1, /UCX_GAUDI_DRIVER must be emulator or auto/],
  ])('refuses %j with %j', async (args, env, code, message) => {
    const demo = new Demo([file, ...args], env as Record<string, string>);
    expect([await demo.ended, demo.out]).toEqual([code, '']);
    expect(demo.err).toMatch(message);
    expectNothingLeft([]);
  });
});

describe('demo between cards', { timeout: 120_000 }, () => {
  it('brings the file to every card and measures every pair', async () => {
    const demo = new Demo([file, '--cards', '3']);
    const workers = await demo.atWork(3);
    expect(await demo.ended).toBe(0);
    expect(demo.err).toBe('');
    expect(demo.out).toContain(`sha-256 sent   ${createHash('sha256').update(bytes).digest('hex')}`);
    const rounds = roundsOf(demo.out);
    expect(rounds.map(([round]) => round)).toEqual(ROUNDS);
    for (const [, transport, protocol, whole] of rounds) {
      expect(transport).toMatch(/^gaudi_ipc\/gaudi\d$/);
      expect(protocol).toMatch(/^(put|get)\/zcopy$|^tag\/rndv\//);
      expect(whole).toBe('3 of 3');
    }
    const [, matrix] = demo.out.split(/^GB\/s \(emulated\).*:$/m);
    const rows = matrix!.split('\n').slice(2, 5);
    for (const [from, row] of rows.entries()) expect(row).toMatch(new RegExp(`^${from}( +\\d+\\.\\d\\d){3}$`));
    expect(demo.out).toMatch(/^emulated: /m);
    expect(demo.out).not.toMatch(/undefined|NaN|Infinity|\[object|DIFFERENT/);
    for (const line of demo.out.replaceAll(file, 'file').split('\n')) expect(line.length).toBeLessThanOrEqual(COLUMNS);
    expectNothingLeft([demo.child.pid!, ...workers]);
  });

  it('exchanges a part of the file, also one with fewer bytes than cards', async () => {
    const demo = new Demo([file, '--cards', '3', '--bytes', '2']);
    expect([await demo.ended, demo.err]).toEqual([0, '']);
    expect(demo.out).toContain(`sha-256 sent   ${createHash('sha256').update(bytes.subarray(0, 2)).digest('hex')}`);
    expect(roundsOf(demo.out).map(([, , , whole]) => whole)).toEqual(['3 of 3', '3 of 3', '3 of 3']);
  });

  it('uses another transport without gaudi_ipc', async () => {
    const demo = new Demo([file, '--cards', '2'], { UCX_TLS: '^gaudi_ipc' });
    expect([await demo.ended, demo.err]).toEqual([0, '']);
    const rounds = roundsOf(demo.out);
    expect(rounds.map(([, , , whole]) => whole)).toEqual(['2 of 2', '2 of 2', '2 of 2']);
    expect(rounds.flat().join(' ')).not.toMatch(/gaudi_ipc/);
  });

  it('uses the given node server', async () => {
    const server = await TestNodeServer.start({ cards: 2 });
    try {
      const env = { UCX_GAUDI_DRIVER: `emulator:${server.socketPath}` };
      const many = new Demo([file, '--cards', '3'], env);
      expect(await many.ended).toBe(1);
      expect(many.err).toMatch(/^gaudi-ucx: .*cards must not exceed the number of available cards \(2\).*\n$/);
      const demo = new Demo([file], env);
      expect([await demo.ended, demo.err]).toEqual([0, '']);
      expect(roundsOf(demo.out).map(([, , , whole]) => whole)).toEqual(['2 of 2', '2 of 2', '2 of 2']);
    } finally {
      await server.stop();
    }
  });

  it.each([
    ['as soon as it is there', (demo: Demo) => until(() => demo.workers().length === 3)],
    ['when it has its card', (demo: Demo) => demo.atWork(3)],
  ])('ends with a message when a process is killed %s, and leaves nothing', async (_when, wait) => {
    const demo = new Demo([file, '--cards', '3', '--bytes', '1M']);
    await wait(demo);
    const workers = demo.workers();
    process.kill(workers[1]!, 'SIGKILL');
    expect(await demo.ended).toBe(1);
    expect(demo.err).toMatch(
      new RegExp(`^gaudi-ucx: the process of card \\d \\(pid ${workers[1]}\\) was ended by SIGKILL.*\\n$`),
    );
    expectNothingLeft([demo.child.pid!, ...workers]);
  });

  it.each(['SIGINT', 'SIGTERM'] as const)('leaves nothing after %s', async (signal) => {
    const demo = new Demo([file, '--cards', '3']);
    const workers = await demo.atWork(3);
    demo.child.kill(signal);
    expect(await demo.ended).toBe(130);
    expect(demo.err).toBe(`gaudi-ucx: interrupted by ${signal} (ERR_CANCELED)\n`);
    expectNothingLeft([demo.child.pid!, ...workers]);
  });

  it('releases everything when its output is closed', async () => {
    const demo = new Demo([file, '--cards', '2']);
    demo.child.stdout!.destroy();
    const workers = await demo.atWork(2);
    expect([await demo.ended, demo.err]).toEqual([0, '']);
    expectNothingLeft([demo.child.pid!, ...workers]);
  });

  it('leaves no process when it is killed itself', async () => {
    const demo = new Demo([file, '--cards', '2']);
    const workers = await demo.atWork(2);
    demo.child.kill('SIGKILL');
    await demo.ended;
    await until(() => workers.every((pid) => !processExists(pid)));
    expect(segmentsOf(workers)).toEqual([]);
    // No process is left to remove the folder of the socket.
    for (const name of readdirSync(temporary)) rmSync(join(temporary, name), { recursive: true });
  });

  it.each([
    [['--cards', '1'], /cards must be an integer from 2 to 8/],
    [['--cards', 'all'], /cards must be an integer from 2 to 8/],
    [['--bytes', '0'], /bytes must be a size/],
    [['--bytes', 'half'], /bytes must be a size/],
  ])('refuses %j', async (args, message) => {
    const { code, out, err } = await refusal(['demo', file, ...args]);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(message);
    expect(err.trimEnd().split('\n')).toHaveLength(2);
  });
});
