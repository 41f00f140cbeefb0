/** Instrumentation: counters that match the operations, traces, events, and no cost without subscribers. */

import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Request, Status } from '../../../src/index.ts';
import { Errno } from '../../../src/sys/index.ts';
import {
  type EndpointChange,
  endpointConnect,
  endpointFail,
  type MemoryChange,
  memoryMap,
  memoryUnmap,
  type OperationEnd,
  operationEnd,
} from '../../../src/ucs/debug/diagnostics.ts';
import type { Counters, StatsNode } from '../../../src/ucs/stats/stats-node.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { connectionKind, expectSame, keyFor, mappedOf, pattern, usePairs } from '../../fixtures/pair.ts';
import { builtSpecifier } from '../../fixtures/tools/built.ts';

const MIB = 2 ** 20;
const fixture = usePairs();
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-instrumentation-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Every node of a class below a root. */
function nodesOf(root: StatsNode, className: string): StatsNode[] {
  const below = root.children.flatMap((child) => nodesOf(child, className));
  return root.className === className ? [root, ...below] : below;
}

/** The counters of the one node with this class and name. */
function countersOf(root: StatsNode, className: string, name: string): Counters {
  const nodes = nodesOf(root, className).filter((node) => node.name === name);
  expect(nodes).toHaveLength(1);
  return nodes[0]!.counters;
}

