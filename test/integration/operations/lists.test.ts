/** What lists cost, and how they end badly: command submissions, windows of staged memory, unmapped and detached memory, peers that leave. */

import { afterEach, describe, expect, it } from 'vitest';
import {
  LIST_BLOCKS_MAX,
  MemoryType,
  type Request,
  type StatsNode,
  Status,
  type TransferEntry,
  UcxError,
} from '../../../src/index.ts';
import { IS_FULL } from '../../fixtures/extent.ts';
import {
  connectionKind,
  contents,
  driveIdle,
  driveUntil,
  expectSame,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

const KIB = 1024;
const fixture = usePairs();

/** All nodes of a statistics tree with this class and name. */
function nodesOf(tree: StatsNode, name: string): StatsNode[] {
  return [...(tree.name === name ? [tree] : []), ...tree.children.flatMap((child) => nodesOf(child, name))];
}

/** Command submissions of all cards of a side, by direction. */
function submissionsOf({ context }: Pair['one'], direction: string): number {
  return nodesOf(context.stats(), direction).reduce((sum, { counters }) => sum + Number(counters['submissions']), 0);
}

/** Starts an operation that has to go on. */
function requestOf(started: Status | Request): Request {
  return typeof started === 'number' ? expect.fail(`the operation ended with ${started}`) : started;
}

async function finished(pair: Pair, started: Status | Request): Promise<Status> {
  const request = requestOf(started);
  await driveUntil(pair, () => request.isCompleted);
  const { status } = request;
  request.free();
  return status;
}

const KEEP = { noImmediateCompletion: true } as const;

afterEach(() => fixture.close());

describe('a list of as many blocks as it may have', () => {
  it.each(['posix', ...(IS_FULL ? ['tcp'] : [])])('moves each of them over %s', async (name) => {
    const pair = await fixture.pair(connectionKind(name));
    const { one, two, ab } = pair;
    const local = one.context.memMap({ allocate: 2 * LIST_BLOCKS_MAX });
    const remote = two.context.memMap({ allocate: 2 * LIST_BLOCKS_MAX });
    const rkey = keyFor(ab, two, remote);
    const bytes = pattern(2 * LIST_BLOCKS_MAX, 4);
    local.bytes!.set(bytes);
    const blocks = { local, rkey, byteLength: 1, localStride: 2, remoteStride: 2 };
    expect(await finished(pair, ab.putListNbx([{ ...blocks, count: LIST_BLOCKS_MAX }], KEEP))).toBe(Status.OK);
    expect(await finished(pair, ab.flushNbx(KEEP))).toBe(Status.OK);
    expectSame(
      remote.bytes!,
      bytes.map((byte, at) => (at % 2 === 0 ? byte : 0)),
    );
    expect(() => ab.putListNbx([{ ...blocks, count: LIST_BLOCKS_MAX }, blocks])).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', message: expect.stringContaining(String(LIST_BLOCKS_MAX)) }),
    );
    rkey.release();
    unmap(one, local);
    unmap(two, remote);
  });
});

