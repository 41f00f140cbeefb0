/**
 * Unexpected messages: a receiver keeps no more than UCX_UNEXP_MAX_BYTES of them, the rest stays with the sender, and all arrive in order
 * once they are received. Peers that send without credit are disconnected.
 */

import { describe, expect, it } from 'vitest';
import { type Endpoint, type Request, Status, type Worker } from '../../../src/index.ts';
import { sendsMaxOf } from '../../../src/ucp/base/request/request-pool.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import { connectionKind, driveIdle, driveUntil, expectSame, pattern, serving, usePairs } from '../../fixtures/pair.ts';

const KIB = 1024;
const MIB = KIB * KIB;
export const BUDGET_BYTES: number = MIB;
const REQUESTS_MAX = 4096;
export const ENV = { UCX_UNEXP_MAX_BYTES: '1m', UCX_REQUESTS_MAX: `${REQUESTS_MAX}` };
export const AM_ID = 3;
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
export const LONG_BYTES: number = 4 * KIB;
/** 64 MiB. */
const FLOOD: Amounts = { shortMessages: 1000, longMessages: 4096, amMessages: 4096, streamParts: 128 };
/** Fewer than the requests of a worker. */
const SMALL_FLOOD: Amounts = { shortMessages: 500, longMessages: 700, amMessages: 700, streamParts: 12 };
/** More. */
const MUTUAL_FLOOD: Amounts = { shortMessages: 500, longMessages: 2500, amMessages: 2500, streamParts: 12 };

/** Bytes of unexpected messages that a worker keeps, as in its statistics; without the rest of them, because it is read after every message. */
export function heldBy(worker: Worker): number {
  const { unexp_bytes, stream_bytes, am_bytes } = nativeWorker(worker).protocols.levels();
  return unexp_bytes + stream_bytes + am_bytes;
}

/** Starts one send. */
type Send = (params: { readonly callback: (request: Request, status: Status) => void }) => Status | Request;

/** Sends messages of all kinds, as fast as requests are available. */
export class Flood {
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

/** Declares the tests of a flood of unexpected messages over a kind of connection. */
export function floodContract(name: string): void {
  describe(`a flood over ${name}`, () => {
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
}

/** Declares the tests of floods in both directions over a kind of connection. */
export function twoFloodsContract(name: string): void {
  describe(`two floods over ${name}`, () => {
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
      // Nobody receives the active messages.
      fixture.allow(
        /^active message dropped: no handler for id \d+; set one with worker\.setAmHandler\(\)$|^\d+ more warnings about peers/,
      );
      const pair = await fixture.pair(connectionKind(name), ENV);
      const { one, two, ab, ba } = pair;
      const floods = [new Flood(ab, SMALL_FLOOD), new Flood(ba, SMALL_FLOOD)];
      for (const flood of floods) flood.pump();
      await driveIdle(pair);
      for (const flood of floods) flood.isStopped = true;
      expect(one.worker.requestsInUse + two.worker.requestsInUse).toBeGreaterThan(0);
      await serving(pair, () => Promise.all([ab.close({ force: true }), ba.close({ force: true })]));
      await driveUntil(pair, () => one.worker.requestsInUse + two.worker.requestsInUse === 0);
      expect([ab.closed, ba.closed]).toEqual([true, true]);
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
}
