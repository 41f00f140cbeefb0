/** Pipelines of device memory over a network and over shared memory, also ones that end early. */

import { describe, expect, it } from 'vitest';
import { type LocalMemory, type Request, Status } from '../../../src/index.ts';
import type { MemoryHandle } from '../../../src/ucp/mem/memory-handle.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  keyFor,
  type MemoryKind,
  mappedOf,
  memoryOf,
  pattern,
  type Side,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';
import { type FakePair, useFakePairs } from '../../fixtures/transports/fake-pair.ts';
import { FRAGMENT, inUse, pipelineContract, SIZES, SMALL, send, WAYS } from './ucp-pipeline.ts';

function countersOf({ worker }: Side): Readonly<Record<string, number>> {
  return worker.stats().counters;
}

/** How a transfer in progress is ended; returns when that is done. */
const TEARDOWNS: readonly (readonly [string, (pair: FakePair) => Promise<unknown>])[] = [
  ['the sender closes its endpoint', ({ ab }) => ab.close({ force: true })],
  ['the receiver closes its endpoint', ({ ba }) => ba.close({ force: true })],
  ['the worker of the sender closes', ({ one }) => one.worker.close()],
  ['the worker of the receiver closes', ({ two }) => two.worker.close()],
  ['the context of the sender closes', ({ one }) => one.context.close()],
  ['the context of the receiver closes', ({ two }) => two.context.close()],
];

/** Ends a transfer after some puts; returns how many of its two requests had not ended by then. */
async function endUnderWay(
  pair: FakePair,
  end: (pair: FakePair) => Promise<unknown>,
  from: MemoryKind,
  to: MemoryKind,
  credit: number,
): Promise<number> {
  const { network, one, two, ab } = pair;
  const BYTES = 6 * FRAGMENT + 5;
  const [source, target] = [memoryOf(one, from, BYTES), memoryOf(two, to, BYTES)];
  network.isHeld = true;
  network.credit = credit;
  const ends = [0, 0];
  const params = (index: number, side: Side, memory: LocalMemory) => ({
    noImmediateCompletion: true,
    callback: (request: Request): void => {
      ends[index]! += 1;
      request.free();
      // Refused while a transport still uses it.
      unmap(side, memory);
    },
  });
  ab.tagSendNbx(source, 0, BYTES, 1, params(0, one, source));
  two.worker.tagRecvNbx(target, 0, BYTES, 1, undefined, params(1, two, target));
  await driveIdle(pair, 100);
  const open = ends.filter((count) => count === 0).length;
  const ending = end(pair);
  network.isHeld = false;
  await serving({ one: { ...one }, two: { ...two } }, () => ending);
  await driveIdle(pair, 300);
  expect(inUse(one)).toBe(0);
  expect(inUse(two)).toBe(0);
  // A side that closes ends its own request; the peer's request ends too.
  expect(ends).toEqual([1, 1]);
  await Promise.all([one.context.close(), two.context.close()]);
  return open;
}

for (const name of ['staging, posix', 'staging, cma and posix', 'staging, tcp']) pipelineContract(name);

