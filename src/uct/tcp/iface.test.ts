/** Connections of tcp interfaces: connecting, rejections, and reports to all ends. */

import { describe, expect, it } from 'vitest';
import { CountingCompletion } from '../../../test/contract/uct/uct-fixture.ts';
import { amFrame, putFrame, signalFrame } from '../../../test/fixtures/transports/tcp-frames.ts';
import {
  helloBytes,
  helloTo,
  keyed,
  keyOf,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../test/fixtures/transports/tcp-interfaces.ts';
import { tcpUnreadBytes } from '../../sys/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UctEndpoint } from '../api/iface.ts';
import { packTcpAddress, type TcpAddress, unpackTcpAddress } from './address.ts';
import { Answer, type Hello, Identity, PEER_HELLO_BYTES, unpackHello } from './connect/hello.ts';
import type { TcpEndpoint } from './endpoint.ts';
import { FrameType } from './layout.ts';

const HEADER = Int32Array.of(1, 2);
const BYTES = Uint8Array.from({ length: 100 }, (_, i) => i);

/** Sends a message as soon as there is a connection. */
function send(net: TcpInterfaces, sides: readonly TcpSide[], endpoint: UctEndpoint): Promise<Status> {
  return net.sent(sides, () => endpoint.amShort(3, HEADER, 2, BYTES, 0, BYTES.byteLength));
}

/** Returns two sides, with an endpoint of the first to the second that has sent a message. */
async function connected(net: TcpInterfaces): Promise<{ one: TcpSide; two: TcpSide; endpoint: UctEndpoint }> {
  const [one, two] = [net.open(), net.open()];
  const endpoint = one.iface.connect(two.iface.address);
  expect(await send(net, [one, two], endpoint)).toBe(Status.OK);
  await net.until([one, two], () => two.messages.length === 1);
  return { one, two, endpoint };
}

describe('a range of ports', () => {
  const net = new TcpInterfaces();

  it('that is used up is named', () => {
    const { port } = unpackTcpAddress(net.open().iface.address)!;
    const { iface } = net.open({ PORT_RANGE: `${port}-${port}` });
    expect(() => iface.address).toThrow(new RegExp(`every port of UCX_TCP_PORT_RANGE=${port}-${port} is in use`));
  });
});

describe('a connection that ends', () => {
  const net = new TcpInterfaces();

  it('is reported once for each endpoint on it, within progress', async () => {
    const { one, two, endpoint } = await connected(net);
    const second = one.iface.connect(two.iface.address);
    const closed = one.iface.connect(two.iface.address);
    const third = net.open();
    const other = one.iface.connect(third.iface.address);
    await send(net, [one, third], other);
    two.iface.close();
    expect(one.failed).toEqual([]);
    closed.close();
    await net.until([one, third], () => one.failed.length === 2);
    expect(one.failed.map(({ endpoint: failed }) => failed)).toEqual([endpoint, second]);
    expect(new Set(one.failed.map(({ status }) => status))).toEqual(new Set([Status.CONNECTION_RESET]));
    expect(endpoint.check()).toBe(Status.CONNECTION_RESET);
    for (let round = 0; round < 100; round++) one.iface.progress();
    expect(one.failed).toHaveLength(2);
    expect(await send(net, [one, third], other)).toBe(Status.OK);
    await net.until([one, third], () => third.messages.length === 2);
  });

  it('that an operation detects ends nothing within the call of the operation', async () => {
    const { one, endpoint } = await connected(net);
    const peers: RawPeer[] = [];
    const address = await net.listener((peer) => peers.push(peer));
    const raw = one.iface.connect(address);
    expect(raw.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
    await net.until([one], () => (peers[0]?.received.byteLength ?? 0) >= PEER_HELLO_BYTES);
    const { sender } = unpackHello(peers[0]!.take(PEER_HELLO_BYTES)) as { sender: Uint8Array };
    peers[0]!.write(helloBytes({ receiver: sender }));
    expect(await send(net, [one], raw)).toBe(Status.OK);
    const { memory, key } = keyed(one, 8192);
    const completion = new CountingCompletion();
    expect(raw.putZcopy([{ memory, offset: 0, byteLength: 8192 }], 0, key, completion)).toBe(Status.INPROGRESS);
    peers[0]!.socket.resetAndDestroy();
    const zcopies: CountingCompletion[] = [];
    // Without progress: the operation itself detects the end.
    for (let status: Status = Status.INPROGRESS; status === Status.INPROGRESS; ) {
      await new Promise((resolve) => setImmediate(resolve));
      const zcopy = new CountingCompletion();
      zcopies.push(zcopy);
      status = raw.amZcopy!(4, HEADER, 2, [{ memory, offset: 0, byteLength: 4096 }], zcopy);
      if ((raw as TcpEndpoint).link.isBroken) break;
      expect(status).toBe(Status.INPROGRESS);
      expect(zcopies.length).toBeLessThan(1000);
    }
    expect([completion.calls, zcopies.at(-1)!.calls, one.failed.length]).toEqual([0, 0, 0]);
    await net.until([one], () => one.failed.length === 1);
    expect(one.failed).toEqual([{ endpoint: raw, status: Status.CONNECTION_RESET }]);
    expect([completion.calls, completion.failure]).toEqual([1, Status.CONNECTION_RESET]);
    expect(zcopies.at(-1)).toMatchObject({ calls: 1, failure: Status.CONNECTION_RESET });
    expect(one.iface.outstanding).toBe(0);
    expect(endpoint.check()).toBe(Status.OK);
  });

  it('ends and counts every operation once, also those that completions start', async () => {
    const { one, two, endpoint } = await connected(net);
    const { memory, key } = keyed(two, 4096);
    const local = keyed(one, 4096).memory;
    // The peer has sent its close message: closing the last endpoint here closes the connection.
    two.iface.connect(one.iface.address).close();
    await net.until([one, two], () => (endpoint as TcpEndpoint).link.departure === 'peer');
    const iov = [{ memory: local, offset: 0, byteLength: 4096 }];
    const ended: Status[] = [];
    const start = (): Status => {
      const completion = { count: 1, failure: Status.OK as Status, onComplete: () => again(completion.failure) };
      return endpoint.getZcopy(iov, 0, key, completion);
    };
    const again = (status: Status): void => {
      ended.push(status);
      if (status !== Status.OK) expect(start()).toBe(Status.CANCELED);
      // The last user of the connection closes while other operations are in flight.
      else endpoint.close();
    };
    for (let i = 0; i < 5; i++) expect(start()).toBe(Status.INPROGRESS);
    expect(one.iface.outstanding).toBe(5);
    await net.until([one, two], () => ended.length === 5);
    expect(ended).toEqual([Status.OK, ...Array.from({ length: 4 }, () => Status.CANCELED)]);
    expect(one.iface.outstanding).toBe(0);
    expect([memory.inFlight, local.inFlight]).toEqual([0, 0]);
  });
});

describe('a peer', () => {
  const net = new TcpInterfaces();

  /** Answers all connections to a raw listener. */
  function answering(answer: (sender: Uint8Array) => Uint8Array): (peer: RawPeer) => void {
    return (peer) => {
      peer.socket.on('data', () => {
        if (peer.received.byteLength < PEER_HELLO_BYTES) return;
        const hello = unpackHello(peer.take(PEER_HELLO_BYTES));
        peer.write(answer((hello as { sender: Uint8Array }).sender));
      });
    };
  }

  it.each([
    ['is another interface', { sender: new Uint8Array(16).fill(8) }, Status.UNREACHABLE],
    ['does not prove its identity', { proof: new Uint8Array(64) }, Status.UNREACHABLE],
    ['accepts only shorter messages than are sent', { messageBytesMax: 4096 }, Status.UNSUPPORTED],
    ['rejects the connection', { status: Status.UNSUPPORTED }, Status.UNSUPPORTED],
    ['reports that it has no room', { status: Status.NO_RESOURCE }, Status.IO_ERROR],
    ['fails with an unknown status', { status: -9999 }, Status.IO_ERROR],
    ['answers with an unknown word', { status: 7 }, Status.UNREACHABLE],
  ])('that %s is not used', async (_name, changes, status) => {
    const one = net.open();
    const address = await net.listener(answering((receiver) => helloBytes({ receiver, ...changes })));
    const endpoint = one.iface.connect(address);
    expect(await send(net, [one], endpoint)).toBe(status);
    await net.until([one], () => one.failed.length > 0);
    expect(one.failed).toEqual([{ endpoint, status }]);
    expect(one.iface.errorOf(status)?.message).toMatch(/^tcp\/lo: the connection to 127\.0\.0\.1:\d+ has failed: /);
  });

  it('that claims to be another interface is rejected, also with a proof that it received from that interface', async () => {
    net.log.allow(/proof of identity is invalid/);
    const { one, two } = await connected(net);
    const { id } = unpackTcpAddress(one.iface.address) as TcpAddress;
    // The proof that the interface has sent to another peer.
    const heard: Hello[] = [];
    const address = await net.listener((peer) =>
      peer.socket.on('data', () => heard.push(unpackHello(peer.received) as Hello)),
    );
    const endpoint = one.iface.connect(address);
    expect(endpoint.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
    await net.until([one], () => heard.length === 1);
    const { publicKey, proof } = heard[0]!;
    for (const claim of [{}, { publicKey }, { publicKey, proof }]) {
      const unauthenticatedPeer = await net.unauthenticatedPeer(two);
      unauthenticatedPeer.write(helloTo(two, { sender: id, ...claim }));
      await net.until([two], () => unauthenticatedPeer.received.byteLength >= PEER_HELLO_BYTES);
      const answer = unpackHello(unauthenticatedPeer.take(PEER_HELLO_BYTES));
      // A rejected peer does not receive the proof of the own identity.
      expect(answer).toMatchObject({ status: Status.REJECTED, proof: Buffer.alloc(64) });
      await net.until([two], () => unauthenticatedPeer.isClosed);
    }
  });

  it('that closes the connection without sending anything, because of too many, is connected to again', async () => {
    const one = net.open();
    let connections = 0;
    const answer = answering((receiver) => helloBytes({ receiver }));
    const address = await net.listener((peer) => {
      connections += 1;
      if (connections < 5) peer.socket.end();
      else answer(peer);
    });
    expect(await send(net, [one], one.iface.connect(address))).toBe(Status.OK);
    expect(connections).toBe(5);
  });

  it('that connects to a port without a listener fails', async () => {
    const [one, two] = [net.open(), net.open()];
    const { address } = two.iface;
    two.iface.close();
    expect(await send(net, [one], one.iface.connect(address))).toBe(Status.UNREACHABLE);
  });

  it('on the IPv6 loopback device is reached like others', async () => {
    const device = {
      name: 'lo',
      addresses: [{ address: '::1', family: 6, prefixBits: 128 }] as const,
      isLoopback: true,
      isBridge: false,
      bytesPerSecond: undefined,
    };
    const [one, two] = [net.openOn(device), net.openOn(device)];
    const endpoint = one.iface.connect(two.iface.address);
    expect(await send(net, [one, two], endpoint)).toBe(Status.OK);
    await net.until([one, two], () => two.messages.length === 1);
    two.iface.close();
    await net.until([one], () => one.failed.length === 1);
    expect(one.iface.errorOf(Status.CONNECTION_RESET)?.message).toMatch(/the connection to \[::1\]:\d+ has failed/);
  });

  it('that connects at the same time shares one connection, for either order of ids', async () => {
    const orders = new Set<number>();
    for (let round = 0; round < 40 || orders.size < 2; round++) {
      const [one, two] = [net.open(), net.open()];
      orders.add(Math.sign(Buffer.compare(idOf(one), idOf(two))));
      const [there, back] = [one.iface.connect(two.iface.address), two.iface.connect(one.iface.address)];
      const wants = [one, two].map(() => 5);
      await net.until([one, two], () => {
        for (const [i, endpoint] of [there, back].entries()) {
          while (wants[i]! > 0 && endpoint.amShort(3, HEADER, 2, BYTES, 0, 100) === Status.OK) wants[i]! -= 1;
        }
        return one.messages.length === 5 && two.messages.length === 5;
      });
      expect((there as TcpEndpoint).link.fd).toBeGreaterThan(0);
      expect([one.failed, two.failed]).toEqual([[], []]);
      one.iface.close();
      two.iface.close();
    }
    expect(orders.size).toBe(2);
  });

  it('that fails to connect at the same time is connected to again', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({}, clock);
    const peers: RawPeer[] = [];
    const endpoint = one.iface.connect(await net.listener((peer) => peers.push(peer)));
    const { link } = endpoint as TcpEndpoint;
    expect(endpoint.amShort(3, HEADER, 2, BYTES, 0, 100)).toBe(Status.NO_RESOURCE);
    const answer = async (status: number): Promise<void> => {
      const peer = peers.at(-1)!;
      await net.until([one], () => peer.received.byteLength >= PEER_HELLO_BYTES);
      const { sender } = unpackHello(peer.take(PEER_HELLO_BYTES)) as { sender: Uint8Array };
      peer.write(helloBytes({ receiver: sender, status }));
    };
    // Twice the peer announces that it connects, and does not.
    for (const attempts of [1, 2]) {
      await net.until([one], () => peers.length === attempts);
      await answer(Answer.DUPLICATE);
      await net.until([one], () => peers.at(-1)!.isClosed);
      expect([link.state, peers.length]).toEqual(['waiting', attempts]);
      clock.advance(1e9);
    }
    await net.until([one], () => peers.length === 3);
    await answer(Answer.WELCOME);
    expect(await send(net, [one], endpoint)).toBe(Status.OK);
    expect(one.failed).toEqual([]);
  });

  function idOf({ iface }: TcpSide): Uint8Array {
    return iface.address.subarray(28, 44);
  }

  it('that sends continuously does not delay others', async () => {
    const one = net.open();
    const flood = await net.greeted(one, new Identity());
    const quiet = await net.greeted(one, new Identity());
    const message = amFrame(7, new Uint8Array(4096));
    for (let i = 0; i < 3000; i++) flood.write(message);
    await net.until([one], () => one.messages.length > 20);
    quiet.write(amFrame(9, new Uint8Array(8)));
    await net.until([one], () => one.messages.some(({ id: message }) => message === 9));
    expect(one.messages.length).toBeLessThan(3000);
  });
});

describe('a connection whose peer does not read', () => {
  const net = new TcpInterfaces();

  it.each([
    ['8 bytes', 8, [64]],
    // Of the first of them, a part has been sent.
    ['60000 bytes', 60_000, [9, 10]],
  ])('queues a bounded number of messages of %s', async (_name, byteLength, bounds) => {
    const side = net.open();
    const identity = new Identity();
    const peer = await net.greeted(side, identity);
    peer.socket.pause();
    const endpoint = side.iface.connect(
      packTcpAddress(identity.id, 1, true, [{ address: '127.0.0.1', family: 4, prefixBits: 8 }]),
    ) as TcpEndpoint;
    const message = new Uint8Array(byteLength - HEADER.byteLength);
    const send = (): Status => endpoint.amShort(3, HEADER, 2, message, 0, message.byteLength);
    while (send() === Status.OK);
    expect(bounds).toContain(endpoint.link.transmitter.length);
    expect(send()).toBe(Status.NO_RESOURCE);
    peer.socket.resume();
    await net.until([side], () => endpoint.link.transmitter.length === 0);
    expect(send()).toBe(Status.OK);
  });
});

describe('a sleep', () => {
  const net = new TcpInterfaces();

  it('lasts after a socket that was full has room again', async () => {
    const { one, two } = await connected(net);
    // The only connection, and it has received last: the interface polls no other.
    const back = two.iface.connect(one.iface.address);
    expect(await send(net, [two, one], back)).toBe(Status.OK);
    await net.until([one, two], () => one.messages.length === 1);
    const endpoint = one.iface.connect(two.iface.address) as TcpEndpoint;
    const { memory } = keyed(one, 65_536);
    const entry = { memory, offset: 0, byteLength: 65_536 - 64 };
    const sent: CountingCompletion[] = [];
    while (!endpoint.link.wantsWrite) {
      sent.push(new CountingCompletion());
      expect(endpoint.amZcopy!(4, HEADER, 2, [entry], sent.at(-1)!)).toBe(Status.INPROGRESS);
    }
    const whileFull = one.iface.wait(1e9);
    await net.until([one, two], () => two.messages.length === 1 + sent.length);
    await whileFull;
    // Until the interface has detected it, too: only some of the calls poll all sockets.
    for (let quiet = 0; quiet < 64; quiet++) if (one.iface.progress() > 0) quiet = 0;
    expect(endpoint.link.wantsWrite).toBe(false);
    let isAwake = false;
    const sleep = one.iface.wait(60e9).then(() => {
      isAwake = true;
    });
    for (let round = 0; round < 50; round++) await new Promise((resolve) => setImmediate(resolve));
    expect(isAwake).toBe(false);
    expect(await send(net, [two, one], back)).toBe(Status.OK);
    await sleep;
  });
});

describe('keepalive', () => {
  const net = new TcpInterfaces();

  it('sends a heartbeat to every peer at once, and three in PEER_TIMEOUT', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({ PEER_TIMEOUT: '3s' }, clock);
    const peer = await net.greeted(one);
    await net.until([one], () => peer.received.byteLength >= 8);
    for (let heartbeat = 2; heartbeat <= 4; heartbeat++) {
      clock.advance(1e9);
      await net.until([one], () => peer.received.byteLength >= heartbeat * 8);
    }
    const words = new Int32Array(Uint8Array.from(peer.received).buffer);
    expect([...words]).toEqual(Array.from({ length: 4 }, () => [FrameType.HEARTBEAT, 1000]).flat());
  });

  it('detects a process that has stopped sending heartbeats', async () => {
    const one = net.open({ PEER_TIMEOUT: '60ms' });
    const peer = await net.greeted(one);
    const endpoint = one.iface.connect(await net.listener(() => undefined));
    peer.write(signalFrame(FrameType.HEARTBEAT, 20));
    const begin = performance.now();
    await net.until([one], () => endpoint.check() !== Status.OK);
    expect(performance.now() - begin).toBeGreaterThan(50);
    expect(endpoint.check()).toBe(Status.ENDPOINT_TIMEOUT);
    await net.until([one], () => one.failed.length === 1);
  });

  /** A peer with heartbeats, whose link is up, and the endpoint to it. */
  async function beating(one: TcpSide): Promise<{ readonly peer: RawPeer; readonly endpoint: TcpEndpoint }> {
    const peer = await net.greeted(one);
    const endpoint = one.iface.connect(await net.listener(() => undefined)) as TcpEndpoint;
    peer.write(signalFrame(FrameType.HEARTBEAT, 1000));
    peer.write(amFrame(1, new Uint8Array(8)));
    await net.until([one], () => one.messages.length === 1);
    expect(endpoint.check()).toBe(Status.OK);
    return { peer, endpoint };
  }

  /** Sends bytes, and waits until the interface has read them. */
  async function sendRead(one: TcpSide, peer: RawPeer, { link }: TcpEndpoint, bytes: Uint8Array): Promise<void> {
    peer.write(bytes);
    await net.until([one], () => peer.socket.writableLength === 0 && tcpUnreadBytes(link.fd) === 0);
  }

  it('detects a process that sends bytes without end, and never a complete frame', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({ PEER_TIMEOUT: '3s' }, clock);
    const { peer, endpoint } = await beating(one);
    const dribble = amFrame(1, new Uint8Array(64));
    for (let at = 0; at < 5; at++) {
      await sendRead(one, peer, endpoint, dribble.subarray(at, at + 1));
      clock.advance(1e9);
    }
    expect(endpoint.check()).toBe(Status.ENDPOINT_TIMEOUT);
  });

  it('does not fail a peer whose long body comes slowly', async () => {
    const clock = new ManualClock(1e9);
    const one = net.open({ PEER_TIMEOUT: '3s' }, clock);
    const { peer, endpoint } = await beating(one);
    const memory = one.md.memReg(new Uint8Array(2 ** 17));
    const put = putFrame([...keyOf(one.md, memory).words], 0, new Uint8Array(2 ** 17).fill(7));
    for (let at = 0; at < 10; at++) {
      await sendRead(one, peer, endpoint, put.subarray(at * 8192, (at + 1) * 8192));
      clock.advance(1e9);
      expect(endpoint.check()).toBe(Status.OK);
    }
    peer.write(put.subarray(10 * 8192));
    await net.until([one], () => memory.bytes.every((byte) => byte === 7));
    one.md.memDereg(memory);
  });

  it('does not fail peers whose heartbeats were not read yet', async () => {
    const one = net.open({ PEER_TIMEOUT: '30ms' });
    const peer = await net.greeted(one);
    const endpoint = one.iface.connect(await net.listener(() => undefined));
    peer.write(signalFrame(FrameType.HEARTBEAT, 10));
    await net.until([one], () => peer.socket.writableLength === 0 && (endpoint as TcpEndpoint).link.isUp);
    peer.write(amFrame(1, new Uint8Array(8)));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(endpoint.check()).toBe(Status.OK);
    await net.until([one], () => one.messages.length === 1);
  });
});

