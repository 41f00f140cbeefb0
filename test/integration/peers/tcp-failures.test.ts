/**
 * Peers across a network that fail, in every way: killed, stopped, cut off, silent; and slow peers, which have not failed.
 * Every request ends once, with the right status, other peers continue, nothing leaks.
 */

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import { createEmulatedNode } from '../../../src/emulator/index.ts';
import { Context, type Endpoint, MemoryType, type Request, Status, type Worker } from '../../../src/index.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { pattern } from '../../fixtures/pair.ts';
import { freePort } from '../../fixtures/processes/free-port.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';
import { createTestLog, type TestLog } from '../../fixtures/test-log.ts';
import { portOf, Relay } from '../../fixtures/transports/tcp-relay.ts';

const TLS = 'tcp,self,gaudi_cpy';
const KIB64 = 65_536;
const MIB = 2 ** 20;
/** TCP_ESTABLISHED in /proc/net/tcp. */
const ESTABLISHED = '01';
/** Much more than the timeouts below, for loaded machines. */
const SETTLE_MS = 15_000;
const SHORT = { UCX_KEEPALIVE_INTERVAL: '100ms', UCX_TCP_PEER_TIMEOUT: '400ms' };
/** No keepalive checks: operations end because the transport reports the failure. */
const NEVER = { UCX_KEEPALIVE_INTERVAL: 'inf' };

/** This process: a host with one card. */
interface Own {
  readonly context: Context;
  readonly worker: Worker;
  readonly log: TestLog;
}

/** Reports of a connection. */
interface Connected {
  readonly endpoint: Endpoint;
  readonly errors: Status[];
}

/** Relays between two processes. */
interface Relays {
  readonly toPeer: Relay;
  readonly toOwn: Relay;
}

type Env = Readonly<Record<string, string>>;

