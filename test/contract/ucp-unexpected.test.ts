/**
 * Unexpected messages: a receiver keeps no more than UCX_UNEXP_MAX_BYTES of them, the rest stays with the sender, and all arrive in order
 * once they are received. Peers that send without credit are disconnected.
 */

import { describe, expect, it } from 'vitest';
import { type Endpoint, type Request, Status, type Worker } from '../../src/index.ts';
import type { PeerConnection } from '../../src/ucp/base/peer-connection.ts';
import { sendsMaxOf } from '../../src/ucp/base/request/request-pool.ts';
import { OFFERS_MAX } from '../../src/ucp/credit/inbound-window.ts';
import { writeAm } from '../../src/ucp/wire/am.ts';
import { MessageId } from '../../src/ucp/wire/message.ts';
import { STREAM_ASKED, writeStream } from '../../src/ucp/wire/stream.ts';
import { writeTag, writeTagRts } from '../../src/ucp/wire/tag.ts';
import { nativeWorker } from '../fixtures/native-engine.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectSame,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../fixtures/pair.ts';

const KIB = 1024;
const MIB = KIB * KIB;
const BUDGET_BYTES = MIB;
const REQUESTS_MAX = 4096;
const ENV = { UCX_UNEXP_MAX_BYTES: '1m', UCX_REQUESTS_MAX: `${REQUESTS_MAX}` };
const AM_ID = 3;
const SHORT_TAG = 8n;
const LONG_TAG = 4096n;

/** Numbers of messages that one worker sends to another. */
interface Amounts {
  readonly shortMessages: number;
  readonly longMessages: number;
  readonly amMessages: number;
  readonly streamParts: number;
}

const PART_BYTES = 256 * KIB;
const LONG_BYTES = 4 * KIB;
/** 64 MiB. */
const FLOOD: Amounts = { shortMessages: 1000, longMessages: 4096, amMessages: 4096, streamParts: 128 };
/** Fewer than the requests of a worker. */
const SMALL_FLOOD: Amounts = { shortMessages: 500, longMessages: 700, amMessages: 700, streamParts: 12 };
/** More. */
const MUTUAL_FLOOD: Amounts = { shortMessages: 500, longMessages: 2500, amMessages: 2500, streamParts: 12 };

/** Bytes of unexpected messages that a worker keeps, as in its statistics; without the rest of them, because it is read after every message. */
function heldBy(worker: Worker): number {
  const { unexp_bytes, stream_bytes, am_bytes } = nativeWorker(worker).protocols.levels();
  return unexp_bytes + stream_bytes + am_bytes;
}

/** Starts one send. */
type Send = (params: { readonly callback: (request: Request, status: Status) => void }) => Status | Request;

/** Sends messages of all kinds, as fast as requests are available. */
class Flood {
  readonly #sends: Send[] = [];
  readonly #amounts: Amounts;
  readonly statuses: Set<Status> = new Set();
  ended = 0;
  /** No further sends are started. */
  isStopped = false;
  #next = 0;

  constructor(endpoint: Endpoint, amounts: Amounts) {
    this.#amounts = amounts;
    const { shortMessages, longMessages, amMessages, streamParts } = amounts;
    const most = Math.max(shortMessages, longMessages, amMessages, streamParts);
    for (let i = 0; i < most; i++) {
      const add = (count: number, byteLength: number, run: (bytes: Uint8Array) => Send): void => {
        if (i < count) this.#sends.push(run(pattern(byteLength, i)));
      };
      add(shortMessages, 8, (bytes) => (params) => endpoint.tagSendNbx(bytes, 0, 8, SHORT_TAG, params));
      add(longMessages, LONG_BYTES, (bytes) => (params) => endpoint.tagSendNbx(bytes, 0, LONG_BYTES, LONG_TAG, params));
      add(
        amMessages,
        LONG_BYTES,
        (bytes) => (params) => endpoint.amSendNbx(AM_ID, undefined, bytes, 0, LONG_BYTES, params),
      );
      add(streamParts, PART_BYTES, (bytes) => (params) => endpoint.streamSendNbx(bytes, 0, PART_BYTES, params));
    }
  }

  get isDone(): boolean {
    return this.ended === this.#sends.length;
  }