describe('a pipeline over a network', () => {
  const fixture = useFakePairs();

  it.each(WAYS)('moves messages from %s to %s of all sizes', async (from, to) => {
    const pair = fixture.pair({ hasDmabuf: false, env: SMALL });
    for (const byteLength of SIZES) expect(await send(pair, from, to, byteLength)).toBe('tag/rndv/put-pipeline');
    expect(countersOf(pair.one)).toMatchObject({ rndv_put_mtype_zcopy: SIZES.length, rndv_put_zcopy: 0 });
    expect(countersOf(pair.two)).toMatchObject({ rndv_am: 0, rndv_get_zcopy: 0 });
    expect(countersOf(pair.two)['rndv_rtr_mtype']! > 0).toBe(to === 'gaudi');
  });

  it.each(WAYS)('moves lists from %s to %s across fragments', async (from, to) => {
    const { one, two, ab } = fixture.pair({ hasDmabuf: false, env: SMALL });
    const lengths = [1, 70_001, 3, 130_000, 64];
    const total = lengths.reduce((sum, length) => sum + length, 0);
    const source = lengths.map((length) => memoryOf(one, from, length));
    let at = 0;
    for (const [i, memory] of source.entries()) {
      await fill(one, memory, pattern(total, 3).subarray(at, at + lengths[i]!));
      at += lengths[i]!;
    }
    const target = memoryOf(two, to, total + 20);
    await fill(two, target, new Uint8Array(total + 20));
    const list = [
      { memory: target, offset: 7, byteLength: 100_003 },
      { memory: target, offset: 100_011 },
    ];
    await Promise.all([
      ab.tagSend(
        source.map((memory) => ({ memory })),
        { tag: 1 },
      ),
      two.worker.tagRecv(list, { tag: 1 }),
    ]);
    const expected = new Uint8Array(total + 20);
    expected.set(pattern(total, 3).subarray(0, 100_003), 7);
    expected.set(pattern(total, 3).subarray(100_003), 100_011);
    await expectContents(two, target, expected);
    expect([inUse(one), inUse(two)]).toEqual([0, 0]);
  });

  it('serves puts, gets and active messages at any offset', async () => {
    const pair = fixture.pair({ hasDmabuf: false, env: SMALL });
    const { one, two, ab } = pair;
    const BYTES = 5 * FRAGMENT + 11;
    const [here, there] = [memoryOf(one, 'gaudi', BYTES), memoryOf(two, 'gaudi', BYTES)];
    if (here instanceof Uint8Array || there instanceof Uint8Array) throw new Error('is not device memory');
    const rkey = keyFor(ab, two, there);
    await fill(one, here, pattern(BYTES, 1));
    await fill(two, there, new Uint8Array(BYTES));
    const put = await serving(pair, () =>
      ab.put(here, rkey, { offset: 3, remoteOffset: 9, byteLength: 4 * FRAGMENT + 1 }),
    );
    expect(put).toMatchObject({ transport: 'fake_net', protocol: 'put/am' });
    const expected = new Uint8Array(BYTES);
    expected.set(pattern(BYTES, 1).subarray(3, 4 * FRAGMENT + 4), 9);
    await expectContents(two, there, expected);
    const back = new Uint8Array(BYTES - 5);
    expect(await serving(pair, () => ab.get(back, rkey, { remoteOffset: 5 }))).toMatchObject({ protocol: 'get/am' });
    expectSame(back, expected.subarray(5));
    const got = new Promise<Uint8Array>((resolve) => {
      const target = new Uint8Array(BYTES);
      two.worker.setAmHandler(4, (message) => {
        const callback = (request: Request): void => {
          request.free();
          resolve(target);
        };
        message.receiveNbx(target, 0, BYTES, { noImmediateCompletion: true, callback });
      });
    });
    await serving(pair, async () => {
      await ab.amSend(4, here);
      expectSame(await got, pattern(BYTES, 1));
    });
    expect(countersOf(one)).toMatchObject({ rndv_put_mtype_zcopy: 2 });
    expect(countersOf(two)).toMatchObject({ rndv_put_mtype_zcopy: 1, rndv_am: 0 });
  });

  it.each(['128k', '1m', '64k'])('works with fragments of %s on one side, and of 256k on the other', async (bytes) => {
    const env = { UCX_RNDV_FRAG_SIZE: '256k' };
    const pair = fixture.pair({ hasDmabuf: false, env, oneEnv: { UCX_RNDV_FRAG_SIZE: bytes } });
    const back = { one: pair.two, two: pair.one, ab: pair.ba, ba: pair.ab };
    for (const [from, to] of WAYS) {
      for (const ends of [pair, back]) expect(await send(ends, from, to, 1_500_001)).toBe('tag/rndv/put-pipeline');
    }
  });

  it('matches explain()', () => {
    const { one, two, ab } = fixture.pair({ hasDmabuf: false });
    const [here, there] = [mappedOf(one, 'gaudi', 4096), mappedOf(two, 'gaudi', 4096)];
    const [device, host] = [keyFor(ab, two, there), keyFor(ab, two, mappedOf(two, 'registered', 4096))];
    const path = 'as put-pipeline over fake_net/net0';
    for (const [local, remote] of [
      [here, device],
      [here, host],
      [new Uint8Array(10), device],
    ] as const) {
      const tag = ab.explain('tag', local, remote).chosen.at(-1);
      expect(tag).toMatchObject({ protocol: 'tag/rndv/put-pipeline', transport: 'fake_net/net0' });
      const put = ab.explain('put', local, remote).chosen.at(-1);
      expect(put).toMatchObject({ protocol: 'put/am', note: `windows ${path}` });
    }
    const read = ab.explain('tag', new Uint8Array(10), host).chosen.at(-1);
    expect(read).toMatchObject({ protocol: 'tag/rndv/get', transport: 'fake_net/net0' });
  });

  it('has as many windows in flight as half of the fragments, and never more', async () => {
    const { network, ...pair } = fixture.pair({ hasDmabuf: false, env: SMALL });
    const { one, two, ab } = pair;
    const BYTES = 40 * FRAGMENT;
    const messages = [0, 1, 2].map((tag) => ({
      tag,
      source: memoryOf(one, 'gaudi', BYTES),
      target: memoryOf(two, 'gaudi', BYTES),
    }));
    for (const { tag, source } of messages) await fill(one, source, pattern(BYTES, tag));
    network.isHeld = true;
    const ended: Status[] = [];
    const params = {
      noImmediateCompletion: true,
      callback: (request: Request, status: Status): void => {
        ended.push(status);
        request.free();
      },
    };
    for (const { tag, source, target } of messages) {
      ab.tagSendNbx(source, 0, BYTES, tag, params);
      two.worker.tagRecvNbx(target, 0, BYTES, tag, undefined, params);
    }
    let most = 0;
    while (ended.length < 6) {
      await driveIdle(pair, 300);
      most = Math.max(most, inUse(two));
      expect(inUse(one)).toBeLessThanOrEqual(8);
      expect(inUse(two)).toBeLessThanOrEqual(4);
      network.credit = 8;
    }
    expect([most, ...ended]).toEqual([4, 0, 0, 0, 0, 0, 0]);
    for (const { tag, target } of messages) await expectContents(two, target, pattern(BYTES, tag));
  });
});

