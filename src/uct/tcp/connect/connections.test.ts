/** Connections that are made at the same time, fail, or are never used: what the peer sees of them, how long they last, and the options of their sockets. */

import { describe, expect, it } from 'vitest';
import {
  helloBytes,
  helloTo,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { getSocketOption, SocketOption } from '../../../sys/index.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { UctEndpoint } from '../../api/iface.ts';
import { packTcpAddress, unpackTcpAddress } from '../address.ts';
import type { TcpEndpoint } from '../endpoint.ts';
import { Answer, Identity, PEER_HELLO_BYTES, unpackHello } from './hello.ts';

const HEADER = Int32Array.of(1, 2);
const BYTES = new Uint8Array(100).fill(7);

const net = new TcpInterfaces();

function send(endpoint: UctEndpoint): Status {
  return endpoint.amShort(3, HEADER, 2, BYTES, 0, BYTES.byteLength);
}

/** Moves the clock in steps so short that the program does not seem to have paused. */
function pass(clock: ManualClock, { iface }: TcpSide, ns: number): void {
  for (let restNs = ns; restNs > 0; restNs -= 0.5e9) {
    clock.advance(0.5e9);
    for (let round = 0; round < 20; round++) iface.progress();
  }
}

/** The identity of a peer whose connection is used, or not used, if both ends connect at the same time. */
function peerOf({ iface }: TcpSide, isUsed: boolean): Identity {
  const { id } = unpackTcpAddress(iface.address)!;
  for (;;) {
    const identity = new Identity();
    if (Buffer.compare(identity.id, id) < 0 === isUsed) return identity;
  }
}

/** An interface that connects to a peer and has sent its hello. */
async function connecting(
  side: TcpSide,
  identity: Identity = new Identity(),
): Promise<{ readonly endpoint: TcpEndpoint; readonly peers: readonly RawPeer[]; readonly hello: Uint8Array }> {
  const peers: RawPeer[] = [];
  const endpoint = side.iface.connect(await net.listener((peer) => peers.push(peer), identity.id)) as TcpEndpoint;
  expect(send(endpoint)).toBe(Status.NO_RESOURCE);
  await net.until([side], () => (peers[0]?.received.byteLength ?? 0) >= PEER_HELLO_BYTES);
  peers[0]!.take(PEER_HELLO_BYTES);
  return { endpoint, peers, hello: helloBytes({ receiver: unpackTcpAddress(side.iface.address)!.id }, identity) };
}

/** A connection of a peer with this identity, and the status of the reply to its hello. */
async function arriving(side: TcpSide, identity: Identity): Promise<{ peer: RawPeer; status: number }> {
  const peer = await net.unauthenticatedPeer(side);
  peer.write(helloTo(side, {}, identity));
  await net.until([side], () => peer.received.byteLength >= PEER_HELLO_BYTES);
  const { status } = unpackHello(peer.take(PEER_HELLO_BYTES)) as { status: number };
  return { peer, status };
}

describe('of two connections that are made at the same time', () => {
  it('the own one is used if the own id is the lower one', async () => {
    const side = net.open({}, new ManualClock(1e9));
    const identity = peerOf(side, false);
    const { endpoint, peers, hello } = await connecting(side, identity);
    const { peer, status } = await arriving(side, identity);
    expect(status).toBe(Answer.DUPLICATE);
    await net.until([side], () => peer.isClosed);
    peers[0]!.write(hello);
    expect(await net.sent([side], () => send(endpoint))).toBe(Status.OK);
  });

  it('that of the peer is used if its id is the lower one', async () => {
    const side = net.open({}, new ManualClock(1e9));
    const identity = peerOf(side, true);
    const { endpoint, peers } = await connecting(side, identity);
    const { peer, status } = await arriving(side, identity);
    expect(status).toBe(Answer.WELCOME);
    await net.until([side], () => peers[0]!.isClosed);
    expect(await net.sent([side], () => send(endpoint))).toBe(Status.OK);
    await net.until([side], () => peer.received.includes(Buffer.from(BYTES)));
    expect([peers.length, side.failed]).toEqual([1, []]);
  });
});

describe('a connection that the peer announces and does not make', () => {
  it('is not waited for after its time limit', async () => {
    const clock = new ManualClock(1e9);
    const side = net.open({ CONNECT_TIMEOUT: '5s' }, clock);
    const identity = new Identity();
    const peers: RawPeer[] = [];
    const endpoint = side.iface.connect(await net.listener((peer) => peers.push(peer), identity.id));
    const { id: receiver } = unpackTcpAddress(side.iface.address)!;
    expect(send(endpoint)).toBe(Status.NO_RESOURCE);
    while (side.failed.length === 0) {
      for (const peer of peers.splice(0)) peer.write(helloBytes({ receiver, status: Answer.DUPLICATE }, identity));
      for (let turn = 0; turn < 20; turn++) {
        side.iface.progress();
        await new Promise(setImmediate);
      }
      clock.advance(0.25e9);
    }
    expect(side.failed).toEqual([{ endpoint, status: Status.ENDPOINT_TIMEOUT }]);
    const sleep = side.iface.wait(60e9);
    expect(clock.nextDeadlineNs).toBe(clock.nowNs() + 60e9);
    side.iface.close();
    await sleep;
  });

  it('is not waited for without an endpoint that would use it', async () => {
    const side = net.open({}, new ManualClock(1e9));
    const identity = new Identity();
    const { endpoint, peers } = await connecting(side, identity);
    endpoint.close();
    expect(endpoint.link.state).toBe('waiting');
    const { id: receiver } = unpackTcpAddress(side.iface.address)!;
    peers[0]!.write(helloBytes({ receiver, status: Answer.DUPLICATE }, identity));
    await net.until([side], () => peers[0]!.isClosed);
    expect(endpoint.link.state).toBe('down');
  });
});

describe('an attempt', () => {
  it('that fails at once leaves no socket', async () => {
    const side = net.open();
    const address = [{ address: '127.255.255.255', family: 4, prefixBits: 8 }] as const;
    // No connection to a broadcast address is possible.
    const endpoint = side.iface.connect(packTcpAddress(new Identity().id, 9, true, address));
    expect([Status.OK, Status.NO_RESOURCE]).not.toContain(send(endpoint));
    await net.until([side], () => side.failed.length === 1);
  });

  it('ends exactly at its time limit', async () => {
    const clock = new ManualClock(1e9);
    const side = net.open({ CONNECT_TIMEOUT: '5s' }, clock);
    const { endpoint } = await connecting(side);
    pass(clock, side, 4.5e9);
    expect(side.failed).toEqual([]);
    pass(clock, side, 0.5e9);
    expect(side.failed).toEqual([{ endpoint, status: Status.ENDPOINT_TIMEOUT }]);
  });

  it('has one time limit for all connections to a peer that closes them', async () => {
    const clock = new ManualClock(1e9);
    const side = net.open({ CONNECT_TIMEOUT: '5s' }, clock);
    const { endpoint, peers } = await connecting(side);
    pass(clock, side, 3e9);
    peers[0]!.socket.end();
    await net.until([side], () => peers.length === 2);
    pass(clock, side, 1.5e9);
    expect(side.failed).toEqual([]);
    pass(clock, side, 0.5e9);
    expect(side.failed).toEqual([{ endpoint, status: Status.ENDPOINT_TIMEOUT }]);
  });

  it('makes at most eight connections to a peer that resets them, which is unreachable then', async () => {
    const side = net.open({}, new ManualClock(1e9));
    let connections = 0;
    const address = await net.listener(({ socket }) => {
      connections += 1;
      socket.once('data', () => socket.resetAndDestroy());
    });
    const endpoint = side.iface.connect(address);
    expect(await net.sent([side], () => send(endpoint))).toBe(Status.UNREACHABLE);
    expect(connections).toBe(8);
    await net.until([side], () => side.failed.length === 1);
  });
});

describe('a peer that connects', () => {
  it('does not count as waiting for its hello after it was disconnected', async () => {
    net.log.allow(/does not use this protocol|more warnings/);
    const side = net.open({}, new ManualClock(1e9));
    const silent = await net.unauthenticatedPeer(side);
    // More than may wait from one address.
    for (let batch = 0; batch < 8; batch++) {
      const peers = await Promise.all(Array.from({ length: 65 }, () => net.unauthenticatedPeer(side)));
      for (const peer of peers) peer.write(Buffer.from('GET'));
      await net.until([side], () => peers.every(({ isClosed }) => isClosed));
    }
    expect(silent.isClosed).toBe(false);
  });
});

describe('the socket of a connection', () => {
  /** The socket of an endpoint that is connected. */
  async function connected(config: Readonly<Record<string, string>>): Promise<number> {
    const [one, two] = [net.open(config), net.open()];
    const endpoint = one.iface.connect(two.iface.address) as TcpEndpoint;
    expect(await net.sent([one, two], () => send(endpoint))).toBe(Status.OK);
    return endpoint.link.fd;
  }

  it('has the configured times of keepalive', async () => {
    const fd = await connected({ KEEPIDLE: '11s', KEEPINTVL: '12s', KEEPCNT: '13' });
    const options = [
      [1, 9],
      [6, 4],
      [6, 5],
      [6, 6],
    ] as const;
    expect(options.map((option) => getSocketOption(fd, option))).toEqual([1, 11, 12, 13]);
  });

  it.each([
    ['the configured size', { SNDBUF: '64k' }, 65_536],
    ['a size that stays in the caches, within one host', {}, 262_144],
  ])('has a send buffer of %s', async (_name, config, bytes) => {
    // The kernel doubles it, for its own data.
    expect(getSocketOption(await connected(config), SocketOption.SNDBUF)).toBe(2 * bytes);
  });
});
