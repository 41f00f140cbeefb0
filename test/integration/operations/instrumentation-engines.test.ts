/** Both engines tell observers the same of the same operations: events, counters, and the profile made of them. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Status } from '../../../src/index.ts';
import { type OperationEnd, operationEnd } from '../../../src/ucs/debug/diagnostics.ts';
import type { StatsNode } from '../../../src/ucs/stats/stats-node.ts';
import { type Stack, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const MIB = 2 ** 20;
const ENGINES = [
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const;

/** Operation, bytes and status of an event; the protocols are those of the engine. */
function factsOf({ protocol, byteLength, status }: OperationEnd): string {
  return `${protocol.split('/')[0]} ${byteLength} ${status}`;
}

/** An operation of every kind, in host memory and HBM. */
async function doAll({ context, worker, endpoint }: Stack): Promise<void> {
  const host = context.memMap({ allocate: 4096 });
  const hbm = context.memMap({ allocate: MIB, memoryType: 'gaudi' });
  const [hostKey, hbmKey] = [host, hbm].map((memory) => endpoint.unpackRkey(context.packRkey(memory)));
  await endpoint.put(new Uint8Array(8), hostKey!);
  await endpoint.get(new Uint8Array(16), hostKey!);
  await endpoint.put(new Uint8Array(MIB), hbmKey!);
  await endpoint.get(new Uint8Array(1000), hbmKey!);
  await Promise.all([
    endpoint.tagSend(new Uint8Array(24), { tag: 5 }),
    worker.tagRecv(new Uint8Array(100), { tag: 5 }),
  ]);
  await Promise.all([
    endpoint.streamSend(new Uint8Array(50)),
    endpoint.streamRecv(new Uint8Array(50), { waitAll: true }),
  ]);
  let hasArrived = false;
  worker.setAmHandler(3, () => {
    hasArrived = true;
  });
  await endpoint.amSend(3, new Uint8Array(10));
  while (!hasArrived) if (worker.progress() === 0) await new Promise(setImmediate);
  await endpoint.flush();
  for (const rkey of [hostKey, hbmKey]) rkey!.release();
}

const EXPECTED = [
  'put 8 0',
  'get 16 0',
  `put ${MIB} 0`,
  'get 1000 0',
  'tag 24 0',
  'tag 24 0',
  'stream 50 0',
  'stream 50 0',
  'am 10 0',
].sort();

/** The sum of a counter over a tree. */
function sumOf({ counters, children }: StatsNode, name: string): number {
  return children.reduce((sum, child) => sum + sumOf(child, name), counters[name] ?? 0);
}

describe.each(ENGINES)('over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)(
    'every operation of the program has one event, and its parts have none (needs libucp)',
    async () => {
      const stack = await fixture.open();
      const events: OperationEnd[] = [];
      const listen = (event: OperationEnd): void => void events.push(event);
      await doAll(stack);
      operationEnd.subscribe(listen);
      try {
        await doAll(stack);
      } finally {
        operationEnd.unsubscribe(listen);
      }
      // A put that is awaited flushes its lane; how often is up to the engine.
      const told = events.filter(({ protocol }) => protocol !== 'flush');
      expect(told.map(factsOf).sort()).toEqual(EXPECTED);
      for (const { protocol, startNs, endNs, transport } of told) {
        expect(endNs).toBeGreaterThanOrEqual(startNs);
        if (!protocol.endsWith('recv')) expect(transport).toBeTypeOf('string');
      }
      // Device memory is moved by the transports of the node over both engines.
      const ofCards = told.filter(({ byteLength }) => byteLength === MIB || byteLength === 1000);
      expect(ofCards.map(({ transport, device }) => `${transport}/${device}`)).toEqual([
        'gaudi_cpy/gaudi0',
        'gaudi_cpy/gaudi0',
      ]);
      expect(new Set(told.map(({ worker }) => worker)).size).toBe(1);
    },
  );

  it.skipIf(!isThere)('a failure has an event with its status (needs libucp)', async () => {
    const { worker } = await fixture.open();
    const events: OperationEnd[] = [];
    const listen = (event: OperationEnd): void => void events.push(event);
    operationEnd.subscribe(listen);
    const request = worker.tagRecvNbx(new Uint8Array(8), 0, 8, 9);
    if (typeof request !== 'object') throw new TypeError('the receive has ended');
    request.cancel();
    while (!request.isCompleted) worker.progress();
    operationEnd.unsubscribe(listen);
    expect(events.map(({ status }) => status)).toEqual([Status.CANCELED]);
    request.free();
    expect(worker.stats().counters).toMatchObject({ failures: 1, tag_rx: 0 });
  });

  it.skipIf(!isThere)('the tree of counters has every operation and byte once (needs libucp)', async () => {
    const stack = await fixture.open();
    const { context } = stack;
    const before = context.stats();
    await doAll(stack);
    const after = context.stats();
    const added = (name: string): number => sumOf(after, name) - sumOf(before, name);
    expect(added('put')).toBe(2);
    expect(added('get')).toBe(2);
    expect(added('operations')).toBe(2);
    expect(added('bytes')).toBeGreaterThanOrEqual(MIB + 1000);
    // The bytes of puts to HBM; those of libucp are other operations.
    const sent = added('bytes_tx') + added('bytes_zcopy');
    expect(sent).toBeLessThan(2 * MIB);
    expect(added('stream_tx')).toBe(1);
    expect(added('stream_rx')).toBe(1);
    for (const name of ['am_tx', 'am_rx', 'tag_tx', 'tag_rx']) expect(added(name), name).toBe(1);
    expect(added('failures')).toBe(0);
    expect(added('requests')).toBeGreaterThan(0);
    // Closed workers leave their sums.
    const total = sumOf(after, 'stream_tx');
    await stack.worker.close();
    expect(sumOf(context.stats(), 'stream_tx')).toBe(total);
  });

  it.skipIf(!isThere)('a list of device memory counts each block once (needs libucp)', async () => {
    const { context, endpoint } = await fixture.open();
    const hbm = context.memMap({ allocate: 4096, memoryType: 'gaudi' });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    const blocks = [0, 1000, 2000].map((remoteOffset, i) => {
      return { local: new Uint8Array(1000).fill(i + 1), rkey, remoteOffset, byteLength: 1000 };
    });
    await endpoint.putList(blocks);
    for (const { local } of blocks) local.fill(0);
    await endpoint.getList(blocks);
    for (const [i, { local }] of blocks.entries()) expect(local).toEqual(new Uint8Array(1000).fill(i + 1));
    expect(sumOf(context.stats(), 'put')).toBe(3);
    expect(sumOf(context.stats(), 'get')).toBe(3);
    rkey.release();
  });

  it.skipIf(!isThere)('the profile has their spans (needs libucp)', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-profile-'));
    const file = join(folder, 'profile');
    const stack = await fixture.open({ context: { config: { PROFILE_MODE: 'log', PROFILE_FILE: file } } });
    await doAll(stack);
    await fixture.close();
    const { traceEvents } = JSON.parse(readFileSync(file, 'utf8')) as {
      readonly traceEvents: readonly { readonly name: string; readonly cat?: string }[];
    };
    rmSync(folder, { recursive: true });
    const requests = traceEvents.filter(({ cat, name }) => cat === 'request' && name !== 'flush');
    const operations = new Set(requests.map(({ name }) => name.split('/')[0]));
    expect([...operations].sort()).toEqual(['am', 'get', 'put', 'stream', 'tag']);
    expect(traceEvents.some(({ cat }) => cat === 'dma')).toBe(true);
  });
});

