/** Messages that no honest peer sends, put before a worker as its transport would: nothing is believed, nothing throws, nobody else's request ends. */

import { describe, expect, it } from 'vitest';
import { Status } from '../../src/index.ts';
import { MessageId } from '../../src/ucp/base/message.ts';
import type { PeerConnection } from '../../src/ucp/base/peer-connection.ts';
import { nativeWorker } from '../fixtures/native-engine.ts';
import { connectionKind, driveUntil, mappedOf, type Pair, usePairs } from '../fixtures/pair.ts';

const fixture = usePairs();
const FRAME_BYTES = 65_536;
const HUGE = 0x7fff_ffff;

/** Puts a frame of the peer of a connection before a worker. */
function inject(
  side: Pair['one'],
  { sources }: PeerConnection,
  id: number,
  words: readonly number[],
  payload: Uint8Array = new Uint8Array(0),
): void {
  const buffer = new ArrayBuffer(FRAME_BYTES);
  const source = sources[0]!;
  const frame = { bytes: new Uint8Array(buffer), words: new Int32Array(buffer), offset: 0, byteLength: 0, source };
  frame.words.set(words);
  frame.bytes.set(payload, words.length * 4);
  frame.byteLength = words.length * 4 + payload.byteLength;
  nativeWorker(side.worker).protocols.onMessage(id, frame);
}

/** The connection of a side to the other one, once it stands. */
async function connected(pair: Pair, side: Pair['one']): Promise<PeerConnection> {
  pair.ab.tagSendNbx(new Uint8Array(1), 0, 1, 1, { callback: (sent) => sent.free() });
  const found = (): PeerConnection | undefined =>
    nativeWorker(side.worker).connections.all.find((each) => !each.isLoopback);
  await driveUntil(pair, () => (found()?.remoteId ?? 0) !== 0);
  return found()!;
}

describe('frames of a hostile peer', () => {
  it.each([HUGE, HUGE - 6, 4097, -1])('with a header of %i bytes reach no handler', async (headerBytes) => {
    const pair = await fixture.pair(connectionKind('posix'));
    const connection = await connected(pair, pair.two);
    const { id } = connection;
    let calls = 0;
    pair.two.worker.setAmHandler(5, (message) => {
      calls += 1;
      message.retain();
    });
    inject(pair.two, connection, MessageId.AM, [id, 5, headerBytes, 0], new Uint8Array(8));
    inject(pair.two, connection, MessageId.AM_RTS, [id, 5, headerBytes, 0, 8, 0, 1, 0, 0, 0], new Uint8Array(8));
    expect(calls).toBe(0);
  });

  it('that answer a get with a status that is none end it with IO_ERROR', async () => {
    const pair = await fixture.pair(connectionKind('staging, posix'));
    const connection = await connected(pair, pair.one);
    const rkey = pair.ab.unpackRkey(pair.two.context.packRkey(mappedOf(pair.two, 'gaudi', 4096)));
    const get = pair.ab.get(new Uint8Array(4096), rkey);
    const failure = get.then(
      () => undefined,
      (error: { status: Status }) => error.status,
    );
    const [requestId] = [...connection.waiting.keys()];
    inject(pair.one, connection, MessageId.GET_READY, [connection.id, requestId!, 1, 1]);
    expect(await failure).toBe(Status.IO_ERROR);
    rkey.release();
  });

  it('that offer no bytes end the receive that takes them', async () => {
    const pair = await fixture.pair(connectionKind('posix'));
    const connection = await connected(pair, pair.two);
    const { id } = connection;
    const key = pair.one.context.packRkey(mappedOf(pair.one, 'allocated', 4096));
    for (const payload of [key, undefined]) {
      const request = pair.two.worker.tagRecvNbx(new Uint8Array(64), 0, 64, 99);
      inject(pair.two, connection, MessageId.TAG_RTS, [id, 1, 99, 0, 0, 0, 0, 0], payload);
      if (typeof request === 'number') throw new Error('the receive ended before its message came');
      expect(request.status).toBe(Status.OK);
      expect(request.receivedBytes).toBe(0);
      request.free();
    }
  });
});