describe('peers across tcp', { timeout: 120_000 }, () => {
  expectNoLeaks();
  const relays: Relay[] = [];
  afterEach(() => {
    for (const relay of relays.splice(0)) relay.close();
  });

  async function open(env: Env, run: (own: Own) => Promise<void>): Promise<void> {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const log = createTestLog();
    const context = await Context.create({
      node,
      env: { UCX_TLS: TLS, UCX_NET_DEVICES: 'lo', ...env },
      configDirectories: [],
      logSink: (level, component, message) => log.log.child(component)[level <= 2 ? 'warn' : 'info'](message),
    });
    try {
      await run({ context, worker: context.worker(), log });
    } finally {
      await context.close();
      node.close();
    }
    log.expectQuiet();
  }

  /** Runs a test with an own context and peers, and closes all of them. */
  async function withPeers(
    env: Env,
    count: number,
    run: (own: Own, ...peers: UcpPeer[]) => Promise<void>,
  ): Promise<void> {
    await open(env, async (own) => {
      const peers: UcpPeer[] = [];
      try {
        for (let i = 0; i < count; i++) {
          peers.push(await UcpPeer.start('', 0, TLS, { UCX_NET_DEVICES: 'lo', ...env }));
        }
        await run(own, ...peers);
        for (const peer of peers) await peer.close();
      } finally {
        for (const peer of peers) await peer.kill();
      }
    });
  }

  /** @param via relays in front of this process and the peer, whichever connects first */
  async function connect({ worker }: Own, peer: UcpPeer, via?: Relays): Promise<Connected> {
    const errors: Status[] = [];
    const onError = (_endpoint: Endpoint, status: Status): void => void errors.push(status);
    const endpoint = worker.endpoint(via?.toPeer.address ?? peer.address, { onError });
    const own = via?.toOwn.address ?? worker.address();
    const connected = peer.ask({ do: 'connect', address: Buffer.from(own).toString('hex') });
    await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
    await worker.tagRecv(new Uint8Array(1), { tag: 1 });
    await connected;
    return { endpoint, errors };
  }

  async function relaysBetween({ worker }: Own, peer: UcpPeer): Promise<Relays> {
    const [toPeer, toOwn] = [await Relay.open(peer.address), await Relay.open(worker.address())];
    relays.push(toPeer, toOwn);
    return { toPeer, toOwn };
  }

  /** All operations that wait for a peer that does not answer any more, by name. */
  function startEverything({ context, worker }: Own, { endpoint }: Connected, peer: UcpPeer): Outcomes {
    const gaudi = context.memMap({ allocate: MIB, memoryType: MemoryType.GAUDI });
    const host = context.memMap({ allocate: MIB });
    const bytes = pattern(MIB, 1);
    const rkeys = ['registered', 'allocated', 'gaudi'].map((name) => endpoint.unpackRkey(peer.keys[name]!));
    const [registered, allocated, remoteGaudi] = rkeys as [(typeof rkeys)[0], (typeof rkeys)[0], (typeof rkeys)[0]];
    const outcomes = new Outcomes(worker, {
      'tag rndv bytes': endpoint.tagSend(bytes, { tag: 9 }),
      'tag rndv gaudi': endpoint.tagSend(gaudi, { tag: 9 }),
      'tag rndv host': endpoint.tagSend(host, { tag: 9 }),
      'tag sync': endpoint.tagSendSync(bytes.subarray(0, 8), { tag: 9 }),
      'am rndv': endpoint.amSend(5, bytes),
      'am gaudi': endpoint.amSend(5, gaudi),
      'stream receive': endpoint.streamRecv(new Uint8Array(8)),
      'put bytes': endpoint.put(bytes, registered).then(() => endpoint.flush()),
      'put gaudi': endpoint.put(gaudi, allocated).then(() => endpoint.flush()),
      'put to gaudi': endpoint.put(bytes, remoteGaudi).then(() => endpoint.flush()),
      'get bytes': endpoint.get(bytes.slice(), registered),
      'get gaudi': endpoint.get(gaudi, remoteGaudi),
      'get short': endpoint.get(new Uint8Array(8), allocated),
      atomic: endpoint.atomic('add', 1, allocated),
      flush: endpoint.flush(),
    });
    outcomes.onEnd(() => {
      for (const rkey of rkeys) rkey.release();
    });
    const callback = (request: Request, status: Status): void => {
      outcomes.callbacks.push(status);
      request.free();
    };
    endpoint.tagSendSyncNbx(bytes, 0, 8, 9, { callback });
    endpoint.tagSendNbx(gaudi, 0, MIB, 9, { callback });
    endpoint.getNbx(new Uint8Array(KIB64), 0, KIB64, registered, 0, { callback });
    return outcomes;
  }

  /** All operations have ended with this status, once; another peer continues. */
  async function expectGone(
    own: Own,
    lost: Connected,
    outcomes: Outcomes,
    status: Status,
    other?: UcpPeer,
  ): Promise<void> {
    const { worker } = own;
    await outcomes.expectAll(status);
    await waitFor(worker, () => lost.errors.length > 0 && outcomes.callbacks.length === 3);
    expect(outcomes.callbacks).toEqual([status, status, status]);
    expect([lost.errors, lost.endpoint.status]).toEqual([[status], status]);
    await expect(lost.endpoint.tagSend(new Uint8Array(8))).rejects.toMatchObject({ status });
    if (other !== undefined) await exchange(own, other);
    await lost.endpoint.close();
    expect([lost.errors.length, worker.requestsInUse]).toEqual([1, 0]);
  }

  /** A message of 1 MiB of a peer. */
  async function exchange({ worker }: Own, other: UcpPeer, memory = 'gaudi'): Promise<void> {
    const sent = other.ask({ do: 'send', memory, tag: 7 });
    await worker.tagRecv(new Uint8Array(MIB), { tag: 7 });
    await sent;
  }

  it('that are killed end everything at once, without keepalive checks', async () => {
    await withPeers(NEVER, 2, async (own, victim, other) => {
      const lost = await connect(own, victim);
      const kept = await connect(own, other);
      await victim.ask({ do: 'offer', memory: 'gaudi', tag: 50 });
      await waitFor(own.worker, () => own.worker.tagProbe(50) !== undefined);
      const outcomes = startEverything(own, lost, victim);
      await victim.ask({ do: 'stall' });
      await victim.kill();
      await expectGone(own, lost, outcomes, Status.CONNECTION_RESET, other);
      // The data of its offer does not arrive any more.
      const late = own.worker.tagRecv(new Uint8Array(MIB), { tag: 50 });
      await expect(late).rejects.toMatchObject({ status: Status.CONNECTION_RESET });
      expect(kept.errors).toEqual([]);
      await leave(kept, other);
    });
  });

  it('that are killed while they serve end everything in flight', async () => {
    await withPeers(NEVER, 1, async (own, victim) => {
      const lost = await connect(own, victim);
      await victim.ask({ do: 'serve' });
      const gaudi = own.context.memMap({ allocate: MIB, memoryType: MemoryType.GAUDI });
      let rounds = 0;
      const stream = async (local: Parameters<Endpoint['put']>[0], name: string): Promise<void> => {
        const rkey = lost.endpoint.unpackRkey(victim.keys[name]!);
        try {
          for (;;) {
            await lost.endpoint.put(local, rkey);
            await lost.endpoint.get(local, rkey);
            rounds += 1;
          }
        } finally {
          rkey.release();
        }
      };
      const outcomes = new Outcomes(own.worker, {
        registered: stream(new Uint8Array(MIB), 'registered'),
        allocated: stream(new Uint8Array(MIB), 'allocated'),
        gaudi: stream(gaudi, 'gaudi'),
        'to gaudi': stream(new Uint8Array(MIB), 'gaudi'),
      });
      await waitFor(own.worker, () => rounds > 12);
      await victim.kill();
      await outcomes.expectAll(Status.CONNECTION_RESET);
      await waitFor(own.worker, () => lost.errors.length > 0);
      expect(lost.errors).toEqual([Status.CONNECTION_RESET]);
      await lost.endpoint.close();
      expect(own.worker.requestsInUse).toBe(0);
    });
  });

  it('that are stopped count as failed after PEER_TIMEOUT, and work again when they continue', async () => {
    await withPeers(SHORT, 2, async (own, victim, other) => {
      const lost = await connect(own, victim);
      const kept = await connect(own, other);
      victim.signal('SIGSTOP');
      const outcomes = startEverything(own, lost, victim);
      await expectGone(own, lost, outcomes, Status.ENDPOINT_TIMEOUT, other);
      victim.signal('SIGCONT');
      await waitForAnswer(victim, ({ errors }) => errors!.length === 1);
      expect((await victim.ask({ do: 'state' })).errors).toEqual([Status.CONNECTION_RESET]);
      // It can be used again.
      const again = await connect(own, victim);
      expect([again.errors, kept.errors]).toEqual([[], []]);
      await leave(again, victim);
      await leave(kept, other);
    });
  });

  it.each(['reset', 'end'] as const)('whose connection is cut (%s) are gone at once, for both ends', async (way) => {
    await withPeers(NEVER, 2, async (own, victim, other) => {
      const via = await relaysBetween(own, victim);
      const lost = await connect(own, victim, via);
      const kept = await connect(own, other);
      const outcomes = startEverything(own, lost, victim);
      for (const relay of [via.toPeer, via.toOwn]) relay.cut(way);
      await expectGone(own, lost, outcomes, Status.CONNECTION_RESET, other);
      // The other end makes progress while it serves.
      await victim.ask({ do: 'serve' });
      await waitForAnswer(victim, ({ errors }) => errors!.length === 1);
      expect(kept.errors).toEqual([]);
      await leave(kept, other);
    });
  });

  it('whose connection is half open count as failed after PEER_TIMEOUT, for both ends', async () => {
    await withPeers(SHORT, 2, async (own, victim, other) => {
      const via = await relaysBetween(own, victim);
      const lost = await connect(own, victim, via);
      const kept = await connect(own, other);
      for (const relay of [via.toPeer, via.toOwn]) relay.pause();
      const outcomes = startEverything(own, lost, victim);
      await expectGone(own, lost, outcomes, Status.ENDPOINT_TIMEOUT, other);
      await waitForAnswer(victim, ({ errors }) => errors!.length === 1);
      expect((await victim.ask({ do: 'state' })).errors).toEqual([Status.ENDPOINT_TIMEOUT]);
      expect(kept.errors).toEqual([]);
      await leave(kept, other);
    });
  });

  it('that do not read for longer than all timeouts are slow, not failed', async () => {
    await withPeers(SHORT, 1, async (own, slow) => {
      const { endpoint, errors } = await connect(own, slow);
      const messages = Array.from({ length: 24 }, (_, i) => pattern(MIB, i));
      const rkey = endpoint.unpackRkey(slow.keys['registered']!);
      // More than the sockets hold, of operations with and without an answer.
      const pending = messages.map((bytes) => endpoint.tagSend(bytes, { tag: 3 }));
      pending.push(...messages.map((bytes) => endpoint.put(bytes, rkey)));
      const small = Array.from({ length: 2000 }, (_, i) => endpoint.amSend(6, pattern(4096, i)));
      const begin = performance.now();
      await waitFor(own.worker, () => performance.now() - begin > 3000);
      expect([errors, (await slow.ask({ do: 'state' })).errors]).toEqual([[], []]);
      const { checksums } = await slow.ask({ do: 'receive', tag: 3, count: messages.length });
      expect(checksums).toEqual(messages.map((bytes) => crc32(bytes)));
      await slow.ask({ do: 'serve' });
      await Promise.all([...pending, ...small]);
      await endpoint.flush();
      const back = new Uint8Array(MIB);
      await endpoint.get(back, rkey);
      expect(crc32(back)).toBe(crc32(messages.at(-1)!));
      rkey.release();
      expect(errors).toEqual([]);
      await endpoint.close();
    });
  });

  it('that have no descriptors left refuse with one warning, fail with a typed error, and recover', async () => {
    await withPeers({}, 1, async (own, peer) => {
      const { endpoint } = await connect(own, peer);
      await peer.ask({ do: 'serve' });
      // Both ends have connected, and one of the two connections is closed: its descriptor must not become free under the limit.
      await waitFor(own.worker, () => connectionsOf(peer.pid) === 1);
      const limit = limitDescriptors(peer.pid);
      // A worker without a connection to the peer.
      const second = own.context.worker();
      for (let i = 0; i < 3; i++) {
        const refused = second.endpoint(peer.address);
        await expect(refused.tagSend(new Uint8Array(8)).then(() => refused.flush())).rejects.toMatchObject({
          code: 'ERR_UNREACHABLE',
        });
        await refused.close({ force: true });
      }
      const address = Buffer.from(second.address()).toString('hex');
      expect(await peer.ask({ do: 'try', address })).toEqual({
        status: Status.EXCEEDS_LIMIT,
        code: expect.stringMatching(/EMFILE|EXCEEDS_LIMIT/),
      });
      // Existing connections continue.
      await endpoint.tagSend(new Uint8Array(8), { tag: 3 });
      await exchange(own, peer, 'registered');
      limit.lift();
      const served = new AbortController();
      const serving = second.serve(served.signal);
      expect(await peer.ask({ do: 'try', address })).toEqual({ status: 0 });
      const accepted = second.endpoint(peer.address);
      await accepted.tagSend(new Uint8Array(8), { tag: 3 });
      await accepted.flush();
      served.abort();
      await serving;
      await second.close();
      await endpoint.close();
      expect(peer.errors.match(/no descriptors left/g)).toHaveLength(1);
    });
  });

  it('whose port belongs to another process now are named, and nothing is written to it', async () => {
    const port = await freePort();
    const env = { UCX_TCP_PORT_RANGE: String(port), UCX_TLS: 'tcp,self' };
    await open({ UCX_TLS: 'tcp,self' }, async (own) => {
      let old: { address: Uint8Array; key: Uint8Array } | undefined;
      await open(env, async ({ context, worker }) => {
        const memory = context.memMap({ buffer: new Uint8Array(KIB64) });
        old = { address: worker.address(), key: context.packRkey(memory) };
        expect(portOf(old.address)).toBe(port);
        const endpoint = own.worker.endpoint(old.address);
        const rkey = endpoint.unpackRkey(old.key);
        const serving = new AbortController();
        const served = worker.serve(serving.signal);
        await endpoint.put(pattern(KIB64, 1), rkey);
        await endpoint.flush();
        serving.abort();
        await served;
        rkey.release();
        await endpoint.close();
      });
      await open(env, async ({ context, worker }) => {
        const bytes = new Uint8Array(KIB64);
        context.packRkey(context.memMap({ buffer: bytes }));
        expect(portOf(worker.address())).toBe(port);
        const serving = new AbortController();
        const served = worker.serve(serving.signal);
        const stale = own.worker.endpoint(old!.address);
        await expect(stale.tagSend(new Uint8Array(8)).then(() => stale.flush())).rejects.toMatchObject({
          code: 'ERR_UNREACHABLE',
        });
        await stale.close();
        // The address is valid, the key is of the earlier worker.
        const endpoint = own.worker.endpoint(worker.address());
        const rkey = endpoint.unpackRkey(old!.key);
        const put = endpoint.put(pattern(KIB64, 2), rkey).then(() => endpoint.flush());
        await expect(put).rejects.toMatchObject({ status: Status.INVALID_ADDR });
        await expect(endpoint.get(new Uint8Array(64), rkey)).rejects.toMatchObject({ status: Status.INVALID_ADDR });
        rkey.release();
        expect(bytes.every((byte) => byte === 0)).toBe(true);
        await endpoint.close();
        // The port cannot be taken by another process meanwhile.
        await open(env, async ({ worker: late }) => {
          expect(() => late.address()).toThrow(/EADDRINUSE/);
        });
        serving.abort();
        await served;
      });
    });
  });

  async function leave({ endpoint }: Connected, peer: UcpPeer): Promise<void> {
    const closing = endpoint.close();
    await peer.ask({ do: 'serve' });
    await closing;
  }
});

