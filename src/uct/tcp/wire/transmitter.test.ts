/** The order of what a connection sends while its socket has no room. */

import { expect, it } from 'vitest';
import { frame, keyed, TcpInterfaces } from '../../../../test/fixtures/tcp-interfaces.ts';
import { Status } from '../../../ucs/type/status.ts';
import { END_BYTES, FrameType, HEADER_BYTES } from './frame.ts';

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
  const put = (to: readonly number[]): Uint8Array => frame([FrameType.PUT, 8, ...to, 0, 0], new Uint8Array(8).fill(1));

  peer.socket.pause();
  peer.write(frame([FrameType.GET, 0, ...words, 0, 0, GET_BYTES, 0]));
  await net.until([side], () => memory.inFlight === 1);
  peer.write(put(unknown));
  await net.until([side], () => peer.socket.writableLength === 0);
  for (let turn = 0; turn < 10; turn++) side.iface.progress();
  peer.write(put(words));
  await net.until([side], () => memory.bytes[0] === 1);
  for (let turn = 0; turn < 10; turn++) side.iface.progress();
  expect(memory.inFlight).toBe(1);
  peer.socket.resume();
  await net.until([side], () => answersOf(peer.received).length === 2);

  expect(answersOf(peer.received)).toEqual([
    [FrameType.NACK, Status.INVALID_ADDR],
    [FrameType.ACK, 1],
  ]);
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
