/**
 * Wire-up of workers: addresses that are malformed or foreign, peers with other transports, one-sided and simultaneous connections, several
 * endpoints between the same workers, peers that make no progress yet, and closing connections.
 */

import { describe, expect, it } from 'vitest';
import { type Endpoint, MemoryType, type Request, Status } from '../../../src/index.ts';
import { packWorkerAddress, unpackWorkerAddress } from '../../../src/ucp/lane/worker-address.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { eagerData } from '../../fixtures/messages/eager-data.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  memoryOf,
  type Pair,
  pattern,
  type Side,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';

const fixture = usePairs();
const HOST = connectionKind('cma and posix');
const FREE = { callback: (request: Request): void => request.free() };

function started(result: Status | Request): Request {
  if (typeof result === 'number') expect.fail(`the operation ended at once with ${result}`);
  return result;
}

/** Sends a number in both directions, to check that a connection works. */
async function greet(pair: Pick<Pair, 'one' | 'two' | 'ab' | 'ba'>, tag = 1): Promise<void> {
  const [here, there] = [new Uint8Array(1), new Uint8Array(1)];
  const { one, two, ab, ba } = pair;
  await Promise.all([
    ab.tagSend(Uint8Array.of(11), { tag }),
    two.worker.tagRecv(there, { tag }),
    ba.tagSend(Uint8Array.of(22), { tag }),
    one.worker.tagRecv(here, { tag }),
  ]);
  expect([here[0], there[0]]).toEqual([22, 11]);
}

describe('worker addresses', () => {
  it('that are malformed are refused', async () => {
    const { one, two } = await fixture.pair(HOST);
    const address = two.worker.address();
    const malformed = expect.objectContaining({ code: 'ERR_ADDRESS_MALFORMED', status: Status.INVALID_PARAM });
    for (let length = 0; length < address.byteLength; length++) {
      expect(() => one.worker.endpoint(address.subarray(0, length)), `${length} bytes`).toThrow(malformed);
    }
    for (let at = 0; at < address.byteLength; at++) {
      const changed = address.slice();
      changed[at]! ^= 0x10;
      expect(() => one.worker.endpoint(changed), `byte ${at}`).toThrow(malformed);
    }
    for (const value of [undefined, null, 'address', 5, [...address], address.buffer]) {
      const refusal = expect.objectContaining({ code: 'ERR_INVALID_PARAM', status: Status.INVALID_PARAM });
      expect(() => one.worker.endpoint(value as unknown as Uint8Array)).toThrow(refusal);
    }
    expect(() => one.worker.endpoint(Buffer.concat([address, address]))).toThrow(malformed);
    // It belongs to the caller.
    address.fill(0);
    expect(() => one.worker.endpoint(two.worker.address())).not.toThrow();
  });

  it('of another machine are unreachable, for the reason of every transport', async () => {
    const { one, two } = await fixture.pair(connectionKind('all transports'));
    const fields = unpackWorkerAddress(two.worker.address());
    const entries = fields.entries.map((entry) => {
      const address = entry.address.slice();
      // The machine comes first in all of them.
      for (let at = 0; at < Math.min(16, address.byteLength); at++) address[at]! ^= 0xa5;
      return { ...entry, address };
    });
    const foreign = packWorkerAddress({ ...fields, id: fields.id.map((byte) => byte ^ 0xff), entries });
    const failure = await failureOf(() => one.worker.endpoint(foreign));
    expect(failure).toMatchObject({ code: 'ERR_UNREACHABLE', status: Status.UNREACHABLE });
    for (const transport of ['posix', 'cma', 'gaudi_ipc']) expect(failure.message).toContain(transport);
    const unknown = packWorkerAddress({
      id: fields.id.map((byte) => byte ^ 0xff),
      isManual: false,
      entries: [{ transport: 'rc_mlx5', device: 'mlx5_0:1', address: new Uint8Array(12) }],
    });
    expect(await failureOf(() => one.worker.endpoint(unknown))).toMatchObject({ code: 'ERR_UNREACHABLE' });
  });

  it('of a worker without a common transport are unreachable', async () => {
    const node = fixture.node();
    const one = await fixture.side(node, 0, { UCX_TLS: 'self' });
    const two = await fixture.side(node, 1, { UCX_TLS: 'posix,self' });
    for (const [here, there] of [
      [one, two],
      [two, one],
    ] as const) {
      const failure = await failureOf(() => here.worker.endpoint(there.worker.address()));
      expect(failure).toMatchObject({ code: 'ERR_UNREACHABLE' });
      expect(failure.message).toMatch(/self/);
    }
  });

  it('of a worker that has ended are unreachable', async () => {
    const node = fixture.node({ cards: 3 });
    const one = await fixture.side(node, 0, { UCX_TLS: 'posix,self' });
    const other = await fixture.side(node, 2, { UCX_TLS: 'cma,posix,self' });
    const two = await fixture.side(node, 1, { UCX_TLS: 'cma,posix,self' });
    const address = two.worker.address();
    await two.context.close();
    expect(await failureOf(() => one.worker.endpoint(address))).toMatchObject({ code: 'ERR_UNREACHABLE' });
    // cma would still reach this process, but it does not support messages.
    const endpoint = other.worker.endpoint(address);
    expect(endpoint.messageTransport).toBeUndefined();
    const failure = await failureOf(() => endpoint.tagSendNbx(new Uint8Array(3), 0, 3, 1));
    expect(failure).toMatchObject({ code: 'ERR_UNREACHABLE', message: expect.stringMatching(/posix.*ended/) });
    expect(other.worker.requestsInUse).toBe(0);
  });
});