  /** Starts as many sends as possible. */
  pump(): void {
    const callback = (request: Request, status: Status): void => {
      this.statuses.add(status);
      this.ended += 1;
      request.free();
      this.pump();
    };
    if (this.isStopped) return;
    for (; this.#next < this.#sends.length; this.#next++) {
      const started = this.#sends[this.#next]!({ callback });
      if (started === Status.NO_RESOURCE) return;
      if (typeof started !== 'number') continue;
      this.statuses.add(started);
      this.ended += 1;
    }
  }

  /** Receives everything at the other end, and compares. */
  async receiveAll(worker: Worker, endpoint: Endpoint, messages: ReturnType<Worker['messages']>): Promise<void> {
    const { shortMessages, longMessages, amMessages, streamParts } = this.#amounts;
    const tagged = async (count: number, byteLength: number, tag: bigint): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const bytes = new Uint8Array(byteLength);
        await worker.tagRecv(bytes, { tag });
        expectSame(bytes, pattern(byteLength, i), `message ${i} of tag ${tag}`);
        const held = heldBy(worker);
        if (held > BUDGET_BYTES) expect.fail(`${held} bytes are kept after message ${i} of tag ${tag}`);
      }
    };
    const active = async (): Promise<void> => {
      for (let i = 0; i < amMessages; i++) {
        const { value } = await messages.next();
        const bytes = new Uint8Array(LONG_BYTES);
        await value!.into(bytes);
        expectSame(bytes, pattern(LONG_BYTES, i), `active message ${i}`);
      }
    };
    const streamed = async (): Promise<void> => {
      for (let i = 0; i < streamParts; i++) {
        const bytes = new Uint8Array(PART_BYTES);
        await endpoint.streamRecv(bytes, { waitAll: true });
        expectSame(bytes, pattern(PART_BYTES, i), `part ${i} of the stream`);
      }
    };
    await Promise.all([
      tagged(shortMessages, 8, SHORT_TAG),
      tagged(longMessages, LONG_BYTES, LONG_TAG),
      active(),
      streamed(),
    ]);
  }
}

describe.each(['posix', 'tcp', 'loopback over self alone'])('a flood over %s', (name) => {
  const fixture = usePairs();

  it('of 64 MiB stays within the bound of memory, and arrives in order', async () => {
    const pair = await fixture.pair(connectionKind(name), ENV);
    const { one, two, ab, ba } = pair;
    const flood = new Flood(ab, FLOOD);
    const messages = two.worker.messages(AM_ID);
    let most = 0;
    flood.pump();
    await driveUntil(pair, () => {
      most = Math.max(most, heldBy(two.worker));
      return one.worker.requestsInUse === sendsMaxOf(REQUESTS_MAX);
    });
    await driveIdle(pair);
    most = Math.max(most, heldBy(two.worker));
    expect(most).toBeGreaterThan(BUDGET_BYTES / 64);
    expect(most).toBeLessThanOrEqual(BUDGET_BYTES);
    await serving(pair, () => flood.receiveAll(two.worker, ba, messages));
    await driveUntil(pair, () => flood.isDone);
    expect([...flood.statuses]).toEqual([Status.OK]);
    const { tx_no_credit, tx_no_credit_rndv } = one.worker.stats().counters;
    expect(tx_no_credit).toBeGreaterThan(0);
    expect(tx_no_credit_rndv).toBeGreaterThan(0);
    expect(two.worker.stats().counters['unexp_granted']).toBeLessThanOrEqual(BUDGET_BYTES);
    await messages.return();
    expect(heldBy(two.worker)).toBe(0);
  });

  it('blocks neither memory operations nor other messages', async () => {
    const pair = await fixture.pair(connectionKind(name), ENV);
    const { two, ab, ba } = pair;
    const flood = new Flood(ab, SMALL_FLOOD);
    const messages = two.worker.messages(AM_ID);
    flood.pump();
    await driveIdle(pair);
    const memory = two.context.memMap({ allocate: 64 });
    const rkey = ab.unpackRkey(two.context.packRkey(memory));
    await serving(pair, async () => {
      await ab.put(pattern(64, 5), rkey);
      await ab.flush();
      const target = new Uint8Array(8);
      const sent = ab.tagSend(pattern(8, 9), { tag: 77n });
      await two.worker.tagRecv(target, { tag: 77n });
      await sent;
      expectSame(target, pattern(8, 9));
      expectSame(memory.bytes!, pattern(64, 5));
      await flood.receiveAll(two.worker, ba, messages);
    });
    await driveUntil(pair, () => flood.isDone);
    rkey.release();
    await messages.return();
  });
});

