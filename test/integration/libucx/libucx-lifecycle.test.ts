/**
 * The engine over libucp from its selection to its end: which engine runs and why, bad input, callbacks that throw, pending operations when an object
 * closes, sleeping,
 * and peers in processes of their own. Operations are tested in the contract suites.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { Context, type ContextOptions, type Request, Status, type Worker } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { expectSame, pattern } from '../../fixtures/pair.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';

const { libucp, skipReason } = installedLibucp();
if (skipReason !== undefined) console.log(`libucx-lifecycle: most tests are skipped: ${skipReason}`);
const NO_LIBRARY = { LIBUCP_PATH: join(import.meta.dirname, 'no-such-libucp.so') };
const OVER_TCP = { UCX_TLS: 'tcp,self' };

/** Mapped shared memory of libucp. */
const sharedSegments = (): number =>
  readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .filter((line) => line.includes('ucx_shm')).length;

/** Runs the event loop until the value is stable. */
async function untilStable(read: () => number): Promise<number> {
  let before = read();
  for (let same = 0; same < 200; ) {
    await new Promise(setImmediate);
    const now = read();
    same = now === before ? same + 1 : 0;
    before = now;
  }
  return before;
}

describe('the choice of the engine', () => {
  const fixture = useContexts();

  it('is native by default, and reports it', async () => {
    const { context } = await fixture.open();
    expect(context.engine).toMatchObject({ name: 'native', reason: 'UCX_ENGINE=native' });
  });

  it('names the package to install if libucp is requested and not installed', async () => {
    const node = fixture.node();
    for (const asked of [{ engine: 'libucx' }, { env: { UCX_ENGINE: 'libucx' } }] satisfies ContextOptions[]) {
      const error = await failureOf(() => Context.create(fixture.quiet({ node, config: NO_LIBRARY, ...asked })));
      expect([error.code, error.status]).toEqual(['ERR_LIBUCX_NOT_FOUND', Status.UNSUPPORTED]);
      expect(error.message).toContain('apt install libucx0');
    }
  });

  it('is native with the reason if auto finds no library', async () => {
    const { context, worker, endpoint } = await fixture.open({ context: { engine: 'auto', config: NO_LIBRARY } });
    expect(context.engine.name).toBe('native');
    expect(context.engine.reason).toMatch(/^engine: 'auto', and .*not installed/);
    const [received] = await Promise.all([worker.tagRecv(new Uint8Array(4)), endpoint.tagSend(new Uint8Array(4))]);
    expect(received.byteLength).toBe(4);
  });

  it('refuses an engine that does not exist', async () => {
    const engine = 'fast' as 'auto';
    const error = await failureOf(() => Context.create(fixture.quiet({ engine })));
    expect(error).toMatchObject({
      code: 'ERR_INVALID_PARAM',
      message: expect.stringContaining('native, libucx, auto'),
    });
    const byName = await failureOf(() => Context.create(fixture.quiet({ env: { UCX_ENGINE: 'fast' } })));
    expect(byName.code).toBe('ERR_CONFIG_VALUE');
  });

  it.skipIf(libucp === undefined)(
    'is libucx by option, by variable and by auto, with its version and the reason (needs libucp)',
    async () => {
      const asked = [
        { engine: 'libucx' },
        { env: { UCX_ENGINE: 'libucx' } },
        { engine: 'auto' },
      ] satisfies ContextOptions[];
      const reasons: string[] = [];
      for (const options of asked) {
        const { context } = await fixture.open({ context: options });
        expect([context.engine.name, context.engine.version]).toEqual(['libucx', libucp!.version]);
        reasons.push(context.engine.reason);
      }
      expect(reasons).toEqual([
        "engine: 'libucx'",
        'UCX_ENGINE=libucx',
        `engine: 'auto', and ${libucp!.path} is UCX ${libucp!.version}`,
      ]);
    },
  );

  it.skipIf(libucp === undefined)(
    'refuses values that libucp refuses, by the name of the variable (needs libucp)',
    async () => {
      const node = fixture.node();
      const env = { UCX_RNDV_SCHEME: 'never_heard_of' };
      const error = await failureOf(() => Context.create(fixture.quiet({ engine: 'libucx', node, env })));
      expect(error).toMatchObject({ code: 'ERR_CONFIG_VALUE', message: expect.stringContaining('UCX_RNDV_SCHEME') });
    },
  );
});