describe('workers with other transports', () => {
  it.each([
    ['posix,self', 'cma,posix,self', 'bytes', 'registered'],
    ['cma,posix,self', 'posix,self', 'bytes', 'allocated'],
    ['posix,self', 'all', 'bytes', 'gaudi'],
    ['all', 'posix,self', 'gaudi', 'bytes'],
    ['all', '^gaudi_ipc', 'gaudi', 'gaudi'],
    ['^gaudi_ipc', 'all', 'gaudi', 'gaudi'],
  ] as const)('%s and %s meet in what both have', async (first, second, from, to) => {
    const node = fixture.node();
    const one = await fixture.side(node, 0, { UCX_TLS: first });
    const two = await fixture.side(node, 1, { UCX_TLS: second });
    const ab = one.worker.endpoint(two.worker.address());
    const ba = two.worker.endpoint(one.worker.address());
    expect(ab.messageTransport).toBe('posix/memory');
    expect(ba.messageTransport).toBe('posix/memory');
    for (const byteLength of [5, 9000, 700_000]) {
      const [source, target] = [memoryOf(one, from, byteLength), memoryOf(two, to, byteLength)];
      await fill(one, source, pattern(byteLength, 1));
      await Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
      await expectContents(two, target, pattern(byteLength, 1));
      await fill(two, target, pattern(byteLength, 2));
      await Promise.all([ba.tagSend(target, { tag: 2 }), one.worker.tagRecv(source, { tag: 2 })]);
      await expectContents(one, source, pattern(byteLength, 2));
    }
  });
});