/** Running operations, and their results. */
class Outcomes {
  /** Statuses of the requests with callbacks. */
  readonly callbacks: Status[] = [];
  readonly #worker: Worker;
  readonly #names: readonly string[];
  readonly #settled: Promise<PromiseSettledResult<unknown>[]>;
  readonly #running: Set<string> = new Set();

  constructor(worker: Worker, operations: Readonly<Record<string, Promise<unknown>>>) {
    this.#worker = worker;
    this.#names = Object.keys(operations);
    for (const [name, operation] of Object.entries(operations)) {
      const end = (): void => void this.#running.delete(name);
      this.#running.add(name);
      operation.then(end, end);
    }
    this.#settled = Promise.allSettled(Object.values(operations));
  }

  onEnd(callback: () => void): void {
    void this.#settled.then(callback);
  }

  /** All of them fail with this status; operations that have ended before do not count as failures. */
  async expectAll(status: Status): Promise<void> {
    let results: PromiseSettledResult<unknown>[] | undefined;
    void this.#settled.then((settled) => {
      results = settled;
    });
    await waitFor(
      this.#worker,
      () => results !== undefined,
      () => [...this.#running].join(', '),
    );
    const statuses = results!.map((result) =>
      result.status === 'fulfilled' ? 'fulfilled' : (result.reason as { status: Status }).status,
    );
    expect(Object.fromEntries(this.#names.map((name, i) => [name, statuses[i]]))).toEqual(
      Object.fromEntries(this.#names.map((name) => [name, status])),
    );
  }
}

/** Leaves a process no descriptors beyond the open ones. */
function limitDescriptors(pid: number): { lift(): void } {
  const open = execFileSync('ls', [`/proc/${pid}/fd`], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .map(Number);
  let lowest = 0;
  while (open.includes(lowest)) lowest += 1;
  const set = (soft: string): void => {
    execFileSync('prlimit', ['--pid', String(pid), `--nofile=${soft}:`]);
  };
  set(String(lowest));
  return { lift: () => set('1024') };
}

/** Number of TCP connections of a process. */
function connectionsOf(pid: number): number {
  const sockets = readdirSync(`/proc/${pid}/fd`).map((fd) => linkTarget(`/proc/${pid}/fd/${fd}`));
  const [, ...lines] = readFileSync('/proc/net/tcp', 'latin1').trim().split('\n');
  const fields = lines.map((line) => line.trim().split(/\s+/));
  return fields.filter(({ 3: state, 9: inode }) => state === ESTABLISHED && sockets.includes(`socket:[${inode}]`))
    .length;
}

/** The target of a link; nothing for one that has been removed meanwhile. */
function linkTarget(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** Drives a worker until `isDone`; fails if that takes too long. */
async function waitFor(worker: Worker, isDone: () => boolean, what = (): string => 'something'): Promise<void> {
  const deadline = performance.now() + SETTLE_MS;
  while (!isDone()) {
    if (performance.now() > deadline) expect.fail(`has not happened: ${what()}`);
    worker.progress();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Queries the state of a peer until it is as expected. */
async function waitForAnswer(
  peer: UcpPeer,
  isGood: (state: Awaited<ReturnType<UcpPeer['ask']>>) => boolean,
): Promise<void> {
  const deadline = performance.now() + SETTLE_MS;
  while (!isGood(await peer.ask({ do: 'state' }))) {
    if (performance.now() > deadline) expect.fail('the peer has not come to that');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