describe.skipIf(libucp === undefined)('a context over libucp (needs libucp)', () => {
  expectNoLeaks({ 'shared segments of libucp': sharedSegments });
  const fixture = useContexts();

  const open = (env: Readonly<Record<string, string>> = OVER_TCP): ReturnType<typeof fixture.open> =>
    fixture.open({ context: { engine: 'libucx', env } });

  it('opens and closes again and again, in any order', async () => {
    for (let round = 0; round < 10; round++) {
      const { context, worker, endpoint } = await open();
      const second = context.worker();
      const handle = context.memMap({ allocate: 5000 });
      const rkey = endpoint.unpackRkey(context.packRkey(handle));
      if (round % 2 === 0) rkey.release();
      if (round % 3 === 0) await endpoint.close();
      if (round % 4 === 0) await worker.close();
      if (round % 5 === 0) context.memUnmap(handle);
      await second.close();
      await context.close();
      await context.close();
      expect(() => context.worker()).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
      expect(handle.mapped).toBe(false);
    }
  });

  it('refuses everything after close, and nothing crashes', async () => {
    const { context, worker, endpoint } = await open();
    const handle = context.memMap({ allocate: 64 });
    const rkey = endpoint.unpackRkey(context.packRkey(handle));
    await endpoint.close();
    const bytes = new Uint8Array(8);
    const onEndpoint = [
      () => endpoint.putNbx(bytes, 0, 8, rkey, 0),
      () => endpoint.getNbx(bytes, 0, 8, rkey, 0),
      () => endpoint.atomicNbx('add', 1, rkey, 0),
      () => endpoint.tagSendNbx(bytes, 0, 8, 1),
      () => endpoint.amSendNbx(1, undefined, bytes, 0, 8),
      () => endpoint.streamSendNbx(bytes, 0, 8),
      () => endpoint.streamRecvNbx(bytes, 0, 8),
      () => endpoint.streamRecvData(),
      () => endpoint.flushNbx(),
      () => endpoint.fence(),
      () => endpoint.query(),
      () => endpoint.unpackRkey(context.packRkey(handle)),
      () => endpoint.put(bytes, rkey),
      () => endpoint.flush(),
    ];
    for (const call of onEndpoint) expect((await failureOf(call)).code).toBe('ERR_CLOSED');
    const address = worker.address();
    await worker.close();
    const onWorker = [
      () => worker.address(),
      () => worker.endpoint(address),
      () => worker.listener(),
      () => worker.tagRecvNbx(bytes, 0, 8, 1),
      () => worker.tagProbe(1),
      () => worker.setAmHandler(1, () => undefined),
      () => worker.messages(1),
      () => worker.flushNbx(),
      () => worker.fence(),
      () => worker.arm(),
      () => worker.eventFd,
      () => worker.wait(),
      () => worker.progress(),
      () => worker.connect({ address: '127.0.0.1', port: 1 }),
    ];
    for (const call of onWorker) expect((await failureOf(call)).code).toBe('ERR_CLOSED');
    await context.close();
    for (const call of [
      () => context.worker(),
      () => context.memMap({ allocate: 8 }),
      () => context.packRkey(handle),
    ]) {
      expect((await failureOf(call)).code).toMatch(/^ERR_(CLOSED|INVALID_PARAM)$/);
    }
    expect(handle.bytes![0]).toBe(0);
  });

  it('ends pending operations exactly once when the worker closes', async () => {
    const { worker, endpoint } = await open();
    const ends: [unknown, Status][] = [];
    const params = (userData: string) => ({
      userData,
      callback: (request: Request, status: Status) => {
        ends.push([request.userData, status]);
        request.free();
      },
    });
    for (let i = 0; i < 20; i++)
      worker.tagRecvNbx(new Uint8Array(100), 0, 100, 1000 + i, undefined, params(`tag ${i}`));
    for (let i = 0; i < 5; i++) endpoint.streamRecvNbx(new Uint8Array(100), 0, 100, params(`stream ${i}`));
    const awaited = worker.tagRecv(new Uint8Array(10), { tag: 5 });
    const messages = worker.messages(3)[Symbol.asyncIterator]().next();
    const outcome = failureOf(() => awaited);
    await worker.close();
    expect((await outcome).code).toBe('ERR_CANCELED');
    expect(await messages).toEqual({ done: true, value: undefined });
    expect(ends).toHaveLength(25);
    expect(new Set(ends.map(([name]) => name)).size).toBe(25);
    expect(ends.every(([, status]) => status === Status.CANCELED)).toBe(true);
  });

  it('has requests up to a bound, twice, and matches each message with its receive', async () => {
    const requestsMax = 5000;
    const { worker, endpoint } = await open({ ...OVER_TCP, UCX_REQUESTS_MAX: `${requestsMax}` });
    for (const round of [1, 2]) {
      const receives: Request[] = [];
      const tags: bigint[] = [];
      const post = (tag: number): Status | Request =>
        worker.tagRecvNbx(new Uint8Array(8), 0, 8, tag, undefined, {
          callback: (request) => tags.push(request.senderTag),
        });
      for (let i = 0; i < requestsMax; i++) receives.push(post(i) as Request);
      expect([post(0), worker.requestsInUse]).toEqual([Status.NO_RESOURCE, requestsMax]);
      const canceled = receives.pop()!;
      expect(canceled.cancel()).toBe(true);
      canceled.free();
      for (const tag of [0, requestsMax - 2, 77]) await endpoint.tagSend(pattern(8, tag), { tag });
      while (tags.length < 4) {
        worker.progress();
        await new Promise(setImmediate);
      }
      expect(new Set(tags.slice(1)), `round ${round}`).toEqual(new Set([0n, BigInt(requestsMax - 2), 77n]));
      for (const request of receives) {
        if (!request.isCompleted) expect(request.cancel()).toBe(true);
        request.free();
      }
      expect(worker.requestsInUse).toBe(0);
    }
  });

  it('throws errors of callbacks out of progress, and calls the others', async () => {
    const { worker, endpoint } = await open();
    const told: string[] = [];
    const boom = (name: string) => () => {
      told.push(name);
      throw new TypeError(name);
    };
    worker.setAmHandler(7, boom('handler'));
    const started = [
      endpoint.amSendNbx(7, undefined, new Uint8Array(4), 0, 4),
      endpoint.amSendNbx(7, undefined, new Uint8Array(4), 0, 4),
      worker.tagRecvNbx(new Uint8Array(4), 0, 4, 1, undefined, { callback: boom('receive') }),
      worker.tagRecvNbx(new Uint8Array(4), 0, 4, 2, undefined, { callback: () => told.push('other') }),
      endpoint.tagSendNbx(new Uint8Array(4), 0, 4, 1),
      endpoint.tagSendNbx(new Uint8Array(4), 0, 4, 2),
    ];
    const thrown: string[] = [];
    for (let turn = 0; told.length < 4 && turn < 100_000; turn++) {
      try {
        worker.progress();
      } catch (error) {
        thrown.push((error as Error).message);
      }
    }
    expect(told.sort()).toEqual(['handler', 'handler', 'other', 'receive']);
    expect(thrown.sort()).toEqual(['handler', 'handler', 'receive']);
    for (const request of started) {
      if (typeof request === 'number') continue;
      while (!request.isCompleted) worker.progress();
      request.free();
    }
  });

  it('sleeps while it waits, and wakes up', async () => {
    const [one, two] = [await open(), await open()];
    const toOne = two.worker.endpoint(one.worker.address());
    const received = one.worker.tagRecv(new Uint8Array(3), { tag: 9 });
    const turns = (): number => one.worker.stats().counters['progress']!;
    const asleep = await untilStable(turns);
    // Nothing happens while no message is sent: a busy loop would increase the counter.
    expect(await untilStable(turns)).toBe(asleep);
    await toOne.tagSend(Uint8Array.of(1, 2, 3), { tag: 9 });
    await expect(received).resolves.toMatchObject({ byteLength: 3 });
  });

  it('makes its descriptor readable when it is armed', async () => {
    const [one, two] = [await open(), await open()];
    const toOne = two.worker.endpoint(one.worker.address());
    const drain = ({ worker }: { readonly worker: Worker }): void => {
      while (worker.progress() > 0);
    };
    drain(one);
    expect(one.worker.arm()).toBe(Status.OK);
    const woken = one.worker.wait();
    // It may have to connect first, for which the other side has to make progress.
    const sent = toOne.tagSend(Uint8Array.of(7), { tag: 4 });
    await woken;
    const receive = one.worker.tagRecv(new Uint8Array(1), { tag: 4 });
    await expect(receive).resolves.toMatchObject({ byteLength: 1 });
    await sent;
  });

  it('refuses invalid, truncated or changed addresses and keys before libucp parses them', async () => {
    const { context, worker, endpoint } = await open();
    const handle = context.memMap({ allocate: 64 });
    const cases: [Uint8Array, (bytes: Uint8Array) => unknown, string][] = [
      [worker.address(), (bytes) => worker.endpoint(bytes), 'ERR_ADDRESS_MALFORMED'],
      [context.packRkey(handle), (bytes) => endpoint.unpackRkey(bytes), 'ERR_RKEY_MALFORMED'],
    ];
    for (const [good, use, code] of cases) {
      const bad = [new Uint8Array(0), new Uint8Array(500), good.subarray(1), good.subarray(0, good.byteLength - 1)];
      for (let at = 0; at < good.byteLength; at += 7) {
        const changed = good.slice();
        changed[at]! ^= 0x10;
        bad.push(changed);
      }
      for (const bytes of bad) expect((await failureOf(() => use(bytes))).code).toBe(code);
      expect((await failureOf(() => use('text' as unknown as Uint8Array))).code).toBe('ERR_INVALID_PARAM');
    }
  });
});