describe.each(['posix', 'tcp'])('two floods over %s', (name) => {
  const fixture = usePairs();

  it('against each other complete when both receive', async () => {
    const pair = await fixture.pair(connectionKind(name), ENV);
    const { one, two, ab, ba } = pair;
    const [there, back] = [new Flood(ab, MUTUAL_FLOOD), new Flood(ba, MUTUAL_FLOOD)];
    const queues = [one.worker.messages(AM_ID), two.worker.messages(AM_ID)] as const;
    there.pump();
    back.pump();
    await driveIdle(pair);
    expect([there.isDone, back.isDone]).toEqual([false, false]);
    await serving(pair, () =>
      Promise.all([there.receiveAll(two.worker, ba, queues[1]), back.receiveAll(one.worker, ab, queues[0])]),
    );
    await driveUntil(pair, () => there.isDone && back.isDone);
    expect([...there.statuses, ...back.statuses]).toEqual([Status.OK, Status.OK]);
    for (const queue of queues) await queue.return();
  });

  it('end when both close', async () => {
    const pair = await fixture.pair(connectionKind(name), ENV);
    const { one, two, ab, ba } = pair;
    const floods = [new Flood(ab, SMALL_FLOOD), new Flood(ba, SMALL_FLOOD)];
    for (const flood of floods) flood.pump();
    await driveIdle(pair);
    for (const flood of floods) flood.isStopped = true;
    await serving(pair, () => Promise.all([ab.close({ force: true }), ba.close({ force: true })]));
    await driveUntil(pair, () => one.worker.requestsInUse + two.worker.requestsInUse === 0);
  });

  it('of streams alone end with a graceful close, which drops arriving bytes', async () => {
    const pair = await fixture.pair(connectionKind(name), ENV);
    const amounts = { shortMessages: 0, longMessages: 0, amMessages: 0, streamParts: 8 };
    const floods = [new Flood(pair.ab, amounts), new Flood(pair.ba, amounts)];
    for (const flood of floods) flood.pump();
    await driveIdle(pair);
    expect(floods.map(({ isDone }) => isDone)).toEqual([false, false]);
    await serving(pair, () => Promise.all([pair.ab.close(), pair.ba.close()]));
    expect(floods.map(({ isDone }) => isDone)).toEqual([true, true]);
  });
});

describe('without any memory for them', () => {
  const fixture = usePairs();

  it.each(['posix', 'tcp'])('messages arrive over %s when they are received', async (name) => {
    const pair = await fixture.pair(connectionKind(name), { UCX_UNEXP_MAX_BYTES: '0' });
    const { two, ab, ba } = pair;
    const flood = new Flood(ab, { shortMessages: 50, longMessages: 50, amMessages: 50, streamParts: 2 });
    const messages = two.worker.messages(AM_ID);
    flood.pump();
    await driveIdle(pair);
    // Offers contain the keys of their data, if a transport can use any.
    expect(heldBy(two.worker)).toBeLessThan(100 * 128);
    expect(two.worker.stats().counters).toMatchObject({ stream_bytes: 0, am_bytes: 0, tag_rx_eager_unexp: 0 });
    await serving(pair, () => flood.receiveAll(two.worker, ba, messages));
    await driveUntil(pair, () => flood.isDone);
    expect([...flood.statuses]).toEqual([Status.OK]);
    await messages.return();
  });

  it('a waiting stream send can be cancelled', async () => {
    const pair = await fixture.pair(connectionKind('posix'), { UCX_UNEXP_MAX_BYTES: '0' });
    const first = pair.ab.streamSendNbx(pattern(10, 1), 0, 10) as Request;
    const second = pair.ab.streamSendNbx(pattern(10, 2), 0, 10) as Request;
    await driveIdle(pair);
    expect(first.cancel()).toBe(true);
    expect(first.status).toBe(Status.CANCELED);
    const bytes = new Uint8Array(10);
    await serving(pair, () => pair.ba.streamRecv(bytes));
    expectSame(bytes, pattern(10, 2));
    await driveUntil(pair, () => second.isCompleted);
    first.free();
    second.free();
  });
});