describe('statistics', () => {
  it('of the interfaces match the operations', async () => {
    const { one, two, ab } = await fixture.pair(connectionKind('posix'));
    const target = mappedOf(two, 'allocated', 4096);
    const rkey = keyFor(ab, two, target);
    // Both ends are connected when a message has arrived.
    const hello = two.worker.tagRecv(new Uint8Array(8));
    await ab.tagSend(new Uint8Array(8));
    await hello;
    const own = (): Counters => countersOf(one.worker.stats(), 'uct_iface', 'posix/memory');
    const start = own();
    for (let i = 0; i < 10; i++) await ab.put(pattern(8, i), rkey);
    for (let i = 0; i < 5; i++) await ab.get(new Uint8Array(16), rkey);
    await ab.put(one.context.memMap({ allocate: 4096 }), rkey);
    for (let i = 0; i < 3; i++) await ab.atomic('add', 1, rkey);
    const done = Object.fromEntries(Object.entries(own()).map(([name, value]) => [name, value - start[name]!]));
    expect(done).toMatchObject({ put: 11, get: 5, atomic: 3, am: 0, no_res: 0 });
    expect(done['bytes_short']! + done['bytes_zcopy']!).toBe(10 * 8 + 5 * 16 + 4096);
    const before = countersOf(two.worker.stats(), 'uct_iface', 'posix/memory');
    const receives = Array.from({ length: 4 }, () => two.worker.tagRecv(new Uint8Array(100)));
    for (let i = 0; i < 4; i++) await ab.tagSend(pattern(100, i));
    await Promise.all(receives);
    const after = countersOf(two.worker.stats(), 'uct_iface', 'posix/memory');
    expect(after['rx_am']! - before['rx_am']!).toBe(4);
    expect(after['rx_am_bytes']! - before['rx_am_bytes']!).toBeGreaterThanOrEqual(400);
    expect(one.worker.stats().counters).toMatchObject({ tx_eager: 5, tx_rndv: 0, requests_in_use: 0, endpoints: 2 });
  });

  it('of the protocols distinguish expected from unexpected, eager from rendezvous', async () => {
    const { one, two, ab } = await fixture.pair(connectionKind('posix'));
    const receive = two.worker.tagRecv(new Uint8Array(8));
    await ab.tagSend(new Uint8Array(8));
    await receive;
    await ab.tagSend(new Uint8Array(8));
    await ab.flush();
    const large = ab.tagSend(new Uint8Array(100_000));
    while (two.worker.tagProbe(0, 0n) === undefined) two.worker.progress();
    await two.worker.tagRecv(new Uint8Array(8));
    await two.worker.tagRecv(new Uint8Array(100_000));
    await large;
    expect(one.worker.stats().counters).toMatchObject({ tx_eager: 2, tx_eager_sync: 0, tx_rndv: 1 });
    const { counters } = two.worker.stats();
    expect(counters['tag_rx_eager_exp']! + counters['tag_rx_eager_unexp']!).toBe(2);
    expect(counters['tag_rx_rndv_exp']! + counters['tag_rx_rndv_unexp']!).toBe(1);
    expect(counters['rndv_get_zcopy']! + counters['rndv_am']!).toBe(1);
  });

  it('of a worker count unexpected messages', async () => {
    const { two, ab, ba } = await fixture.pair(connectionKind('posix'));
    const held = (): Counters => {
      const { unexp_messages, unexp_bytes, stream_bytes } = two.worker.stats().counters;
      return { unexp_messages: unexp_messages!, unexp_bytes: unexp_bytes!, stream_bytes: stream_bytes! };
    };
    for (let i = 0; i < 10; i++) await ab.tagSend(pattern(100, i), { tag: 1 });
    await ab.streamSend(pattern(50, 3));
    const offered = ab.tagSend(pattern(1_000_000, 4), { tag: 2 });
    while (two.worker.tagProbe(2) === undefined || held()['stream_bytes'] !== 50) two.worker.progress();
    expect(held()).toMatchObject({ unexp_messages: 11, stream_bytes: 50 });
    // Of an offer only the key is kept.
    expect(held()['unexp_bytes']).toBeGreaterThanOrEqual(1000);
    expect(held()['unexp_bytes']).toBeLessThan(3000);
    const target = new Uint8Array(100);
    for (let i = 0; i < 10; i++) {
      await two.worker.tagRecv(target, { tag: 1 });
      expectSame(target, pattern(100, i));
    }
    const long = new Uint8Array(1_000_000);
    await Promise.all([two.worker.tagRecv(long, { tag: 2 }), offered]);
    expectSame(long, pattern(1_000_000, 4));
    await ba.streamRecv(new Uint8Array(50));
    expect(held()).toEqual({ unexp_messages: 0, unexp_bytes: 0, stream_bytes: 0 });
  });

  it('of the cards count operations and bytes by direction, and errors', async () => {
    fixture.allow(/device_reset/);
    const { one, ab, node } = await fixture.pair(connectionKind('loopback'));
    const memory = mappedOf(one, 'gaudi', MIB);
    const other = mappedOf(one, 'gaudi', MIB);
    const rkey = keyFor(ab, one, memory);
    for (let i = 0; i < 3; i++) await ab.put(pattern(MIB, i), rkey);
    await ab.get(new Uint8Array(1000), rkey);
    await ab.put(other, rkey);
    const card = (): StatsNode => nodesOf(one.context.stats(), 'gaudi_card')[0]!;
    const direction = (name: string): Counters => countersOf(card(), 'gaudi_dma', name);
    expect(direction('host_to_device')).toMatchObject({ operations: 3, bytes: 3 * MIB, errors: 0, in_flight: 0 });
    expect(direction('device_to_host')).toMatchObject({ operations: 1, bytes: 1000 });
    expect(direction('device_to_device')).toMatchObject({ operations: 1, bytes: MIB });
    const { arena_bytes: arenaBytes } = card().counters;
    expect(card().counters).toMatchObject({ cs_in_flight: 0, arenas: 1, blocks: 2, block_bytes: 2 * MIB });
    expect(card().counters).toMatchObject({ largest_free_bytes: arenaBytes! - 2 * MIB });
    node.inject(0, { kind: 'hang' });
    const failing = failureOf(() => ab.put(pattern(MIB, 9), rkey));
    node.inject(0, { kind: 'hard-reset' });
    expect(await failing).toMatchObject({ code: 'ERR_IO_ERROR' });
    expect(direction('host_to_device')).toMatchObject({ operations: 3, errors: 1 });
  });

  it('count transfers of gaudi_ipc by channel', async () => {
    const { one, two, ab } = await fixture.pair(connectionKind('all transports'));
    const rkey = keyFor(ab, two, mappedOf(two, 'gaudi', MIB));
    const local = mappedOf(one, 'gaudi', MIB);
    await ab.put(local, rkey);
    await ab.put(local, rkey);
    await ab.get(local, rkey, { byteLength: 4096 });
    await one.worker.close();
    const channels = nodesOf(one.context.stats(), 'gaudi_ipc_channel').map(({ counters }) => counters);
    expect(channels).toEqual([{ puts: 2, gets: 1, bytes_put: 2 * MIB, bytes_got: 4096 }]);
  });

  it('outlive the workers that made them', async () => {
    const { one, two, ab } = await fixture.pair(connectionKind('posix'));
    const second = one.context.worker();
    const endpoint = second.endpoint(two.worker.address());
    for (const each of [ab, endpoint]) {
      const receive = two.worker.tagRecv(new Uint8Array(8));
      await each.tagSend(new Uint8Array(8));
      await receive;
    }
    await second.close();
    await one.worker.close();
    const workers = nodesOf(one.context.stats(), 'ucp_worker');
    expect(workers.map(({ name, counters }) => [name, counters['tx_eager']])).toEqual([['closed', 2]]);
    expect(countersOf(one.context.stats(), 'uct_iface', 'posix/memory')['am']).toBeGreaterThanOrEqual(2);
  });
});