/** The counters of workers in docs/guide/tuning.md: of both engines, of the native one only, and over libucp only. */
function documentedCounters(): string[][] {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/guide/tuning.md'), 'utf8');
  return ['Both', 'Native', 'libucx'].map((engines) => {
    const line = page.split('\n').find((each) => each.startsWith(`| ${engines} |`))!;
    return [...line.matchAll(/`(\w+)`/g)].map(([, name]) => name!).sort();
  });
}

describe('UCX_STATS_DEST', () => {
  const fixture = useContexts();
  const isThere = installedLibucp().libucp !== undefined;

  /** The counters of the nodes of a report, by their path. */
  async function written(engine: 'native' | 'libucx', tls: string): Promise<Map<string, Record<string, number>>> {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-stats-'));
    const file = join(folder, 'stats');
    const config = { TLS: tls, NET_DEVICES: 'lo', STATS_DEST: `file:${file}` };
    await doAll(await fixture.open({ context: { engine, config } }));
    await fixture.close();
    const [, ...lines] = readFileSync(file, 'utf8').trimEnd().split('\n');
    rmSync(folder, { recursive: true });
    const nodes = new Map<string, Record<string, number>>();
    const path: string[] = [];
    for (const line of lines) {
      const [, indent = '', name = '', value] = /^( *)(.*?):(?: (\d+))?$/.exec(line) ?? [];
      path.length = indent.length / 2;
      if (value !== undefined) nodes.get(path.join('/'))![name] = Number(value);
      else nodes.set([...path, name].join('/'), {});
      if (value === undefined) path.push(name);
    }
    return nodes;
  }

  it.skipIf(!isThere)(
    'writes the same tree over both engines, with the same counters of devices (needs libucp)',
    async () => {
      const native = await written('native', 'self,gaudi');
      // libucp needs a transport that detects the end of the peer.
      const libucx = await written('libucx', 'tcp,self,gaudi');
      expect([...libucx.keys()]).toEqual([...native.keys()]);
      const documented = documentedCounters();
      for (const [path, counters] of native) {
        const names = Object.keys(counters);
        const others = Object.keys(libucx.get(path)!);
        if (!path.endsWith('ucp_worker closed')) expect(others, path).toEqual(names);
        else {
          const only = (own: readonly string[], those: readonly string[]) =>
            own.filter((name) => !those.includes(name)).sort();
          const sets = [names.filter((name) => others.includes(name)).sort(), only(names, others), only(others, names)];
          expect(sets).toEqual(documented);
        }
      }
      const transfers = [...native.keys()].filter((path) => path.includes('gaudi_dma '));
      expect(transfers).toHaveLength(2);
      for (const path of transfers) expect(libucx.get(path), path).toEqual(native.get(path));
    },
  );
});