describe('connections', () => {
  it('are made by one side: the other one receives, and answers', async () => {
    const node = fixture.node();
    const [one, two] = [await fixture.side(node, 0), await fixture.side(node, 1)];
    const ab = one.worker.endpoint(two.worker.address());
    two.worker.setAmHandler(1, (message) => {
      const back = message.replyEndpoint;
      const result = back.amSendNbx(2, message.header, eagerData(message).slice(), 0, message.byteLength, FREE);
      expect(typeof result === 'number' ? result : Status.OK).toBe(Status.OK);
    });
    const answers = one.worker.messages(2);
    const first = answers.next();
    await serving({ one, two }, () => ab.amSend(1, pattern(3000, 5), { header: Uint8Array.of(1, 2) }));
    const { value } = await serving({ one, two }, () => first);
    expectSame(eagerData(value!), pattern(3000, 5));
    await answers.return();
    const target = new Uint8Array(200_000);
    await Promise.all([ab.tagSend(pattern(200_000, 3), { tag: 3 }), two.worker.tagRecv(target, { tag: 3 })]);
    expectSame(target, pattern(200_000, 3));
  });

  it('can be requested by both sides at the same time', async () => {
    for (let round = 0; round < 3; round++) {
      const pair = await fixture.pair(round % 2 === 0 ? HOST : undefined);
      const { one, two, ab, ba } = pair;
      // All operations are started before there is progress.
      const sources = [0, 1, 2, 3].map((i) => pattern(50 + i * 30_000, i));
      for (const source of sources) {
        ab.tagSendNbx(source, 0, source.byteLength, 1, FREE);
        ba.tagSendNbx(source, 0, source.byteLength, 2, FREE);
      }
      for (const source of sources) {
        const [here, there] = [new Uint8Array(source.byteLength), new Uint8Array(source.byteLength)];
        await Promise.all([two.worker.tagRecv(there, { tag: 1 }), one.worker.tagRecv(here, { tag: 2 })]);
        expectSame(here, source);
        expectSame(there, source);
      }
      await driveUntil(pair, () => one.worker.requestsInUse + two.worker.requestsInUse === 0);
    }
  });

  it('wait for a worker that makes no progress yet, and keep the order', async () => {
    const node = fixture.node();
    const [one, two] = [await fixture.side(node, 0), await fixture.side(node, 1)];
    const ab = one.worker.endpoint(two.worker.address());
    const COUNT = 1000;
    for (let i = 0; i < COUNT; i++) {
      const bytes = pattern((i * 131) % 9000, i);
      const result = ab.tagSendNbx(bytes, 0, bytes.byteLength, 1, FREE);
      expect(typeof result === 'number' ? result : Status.OK).toBe(Status.OK);
    }
    for (let turn = 0; turn < 200; turn++) one.worker.progress();
    expect(one.worker.requestsInUse).toBeGreaterThan(0);
    const target = new Uint8Array(9000);
    await serving({ one, two }, async () => {
      for (let i = 0; i < COUNT; i++) {
        const { byteLength } = await two.worker.tagRecv(target, { tag: 1 });
        expect(byteLength).toBe((i * 131) % 9000);
        expectSame(target.subarray(0, byteLength), pattern(byteLength, i), `message ${i}`);
      }
    });
    await driveUntil({ one, two }, () => one.worker.requestsInUse === 0);
  });

  it('are several between the same two workers, each with its own stream', async () => {
    const pair = await fixture.pair(HOST);
    const { one, two } = pair;
    const heres: Endpoint[] = [pair.ab];
    const theres: Endpoint[] = [pair.ba];
    for (let i = 1; i < 4; i++) {
      heres.push(one.worker.endpoint(two.worker.address()));
      theres.push(two.worker.endpoint(one.worker.address()));
    }
    for (const [i, here] of heres.entries()) await here.streamSend(pattern(100 + i, i));
    for (const [i, there] of theres.entries()) {
      const target = new Uint8Array(100 + i);
      await there.streamRecv(target, { waitAll: true });
      expectSame(target, pattern(100 + i, i), `stream ${i}`);
    }
    await serving(pair, () => heres[1]!.close());
    await driveIdle(pair, 100);
    expect(theres.map(({ status }) => status)).toEqual([0, Status.CONNECTION_RESET, 0, 0]);
    await greet({ ...pair, ab: heres[2]!, ba: theres[3]! });
  });

  it('join two workers of one context, and many of several', async () => {
    const node = fixture.node({ cards: 4 });
    const sides: Side[] = [];
    for (let card = 0; card < 4; card++) {
      const side = await fixture.side(node, card);
      const worker = side.context.worker();
      sides.push(side, { ...side, worker, endpoint: worker.endpoint(worker.address()) });
    }
    const all: Promise<unknown>[] = [];
    const targets = new Map<string, Uint8Array>();
    for (const [i, from] of sides.entries()) {
      for (const [j, to] of sides.entries()) {
        const target = new Uint8Array(10_000);
        targets.set(`${i} ${j}`, target);
        all.push(to.worker.tagRecv(target, { tag: i * 100 + j }));
        all.push(from.worker.endpoint(to.worker.address()).tagSend(pattern(10_000, i * 8 + j), { tag: i * 100 + j }));
      }
    }
    await Promise.all(all);
    for (const [i] of sides.entries()) {
      for (const [j] of sides.entries()) expectSame(targets.get(`${i} ${j}`)!, pattern(10_000, i * 8 + j));
    }
  });

  it('refuse unknown options', async () => {
    const { one, two } = await fixture.pair(HOST);
    const invalid = expect.objectContaining({ code: 'ERR_INVALID_PARAM' });
    const connect = (options: object): unknown => one.worker.endpoint(two.worker.address(), options);
    expect(() => connect({ errorHandling: 'yes' })).toThrow(invalid);
    expect(() => connect({ onError: 'function' })).toThrow(invalid);
  });
});