describe.skipIf(libucp === undefined)(
  'peers of the engine libucx in other processes (needs libucp)',
  { timeout: 60_000 },
  () => {
    const peers: UcpPeer[] = [];
    const fixture = useContexts();
    afterEach(async () => {
      for (const peer of peers.splice(0)) await peer.kill();
    });

    const start = async (tls: string): Promise<UcpPeer> => {
      const peer = await UcpPeer.start('', 0, tls, { UCX_ENGINE: 'libucx' });
      peers.push(peer);
      return peer;
    };

    it.each(['tcp,self', 'posix,cma,self'])('exchange messages and memory over %s', async (tls) => {
      const { context, worker } = await fixture.open({ context: { engine: 'libucx', env: { UCX_TLS: tls } } });
      const peer = await start(tls);
      const endpoint = worker.endpoint(peer.address);
      const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
      await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
      await worker.tagRecv(new Uint8Array(1), { tag: 1 });
      await connected;
      const bytes = pattern(1_000_000, 7);
      await peer.ask({ do: 'serve' });
      for (const name of ['allocated', 'registered']) {
        const rkey = endpoint.unpackRkey(peer.keys[name]!);
        await endpoint.put(bytes, rkey, { remoteOffset: 11 });
        const back = context.memMap({ allocate: bytes.byteLength });
        await endpoint.get(back, rkey, { remoteOffset: 11 });
        expectSame(back.bytes!, bytes, name);
        rkey.release();
      }
      await peer.close();
    });

    it('are reported when they are killed, and pending operations end', async () => {
      const { worker } = await fixture.open({ context: { engine: 'libucx', env: OVER_TCP } });
      const peer = await start('tcp,self');
      const told: Status[] = [];
      const endpoint = worker.endpoint(peer.address, { onError: (_endpoint, status) => told.push(status) });
      const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
      await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
      await worker.tagRecv(new Uint8Array(1), { tag: 1 });
      await connected;
      const long = endpoint.tagSendSync(new Uint8Array(8 * 2 ** 20), { tag: 77 });
      const outcome = failureOf(() => long);
      await peer.kill();
      const { status } = await outcome;
      expect([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT, Status.CANCELED]).toContain(status as Status);
      expect(told).toHaveLength(1);
      expect(endpoint.status).toBe(told[0]);
      expect(endpoint.tagSendNbx(new Uint8Array(1), 0, 1, 1)).toBe(told[0]);
      await endpoint.close();
    });
  },
);
