/**
 * Peers in processes of their own that are killed during operations: every request ends within the keepalive time, once, others continue,
 * nothing leaks. And operations of two live processes: atomic counters, and sleeping.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectEmulatedNode, type RemoteNode } from '../../../src/emulator/index.ts';
import {
  Context,
  type Endpoint,
  type MemoryHandle,
  MemoryType,
  type Request,
  Status,
  type Worker,
} from '../../../src/index.ts';
import { scavenge } from '../../../src/uct/base/key/segment.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import { type ProcessUsage, processUsage } from '../../fixtures/processes/process-usage.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';
import { createTestLog, type TestLog } from '../../fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

/** Much more than the keepalive time of 100 ms, for loaded machines. */
const SETTLE_MS = 5000;
/** One percent of a processor, if each takes 0.2 ms. The share itself cannot be compared: other programs make every wake-up more expensive. */
const WAKE_UPS_MAX = 50;
/** A process that polls without a sleep has more, even if it shares its processor with two others. */
const SHARE_MAX = 0.25;
const GONE: readonly Status[] = [Status.ENDPOINT_TIMEOUT, Status.CONNECTION_RESET];

let server: TestNodeServer;
beforeAll(async () => {
  server = await TestNodeServer.start({ cards: 3, dmaThreads: 0 });
});
afterAll(() => server.stop());

/** This process, with the first card. */
interface Own {
  readonly context: Context;
  readonly worker: Worker;
  readonly log: TestLog;
}