describe('keys', () => {
  const net = new TcpInterfaces();

  it('of released memory are rejected by the owner, and write nothing', async () => {
    const { one, two, endpoint } = await connected(net);
    const canary = keyed(two, 4096).memory;
    const memory = two.md.memReg(new Uint8Array(4096));
    const packed = new Uint8Array(two.md.attributes.rkeyPackedBytes);
    two.md.mkeyPack(memory, packed, 0);
    const key = one.md.rkeyUnpack(packed);
    two.md.memDereg(memory);
    const local = keyed(one, 4096).memory;
    local.bytes.fill(7);
    const iov = [{ memory: local, offset: 0, byteLength: 4096 }];
    const completions = [new CountingCompletion(), new CountingCompletion(), new CountingCompletion()];
    expect(endpoint.putZcopy(iov, 0, key, completions[0]!)).toBe(Status.INPROGRESS);
    expect(endpoint.getZcopy(iov, 0, key, completions[1]!)).toBe(Status.INPROGRESS);
    expect(endpoint.putShort(BYTES, 0, 100, 0, key, completions[2]!)).toBe(Status.INPROGRESS);
    await net.until([one, two], () => completions.every(({ calls }) => calls === 1));
    expect(completions.map(({ failure }) => failure)).toEqual(completions.map(() => Status.INVALID_ADDR));
    expect(canary.bytes.every((byte) => byte === 0)).toBe(true);
    expect(memory.bytes.every((byte) => byte === 0)).toBe(true);
    expect(local.bytes.every((byte) => byte === 7)).toBe(true);
    // The connection is not affected.

    const after = new CountingCompletion();
    expect(endpoint.putZcopy(iov, 0, keyOf(two.md, canary), after)).toBe(Status.INPROGRESS);
    await net.until([one, two], () => after.calls === 1);
    expect([after.failure, canary.bytes.every((byte) => byte === 7)]).toEqual([Status.OK, true]);
  });

  it('send their hello in pieces of one byte', async () => {
    const one = net.open();
    const peer = await net.unauthenticatedPeer(one);
    for (const byte of helloTo(one)) {
      peer.write(Uint8Array.of(byte));
      await net.until([one], () => peer.socket.writableLength === 0);
    }
    peer.write(amFrame(5, Uint8Array.of(1, 2, 3)));
    await net.until([one], () => one.messages.length === 1);
    expect(one.messages).toEqual([{ id: 5, bytes: Uint8Array.of(1, 2, 3) }]);
  });
});