/** Runs a program that opens a context, does a put of 1 MiB and ends in the given way. */
async function run(
  env: Record<string, string>,
  ending: string,
): Promise<{ code: number | null; stderr: string; pid: number | undefined }> {
  const program = `
    import { Context, MemoryType } from ${builtSpecifier(new URL('../../../src/index.ts', import.meta.url))};
    const context = await Context.create({ configDirectories: [], config: { GAUDI_DRIVER: 'emulator', GAUDI_EMULATOR_CARDS: '1' } });
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const memory = context.memMap({ allocate: ${MIB}, memoryType: MemoryType.GAUDI });
    await endpoint.put(new Uint8Array(${MIB}), endpoint.unpackRkey(context.packRkey(memory)));
    ${ending}`;
  const flags = ['--input-type=module', '-e', program];
  const child = spawn(process.execPath, flags, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, stderr, pid: child.pid };
}

/** A profile as a file has it. */
interface Trace {
  readonly traceEvents: readonly {
    readonly name: string;
    readonly cat?: string;
    readonly pid: number;
    readonly tid: number;
  }[];
}

describe('at the end of a process', { timeout: 60_000 }, () => {
  for (const [how, ending] of [
    ['that closes its context', 'await context.close();'],
    ['that exits', 'process.exit(0);'],
  ] as const) {
    it(`${how}, statistics and profile are written`, async () => {
      const [stats, profile] = [join(folder, 'stats'), join(folder, 'profile')];
      const env = { UCX_STATS_DEST: `file:${stats}`, UCX_PROFILE_MODE: 'log,accum', UCX_PROFILE_FILE: profile };
      const { pid, ...end } = await run(env, ending);
      expect(end).toEqual({ code: 0, stderr: '' });
      const text = readFileSync(stats, 'utf8');
      expect(text.match(/^# /gm)).toHaveLength(1);
      expect(text).toMatch(/gaudi_dma host_to_device:\n +operations: 1\n +bytes: 1048576\n/);
      const trace = JSON.parse(readFileSync(profile, 'utf8')) as Trace;
      const begun = new Set(trace.traceEvents.map(({ cat, name }) => `${cat} ${name}`));
      expect([...begun]).toEqual(
        expect.arrayContaining(['request put/zcopy', 'dma DMA on queue 0', 'cs CS on queue 0']),
      );
      expect(new Set(trace.traceEvents.map((event) => event.pid))).toEqual(new Set([pid]));
      // The main thread has the id of its process.
      expect(new Set(trace.traceEvents.filter(({ cat }) => cat === 'request').map(({ tid }) => tid))).toEqual(
        new Set([pid]),
      );
    });

    it(`${how}, statistics are sent`, async () => {
      const socket = createSocket('udp4');
      await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
      const message = once(socket, 'message');
      const { port } = socket.address();
      expect(await run({ UCX_STATS_DEST: `udp:127.0.0.1:${port}` }, ending)).toMatchObject({ code: 0, stderr: '' });
      const [datagram] = (await message) as [Buffer];
      socket.close();
      expect(JSON.parse(datagram.toString())).toMatchObject({ className: 'ucp_context', path: [] });
    });
  }

  it('that could not open its file, the context reports it', async () => {
    const { code, stderr } = await run({ UCX_STATS_DEST: `file:${folder}/missing/stats` }, '');
    expect(code).toBe(1);
    expect(stderr).toContain('ERR_STATS_FILE');
  });
});

describe('events', () => {
  const events: OperationEnd[] = [];
  const listen = (event: OperationEnd): void => void events.push(event);
  afterEach(() => {
    operationEnd.unsubscribe(listen);
    events.length = 0;
  });

  it('report every operation while there is a subscriber, and none before and after', async () => {
    const { two, ab } = await fixture.pair(connectionKind('all transports'));
    const rkey = keyFor(ab, two, mappedOf(two, 'allocated', 4096));
    await ab.put(pattern(8, 1), rkey);
    operationEnd.subscribe(listen);
    const before = performance.now();
    expect(ab.putNbx(pattern(8, 2), 0, 8, rkey, 0)).toBe(Status.OK);
    await ab.get(new Uint8Array(16), rkey);
    const receive = two.worker.tagRecv(new Uint8Array(100));
    await ab.tagSend(pattern(24, 3));
    await receive;
    operationEnd.unsubscribe(listen);
    const tookNs = (performance.now() - before) * 1e6;
    await ab.put(pattern(8, 4), rkey);
    const told = events.filter(({ protocol }) => protocol !== 'flush');
    expect(
      told.map(({ protocol, transport, byteLength, status }) => [protocol, transport, byteLength, status]),
    ).toEqual(
      expect.arrayContaining([
        ['put/short', 'posix', 8, 0],
        ['get/short', 'posix', 16, 0],
        ['tag/eager/short', 'posix', 24, 0],
        ['tag/recv', undefined, 24, 0],
      ]),
    );
    expect(told).toHaveLength(4);
    for (const { startNs, endNs } of events) {
      expect(endNs).toBeGreaterThanOrEqual(startNs);
      expect(endNs - startNs).toBeLessThanOrEqual(tookNs);
    }
    expect(new Set(told.map(({ worker }) => worker)).size).toBe(2);
  });

  it('report the failure of an operation', async () => {
    const { one, two, ab } = await fixture.pair(connectionKind('posix'));
    operationEnd.subscribe(listen);
    const receive = one.worker.tagRecvNbx(new Uint8Array(8), 0, 8, 1) as Request;
    expect(receive.cancel()).toBe(true);
    receive.free();
    const truncated = failureOf(() => two.worker.tagRecv(new Uint8Array(4)));
    await ab.tagSend(new Uint8Array(8));
    expect(await truncated).toMatchObject({ code: 'ERR_MESSAGE_TRUNCATED' });
    const ends = events.filter(({ status }) => status < 0).map(({ protocol, status }) => [protocol, status]);
    expect(ends).toEqual([
      ['tag/recv', Status.CANCELED],
      ['tag/recv', Status.MESSAGE_TRUNCATED],
    ]);
  });

  it('report the status with which an operation was refused', async () => {
    const { one, ab, node } = await fixture.pair(connectionKind('loopback'));
    const rkey = keyFor(ab, one, mappedOf(one, 'gaudi', MIB));
    operationEnd.subscribe(listen);
    node.inject(0, { kind: 'ioctl', ioctl: 'MEMORY', errno: Errno.EINVAL });
    const refused = await failureOf(() => ab.put(new Uint8Array(MIB), rkey));
    expect(events.map(({ status }) => status)).toEqual([refused.status]);
  });

  it('report connections and memory', async () => {
    const connected: EndpointChange[] = [];
    const failed: EndpointChange[] = [];
    const memory: [string, MemoryChange][] = [];
    const onConnect = (change: EndpointChange): void => void connected.push(change);
    const onFail = (change: EndpointChange): void => void failed.push(change);
    const onMap = (change: MemoryChange): void => void memory.push(['map', change]);
    const onUnmap = (change: MemoryChange): void => void memory.push(['unmap', change]);
    endpointConnect.subscribe(onConnect);
    endpointFail.subscribe(onFail);
    memoryMap.subscribe(onMap);
    memoryUnmap.subscribe(onUnmap);
    try {
      const { one, two, ab } = await fixture.pair(connectionKind('posix'));
      const handle = mappedOf(one, 'allocated', 4096);
      one.context.memUnmap(handle);
      const kept = mappedOf(one, 'allocated', 8192);
      const receive = two.worker.tagRecv(new Uint8Array(8));
      await ab.tagSend(new Uint8Array(8));
      await receive;
      await two.worker.close();
      while (ab.status === Status.OK) one.worker.progress();
      // Memory that is still mapped is unmapped with its context.
      await one.context.close();
      const [change, last] = [handle, kept].map(({ address, byteLength }) => ({
        memoryType: 'host',
        device: undefined,
        address,
        byteLength,
      }));
      expect(memory).toEqual([
        ['map', change],
        ['unmap', change],
        ['map', last],
        ['unmap', last],
      ]);
    } finally {
      endpointConnect.unsubscribe(onConnect);
      endpointFail.unsubscribe(onFail);
      memoryMap.unsubscribe(onMap);
      memoryUnmap.unsubscribe(onUnmap);
    }
    expect(connected).toContainEqual({ transports: ['posix/memory'], status: Status.OK });
    expect(failed).toEqual([{ transports: ['posix/memory'], status: Status.CONNECTION_RESET }]);
  });
});

describe('UCX_PROTO_INFO', () => {
  const lines = (): string[] => fixture.records.map(({ message }) => message).filter((line) => /^[|+]/.test(line));

  it('prints nothing by default', async () => {
    const { two, ab } = await fixture.pair(connectionKind('posix'));
    await ab.put(new Uint8Array(8), keyFor(ab, two, mappedOf(two, 'allocated', 4096)));
    expect(lines()).toEqual([]);
  });

  it('prints the chosen protocols once', async () => {
    const { two, ab } = await fixture.pair(connectionKind('posix'), { UCX_PROTO_INFO: 'y' });
    for (let i = 0; i < 2; i++) {
      const rkey = keyFor(ab, two, mappedOf(two, 'allocated', 4096));
      await ab.put(new Uint8Array(8), rkey);
    }
    const text = lines().join('\n');
    expect(text.match(/remote memory write by ucp_put\* from host memory to host/g)).toHaveLength(1);
    expect(text).toMatch(/\| +1\.\.inf \| short +\| posix\/memory +\|/);
    expect(text).toMatch(/\| ucp_worker ep_cfg\[\d\] \| tagged message by ucp_tag_send\* from host memory +\|/);
    expect(text).not.toContain('ucp_get');
  });

  it('prints tables by their titles', async () => {
    const { two, ab } = await fixture.pair(connectionKind('posix'), { UCX_PROTO_INFO: '*ucp_get*' });
    const rkey = keyFor(ab, two, mappedOf(two, 'allocated', 4096));
    await ab.put(new Uint8Array(8), rkey);
    await ab.get(new Uint8Array(8), rkey);
    const titles = lines().filter((line) => line.includes(' by '));
    expect(titles).toHaveLength(1);
    expect(titles[0]).toContain('remote memory read by ucp_get* into host memory from host');
  });

  it('prints the used protocols, with correct numbers', async () => {
    const { one, two, ab } = await fixture.pair(connectionKind('posix'), {
      UCX_PROTO_INFO: 'used',
      UCX_ZCOPY_THRESH: '64k',
    });
    const rkey = keyFor(ab, two, mappedOf(two, 'allocated', 100_000));
    for (let i = 1; i <= 5; i++) await ab.put(new Uint8Array(i * 10), rkey);
    await ab.put(new Uint8Array(100_000), rkey);
    for (let i = 0; i < 3; i++) await ab.get(new Uint8Array(8), rkey);
    expect(lines()).toEqual([]);
    await one.worker.close();
    const text = lines().join('\n');
    expect(text).toMatch(/\| +5 \| 10\.\.50 +\| short +\| posix\/memory \|/);
    expect(text).toMatch(/\| +1 \| 100000\.\.100000 \| zero-copy \| posix\/memory \|/);
    expect(text).toMatch(/\| +3 \| 8\.\.8 +\| short +\| posix\/memory +\|/);
    expect(operationEnd.hasSubscribers).toBe(true);
    await two.worker.close();
    expect(operationEnd.hasSubscribers).toBe(false);
  });
});