describe('what carried an operation over libucp', () => {
  const fixture = useContexts('libucx');
  const isThere = installedLibucp().libucp !== undefined;
  /** The values of UCX_PROTO_ENABLE: libucp describes requests in another form with it. */
  const MODES = ['n', 'y'] as const;
  const open = (mode: string) =>
    fixture.open({ context: { env: { UCX_TLS: 'tcp,self', UCX_NET_DEVICES: 'lo', UCX_PROTO_ENABLE: mode } } });

  it.skipIf(!isThere).each(MODES)(
    'is in the events of all sends, with UCX_PROTO_ENABLE=%s (needs libucp)',
    async (mode) => {
      const { context, worker, endpoint } = await open(mode);
      const rkey = endpoint.unpackRkey(context.packRkey(context.memMap({ allocate: 4096 })));
      const events: OperationEnd[] = [];
      const listen = (event: OperationEnd): void => void events.push(event);
      operationEnd.subscribe(listen);
      try {
        await Promise.all([
          endpoint.tagSend(new Uint8Array(8), { tag: 1 }),
          worker.tagRecv(new Uint8Array(8), { tag: 1 }),
        ]);
        worker.setAmHandler(3, () => {});
        await endpoint.amSend(3, new Uint8Array(8));
        await endpoint.put(new Uint8Array(8), rkey);
        // More at once than are polled.
        const many = Array.from({ length: 50 }, (_, tag) => endpoint.tagSend(new Uint8Array(100_000), { tag }));
        for (let tag = 0; tag < 50; tag++) await worker.tagRecv(new Uint8Array(100_000), { tag });
        await Promise.all(many);
      } finally {
        operationEnd.unsubscribe(listen);
      }
      // Of receives, and of offers without UCX_PROTO_ENABLE, libucp does not say what carried them.
      const told = events.filter(({ protocol, transport }) => /^(tag|am)\//.test(protocol) && transport !== 'libucp');
      if (mode === 'y') expect(told).toHaveLength(52);
      else expect(told.length).toBeGreaterThanOrEqual(2);
      for (const { transport, device } of told) expect(`${transport}/${device}`).toBe('tcp/lo');
      const puts = events.filter(({ protocol }) => protocol === 'put/libucp');
      expect(puts).toHaveLength(1);
      expect(puts[0]!.transport).toBe(mode === 'y' ? 'tcp' : 'libucp');
      rkey.release();
    },
  );

  it.skipIf(!isThere).each(MODES)(
    'is in a result until its endpoint closes, with UCX_PROTO_ENABLE=%s (needs libucp)',
    async (mode) => {
      const { worker } = await open(mode);
      const carriers: (string | undefined)[] = [];
      for (const isClosed of [false, true]) {
        const endpoint = worker.endpoint(worker.address());
        const bytes = new Uint8Array(4_000_000);
        const received = worker.tagRecvNbx(bytes, 0, bytes.length, 7);
        const sent = endpoint.tagSendNbx(bytes, 0, bytes.length, 7, { noImmediateCompletion: true });
        if (typeof sent === 'number' || typeof received === 'number') throw new TypeError('it has ended at once');
        expect(sent.transport).toBe('libucp');
        while (!sent.isCompleted || !received.isCompleted) worker.progress();
        if (isClosed) await endpoint.close();
        carriers.push(sent.transport);
        expect(received.transport).toBe('libucp');
        sent.free();
        received.free();
      }
      expect(carriers).toEqual(['tcp', 'libucp']);
    },
  );

  it.skipIf(!isThere)('is not asked of sends whose endpoint is dropped (needs libucp)', async () => {
    // With UCX_PROTO_ENABLE, libucp ends the process when it drops an endpoint with pending sends (1.13).
    const { context, worker } = await open('n');
    const peer = context.worker();
    const endpoint = worker.endpoint(peer.address());
    await Promise.all([endpoint.tagSend(new Uint8Array(8), { tag: 2 }), peer.tagRecv(new Uint8Array(8), { tag: 2 })]);
    const flushing = endpoint.flushNbx({ noImmediateCompletion: true });
    while (typeof flushing !== 'number' && !flushing.isCompleted) {
      worker.progress();
      peer.progress();
    }
    if (typeof flushing !== 'number') flushing.free();
    const events: OperationEnd[] = [];
    const listen = (event: OperationEnd): void => void events.push(event);
    operationEnd.subscribe(listen);
    const ends = Promise.allSettled(
      Array.from({ length: 40 }, () => endpoint.tagSend(new Uint8Array(1_000_000), { tag: 3 })),
    );
    await endpoint.close({ force: true });
    expect((await ends).every(({ status }) => status === 'rejected')).toBe(true);
    operationEnd.unsubscribe(listen);
    const failed = events.filter(({ protocol }) => protocol === 'tag/libucp');
    expect(failed).toHaveLength(40);
    for (const { status, transport } of failed) expect([status < 0, transport]).toEqual([true, 'libucp']);
  });
});
