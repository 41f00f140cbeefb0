/** The time limit of connections that are being established over tcp, of both ends. */

import { describe, expect, it } from 'vitest';
import {
  helloBytes,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { UctEndpoint } from '../../api/iface.ts';
import { Answer, PEER_HELLO_BYTES, unpackHello } from './hello.ts';

const HEADER = Int32Array.of(1, 2);
const BYTES = new Uint8Array(100).fill(7);

/** Sends a message once, after some progress. */
function outcomeOf({ iface }: TcpSide, endpoint: UctEndpoint): Status {
  for (let round = 0; round < 20; round++) iface.progress();
  return endpoint.amShort(3, HEADER, 2, BYTES, 0, 100);
}

describe('a peer', () => {
  const net = new TcpInterfaces();

  it('that never answers times out after CONNECT_TIMEOUT, on both ends', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({ CONNECT_TIMEOUT: '5s' }, clock);
    const silent = await net.listener(() => undefined);
    const unauthenticatedPeer = await net.unauthenticatedPeer(one);
    const endpoint = one.iface.connect(silent);
    expect(endpoint.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
    for (let round = 0; round < 50; round++) {
      one.iface.progress();
      await new Promise((resolve) => setImmediate(resolve));
    }
    clock.advance(4.9e9);
    expect(outcomeOf(one, endpoint)).toBe(Status.NO_RESOURCE);
    expect(unauthenticatedPeer.isClosed).toBe(false);
    clock.advance(0.2e9);
    await net.until([one], () => unauthenticatedPeer.isClosed && one.failed.length === 1);
    expect(one.failed).toEqual([{ endpoint, status: Status.ENDPOINT_TIMEOUT }]);
  });

  it.each([false, true])(
    'of a program that pauses for longer than CONNECT_TIMEOUT is connected to afterwards, sleeping %s',
    async (sleeps) => {
      const clock = new ManualClock(1e9);
      const one = net.open({}, clock);
      const peers: RawPeer[] = [];
      const endpoint = one.iface.connect(await net.listener((peer) => peers.push(peer)));
      expect(endpoint.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
      clock.advance(60e9);
      // The peer has given up meanwhile.
      await net.until([one], () => peers.length === 1);
      peers[0]!.socket.end();
      clock.advance(60e9);
      await net.until([one], () => peers.length === 2);
      const peer = peers[1]!;
      await net.until([one], () => peer.received.byteLength >= PEER_HELLO_BYTES);
      const sleep = sleeps ? one.iface.wait(1e9) : undefined;
      const { sender } = unpackHello(peer.take(PEER_HELLO_BYTES)) as { sender: Uint8Array };
      peer.write(helloBytes({ receiver: sender }));
      clock.advance(60e9);
      await sleep;
      expect(await net.sent([one], () => outcomeOf(one, endpoint))).toBe(Status.OK);
      expect(one.failed).toEqual([]);
    },
  );

  it('that never answers times out also if the program pauses again and again', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({}, clock);
    const endpoint = one.iface.connect(await net.listener(() => undefined));
    expect(endpoint.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
    let pauses = 0;
    for (; one.failed.length === 0; pauses++) {
      expect(pauses).toBeLessThan(10);
      clock.advance(60e9);
      outcomeOf(one, endpoint);
    }
    expect(pauses).toBeGreaterThan(1);
    expect(one.failed).toEqual([{ endpoint, status: Status.ENDPOINT_TIMEOUT }]);
  });

  it('that announces its connection and does not connect times out after CONNECT_TIMEOUT', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({}, clock);
    const peers: RawPeer[] = [];
    const endpoint = one.iface.connect(await net.listener((peer) => peers.push(peer)));
    expect(endpoint.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
    for (let second = 0; one.failed.length === 0; second++) {
      expect(second).toBeLessThanOrEqual(10);
      await net.until([one], () => peers.length === second + 1 || one.failed.length > 0);
      const peer = peers[second];
      if (peer === undefined) break;
      await net.until([one], () => peer.received.byteLength >= PEER_HELLO_BYTES);
      const { sender } = unpackHello(peer.take(PEER_HELLO_BYTES)) as { sender: Uint8Array };
      peer.write(helloBytes({ receiver: sender, status: Answer.DUPLICATE }));
      await net.until([one], () => peer.isClosed);
      clock.advance(1e9);
    }
    expect(one.failed).toEqual([{ endpoint, status: Status.ENDPOINT_TIMEOUT }]);
    expect(peers).toHaveLength(10);
  });
});
