/**
 * Chaos: processes with one card each that exchange everything with everybody are killed at random moments and started again; then the node has leaked
 * nothing and still works. `GAUDI_UCX_CHAOS_SECONDS` sets how long, `GAUDI_UCX_CHAOS_SEED` repeats the same kills.
 */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectEmulatedNode, type NodeStatus } from '../../src/emulator/index.ts';
import { Context, MemoryType } from '../../src/index.ts';
import { createRandom } from '../../src/ucs/random.ts';
import { SEGMENT_FOLDER, scavenge } from '../../src/uct/base/segment.ts';
import { built } from '../fixtures/built.ts';
import { extent } from '../fixtures/extent.ts';
import { TestNodeServer } from '../fixtures/node-server.ts';
import { expectSame, pattern } from '../fixtures/pair.ts';

const PROGRAM = built(join(import.meta.dirname, '../fixtures/chaos-program.ts'));
const PROCESSES = 4;
const SECONDS = extent('GAUDI_UCX_CHAOS_SECONDS', 6, 60);
const SEED = Number(process.env['GAUDI_UCX_CHAOS_SEED'] ?? Math.floor(Date.now() / 1000) % 1_000_000);
/** Time for the server to release what a killed process had. */
const RELEASE_MS = 20_000;

/** One process. */
interface Member {
  readonly card: number;
  readonly child: ChildProcess;
  readonly ready: Promise<unknown>;
  readonly errors: string[];
}

let server: TestNodeServer;
let folder: string;
const members: Member[] = [];
const pids: number[] = [];

beforeAll(async () => {
  server = await TestNodeServer.start({ cards: PROCESSES });
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-chaos-'));
});
afterAll(async () => {
  for (const { child } of members) child.kill('SIGKILL');
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

function start(card: number, seed: number): Member {
  const child = fork(PROGRAM, [server.socketPath, String(card), folder, String(seed)], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  pids.push(child.pid!);
  const errors: string[] = [];
  child.stderr!.on('data', (data: Buffer) => errors.push(data.toString()));
  return { card, child, ready: Promise.race([once(child, 'message'), once(child, 'exit')]), errors };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** What the server holds for others than this process. Resets of cards whose owner was killed are no leak. */
function held({ cards, clients, dmabufs }: NodeStatus): unknown {
  return {
    cards: cards.map(({ minor, status, owner, dramUsedBytes }) => ({ minor, status, owner, dramUsedBytes })),
    clients: clients.filter(({ pid }) => pid !== process.pid).length,
    dmabufs,
  };
}

describe(`${PROCESSES} processes, killed at random for ${SECONDS} s (seed ${SEED})`, () => {
  it('leave a node that has leaked nothing and works', { timeout: SECONDS * 1000 + 120_000 }, async () => {
    const observer = connectEmulatedNode(server.socketPath);
    const before = held(observer.status());
    const random = createRandom(SEED);
    for (let card = 0; card < PROCESSES; card++) members.push(start(card, random.nextU32()));
    await Promise.all(members.map(({ ready }) => ready));
    const end = performance.now() + SECONDS * 1000;
    let kills = 0;
    while (performance.now() < end) {
      await pause(random.below(700));
      const at = random.below(PROCESSES);
      const { child, errors, ready } = members[at]!;
      // Half of them while they are starting.
      if (random.below(2) === 0) await ready;
      expect([errors.join(''), child.exitCode]).toEqual(['', null]);
      const exit = once(child, 'exit');
      child.kill('SIGKILL');
      await exit;
      kills += 1;
      members[at] = start(at, random.nextU32());
    }
    await Promise.all(members.map(({ ready }) => ready));
    // A last look at everybody together.
    await pause(500);
    const rounds = await Promise.all(
      members.map(async ({ child, errors }) => {
        const exit = once(child, 'exit');
        const last = once(child, 'message');
        child.send('stop');
        const [[count], [code]] = await Promise.all([Promise.race([last, exit]), exit]);
        expect([errors.join(''), code]).toEqual(['', 0]);
        return count as number;
      }),
    );
    expect(kills).toBeGreaterThan(0);
    expect(Math.max(...rounds)).toBeGreaterThan(0);
    const deadline = performance.now() + RELEASE_MS;
    while (JSON.stringify(held(observer.status())) !== JSON.stringify(before) && performance.now() < deadline) {
      await pause(20);
    }
    expect(held(observer.status())).toEqual(before);
    expect(server.errors).toBe('');
    observer.close();
    scavenge();
    const files = readdirSync(SEGMENT_FOLDER).filter((name) => pids.includes(Number(name.split('.')[2])));
    expect(files).toEqual([]);
    await exchange();
  });
});

/** Puts and gets between two cards of the node, of every memory. */
async function exchange(): Promise<void> {
  const nodes = [0, 1].map(() => connectEmulatedNode(server.socketPath));
  const [one, two] = await Promise.all(
    nodes.map((node, card) =>
      Context.create({
        node,
        env: { GAUDI_MAPPING_TABLE: JSON.stringify([{ index: 0, bus_id: node.cards()[card]!.busId }]) },
        configDirectories: [],
      }),
    ),
  );
  const [here, there] = [one!.worker(), two!.worker()];
  const stop = new AbortController();
  const served = there.serve(stop.signal);
  const endpoint = here.endpoint(there.address());
  for (const byteLength of [1, 1024, 1025, 8257, 1_000_003]) {
    const handles = [
      two!.memMap({ allocate: byteLength, memoryType: MemoryType.GAUDI }),
      two!.memMap({ allocate: byteLength }),
      two!.memMap({ buffer: new Uint8Array(byteLength) }),
    ];
    for (const handle of handles) {
      const rkey = endpoint.unpackRkey(two!.packRkey(handle));
      const back = new Uint8Array(byteLength);
      await endpoint.put(pattern(byteLength, 1), rkey);
      await endpoint.get(back, rkey);
      expectSame(back, pattern(byteLength, 1));
      rkey.release();
    }
  }
  stop.abort();
  await served;
  await one!.close();
  await two!.close();
  for (const node of nodes) node.close();
}
