/**
 * Chaos: processes with one card each that exchange data with each other are killed, stopped for a while and left without descriptors or shared
 * memory at random
 * moments, over every kind of transport; afterwards the node has leaked nothing and still works. The node server itself is killed as well.
 * `GAUDI_UCX_CHAOS_SECONDS` sets the duration, `GAUDI_UCX_CHAOS_SEED` repeats the same choices.
 */

import { appendFileSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { connectEmulatedNode, type NodeStatus } from '../../../src/emulator/index.ts';
import { Context, MemoryType } from '../../../src/index.ts';
import { createRandom, type Random } from '../../../src/ucs/sys/random.ts';
import { scavenge } from '../../../src/uct/base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../../src/uct/base/key/segment-name.ts';
import { extent } from '../../fixtures/extent.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';
import { ENDED, ROUNDS, SHORTAGES } from '../../fixtures/processes/chaos-files.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import type { ChaosAnswer, ChaosRequest, PlantedFault } from '../../fixtures/programs/chaos-program.ts';
import { keyFile } from '../../fixtures/transports/key-files.ts';
import { OwnSharedMemory } from '../../fixtures/transports/own-shared-memory.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/programs/chaos-program.ts');
const PROCESSES = 4;
const SECONDS = extent('GAUDI_UCX_CHAOS_SECONDS', 6, 60);
const SEED = Number(process.env['GAUDI_UCX_CHAOS_SEED'] ?? Math.floor(Date.now() / 1000) % 1_000_000);
/** Time in which the driver guarantees to release the resources of a killed process. */
const RELEASE_MS = 1000;
/** Duration of a full /dev/shm. */
const FULL_MS = 100;
/** The least exchanges and acts of chaos of a valid run. */
const ROUNDS_PER_SECOND_MIN = 10;
const ACTS_PER_SECOND_MIN = 0.5;

/** Settings of the processes, by the name of the transport that carries their bytes. */
const KINDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'all transports': {},
  tcp: { UCX_TLS: 'tcp,self,gaudi_cpy' },
  'encrypted tcp': { UCX_TLS: 'tcp,self,gaudi_cpy', UCX_TCP_SECURITY: 'encrypt', UCX_TCP_KEY_FILE: keyFile() },
};

/** One process. */
interface Member {
  readonly child: Child<ChaosRequest, ChaosAnswer>;
  /** Resolves when it takes part, or was killed before. */
  readonly ready: Promise<unknown>;
}

let server: TestNodeServer;
let folder: string;
let env: Readonly<Record<string, string>>;
let members: Member[] = [];
const pids: number[] = [];
/** The /dev/shm of the processes; undefined if they use that of the machine, which must not be filled. */
let sharedMemory: OwnSharedMemory | undefined;