describe('a list on one card', () => {
  it.each(['put', 'get'] as const)('of 1,000 blocks of 64 KiB is one command submission: %s', async (operation) => {
    const pair = await fixture.pair(connectionKind('loopback'));
    const { one, ab } = pair;
    const [blocks, byteLength] = [1000, 64 * KIB];
    const local = one.context.memMap({ allocate: blocks * byteLength });
    const remote = one.context.memMap({ allocate: 2 * blocks * byteLength, memoryType: MemoryType.GAUDI });
    const rkey = keyFor(ab, one, remote);
    const entry = { local, rkey, byteLength, count: blocks, remoteStride: 2 * byteLength };
    const list = ab.prepareList(operation, [entry]);
    local.bytes!.set(pattern(blocks * byteLength, 3));
    const direction = operation === 'put' ? 'host_to_device' : 'device_to_host';
    const before = submissionsOf(one, direction);
    expect(await finished(pair, ab[`${operation}ListNbx`](list, { ...KEEP, flush: true }))).toBe(Status.OK);
    expect(submissionsOf(one, direction) - before).toBe(1);
    if (operation === 'put') {
      const copy = new Uint8Array(byteLength);
      await ab.get(copy, rkey, { remoteOffset: 2 * 999 * byteLength });
      expectSame(copy, local.bytes!.subarray(999 * byteLength));
    } else expectSame(local.bytes!, new Uint8Array(blocks * byteLength));
    rkey.release();
    unmap(one, local, remote);
  });

  it('longer than its queues waits, and arrives whole', async () => {
    const pair = await fixture.pair(connectionKind('loopback'));
    const { one, ab } = pair;
    const [blocks, byteLength] = [10_000, 64];
    const local = one.context.memMap({ allocate: blocks * byteLength });
    const remote = one.context.memMap({ allocate: 2 * blocks * byteLength, memoryType: MemoryType.GAUDI });
    const rkey = keyFor(ab, one, remote);
    local.bytes!.set(pattern(blocks * byteLength, 8));
    const entry = { local, rkey, byteLength, count: blocks, remoteStride: 2 * byteLength };
    const started = ab.putListNbx([entry], { ...KEEP, flush: true });
    // What comes after it is queued behind it.
    const behind = ab.putNbx(local, 0, byteLength, rkey, byteLength, KEEP);
    expect(await finished(pair, started)).toBe(Status.OK);
    expect(await finished(pair, behind)).toBe(Status.OK);
    const there = await contents(one, remote);
    for (let i = 0; i < blocks; i++) {
      const at = 2 * i * byteLength;
      expectSame(there.subarray(at, at + byteLength), local.bytes!.subarray(i * byteLength, (i + 1) * byteLength));
    }
    rkey.release();
    unmap(one, local, remote);
  });
});

describe('a list of staged memory', () => {
  it.each(['put', 'get'] as const)('gathers 64 blocks of 16 KiB into a few windows: %s', async (operation) => {
    const pair = await fixture.pair(connectionKind('staging, tcp'));
    const { one, two, ab } = pair;
    const [blocks, byteLength] = [64, 16 * KIB];
    const [local, remote] = [
      mappedOf(one, 'gaudi', 2 * blocks * byteLength),
      mappedOf(two, 'gaudi', blocks * byteLength),
    ];
    const rkey = keyFor(ab, two, remote);
    const windows = (): number => {
      const counters = [one, two].map(({ worker }) => worker.stats().counters);
      return counters.reduce((sum, each) => sum + Number(each['rndv_rtr']) + Number(each['rndv_rtr_mtype']), 0);
    };
    const before = windows();
    const entry = { local, rkey, byteLength, count: blocks, localStride: 2 * byteLength };
    expect(await finished(pair, ab[`${operation}ListNbx`]([entry], { ...KEEP, flush: true }))).toBe(Status.OK);
    // 1 MiB in fragments of 512 KiB.
    expect(windows() - before).toBeLessThanOrEqual(4);
    rkey.release();
    unmap(one, local);
    unmap(two, remote);
  });
});