describe('more offers than a peer keeps', () => {
  const fixture = usePairs();

  it.each(['synchronous tagged messages', 'active messages'] as const)('wait: %s', async (what) => {
    const pair = await fixture.pair(connectionKind('posix'), { UCX_UNEXP_MAX_BYTES: '0' });
    const { one, two, ab } = pair;
    const bytes = pattern(LONG_BYTES, 1);
    const count = OFFERS_MAX + 100;
    let ended = 0;
    const callback = (request: Request, status: Status): void => {
      if (status !== Status.OK) expect.fail(`an offer ended with ${status}`);
      ended += 1;
      request.free();
    };
    const params = { callback, noImmediateCompletion: true, protocol: 'rendezvous' } as const;
    const isActive = what === 'active messages';
    await using messages = two.worker.messages(AM_ID);
    for (let i = 0; i < count; i++) {
      if (isActive) ab.amSendNbx(AM_ID, undefined, bytes, 0, bytes.byteLength, params);
      else ab.tagSendSyncNbx(bytes, 0, bytes.byteLength, 7n, params);
    }
    await driveIdle(pair, 300);
    expect([one.worker.requestsInUse, ended]).toEqual([count, 0]);
    await serving(pair, async () => {
      for (let i = 0; i < count; i++) {
        const target = new Uint8Array(LONG_BYTES);
        if (isActive) await (await messages.next()).value!.into(target);
        else await two.worker.tagRecv(target, { tag: 7n });
        expectSame(target, bytes, `message ${i}`);
      }
    });
    await driveUntil(pair, () => ended === count);
    await messages.return();
  });
});

describe('a peer that ignores its credit', () => {
  const fixture = usePairs();

  /** The connections of the attacker and of the victim. */
  async function halves(pair: Pair): Promise<{ own: PeerConnection; victim: PeerConnection }> {
    const find = (worker: Worker): PeerConnection =>
      nativeWorker(worker).connections.all.find(({ isLoopback }) => !isLoopback)!;
    const [own, victim] = [find(pair.one.worker), find(pair.two.worker)];
    await driveUntil(pair, () => own.remoteId !== 0 && victim.remoteId !== 0);
    return { own, victim };
  }

  /** Sends frames until the victim disconnects. */
  async function attack(
    pair: Pair,
    id: number,
    write: (to: number) => Int32Array,
    payloadBytes: number,
  ): Promise<number> {
    const { own, victim } = await halves(pair);
    const header = write(own.remoteId).slice();
    const payload = new Uint8Array(payloadBytes);
    let most = 0;
    await driveUntil(pair, () => {
      for (let i = 0; i < 16; i++) own.am!.amShort(id, header, header.length, payload, 0, payloadBytes);
      most = Math.max(most, heldBy(pair.two.worker));
      return victim.failure !== Status.OK;
    });
    expect(pair.ba.status).toBe(Status.EXCEEDS_LIMIT);
    const before = pair.two.worker.stats().counters['unexp_messages'];
    await driveIdle(pair, 200);
    expect(pair.two.worker.stats().counters['unexp_messages']).toBe(before);
    return most;
  }

  it.each([
    ['tagged messages', MessageId.TAG, (to: number) => writeTag(to, 0, 1, 0)],
    ['active messages', MessageId.AM, (to: number) => writeAm(to, AM_ID, 0)],
    ['a stream', MessageId.STREAM, (to: number) => writeStream(to, 0)],
  ] as const)('is disconnected: %s', async (_what, id, write) => {
    const pair = await fixture.pair(connectionKind('posix'), ENV);
    fixture.allow(/a peer is disconnected: it sends/);
    await using messages = pair.two.worker.messages(AM_ID);
    const most = await attack(pair, id, write, 100);
    expect(most).toBeLessThanOrEqual(BUDGET_BYTES);
    expect(most).toBeGreaterThan(0);
    await messages.return();
  });

  it('is disconnected: offers', async () => {
    const pair = await fixture.pair(connectionKind('posix'), ENV);
    fixture.allow(/a peer is disconnected: it offers/);
    const offer = { request: 1, tagLow: 1, tagHigh: 0, byteLength: 100, keyOffset: 0 };
    await attack(pair, MessageId.TAG_RTS, (to) => writeTagRts(to, offer), 0);
    expect(pair.two.worker.stats().counters['unexp_messages']).toBe(OFFERS_MAX);
  });

  it('has its unexpected stream dropped', async () => {
    const pair = await fixture.pair(connectionKind('posix'), ENV);
    const { own } = await halves(pair);
    own.am!.amShort(MessageId.STREAM, writeStream(own.remoteId, STREAM_ASKED), 2, new Uint8Array(100), 0, 100);
    await driveIdle(pair, 300);
    expect([heldBy(pair.two.worker), pair.ba.status]).toEqual([0, Status.OK]);
  });
});