describe('peers in other processes', { timeout: 60_000 }, () => {
  expectNoLeaks(SEGMENT_PROBES);

  /** Runs a test with an own context and peers, and closes all of them. */
  async function withPeers(
    count: number,
    run: (own: Own, ...peers: UcpPeer[]) => Promise<void>,
    tls = 'all',
  ): Promise<void> {
    const node: RemoteNode = connectEmulatedNode(server.socketPath);
    const log = createTestLog();
    const peers: UcpPeer[] = [];
    const context = await Context.create({
      node,
      env: {
        GAUDI_MAPPING_TABLE: JSON.stringify([{ index: 0, bus_id: node.cards()[0]!.busId }]),
        UCX_KEEPALIVE_INTERVAL: '100ms',
      },
      configDirectories: [],
      logSink: (level, component, message) => log.log.child(component)[level <= 2 ? 'warn' : 'info'](message),
    });
    try {
      for (let i = 0; i < count; i++) peers.push(await UcpPeer.start(server.socketPath, i + 1, tls));
      await run({ context, worker: context.worker(), log }, ...peers);
      for (const peer of peers) await peer.close();
    } finally {
      for (const peer of peers) await peer.kill();
      await context.close();
      node.close();
      scavenge();
    }
  }

  async function connect({ worker }: Own, peer: UcpPeer, onError?: (status: Status) => void): Promise<Endpoint> {
    const endpoint = worker.endpoint(
      peer.address,
      onError === undefined ? {} : { onError: (_endpoint, status) => onError(status) },
    );
    const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
    await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
    await worker.tagRecv(new Uint8Array(1), { tag: 1 });
    await connected;
    return endpoint;
  }

  /** Resolves with the results of all promises; fails if they do not settle within the bound. */
  async function settled(promises: readonly Promise<unknown>[]): Promise<PromiseSettledResult<unknown>[]> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error('not all operations have ended')), SETTLE_MS);
    });
    try {
      return await Promise.race([Promise.allSettled(promises), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  function expectGone(results: readonly PromiseSettledResult<unknown>[], names: readonly string[]): void {
    for (const [i, result] of results.entries()) {
      const status = result.status === 'rejected' ? (result.reason as { status: Status }).status : result.status;
      expect(GONE, `${names[i]}: ${String(result.status === 'rejected' ? result.reason : 'fulfilled')}`).toContain(
        status,
      );
    }
  }

  it.each([
    ['host', 'all', 1],
    ['host', 'tcp', 9],
    ['gaudi', 'all', 3],
    ['gaudi', 'tcp,gaudi_cpy', 5],
  ] as const)(
    'that are killed send no notification without its data: %s memory, UCX_TLS=%s',
    async (kind, tls, killAt) => {
      const [slots, slotBytes] = [200, 64 * 1024];
      await withPeers(
        1,
        async (own, victim) => {
          const { context, worker } = own;
          const memoryType = kind === 'gaudi' ? MemoryType.GAUDI : MemoryType.HOST;
          const memory = context.memMap({ allocate: slots * slotBytes, memoryType });
          const endpoint = await connect(own, victim);
          const serving = new AbortController();
          const served = worker.serve(serving.signal);
          const notified: number[] = [];
          const holds = (bytes: Uint8Array, slot: number): boolean =>
            bytes.subarray(slot * slotBytes, (slot + 1) * slotBytes).every((byte) => byte === slot + 1);
          const broken: number[] = [];
          const reached = new Promise<void>((resolve) => {
            worker.setNotificationHandler(({ bytes }) => {
              const slot = bytes[0]!;
              if (memory.bytes !== undefined && !holds(memory.bytes, slot)) broken.push(slot);
              notified.push(slot);
              if (notified.length === killAt) resolve();
            });
          });
          const key = Buffer.from(context.packRkey(memory)).toString('hex');
          await victim.ask({ do: 'notify', key, count: slots, slotBytes });
          await reached;
          await victim.kill();
          await endpoint.close({ force: true });
          // In order, each once, and nothing of the dead peer comes later.
          expect(notified).toEqual(notified.map((_, slot) => slot));
          const contents = memory.bytes ?? (await memory.read());
          for (const slot of notified) expect(holds(contents, slot)).toBe(true);
          serving.abort();
          await served;
          context.memUnmap(memory);
        },
        tls,
      );
    },
  );

  it('that are killed end the operations that wait for them, and no others', async () => {
    await withPeers(2, async (own, victim, other) => {
      const { context, worker } = own;
      const errors: Status[] = [];
      const endpoint = await connect(own, victim, (status) => errors.push(status));
      const otherEndpoint = await connect(own, other, () => expect.fail('the other peer lives'));
      const gaudi = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI });
      const host = context.memMap({ allocate: 2 ** 20 });
      const bytes = pattern(2 ** 20, 1);
      // The offer of the victim has arrived, but not its data.
      await victim.ask({ do: 'offer', memory: 'gaudi', tag: 50 });
      await victim.ask({ do: 'offer', memory: 'registered', tag: 51 });
      const arrived = Promise.all([50, 51].map((tag) => waitFor(worker, () => worker.tagProbe(tag) !== undefined)));
      await arrived;
      const statuses: Status[] = [];
      const callback = (request: Request, status: Status): void => {
        statuses.push(status);
        request.free();
      };
      const names = [
        'tag rndv bytes',
        'tag rndv gaudi',
        'tag rndv host',
        'sync',
        'sync list',
        'am',
        'am gaudi',
        'stream',
        'stream all',
      ];
      const pending: Promise<unknown>[] = [
        endpoint.tagSend(bytes, { tag: 9 }),
        endpoint.tagSend(gaudi, { tag: 9 }),
        endpoint.tagSend(host, { tag: 9 }),
        endpoint.tagSendSync(bytes.subarray(0, 8), { tag: 9 }),
        endpoint.tagSendSync([{ memory: bytes }, { memory: gaudi }], { tag: 9 }),
        endpoint.amSend(5, bytes),
        endpoint.amSend(5, gaudi),
        endpoint.streamRecv(new Uint8Array(8)),
        endpoint.streamRecv(gaudi, { waitAll: true }),
      ];
      endpoint.tagSendSyncNbx(bytes, 0, 8, 9, { callback });
      endpoint.tagSendNbx(gaudi, 0, 2 ** 20, 9, { callback });
      const all = settled(pending);
      await victim.ask({ do: 'stall' });
      await victim.kill();
      expectGone(await all, names);
      await waitFor(worker, () => statuses.length === 2 && errors.length === 1);
      for (const status of [...statuses, ...errors]) expect(GONE).toContain(status);
      expect(GONE).toContain(endpoint.status);
      // Its data does not arrive any more.
      const late = [50, 51].map((tag) => worker.tagRecv(new Uint8Array(2 ** 20), { tag }));
      expectGone(await settled(late), ['gaudi that was offered', 'bytes that were offered']);
      expectGone(await settled([endpoint.tagSend(bytes), endpoint.flush()]), ['send after', 'flush after']);
      // The other peer is not affected.
      const target = new Uint8Array(2 ** 20);
      const sent = other.ask({ do: 'send', memory: 'gaudi', tag: 7 });
      await worker.tagRecv(target, { tag: 7 });
      await sent;
      await endpoint.close();
      expect([errors.length, worker.requestsInUse]).toEqual([1, 0]);
      const closing = otherEndpoint.close();
      await other.ask({ do: 'serve' });
      await closing;
      own.log.expectQuiet();
    });
  });

  it('that are killed during puts and gets end them, of every transport', async () => {
    await withPeers(1, async (own, victim) => {
      const { context, worker } = own;
      const errors: Status[] = [];
      const endpoint = await connect(own, victim, (status) => errors.push(status));
      await victim.ask({ do: 'serve' });
      own.log.allow(/page_fault|gone|ended/);
      const gaudi = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI });
      const host = context.memMap({ allocate: 2 ** 20 });
      let rounds = 0;
      /** Until it fails; memory of a killed process that this one has mapped may stay usable for a while. */
      const stream = async (local: MemoryHandle | Uint8Array, name: string): Promise<void> => {
        const rkey = endpoint.unpackRkey(victim.keys[name]!);
        try {
          for (;;) {
            await endpoint.put(local, rkey);
            await endpoint.get(local, rkey);
            rounds += 1;
          }
        } finally {
          rkey.release();
        }
      };
      const names = ['registered', 'allocated', 'gaudi', 'gaudi from gaudi', 'registered from gaudi'];
      const pending = [
        stream(new Uint8Array(2 ** 20), 'registered'),
        stream(host, 'allocated'),
        stream(host, 'gaudi'),
        stream(gaudi, 'gaudi'),
        stream(gaudi, 'registered'),
      ];
      const all = settled([...pending.map((promise) => promise)]);
      await waitFor(worker, () => rounds > 20);
      await victim.kill();
      const results = await all;
      for (const [i, result] of results.entries()) {
        expect(result.status, names[i]).toBe('rejected');
        const { reason } = result as PromiseRejectedResult;
        const known = [...GONE, Status.IO_ERROR, Status.UNREACHABLE, Status.INVALID_ADDR, Status.CANCELED];
        expect(known, `${names[i]}: ${String(reason)}`).toContain((reason as { status: Status }).status);
      }
      await waitFor(worker, () => errors.length > 0);
      expect(errors).toHaveLength(1);
      expect(GONE).toContain(errors[0]);
      // The own card stays usable.
      const self = worker.endpoint(worker.address());
      const rkey = self.unpackRkey(context.packRkey(gaudi));
      await self.put(pattern(5000, 3), rkey);
      const back = new Uint8Array(5000);
      await self.get(back, rkey);
      expectSame(back, pattern(5000, 3));
      rkey.release();
      await endpoint.close();
      expect(worker.requestsInUse).toBe(0);
    });
  });

  it('add to the same counters: in shared memory, in memory of their own, and on the card of the owner', async () => {
    await withPeers(2, async (own, first, second) => {
      const { context, worker } = own;
      await connect(own, first);
      await connect(own, second);
      const stop = new AbortController();
      const served = worker.serve(stop.signal);
      const self = worker.endpoint(worker.address());
      const memories: [MemoryHandle, number][] = [
        [context.memMap({ allocate: 64 }), 3000],
        [context.memMap({ buffer: new Uint8Array(64) }), 300],
        [context.memMap({ allocate: 64, memoryType: MemoryType.GAUDI }), 60],
      ];
      for (const [memory, count] of memories) {
        const packed = context.packRkey(memory);
        const rkey = self.unpackRkey(packed);
        await self.put(new Uint8Array(8), rkey);
        const key = Buffer.from(packed).toString('hex');
        const answers = [first, second].map((peer) => peer.ask({ do: 'add', key, count }));
        for (let i = 0; i < count; i++) await self.atomic('add', 1, rkey);
        for (const answer of answers) expect(await answer).toEqual({ count });
        await self.flush();
        expect(await self.atomic('add', 0, rkey)).toBe(3n * BigInt(count));
        rkey.release();
      }
      stop.abort();
      await served;
    });
  });

  it('that are connected and idle sleep', async () => {
    await withPeers(1, async (own, peer) => {
      const endpoint = await connect(own, peer);
      await peer.ask({ do: 'serve' });
      const stop = new AbortController();
      const served = own.worker.serve(stop.signal);
      const waiting = own.worker.tagRecv(new Uint8Array(8), { tag: 77 });
      // The rest of the start is over when a message was sent in both directions.
      await endpoint.tagSend(new Uint8Array(8), { tag: 5 });
      await new Promise((resolve) => setTimeout(resolve, 300));
      for (const { wakeUps, share } of await idleSecond(peer)) {
        expect(wakeUps).toBeLessThanOrEqual(WAKE_UPS_MAX);
        expect(share).toBeLessThan(SHARE_MAX);
      }
      // Neither process has stopped responding.
      await own.worker.endpoint(own.worker.address()).tagSend(new Uint8Array(8), { tag: 77 });
      expect(await waiting).toMatchObject({ senderTag: 77n });
      stop.abort();
      await served;
    });
  });
});

/** How often this process and a peer wake up in an idle second, and their shares of a processor. */
async function idleSecond(peer: UcpPeer): Promise<{ readonly wakeUps: number; readonly share: number }[]> {
  const read = async (): Promise<ProcessUsage[]> => [processUsage(), (await peer.ask({ do: 'usage' })).usage!];
  const before = await read();
  const begin = performance.now();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const after = await read();
  const elapsedUs = (performance.now() - begin) * 1000;
  return after.map(({ wakeUps, cpuUs }, i) => ({
    wakeUps: wakeUps - before[i]!.wakeUps,
    share: (cpuUs - before[i]!.cpuUs) / elapsedUs,
  }));
}

/** Drives a worker until `isDone`; fails if that takes too long. */
async function waitFor(worker: Worker, isDone: () => boolean): Promise<void> {
  const deadline = performance.now() + SETTLE_MS;
  while (!isDone()) {
    if (performance.now() > deadline) expect.fail('the awaited condition has not become true');
    worker.progress();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
