/** Frames that were reported as sent, of a program that makes no progress any more: the event loop sends them when the peer reads again. */

import { expect, it } from 'vitest';
import { CountingCompletion } from '../../../test/contract/uct/uct-fixture.ts';
import { keyFile } from '../../../test/fixtures/transports/key-files.ts';
import { keyed, TcpInterfaces, type TcpSide } from '../../../test/fixtures/transports/tcp-interfaces.ts';
import { Status } from '../../ucs/type/status.ts';
import type { TcpEndpoint } from './endpoint.ts';

const BYTES = 60_000;
const HEADER = new Int32Array(1);

const net = new TcpInterfaces();

/** Two sides, and an endpoint of the first whose socket has no room. `sent` has the messages that were reported as sent. */
async function blocked(config: Readonly<Record<string, string>> = {}): Promise<{
  readonly own: TcpSide;
  readonly peer: TcpSide;
  readonly endpoint: TcpEndpoint;
  readonly sent: readonly Uint8Array[];
}> {
  const [own, peer] = [net.open(config), net.open(config)];
  const endpoint = own.iface.connect(peer.iface.address) as TcpEndpoint;
  const sent: Uint8Array[] = [];
  const send = (): Status => {
    const bytes = new Uint8Array(BYTES).fill(sent.length);
    const status = endpoint.amShort(1, HEADER, 1, bytes, 0, BYTES);
    if (status === Status.OK) sent.push(bytes);
    return status;
  };
  expect(await net.sent([own, peer], send)).toBe(Status.OK);
  while (!endpoint.link.wantsWrite) expect(send()).toBe(Status.OK);
  return { own, peer, endpoint, sent };
}

it.each(['none', 'auth', 'encrypt'])('messages arrive without progress, with security %s', async (level) => {
  const config = level === 'none' ? {} : { SECURITY: level, KEY_FILE: keyFile() };
  const { peer, endpoint, sent } = await blocked(config);
  await net.until([peer], () => peer.messages.length === sent.length);
  expect(peer.messages.map(({ bytes }) => bytes.subarray(4))).toEqual(sent);
  expect(endpoint.link.wantsWrite).toBe(false);
});

it('no operation ends without progress', async () => {
  const { own, peer, endpoint, sent } = await blocked();
  const { memory } = keyed(own, BYTES);
  const completion = new CountingCompletion();
  const iov = [{ memory, offset: 0, byteLength: BYTES }];
  expect(endpoint.amZcopy(2, HEADER, 1, iov, completion)).toBe(Status.INPROGRESS);

  for (let turn = 0; turn < 100; turn++) {
    while (peer.iface.progress() > 0);
    await new Promise(setImmediate);
  }
  expect([completion.count, endpoint.link.wantsWrite]).toEqual([1, true]);
  await net.until([own, peer], () => completion.count === 0 && peer.messages.length === sent.length + 1);
  expect(completion.failure).toBe(Status.OK);
});
