/** The order of the frames of a connection while its socket has no room, and the time at which short frames are sent. */

import { describe, expect, it } from 'vitest';
import { amFrame, getFrame, putFrame } from '../../../../test/fixtures/transports/tcp-frames.ts';
import { keyed, TcpInterfaces, type TcpSide } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { UctEndpoint } from '../../api/iface.ts';
import type { TcpEndpoint } from '../endpoint.ts';
import { END_BYTES, FrameType, HEADER_BYTES } from '../layout.ts';

/** More than the buffers of both sockets can hold: the kernel lets that of the peer grow to 6 MiB. */
const GET_BYTES = 8 * 2 ** 20;
/** Several segments of the loopback device: with less the kernel sends one at a time and waits for its delayed acknowledgement. */
const SEND_BUFFER = '256k';

const net = new TcpInterfaces();

it('answers puts in their order while a long answer to a get waits', async () => {
  const side = net.open({ SNDBUF: SEND_BUFFER });
  const { memory, key } = keyed(side, GET_BYTES);
  const words = [...key.words];
  const unknown = words.with(0, 7777);
  const peer = await net.greeted(side);
  const put = (to: readonly number[]): Uint8Array => putFrame(to, 0, new Uint8Array(8).fill(1));

  peer.socket.pause();
  peer.write(getFrame(words, 0, GET_BYTES));
  await net.until([side], () => memory.inFlight === 1);
  peer.write(put(unknown));
  await net.until([side], () => peer.socket.writableLength === 0);
  for (let round = 0; round < 10; round++) side.iface.progress();
  peer.write(put(words));
  await net.until([side], () => memory.bytes[0] === 1);
  for (let round = 0; round < 10; round++) side.iface.progress();
  expect(memory.inFlight).toBe(1);
  peer.socket.resume();
  await net.until([side], () => answersOf(peer.received).length === 2);

  expect(answersOf(peer.received)).toEqual([
    [FrameType.NACK, Status.INVALID_ADDR],
    [FrameType.ACK, 1],
  ]);
});

it('answers a get before a message whose handler throws', async () => {
  const side = net.open();
  const { key } = keyed(side, 8);
  const peer = await net.greeted(side);
  let thrown = 0;
  side.iface.setAmHandler(() => {
    throw new Error('of the program');
  });
  const progress = (): void => {
    try {
      side.iface.progress();
    } catch {
      thrown += 1;
    }
  };

  peer.write(Buffer.concat([getFrame([...key.words], 0, 8), amFrame(1, new Uint8Array(8))]));
  // A heartbeat comes first.
  const bytes = HEADER_BYTES + HEADER_BYTES + 8 + END_BYTES;
  for (let turn = 0; turn < 1000 && peer.received.byteLength < bytes; turn++) {
    progress();
    await new Promise(setImmediate);
  }

  expect([thrown, peer.received.byteLength]).toEqual([1, bytes]);
  expect(peer.received.readInt32LE(HEADER_BYTES)).toBe(FrameType.GET_DATA);
});

describe('short frames after the first', () => {
  const header = new Int32Array(1);
  const payload = new Uint8Array(20_000).fill(5);

  async function connected(): Promise<{
    own: TcpSide;
    peer: TcpSide;
    endpoint: UctEndpoint;
    send: (byteLength: number) => void;
  }> {
    const [own, peer] = [net.open(), net.open()];
    const endpoint = own.iface.connect(peer.iface.address);
    header[0] = 0;
    await net.until([own, peer], () => endpoint.amShort(1, header, 1, undefined, 0, 0) === Status.OK);
    await net.until([peer], () => peer.messages.length === 1);
    own.iface.progress();
    const send = (byteLength: number): void => {
      header[0] = header[0]! + 1;
      expect(endpoint.amShort(1, header, 1, payload, 0, byteLength)).toBe(Status.OK);
    };
    return { own, peer, endpoint, send };
  }

  /** Receives the messages 0 to `count - 1`, without an end of the job of the event loop. */
  function receive({ iface, messages }: TcpSide, count: number): void {
    for (let round = 0; messages.length < count && round < 1_000_000; round++) iface.progress();
    const numbers = messages.map(({ bytes }) => new Int32Array(bytes.slice(0, 4).buffer)[0]);
    expect(numbers).toEqual(Array.from({ length: count }, (_, number) => number));
  }

  it('leave with the next progress', async () => {
    const { own, peer, send } = await connected();
    for (let i = 0; i < 3; i++) send(8);
    receive(peer, 2);
    for (let round = 0; round < 1000; round++) peer.iface.progress();
    expect(peer.messages.length).toBe(2);
    own.iface.progress();
    receive(peer, 4);
  });

  it('leave before their interface closes', async () => {
    const { own, peer, send } = await connected();
    for (let i = 0; i < 3; i++) send(8);
    own.iface.close();
    receive(peer, 4);
  });

  it('are refused when an earlier one has failed', async () => {
    const { endpoint } = await connected();
    const { link } = endpoint as TcpEndpoint;
    link.transmitter.attach(-1, undefined);
    const statuses = [1, 2, 3].map(() => endpoint.amShort(1, header, 1, payload, 0, 8));
    expect(statuses.every((status) => status < 0)).toBe(true);
    link.transmitter.attach(link.fd, undefined);
  });

  it('leave when the job of the event loop ends, without progress', async () => {
    const { peer, send } = await connected();
    for (let i = 0; i < 3; i++) send(8);
    await null;
    receive(peer, 4);
  });

  it('leave when there are many, and before a long one', async () => {
    const { peer, send } = await connected();
    for (let i = 0; i < 33; i++) send(8);
    receive(peer, 34);
    send(8);
    send(20_000);
    receive(peer, 36);
  });
});

/** Returns the answers to puts that follow the complete answer to a get. */
function answersOf(received: Buffer): [number, number][] {
  const answers: [number, number][] = [];
  for (let at = 0; at + HEADER_BYTES <= received.byteLength; ) {
    const [type, word] = [received.readInt32LE(at), received.readInt32LE(at + 4)];
    if (type === FrameType.ACK || type === FrameType.NACK) answers.push([type, word]);
    at += type === FrameType.GET_DATA ? HEADER_BYTES + word + END_BYTES : HEADER_BYTES;
  }
  return answers;
}