describe('closing', () => {
  it('waits for started operations, also when called twice', async () => {
    const pair = await fixture.pair(HOST);
    const { one, two, ab } = pair;
    const statuses: Status[] = [];
    const source = pattern(300_000, 1);
    const callback = (request: Request, status: Status): void => {
      statuses.push(status);
      request.free();
    };
    started(ab.tagSendNbx(source, 0, source.byteLength, 1, { callback }));
    started(ab.tagSendSyncNbx(source, 0, 8, 2, { callback }));
    let closed = 0;
    const closing = [ab.close(), ab.close()].map((promise) =>
      promise.then(() => {
        closed += 1;
      }),
    );
    await driveIdle(pair, 300);
    expect([closed, statuses]).toEqual([0, []]);
    const target = new Uint8Array(300_000);
    await two.worker.tagRecv(target, { tag: 1 });
    await two.worker.tagRecv(new Uint8Array(8), { tag: 2 });
    await Promise.all(closing);
    expectSame(target, source);
    expect([closed, statuses, one.worker.requestsInUse]).toEqual([2, [Status.OK, Status.OK], 0]);
  });

  it('by force ends the operations that wait for the peer, each once', async () => {
    const pair = await fixture.pair(HOST);
    const { one, two, ab } = pair;
    await greet(pair);
    const statuses = new Map<string, Status[]>();
    const note = (name: string) => ({
      noImmediateCompletion: true,
      callback: (request: Request, status: Status): void => {
        statuses.set(name, [...(statuses.get(name) ?? []), status]);
        request.free();
      },
    });
    const source = pattern(300_000, 1);
    ab.tagSendNbx(source, 0, source.byteLength, 1, note('rendezvous'));
    ab.tagSendSyncNbx(source, 0, 8, 2, note('sync'));
    two.worker.setAmHandler(1, (message) => {
      message.retain();
    });
    ab.amSendNbx(1, undefined, source, 0, source.byteLength, note('am'));
    ab.streamRecvNbx(new Uint8Array(8), 0, 8, note('stream'));
    ab.flushNbx(note('flush'));
    for (let i = 0; i < 500; i++) ab.tagSendNbx(source, 0, 1000, 9, note(`message ${i}`));
    await driveIdle(pair, 50);
    const awaited = expect(ab.tagSendSync(source, { tag: 7 })).rejects.toMatchObject({ status: Status.CANCELED });
    await ab.close({ force: true });
    await awaited;
    await ab.close();
    expect(one.worker.requestsInUse).toBe(0);
    for (const [name, ended] of statuses) {
      expect([name, ended.length]).toEqual([name, 1]);
      expect([Status.OK, Status.CANCELED]).toContain(ended[0]);
    }
    for (const name of ['rendezvous', 'sync', 'am', 'stream']) {
      expect([name, statuses.get(name)]).toEqual([name, [Status.CANCELED]]);
    }
    expect(statuses.size).toBe(505);
    // The peer has lost only this connection.
    await driveIdle(pair, 100);
    const again = {
      ...pair,
      ab: one.worker.endpoint(two.worker.address()),
      ba: two.worker.endpoint(one.worker.address()),
    };
    await greet(again, 5);
  });

  it('notifies the peer once', async () => {
    const node = fixture.node();
    const [one, two] = [await fixture.side(node, 0), await fixture.side(node, 1)];
    const seen: [boolean, Status][] = [];
    const ab = one.worker.endpoint(two.worker.address());
    const ba: Endpoint = two.worker.endpoint(one.worker.address(), {
      onError: (endpoint, status) => seen.push([endpoint === ba, status]),
    });
    const pair = { one, two, ab, ba };
    await greet(pair);
    const waiting = started(ba.tagSendSyncNbx(Uint8Array.of(1), 0, 1, 99));
    const receive = started(ba.streamRecvNbx(new Uint8Array(4), 0, 4));
    await driveIdle(pair, 50);
    await serving(pair, () => ab.close());
    await driveUntil(pair, () => seen.length > 0);
    expect(seen).toEqual([[true, Status.CONNECTION_RESET]]);
    expect([waiting.status, receive.status, ba.status]).toEqual([-25, -25, -25]);
    waiting.free();
    receive.free();
    const refused = expect.objectContaining({ status: Status.CONNECTION_RESET });
    await expect(ba.tagSend(Uint8Array.of(1))).rejects.toEqual(refused);
    expect(ba.tagSendNbx(Uint8Array.of(1), 0, 1, 0)).toBe(Status.CONNECTION_RESET);
    await driveIdle(pair, 50);
    expect(seen).toHaveLength(1);
    await ba.close();
    expect(two.worker.requestsInUse).toBe(0);
  });

  it('makes every call an error', async () => {
    const pair = await fixture.pair(HOST);
    const { one, two, ab } = pair;
    const handle = two.context.memMap({ allocate: 64 });
    const packed = two.context.packRkey(handle);
    const rkey = ab.unpackRkey(packed);
    await serving(pair, () => ab.close());
    const bytes = new Uint8Array(8);
    const closed = expect.objectContaining({ code: 'ERR_CLOSED' });
    const calls: Record<string, () => unknown> = {
      put: () => ab.put(bytes, rkey),
      get: () => ab.get(bytes, rkey),
      atomic: () => ab.atomic('add', 1, rkey),
      tagSend: () => ab.tagSend(bytes),
      tagSendSync: () => ab.tagSendSync(bytes),
      amSend: () => ab.amSend(1, bytes),
      streamSend: () => ab.streamSend(bytes),
      streamRecv: () => ab.streamRecv(bytes),
      stream: () => ab.stream().next(),
      streamRecvData: () => ab.streamRecvData(),
      flush: () => ab.flush(),
      fence: () => ab.fence(),
      unpackRkey: () => ab.unpackRkey(packed),
      explain: () => ab.explain('put', bytes, rkey),
      putNbx: () => ab.putNbx(bytes, 0, 8, rkey, 0),
      getNbx: () => ab.getNbx(bytes, 0, 8, rkey, 0),
      tagSendNbx: () => ab.tagSendNbx(bytes, 0, 8, 0),
      tagSendSyncNbx: () => ab.tagSendSyncNbx(bytes, 0, 8, 0),
      amSendNbx: () => ab.amSendNbx(1, undefined, bytes, 0, 8),
      streamSendNbx: () => ab.streamSendNbx(bytes, 0, 8),
      flushNbx: () => ab.flushNbx(),
    };
    for (const [name, call] of Object.entries(calls)) expect(await failureOf(call), name).toEqual(closed);
    rkey.release();
    await one.worker.close();
    await one.worker.close();
    const workerCalls: Record<string, () => unknown> = {
      address: () => one.worker.address(),
      endpoint: () => one.worker.endpoint(two.worker.address()),
      tagRecv: () => one.worker.tagRecv(bytes),
      tagProbe: () => one.worker.tagProbe(0),
      setAmHandler: () => one.worker.setAmHandler(1, () => undefined),
      messages: () => one.worker.messages(1).next(),
      flush: () => one.worker.flush(),
      fence: () => one.worker.fence(),
      wait: () => one.worker.wait(),
      arm: () => one.worker.arm(),
      eventFd: () => one.worker.eventFd,
      serve: () => one.worker.serve(new AbortController().signal),
    };
    for (const [name, call] of Object.entries(workerCalls)) expect(await failureOf(call), name).toEqual(closed);
    await one.context.close();
    expect(await failureOf(() => one.context.worker())).toEqual(closed);
    expect(await failureOf(() => one.context.memMap({ allocate: 8 }))).toEqual(closed);
  });

  it('of a worker ends all pending operations, each once', async () => {
    const pair = await fixture.pair();
    const { one, two, ab } = pair;
    const statuses: Status[] = [];
    const awaited: Promise<unknown>[] = [];
    const params = {
      noImmediateCompletion: true,
      callback: (request: Request, status: Status): void => {
        statuses.push(status);
        request.free();
      },
    };
    const gaudi = one.context.memMap({ allocate: 300_000, memoryType: MemoryType.GAUDI });
    for (let i = 0; i < 20; i++) {
      one.worker.tagRecvNbx(new Uint8Array(8), 0, 8, i, i, params);
      ab.tagSendNbx(gaudi, 0, 300_000, 1, params);
      ab.tagSendSyncNbx(pattern(9, 1), 0, 9, 1, params);
      ab.streamRecvNbx(new Uint8Array(8), 0, 8, params);
      const promise =
        i % 2 === 0 ? one.worker.tagRecv(new Uint8Array(8), { tag: 500 }) : ab.tagSendSync(new Uint8Array(8));
      awaited.push(promise);
    }
    const settled = Promise.allSettled(awaited);
    await driveIdle(pair, 50);
    await one.worker.close();
    expect(statuses).toEqual(new Array(80).fill(Status.CANCELED));
    for (const result of await settled) {
      expect(result).toMatchObject({ status: 'rejected', reason: { status: Status.CANCELED } });
    }
    expect(one.worker.requestsInUse).toBe(0);
    // The messages that had arrived are received; the data of the others is not.
    await driveIdle(pair, 50);
    expect(two.worker.requestsInUse).toBe(0);
  });

  it('has a bound of requests, and continues beyond it', async () => {
    const requestsMax = 100;
    const { two, ab, one } = await fixture.pair(HOST, { UCX_REQUESTS_MAX: `${requestsMax}` });
    const requests: Request[] = [];
    for (let i = 0; i < requestsMax; i++) {
      requests.push(started(two.worker.tagRecvNbx(new Uint8Array(8), 0, 8, i)));
    }
    expect(two.worker.tagRecvNbx(new Uint8Array(8), 0, 8, 0)).toBe(Status.NO_RESOURCE);
    const waiting = two.worker.tagRecv(new Uint8Array(8), { tag: 99_999 });
    await Promise.all([ab.tagSend(pattern(8, 1), { tag: 5 }), ab.tagSend(pattern(8, 2), { tag: 99_999 })]);
    await driveUntil({ one, two }, () => requests[5]!.isCompleted);
    requests[5]!.free();
    expect(await waiting).toEqual({ senderTag: 99_999n, byteLength: 8 });
    expect(() => requests[6]!.free()).toThrow(expect.objectContaining({ status: Status.BUSY }));
    for (const request of requests) {
      if (request !== requests[5]) {
        expect(request.cancel()).toBe(true);
        request.free();
      }
    }
    expect(() => requests[6]!.free()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    expect(two.worker.requestsInUse).toBe(0);
  });
});