describe('a pipeline over shared memory', () => {
  const fixture = usePairs();

  it.each(['0', '1'])(
    'is written by the card of the sender, without fragments of the sender (%s engine threads)',
    async (threads) => {
      const env = { ...SMALL, UCX_GAUDI_EMULATOR_DMA_THREADS: threads };
      const { one, two, ab } = await fixture.pair(connectionKind('staging, posix'), env);
      const BYTES = 9 * FRAGMENT + 4097;
      const [source, target] = [memoryOf(one, 'gaudi', BYTES), memoryOf(two, 'gaudi', BYTES)];
      await fill(one, source, pattern(BYTES, 5));
      const { staging } = nativeWorker(one.worker).protocols.rendezvous;
      const held: MemoryHandle[] = [];
      while (held.length < staging.countMax) staging.acquire((fragment) => held.push(fragment!));
      const [sent] = await Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
      expect(sent).toMatchObject({ transport: 'posix', protocol: 'tag/rndv/put-pipeline' });
      await expectContents(two, target, pattern(BYTES, 5));
      for (const fragment of held) staging.release(fragment);
      expect([inUse(one), inUse(two)]).toEqual([0, 0]);
    },
  );
});

describe('a pipeline that ends early', () => {
  const fixture = useFakePairs();

  it.each(TEARDOWNS)('because %s settles once, and no fragment is lost or shared', async (_how, end) => {
    let unfinished = 0;
    for (const [from, to] of [
      ['gaudi', 'gaudi'],
      ['registered', 'gaudi'],
      ['gaudi', 'registered'],
    ] as const) {
      for (let credit = 0; credit < 14; credit++) {
        // With two fragments there are always windows that wait for one.
        const env = { ...SMALL, UCX_RNDV_FRAG_ALLOC_COUNT: String(2 + (credit % 3) * 3) };
        const pair = fixture.pair({ hasDmabuf: false, env });
        unfinished += await endUnderWay(pair, end, from, to, credit);
      }
    }
    expect(unfinished).toBeGreaterThan(20);
  });

  it('does not reuse fragments that a peer may still write to', async () => {
    const pair = fixture.pair({ hasDmabuf: false, env: { ...SMALL, UCX_RNDV_FRAG_ALLOC_COUNT: '2' } });
    const { network, one, two, ab, ba } = pair;
    const BYTES = 4 * FRAGMENT;
    const [source, target] = [memoryOf(one, 'gaudi', BYTES), memoryOf(two, 'gaudi', BYTES)];
    await fill(one, source, pattern(BYTES, 1));
    network.isHeld = true;
    // One put has left and has not arrived.
    network.credit = 1;
    const params = { noImmediateCompletion: true, callback: (request: Request): void => request.free() };
    ab.tagSendNbx(source, 0, BYTES, 1, params);
    two.worker.tagRecvNbx(target, 0, BYTES, 1, undefined, params);
    await driveIdle(pair);
    expect(inUse(two)).toBe(1);
    await ba.close({ force: true });
    expect(inUse(two)).toBe(0);
    // The next transfer uses a fragment into which the late put would write.
    const self = two.endpoint;
    const next = memoryOf(two, 'gaudi', 10_000);
    await Promise.all([self.tagSend(pattern(10_000, 2), { tag: 2 }), two.worker.tagRecv(next, { tag: 2 })]);
    const held = nativeWorker(two.worker).protocols.rendezvous.staging;
    const seen: Uint8Array[] = [];
    held.acquire((fragment) => {
      fragment!.bytes!.fill(0x11);
      seen.push(fragment!.bytes!);
      network.isHeld = false;
      for (let i = 0; i < 100; i++) one.worker.progress();
      expectSame(seen[0]!, new Uint8Array(seen[0]!.byteLength).fill(0x11));
      held.release(fragment!);
    });
    await driveIdle(pair);
    await expectContents(two, next, pattern(10_000, 2));
    expect([inUse(one), inUse(two), one.worker.requestsInUse, two.worker.requestsInUse]).toEqual([0, 0, 0, 0]);
  });

  it('is not ended by a signal while the peer reads: it is carried out', async () => {
    const { network, one, two, ab } = fixture.pair({ hasDmabuf: false, env: SMALL });
    const BYTES = 10 * FRAGMENT;
    const [source, target] = [memoryOf(one, 'gaudi', BYTES), memoryOf(two, 'gaudi', BYTES)];
    network.isHeld = true;
    network.credit = 3;
    const stop = new AbortController();
    const settled = Promise.allSettled([
      ab.tagSend(source, { tag: 1, signal: stop.signal }),
      two.worker.tagRecv(target, { tag: 1, signal: stop.signal }),
    ]);
    await driveIdle({ one, two }, 100);
    stop.abort();
    await driveIdle({ one, two }, 100);
    network.isHeld = false;
    expect(await settled).toMatchObject([{ status: 'fulfilled' }, { value: { byteLength: BYTES } }]);
    unmap(one, source);
    unmap(two, target);
    expect([inUse(one), inUse(two), one.worker.requestsInUse, two.worker.requestsInUse]).toEqual([0, 0, 0, 0]);
  });

  it('because the memory of one side is unmapped fails both sides', async () => {
    for (const gone of ['source', 'target'] as const) {
      const pair = fixture.pair({ hasDmabuf: false, env: SMALL });
      const { network, one, two, ab } = pair;
      const BYTES = 20 * FRAGMENT;
      const [source, target] = [memoryOf(one, 'gaudi', BYTES), memoryOf(two, 'gaudi', BYTES)];
      network.isHeld = true;
      network.credit = 5;
      const ended: Status[] = [];
      const params = {
        noImmediateCompletion: true,
        callback: (request: Request, status: Status): void => {
          ended.push(status);
          request.free();
        },
      };
      ab.tagSendNbx(source, 0, BYTES, 1, params);
      two.worker.tagRecvNbx(target, 0, BYTES, 1, undefined, params);
      await driveIdle(pair, 300);
      if (gone === 'source') unmap(one, source);
      else unmap(two, target);
      network.isHeld = false;
      await driveUntil(pair, () => ended.length === 2);
      expect(ended).toEqual([Status.INVALID_ADDR, Status.INVALID_ADDR]);
      await driveIdle(pair);
      expect([inUse(one), inUse(two)]).toEqual([0, 0]);
    }
  });
});
