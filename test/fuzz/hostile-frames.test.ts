/**
 * Messages that only a hostile peer sends, delivered to a worker as its transport would: they are checked, nothing throws, and no request of another
 * peer ends.
 */

import { describe, expect, it } from 'vitest';
import { writeAm, writeAmRts } from '../../src/api/layout/am.ts';
import { MessageId } from '../../src/api/layout/message.ts';
import { writeGetReady } from '../../src/api/layout/rma.ts';
import { writeTagRts } from '../../src/api/layout/tag.ts';
import { Status } from '../../src/index.ts';
import type { Connection } from '../../src/ucp/base/connection.ts';
import { catches } from '../fixtures/catches.ts';
import { nativeWorker } from '../fixtures/libucp/native-engine.ts';
import { messageFrame } from '../fixtures/messages/message-frame.ts';
import { connectionKind, driveUntil, mappedOf, type Pair, usePairs } from '../fixtures/pair.ts';

const fixture = usePairs();
const HUGE = 0x7fff_ffff;

/** Delivers a frame of the peer of a connection to a worker. */
function inject(
  side: Pair['one'],
  { sources }: Connection,
  id: number,
  header: Int32Array,
  payload?: Uint8Array,
): void {
  nativeWorker(side.worker).protocols.onMessage(id, messageFrame(header, payload, sources[0]));
}

/** The connection of a side to the other one, once it is established. */
async function connected(pair: Pair, side: Pair['one']): Promise<Connection> {
  pair.ab.tagSendNbx(new Uint8Array(1), 0, 1, 1, { callback: (sent) => sent.free() });
  const found = (): Connection | undefined =>
    nativeWorker(side.worker).connections.all.find((each) => !each.isLoopback);
  await driveUntil(pair, () => (found()?.remoteId ?? 0) !== 0);
  return found()!;
}

describe('frames of a hostile peer', () => {
  async function expectNoHandler(pair: Pair, headerBytes: number): Promise<void> {
    const connection = await connected(pair, pair.two);
    const { id } = connection;
    let calls = 0;
    pair.two.worker.setAmHandler(5, (message) => {
      calls += 1;
      message.retain();
    });
    const rts = { handler: 5, headerBytes, keyBytes: 0, byteLength: 8, request: 1, keyOffset: 0 };
    inject(pair.two, connection, MessageId.AM, writeAm(id, 5, headerBytes), new Uint8Array(8));
    inject(pair.two, connection, MessageId.AM_RTS, writeAmRts(id, rts), new Uint8Array(8));
    expect(calls).toBe(0);
  }

  it.each([HUGE, HUGE - 6, 4097, -1])('with a header of %i bytes reach no handler', async (headerBytes) => {
    await expectNoHandler(await fixture.pair(connectionKind('posix')), headerBytes);
  });

  it('with a valid header are noticed by that check, because they reach one', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    await catches((headerBytes: number) => expectNoHandler(pair, headerBytes), 4, /to be \+?0/);
  });

  it('that answer a get with an invalid status end it with IO_ERROR', async () => {
    const pair = await fixture.pair(connectionKind('staging, posix'));
    const connection = await connected(pair, pair.one);
    const rkey = pair.ab.unpackRkey(pair.two.context.packRkey(mappedOf(pair.two, 'gaudi', 4096)));
    const get = pair.ab.get(new Uint8Array(4096), rkey);
    const failure = get.then(
      () => undefined,
      (error: { status: Status }) => error.status,
    );
    const [requestId] = [...connection.waiting.keys()];
    const ready = writeGetReady(connection.id, { request: requestId!, peerRequest: 1, status: 1 as Status });
    inject(pair.one, connection, MessageId.GET_READY, ready);
    expect(await failure).toBe(Status.IO_ERROR);
    rkey.release();
  });

  it('that offer no bytes end the matched receive', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const connection = await connected(pair, pair.two);
    const { id } = connection;
    const key = pair.one.context.packRkey(mappedOf(pair.one, 'allocated', 4096));
    for (const payload of [key, undefined]) {
      const request = pair.two.worker.tagRecvNbx(new Uint8Array(64), 0, 64, 99);
      const rts = { request: 1, tagLow: 99, tagHigh: 0, byteLength: 0, keyOffset: 0 };
      inject(pair.two, connection, MessageId.TAG_RTS, writeTagRts(id, rts), payload);
      if (typeof request === 'number') throw new Error('the receive ended before its message came');
      expect(request.status).toBe(Status.OK);
      expect(request.receivedBytes).toBe(0);
      request.free();
    }
  });
});
