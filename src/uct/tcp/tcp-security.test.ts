/** Interfaces of tcp that authenticate their peers: which peers are accepted, and the reasons that rejected ones receive. */

import { connect, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { KEY, keyFile } from '../../../test/fixtures/transports/key-files.ts';
import { amFrame } from '../../../test/fixtures/transports/tcp-frames.ts';
import {
  helloTo,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../test/fixtures/transports/tcp-interfaces.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UctEndpoint } from '../api/iface.ts';
import { unpackTcpAddress } from './address.ts';
import { PEER_HELLO_BYTES } from './connect/hello.ts';
import { HELLO_BYTES, KeyExchange, PROOF_BYTES } from './secure/key-exchange.ts';
import type { Session } from './secure/session.ts';

const PATH = keyFile();
const AUTH = { SECURITY: 'auth', KEY_FILE: PATH };
const OTHER_KEY = { SECURITY: 'auth', KEY_FILE: keyFile(`${KEY} 2`) };
const HEADER = Int32Array.of(1, 2);
const BYTES = Uint8Array.from({ length: 100 }, (_, i) => i);
const SECURITY = { level: 'auth', key: Buffer.from(KEY) } as const;
const MESSAGE = amFrame(5, Uint8Array.of(1, 2, 3));

const net = new TcpInterfaces();

function send(sides: readonly TcpSide[], endpoint: UctEndpoint): Promise<Status> {
  return net.sent(sides, () => endpoint.amShort(3, HEADER, 2, BYTES, 0, BYTES.byteLength));
}

function logged(pattern: RegExp): number {
  return net.log.records.filter(({ message }) => pattern.test(message)).length;
}

/** Returns a peer with the key that has not sent its proof yet. */
async function proving(side: TcpSide): Promise<{ peer: RawPeer; exchange: KeyExchange; proof: Uint8Array }> {
  const peer = await net.unauthenticatedPeer(side);
  const exchange = new KeyExchange(SECURITY, 'connecting');
  peer.write(exchange.hello);
  await net.until([side], () => peer.received.byteLength >= HELLO_BYTES + PROOF_BYTES);
  return { peer, exchange, proof: exchange.receiveHello(peer.take(HELLO_BYTES)) as Uint8Array };
}

const ENCRYPT = { SECURITY: 'encrypt', KEY_FILE: PATH };

/** A man in the middle: reads all bytes between two sides, and can change them. */
async function relay(
  side: TcpSide,
  change: (data: Buffer) => Buffer = (data) => data,
): Promise<{ address: Uint8Array; observed: () => Buffer }> {
  const { id, port } = unpackTcpAddress(side.iface.address)!;
  const observed: Buffer[] = [];
  const pass = (from: Socket, to: Socket): void => {
    from.on('data', (data: Buffer) => {
      observed.push(Buffer.from(data));
      to.write(change(data));
    });
    from.on('close', () => to.destroy());
    from.on('error', () => undefined);
  };
  const address = await net.listener(({ socket }) => {
    const onward = connect({ host: '127.0.0.1', port });
    pass(socket, onward);
    pass(onward, socket);
  }, id);
  return { address, observed: () => Buffer.concat(observed) };
}

describe('interfaces with a shared key', () => {
  it('connect if both have the same key, in both directions', async () => {
    const [one, two] = [net.open(AUTH), net.open(AUTH)];
    expect(await send([one, two], one.iface.connect(two.iface.address))).toBe(Status.OK);
    expect(await send([one, two], two.iface.connect(one.iface.address))).toBe(Status.OK);
    await net.until([one, two], () => one.messages.length + two.messages.length === 2);
  });

  it('connect to themselves, and to each other at the same time', async () => {
    const [one, two] = [net.open(AUTH), net.open(AUTH)];
    expect(await send([one], one.iface.connect(one.iface.address))).toBe(Status.OK);
    const [there, back] = [one.iface.connect(two.iface.address), two.iface.connect(one.iface.address)];
    there.amShort(3, HEADER, 2, BYTES, 0, BYTES.byteLength);
    expect(await send([one, two], back)).toBe(Status.OK);
    expect(await send([one, two], there)).toBe(Status.OK);
    expect([one.failed, two.failed]).toEqual([[], []]);
  });

  it.each([
    ['another level', AUTH, ENCRYPT, /has UCX_TCP_SECURITY=encrypt, this end auth/, /=auth, this end encrypt/],
    ['another key', AUTH, OTHER_KEY, /does not have the key/, /does not have the key/],
    ['no security at the listening end', AUTH, {}, /UCX_TCP_SECURITY may be none/, /UCX_TCP_SECURITY is none here/],
    ['no security at the connecting end', {}, AUTH, /UCX_TCP_SECURITY is none here/, /its UCX_TCP_SECURITY is none/],
  ])('do not connect with %s, and both ends report the reason', async (_name, own, others, ownReason, otherReason) => {
    net.log.allow(otherReason);
    const [one, two] = [net.open(own), net.open(others)];
    const endpoint = one.iface.connect(two.iface.address);
    expect(await send([one, two], endpoint)).toBe(Status.UNREACHABLE);
    expect(one.iface.errorOf(Status.UNREACHABLE)?.message).toMatch(ownReason);
    await net.until([one, two], () => logged(otherReason) > 0);
    await net.until([one, two], () => one.failed.length === 1);
    expect(two.messages).toEqual([]);
  });

  it('are identified by their proof, not by their id', async () => {
    const side = net.open(AUTH);
    const { peer, exchange, proof } = await proving(side);
    const session = exchange.verify(peer.take(PROOF_BYTES)) as Session;
    // One byte at a time.
    for (const byte of [...proof, ...session.sealHello(helloTo(side))]) {
      peer.write(Uint8Array.of(byte));
      await net.until([side], () => peer.socket.writableLength === 0);
    }
    const answerBytes = PEER_HELLO_BYTES + session.overheadBytes;
    await net.until([side], () => peer.received.byteLength >= answerBytes);
    expect(session.openHello(peer.take(answerBytes))).toBeDefined();
    peer.write(MESSAGE);
    await net.until([side], () => side.messages.length === 1);
    expect(side.messages).toEqual([{ id: 5, bytes: Uint8Array.of(1, 2, 3) }]);
  });

  it.each([
    ['a wrong proof', /does not have the key/, (proof: Uint8Array) => proof.map((byte) => byte ^ 1)],
    ['no proof', /does not have the key/, () => new Uint8Array(PROOF_BYTES)],
    ['the hello of another peer', /its hello is a copy of the hello of this end/, (proof: Uint8Array) => proof],
  ])('close the connection of a peer with %s', async (_name, reason, change) => {
    net.log.allow(reason);
    const side = net.open(AUTH);
    const { peer, proof } = await proving(side);
    // A peer without the keys sends this after its proof.
    peer.write(change(proof), helloTo(side), new Uint8Array(32), MESSAGE);
    await net.until([side], () => peer.isClosed);
    expect(logged(reason)).toBe(1);
    expect(side.messages).toEqual([]);
  });

  it('close the connection of a peer that reflects their data, or disconnects at any byte', async () => {
    net.log.allow(/it has sent a reflected or invalid hello/);
    const side = net.open(AUTH);
    const mirror = await net.unauthenticatedPeer(side);
    await net.until([side], () => mirror.received.byteLength >= HELLO_BYTES);
    mirror.write(mirror.take(HELLO_BYTES));
    await net.until([side], () => mirror.isClosed);
    expect(mirror.received).toHaveLength(0);
    for (const byteLength of [0, 1, HELLO_BYTES - 1, HELLO_BYTES, HELLO_BYTES + 1, HELLO_BYTES + PROOF_BYTES - 1]) {
      const exchange = new KeyExchange(SECURITY, 'connecting');
      const peer = await net.unauthenticatedPeer(side);
      const all = Buffer.concat([exchange.hello, new Uint8Array(PROOF_BYTES)]);
      peer.socket.end(all.subarray(0, byteLength));
      await net.until([side], () => peer.isClosed);
    }
    expect(logged(/closed the connection/)).toBe(6);
  });

  it('limit the time of authentication and hello to CONNECT_TIMEOUT', async () => {
    const clock = new ManualClock(1e9);
    const side = net.open({ ...AUTH, CONNECT_TIMEOUT: '5s' }, clock);
    const { peer } = await proving(side);
    clock.advance(4.9e9);
    for (let round = 0; round < 20; round++) side.iface.progress();
    expect(peer.isClosed).toBe(false);
    clock.advance(0.2e9);
    await net.until([side], () => peer.isClosed);
  });
});

describe('the data on the network', () => {
  it.each([
    ['is readable with auth', AUTH, true],
    ['is unreadable with encrypt, including the id of an address', ENCRYPT, false],
  ])('%s', async (_name, config, isHeard) => {
    const [one, two] = [net.open(config), net.open(config)];
    const { address, observed } = await relay(two);
    const endpoint = one.iface.connect(address);
    for (let i = 0; i < 3; i++) expect(await send([one, two], endpoint)).toBe(Status.OK);
    await net.until([one, two], () => two.messages.length === 3);
    for (const { bytes } of two.messages) expect(bytes.subarray(8)).toEqual(BYTES);
    expect(observed().includes(Buffer.from(BYTES))).toBe(isHeard);
    expect(observed().includes(Buffer.from(unpackTcpAddress(two.iface.address)!.id))).toBe(isHeard);
  });

  it.each([
    ['changed', 1, (data: Buffer) => data.fill(data.at(-1)! ^ 1, data.byteLength - 1)],
    ['repeated', 2, (data: Buffer) => Buffer.concat([data, data])],
  ])('and %s ends an encrypted connection, with a reason', async (_name, arrived, change) => {
    net.log.allow(/record that was changed, repeated, reordered or omitted/);
    const [one, two] = [net.open(ENCRYPT), net.open(ENCRYPT)];
    let isChanging = false;
    const { address } = await relay(two, (data) => (isChanging ? change(data) : data));
    const endpoint = one.iface.connect(address);
    expect(await send([one, two], endpoint)).toBe(Status.OK);
    await net.until([one, two], () => two.messages.length === 1);
    isChanging = true;
    expect(await send([one, two], endpoint)).toBe(Status.OK);
    await net.until([one, two], () => one.failed.length === 1);
    expect(one.failed).toEqual([{ endpoint, status: Status.CONNECTION_RESET }]);
    expect(two.messages).toHaveLength(arrived);
    expect(logged(/record that was changed/)).toBe(1);
  });
});