describe('a list with memory that is gone', () => {
  it('fails with the number of the entry if the owner has unmapped its memory', async () => {
    const pair = await fixture.pair(connectionKind('all transports'));
    const { one, two, ab } = pair;
    const [kept, gone] = [mappedOf(two, 'allocated', 4096), mappedOf(two, 'allocated', 4096)];
    const keys = [keyFor(ab, two, kept), keyFor(ab, two, gone)];
    two.context.memUnmap(gone);
    const list = keys.map((rkey): TransferEntry => ({ local: new Uint8Array(64).fill(7), rkey, byteLength: 64 }));
    const error = await ab.putList(list).then(
      () => expect.fail('the list has arrived'),
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(UcxError);
    const { status, cause, details } = error as UcxError;
    expect(status).toBe(Status.INVALID_ADDR);
    expect([details['entry'], (cause as UcxError | undefined)?.details['entry']]).toContain(1);
    expect(one.worker.requestsInUse).toBe(0);
    for (const rkey of keys) rkey.release();
    unmap(two, kept);
  });

  it('tells a detached buffer from a move that is whole', async () => {
    const pair = await fixture.pair(connectionKind('staging, tcp'));
    const { two, ab } = pair;
    const remote = mappedOf(two, 'gaudi', 4096);
    const rkey = keyFor(ab, two, remote);
    const local = new Uint8Array(new ArrayBuffer(4096));
    const request = requestOf(ab.getListNbx([{ local, rkey, byteLength: 4096 }], KEEP));
    structuredClone(local.buffer, { transfer: [local.buffer] });
    await driveUntil(pair, () => request.isCompleted);
    expect(request.status).toBe(Status.INVALID_ADDR);
    request.free();
    rkey.release();
    unmap(two, remote);
  });
});

describe('a notification behind puts', () => {
  const kinds = ['tcp', 'tcp, encrypted'] as const;

  it.each(kinds)('comes with its data, without an answer to the puts, over %s', async (name) => {
    const pair = await fixture.pair(connectionKind(name));
    const { one, two, ab } = pair;
    const [slots, byteLength] = [8, 16 * KIB];
    const remote = mappedOf(two, 'allocated', slots * byteLength);
    const rkey = keyFor(ab, two, remote);
    const arrived: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => {
      const slot = bytes[0]!;
      arrived.push(slot);
      expectSame(remote.bytes!.subarray(slot * byteLength, (slot + 1) * byteLength), pattern(byteLength, slot));
    });
    const requests = Array.from({ length: slots }, (_, slot) => {
      const params = { ...KEEP, notify: Uint8Array.of(slot) };
      return requestOf(ab.putNbx(pattern(byteLength, slot), 0, byteLength, rkey, slot * byteLength, params));
    });
    // The receiver alone: the sender hears of no put.
    await driveUntil({ one: two, two }, () => arrived.length === slots);
    expect(requests.filter(({ isCompleted }) => isCompleted)).toEqual([]);
    await driveUntil(pair, () => requests.every(({ isCompleted }) => isCompleted));
    expect(arrived).toEqual(Array.from({ length: slots }, (_, slot) => slot));
    for (const request of requests) {
      expect(request.status).toBe(Status.OK);
      request.free();
    }
    expect(one.worker.requestsInUse).toBe(0);
    rkey.release();
    unmap(two, remote);
  });

  it('is sent in the call of the put where a CPU writes, over posix', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const { two, ab } = pair;
    const remote = mappedOf(two, 'allocated', 64 * KIB);
    const rkey = keyFor(ab, two, remote);
    // The first message waits for the answer of the peer to the connection.
    await serving(pair, () => ab.notify(Uint8Array.of(0)));
    const arrived: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => arrived.push(bytes[0]!));
    const bytes = pattern(64 * KIB, 4);
    expect(ab.putNbx(bytes, 0, bytes.byteLength, rkey, 0, { notify: Uint8Array.of(1) })).toBe(Status.OK);
    await driveUntil({ one: two, two }, () => arrived.length === 2);
    expect(arrived).toEqual([0, 1]);
    expectSame(remote.bytes!, bytes);
    rkey.release();
    unmap(two, remote);
  });

  it('does not come if its puts are refused, whatever comes around them, and loses no credit', async () => {
    const pair = await fixture.pair(connectionKind('tcp'), { UCX_UNEXP_MAX_BYTES: '64k' });
    const { one, two, ab } = pair;
    const [kept, gone] = [mappedOf(two, 'allocated', 64), mappedOf(two, 'allocated', 64)];
    const [good, stale] = [keyFor(ab, two, kept), keyFor(ab, two, gone)];
    two.context.memUnmap(gone);
    const arrived: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => arrived.push(bytes[0]!));
    const local = one.context.memMap({ buffer: pattern(64, 9) });
    const entryOf = (rkey: typeof good): TransferEntry => ({ local, rkey, byteLength: 32 });
    const notice = (number: number): Uint8Array => new Uint8Array(4096).fill(number);
    for (let turn = 0; turn < 40; turn++) {
      const lists = [[good], [good, stale], [stale], [good, good]];
      const requests = lists.map((keys, i) =>
        requestOf(ab.putListNbx(keys.map(entryOf), { ...KEEP, notify: notice(i) })),
      );
      await driveUntil(pair, () => requests.every(({ isCompleted }) => isCompleted));
      const { OK, INVALID_ADDR } = Status;
      expect(requests.map(({ status }) => status)).toEqual([OK, INVALID_ADDR, INVALID_ADDR, OK]);
      for (const request of requests) request.free();
      await driveUntil(pair, () => arrived.length === 2);
      expect(arrived.splice(0)).toEqual([0, 3]);
    }
    await driveIdle(pair, 300);
    expect(arrived).toEqual([]);
    for (const rkey of [good, stale]) rkey.release();
    unmap(one, local);
    unmap(two, kept);
  });

  it('waits for memory that can still be detached', async () => {
    const pair = await fixture.pair(connectionKind('tcp'));
    const { two, ab } = pair;
    const byteLength = 32 * KIB * KIB;
    const remote = mappedOf(two, 'allocated', byteLength);
    const rkey = keyFor(ab, two, remote);
    const arrived: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => arrived.push(bytes[0]!));
    const local = new Uint8Array(new ArrayBuffer(byteLength)).fill(7);
    const request = requestOf(ab.putNbx(local, 0, byteLength, rkey, 0, { ...KEEP, notify: Uint8Array.of(1) }));
    // More than the socket has taken.
    structuredClone(local.buffer, { transfer: [local.buffer] });
    await driveUntil(pair, () => request.isCompleted);
    expect(request.status).toBe(Status.INVALID_ADDR);
    request.free();
    await driveIdle(pair, 300);
    expect(arrived).toEqual([]);
    rkey.release();
    unmap(two, remote);
  });
});

