/** Runs the contract of unexpected messages over three kinds of connection; no memory, too many offers, ignored credit. */

import { describe, expect, it } from 'vitest';
import { writeAm } from '../../../src/api/layout/am.ts';
import { MessageId } from '../../../src/api/layout/message.ts';
import { STREAM_ASKED, writeStream } from '../../../src/api/layout/stream.ts';
import { writeTag, writeTagRts } from '../../../src/api/layout/tag.ts';
import { type Request, Status, type Worker } from '../../../src/index.ts';
import type { Connection } from '../../../src/ucp/base/connection.ts';
import { OFFERS_MAX } from '../../../src/ucp/credit/credit.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import {
  connectionKind,
  driveIdle,
  driveUntil,
  expectSame,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';
import {
  AM_ID,
  BUDGET_BYTES,
  ENV,
  Flood,
  floodContract,
  heldBy,
  LONG_BYTES,
  twoFloodsContract,
} from './ucp-unexpected.ts';

for (const name of ['posix', 'tcp', 'loopback over self alone']) floodContract(name);
for (const name of ['posix', 'tcp']) twoFloodsContract(name);

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
    const params = { callback, noImmediateCompletion: true } as const;
    const offered = { ...params, protocol: 'rendezvous' } as const;
    const isActive = what === 'active messages';
    await using messages = two.worker.messages(AM_ID);
    for (let i = 0; i < count; i++) {
      if (isActive) ab.amSendNbx(AM_ID, undefined, bytes, 0, bytes.byteLength, offered);
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
  async function halves(pair: Pair): Promise<{ own: Connection; victim: Connection }> {
    const find = (worker: Worker): Connection =>
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
    fixture.allow(/peer disconnected for a protocol violation: it sent/);
    await using messages = pair.two.worker.messages(AM_ID);
    const most = await attack(pair, id, write, 100);
    expect(most).toBeLessThanOrEqual(BUDGET_BYTES);
    expect(most).toBeGreaterThan(0);
    await messages.return();
  });

  it('is disconnected: offers', async () => {
    const pair = await fixture.pair(connectionKind('posix'), ENV);
    fixture.allow(/peer disconnected for a protocol violation: it offered/);
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
