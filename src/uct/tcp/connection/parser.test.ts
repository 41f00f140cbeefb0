/** The receiver delivers the same frames for any segmentation of the stream. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  amAfterPutsFrame,
  amFrame,
  getFrame,
  putFrame,
  putRunFrame,
  signalFrame,
} from '../../../../test/fixtures/transports/tcp-frames.ts';
import {
  keyOf,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { Identity } from '../connect/hello.ts';
import { FrameType } from '../layout.ts';

const BYTES = Uint8Array.from({ length: 5000 }, (_, i) => (i * 7) & 0xff);

describe('a stream', () => {
  const net = new TcpInterfaces();

  function streamFor(words: readonly number[]): Uint8Array {
    const am = (id: number, length: number): Uint8Array => amFrame(id, BYTES.subarray(0, length));
    const put = (offset: number, length: number): Uint8Array =>
      putFrame(words, offset, BYTES.subarray(offset, offset + length));
    const run = (...puts: readonly (readonly [number, number])[]): Uint8Array =>
      putRunFrame(puts.map(([offset, length]) => put(offset, length)));
    return Buffer.concat([
      am(1, 0),
      am(2, 1),
      put(0, 13),
      signalFrame(FrameType.HEARTBEAT, 1000),
      put(13, 0),
      put(13, 987),
      am(3, 17),
      getFrame(words, 0, 16),
      run([1000, 16], [1016, 1], [1017, 0], [1017, 13]),
      run([1030, 7]),
      run([1037, 0], [1037, 1], [1038, 962], [2000, 1500]),
      put(3500, 1500),
      am(4, 8),
    ]);
  }

  async function expectReceived(side: TcpSide, peer: RawPeer, target: Uint8Array): Promise<void> {
    await net.until([side], () => side.messages.length === 4);
    expect(side.messages.map(({ id, bytes }) => [id, bytes.byteLength])).toEqual([
      [1, 0],
      [2, 1],
      [3, 17],
      [4, 8],
    ]);
    for (const { bytes } of side.messages) expect(bytes).toEqual(BYTES.subarray(0, bytes.byteLength));
    expect(Buffer.compare(target, BYTES)).toBe(0);
    expect(peer.isClosed).toBe(false);
    side.messages.length = 0;
    target.fill(0);
  }

  /** Sends pieces, each after the previous one was received. */
  async function sendInPieces(
    side: TcpSide,
    peer: RawPeer,
    stream: Uint8Array,
    cuts: readonly number[],
  ): Promise<void> {
    let from = 0;
    for (const cut of [...cuts, stream.byteLength]) {
      if (cut <= from) continue;
      peer.write(stream.subarray(from, cut));
      from = cut;
      await net.until([side], () => peer.socket.writableLength === 0);
      for (let round = 0; round < 3; round++) side.iface.progress();
    }
  }

  it('gives the same frames if split at any byte of its beginning and around its end', {
    timeout: 60_000,
  }, async () => {
    const side = net.open();
    const memory = side.md.memReg(new Uint8Array(new ArrayBuffer(BYTES.byteLength)));
    const stream = streamFor([...keyOf(side.md, memory).words]);
    const peer = await net.greeted(side);
    for (let cut = 1; cut < stream.byteLength; cut += cut < 200 || cut > stream.byteLength - 60 ? 1 : 61) {
      await sendInPieces(side, peer, stream, [cut]);
      await expectReceived(side, peer, memory.bytes);
    }
  });

  it('gives the same frames in any pieces, also if they fill the receive buffer', { timeout: 60_000 }, async () => {
    const side = net.open({ RX_SEG_SIZE: '1k', TX_SEG_SIZE: '1k' });
    const memory = side.md.memReg(new Uint8Array(new ArrayBuffer(BYTES.byteLength)));
    const stream = streamFor([...keyOf(side.md, memory).words]);
    const peer = await net.greeted(side);
    const cuts = fc.array(fc.integer({ min: 1, max: stream.byteLength - 1 }), { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(cuts, async (places) => {
        await sendInPieces(
          side,
          peer,
          stream,
          places.sort((left, right) => left - right),
        );
        await expectReceived(side, peer, memory.bytes);
      }),
      { numRuns: 60 },
    );
  });

  it('gives the frames of each connection if those of several arrive in pieces, in turns', async () => {
    const side = net.open({ RX_SEG_SIZE: '1k', TX_SEG_SIZE: '1k' });
    const peers = [await net.greeted(side), await net.greeted(side, new Identity())];
    const bodies = [BYTES.subarray(0, 1000), BYTES.subarray(1001, 2001)];
    const messages = bodies.map((body, peer) => amFrame(peer, body));
    const frameBytes = messages[0]!.byteLength;
    // Both share the memory that they receive into.
    const places = fc.array(fc.tuple(fc.nat(1), fc.integer({ min: 1, max: 700 })), { minLength: 1, maxLength: 30 });
    await fc.assert(
      fc.asyncProperty(places, async (pieces) => {
        const sent = [0, 0];
        const send = async (peer: number, byteLength: number): Promise<void> => {
          const message = messages[peer]!;
          const at = sent[peer]! % frameBytes;
          sent[peer]! += byteLength;
          const rest = Math.max(0, byteLength - (frameBytes - at));
          peers[peer]!.write(Buffer.concat([message.subarray(at, at + byteLength), message.subarray(0, rest)]));
          await net.until([side], () => peers[peer]!.socket.writableLength === 0);
          for (let round = 0; round < 3; round++) side.iface.progress();
        };
        for (const [peer, byteLength] of pieces) await send(peer, byteLength);
        for (const peer of [0, 1]) {
          const over = sent[peer]! % frameBytes;
          if (over > 0) await send(peer, frameBytes - over);
        }
        const count = (sent[0]! + sent[1]!) / frameBytes;
        await net.until([side], () => side.messages.length === count);
        for (const { id, bytes } of side.messages) expect([id, bytes]).toEqual([id, bodies[id]]);
        side.messages.length = 0;
        expect(peers.map(({ isClosed }) => isClosed)).toEqual([false, false]);
      }),
      { numRuns: 40 },
    );
  });

  it('delivers a message behind puts with its other id unless the last puts have all arrived', async () => {
    const side = net.open();
    const memory = side.md.memReg(new Uint8Array(new ArrayBuffer(64)));
    const { words } = keyOf(side.md, memory);
    const peer = await net.greeted(side);
    const put = (offset: number): Uint8Array => putFrame([...words], offset, BYTES.subarray(0, 8));
    const [good, outside] = [put(0), put(64)];
    const [ID, FAILED] = [3, 9];
    // Bits of the other id beyond those of an id are ignored.
    const behind = (puts: number): Uint8Array => amAfterPutsFrame(ID, BYTES.subarray(0, 8), puts, FAILED | 0xe0);
    const cases: readonly (readonly [Uint8Array[], number])[] = [
      [[behind(0)], ID],
      [[behind(1)], FAILED],
      [[good, behind(1)], ID],
      [[good, behind(2)], ID],
      [[outside, behind(1)], FAILED],
      [[good, behind(2)], FAILED],
      [[good, behind(2)], ID],
      [[behind(-1)], FAILED],
    ];
    for (const [frames] of cases) for (const bytes of frames) peer.write(bytes);
    await net.until([side], () => side.messages.length === cases.length);
    expect(side.messages.map(({ id }) => id)).toEqual(cases.map(([, id]) => id));
    for (const { bytes } of side.messages) expect(bytes).toEqual(BYTES.subarray(0, 8));
    expect(peer.isClosed).toBe(false);
  });
});