describe('the end of a connection', () => {
  it('ends lists and their notifications once, and sends no notification without its data', async () => {
    const pair = await fixture.pair(connectionKind('staging, tcp'));
    const { one, two, ab } = pair;
    const remote = mappedOf(two, 'gaudi', 4 * KIB * KIB);
    const rkey = keyFor(ab, two, remote);
    const arrived: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => arrived.push(bytes[0]!));
    const local = new Uint8Array(4 * KIB * KIB);
    const ends: Status[] = [];
    const callback = (request: Request, status: Status): void => {
      ends.push(status);
      request.free();
    };
    for (let i = 0; i < 5; i++) {
      const entry = { local, rkey, byteLength: local.byteLength };
      requestOf(ab.putListNbx([entry], { callback, notify: Uint8Array.of(i) }));
    }
    const closing = ab.close({ force: true });
    await driveUntil(pair, () => ends.length === 5);
    await Promise.all([closing, driveIdle(pair, 300)]);
    expect(ends).toHaveLength(5);
    expect(arrived).toEqual(ends.flatMap((status, i) => (status === Status.OK ? [i] : [])));
    expect(ends.some((status) => status < 0)).toBe(true);
    expect(one.worker.requestsInUse).toBe(0);
    rkey.release();
    unmap(two, remote);
  });

  it('a closing endpoint sends the notifications of lists that were started before', async () => {
    const pair = await fixture.pair(connectionKind('staging, tcp'));
    const { two, ab } = pair;
    const remote = mappedOf(two, 'gaudi', KIB * KIB);
    const rkey = keyFor(ab, two, remote);
    const arrived: number[] = [];
    two.worker.setNotificationHandler(({ bytes }) => arrived.push(bytes[0]!));
    const free = (request: Request): void => request.free();
    for (let i = 0; i < 3; i++) {
      const entry = { local: new Uint8Array(KIB * KIB), rkey, byteLength: KIB * KIB };
      requestOf(ab.putListNbx([entry], { callback: free, notify: Uint8Array.of(i) }));
    }
    let isClosed = false;
    const closing = ab.close().then(() => {
      isClosed = true;
    });
    await driveUntil(pair, () => isClosed && arrived.length === 3);
    await closing;
    expect(arrived).toEqual([0, 1, 2]);
    unmap(two, remote);
  });
});