beforeAll(async () => {
  const made = await OwnSharedMemory.make();
  if (made instanceof OwnSharedMemory) sharedMemory = made;
  else console.info(`a full /dev/shm is skipped: ${made}`);
});
afterAll(async () => {
  await sharedMemory?.close();
});
beforeEach(async () => {
  server = await TestNodeServer.start({ cards: PROCESSES });
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-chaos-'));
});
afterEach(async () => {
  for (const { child } of members) await child.kill();
  members = [];
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

function start(card: number, seed: number): Member {
  const args = [server.socketPath, String(card), folder, String(seed), JSON.stringify(env)];
  const execution = sharedMemory?.execution;
  const child: Member['child'] = new Child(PROGRAM, args, execution === undefined ? {} : { execution });
  pids.push(child.pid);
  return { child, ready: child.next().catch(() => undefined) };
}

function expectRunning({ errors, isRunning }: Member['child']): void {
  expect([errors, isRunning]).toEqual(['', true]);
}

async function startAll(random: Random): Promise<void> {
  members = Array.from({ length: PROCESSES }, (_, card) => start(card, random.nextU32()));
  await Promise.all(members.map(({ ready }) => ready));
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Resources of the server for other clients than this process. Resets of cards whose owner was killed are not leaks. */
function held({ cards, clients, dmabufs }: NodeStatus): unknown {
  return {
    cards: cards.map(({ minor, status, owner, dramUsedBytes }) => ({ minor, status, owner, dramUsedBytes })),
    clients: clients.filter(({ pid }) => pid !== process.pid).length,
    dmabufs,
  };
}

/** Tells the others that a process will be killed, or close: an operation with it that fails earlier has another reason. */
function noteEnd({ pid }: Member['child']): void {
  writeFileSync(join(folder, `${pid}${ENDED}`), String(Date.now()));
}

/** Kills, stops or deprives one of the processes. */
async function act(random: Random): Promise<void> {
  const at = random.below(PROCESSES);
  const { child, ready } = members[at]!;
  const choice = random.below(sharedMemory === undefined ? 4 : 5);
  // Half of them are killed while they are starting.
  if (choice > 1 || random.below(2) === 0) await ready;
  expectRunning(child);
  if (choice < 2) {
    noteEnd(child);
    await child.kill();
    members[at] = start(at, random.nextU32());
  } else if (choice === 2) {
    child.signal('SIGSTOP');
    await pause(random.below(500));
    child.signal('SIGCONT');
  } else {
    await Promise.all(members.map((member) => member.ready));
    const isOfDescriptors = choice === 3;
    const fromMs = Date.now();
    appendFileSync(join(folder, SHORTAGES), `${fromMs}\n`);
    for (const member of members) {
      const isShort = isOfDescriptors && member.child === child;
      // It may be killed before it answers.
      member.child.ask(isShort ? { do: 'descriptors' } : { do: 'shortage', fromMs }).catch(() => undefined);
    }
    if (isOfDescriptors) return;
    const release = sharedMemory!.fill();
    await pause(FULL_MS);
    release();
  }
}

/** Ends all processes in order. @returns the number of exchanges of all processes since the folder was made */
async function stopAll(): Promise<number> {
  for (const { child } of members) noteEnd(child);
  await Promise.all(
    members.map(async ({ child }) => {
      expectRunning(child);
      await child.ask({ do: 'close' });
      expect([await child.end(), child.errors]).toEqual([0, '']);
    }),
  );
  return statSync(join(folder, ROUNDS)).size;
}

async function expectReleased(observer: { status(): NodeStatus }, before: unknown): Promise<void> {
  await vi.waitFor(() => expect(held(observer.status())).toEqual(before), { timeout: RELEASE_MS, interval: 10 });
  scavenge();
  const files = readdirSync(SEGMENT_FOLDER).filter((name) => pids.includes(Number(name.split('.')[2])));
  expect([...files, ...(sharedMemory?.filesOfTheLiving() ?? [])]).toEqual([]);
}

describe(`${PROCESSES} processes (GAUDI_UCX_CHAOS_SEED=${SEED})`, () => {
  const seconds = SECONDS / Object.keys(KINDS).length;
  it.each(Object.keys(KINDS))(
    `over %s, killed, stopped and short of descriptors and shared memory for ${seconds} s, leave a node that has leaked nothing and works`,
    { timeout: seconds * 1000 + 120_000 },
    async (kind) => {
      env = KINDS[kind]!;
      const observer = connectEmulatedNode(server.socketPath);
      const before = held(observer.status());
      const random = createRandom(SEED);
      await startAll(random);
      const end = performance.now() + seconds * 1000;
      let acts = 0;
      for (; performance.now() < end; acts++) {
        await pause(random.below(500));
        await act(random);
      }
      await Promise.all(members.map(({ ready }) => ready));
      // A last exchange of all remaining processes.
      await pause(500);
      const rounds = await stopAll();
      expect(acts).toBeGreaterThanOrEqual(seconds * ACTS_PER_SECOND_MIN);
      expect(rounds).toBeGreaterThanOrEqual(seconds * ROUNDS_PER_SECOND_MIN);
      console.log(`chaos over ${kind}: ${acts} acts, ${rounds} exchanges`);
      await expectReleased(observer, before);
      expect(server.errors).toBe('');
      observer.close();
      await exchange();
    },
  );

  it.each<[PlantedFault, RegExp]>([
    ['failure', /with \d+, .*a planted failure/],
    ['failed receive', /receive: .*a planted failure/],
    ['wrong byte', /wrong bytes of \d+/],
  ])('report a planted %s', { timeout: 60_000 }, async (fault, message) => {
    env = {};
    await startAll(createRandom(SEED));
    const { child } = members[0]!;
    // It will kill itself, and the others must excuse that.
    noteEnd(child);
    await child.ask({ do: 'plant', fault });
    await vi.waitFor(() => expect(child.isRunning).toBe(false), { timeout: 20_000, interval: 10 });
    expect(child.errors).toMatch(message);
    for (const other of members.slice(1)) expectRunning(other.child);
  });

  it('end with an error that names the node server when it is killed, and work on the next one', {
    timeout: 60_000,
  }, async () => {
    env = {};
    const random = createRandom(SEED);
    await startAll(random);
    const reports = members.map(({ child }) => child.next());
    await Promise.all(members.map(({ child }) => child.ask({ do: 'server' })));
    await server.kill();
    for (const { failure } of await Promise.all(reports)) expect(failure).toMatch(/node server/);
    expect(await Promise.all(members.map(({ child }) => child.end()))).toEqual(members.map(() => 0));
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
    folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-chaos-'));
    server = await TestNodeServer.start({ cards: PROCESSES });
    const observer = connectEmulatedNode(server.socketPath);
    const before = held(observer.status());
    await startAll(random);
    await pause(500);
    expect(await stopAll()).toBeGreaterThan(0);
    await expectReleased(observer, before);
    observer.close();
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
