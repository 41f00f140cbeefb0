/**
 * Floods of connections from peers without the key to an encrypted interface: they occupy bounded room, are evicted by newer ones, and do not lock
 * out peers with the key. The clock stands still unless a test moves it, so no peer is accepted because of a time-out.
 */

import { expect, it } from 'vitest';
import { KEY, keyFile } from '../../../test/fixtures/transports/key-files.ts';
import { amFrame } from '../../../test/fixtures/transports/tcp-frames.ts';
import {
  helloTo,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../test/fixtures/transports/tcp-interfaces.ts';
import { LogLevel } from '../../ucs/debug/log.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { createRandom, type Random } from '../../ucs/sys/random.ts';
import { Status } from '../../ucs/type/status.ts';
import type { UctEndpoint } from '../api/iface.ts';
import { HELLO_BYTES, KeyExchange, PROOF_BYTES } from './secure/key-exchange.ts';

const ENCRYPT = { SECURITY: 'encrypt', KEY_FILE: keyFile() };
/** An unauthenticated peer can send a valid hello, because the hello does not depend on the key. */
const GUESS = { level: 'encrypt', key: Buffer.from(`${KEY} 2`) } as const;
const HEADER = Int32Array.of(1, 2);
const BYTES = Uint8Array.from({ length: 100 }, (_, i) => i);
/** For all unauthenticated peers together, and for those of one address. */
const UNAUTHENTICATED_PEERS_MAX = 1024;
const PER_ADDRESS_MAX = UNAUTHENTICATED_PEERS_MAX / 2;
const CONNECT_TIMEOUT_NS = 10e9;
/** Maximum number of log lines for a flood. */
const WARNINGS_MAX = 10;

const net = new TcpInterfaces();

/** Data of unauthenticated peers that send nothing more. */
const SILENT: readonly (() => Uint8Array)[] = [
  () => new Uint8Array(0),
  () => new KeyExchange(GUESS, 'connecting').hello.subarray(0, HELLO_BYTES - 1),
  () => new KeyExchange(GUESS, 'connecting').hello,
  () => Buffer.concat([new KeyExchange(GUESS, 'connecting').hello, new Uint8Array(PROOF_BYTES - 1)]),
];

/** Data of unauthenticated peers that is recognized as invalid. */
const GARBAGE: readonly ((side: TcpSide, random: Random) => Uint8Array)[] = [
  (_, random) => noise(random, 4 + random.below(300)),
  (side) => helloTo(side),
  (_, random) =>
    Buffer.concat([new KeyExchange(GUESS, 'connecting').hello, noise(random, PROOF_BYTES + random.below(300))]),
  // The level, the role and the version of a hello.
  ...[4, 5, 6].map((at) => () => {
    const hello = new KeyExchange(GUESS, 'connecting').hello.slice();
    hello[at]! ^= 0x55;
    return hello;
  }),
  // A public key that gives no secret.
  () => new KeyExchange(GUESS, 'connecting').hello.slice().fill(0, HELLO_BYTES - 32),
];

function noise(random: Random, byteLength: number): Uint8Array {
  return Uint8Array.from({ length: byteLength }, () => random.below(256));
}

/** A peer with the key connects, and its message arrives unchanged. */
async function expectReachable(side: TcpSide): Promise<void> {
  const friend = net.open(ENCRYPT);
  const endpoint = friend.iface.connect(side.iface.address);
  await greet(side, friend, endpoint);
}

/** Sends a message over a connection and checks that it arrives unchanged. */
async function greet(side: TcpSide, friend: TcpSide, endpoint: UctEndpoint): Promise<void> {
  const before = side.messages.length;
  await net.until([side, friend], () => endpoint.amShort(3, HEADER, 2, BYTES, 0, BYTES.byteLength) === Status.OK);
  await net.until([side, friend], () => side.messages.length > before);
  expect(side.messages.slice(before)).toEqual([{ id: 3, bytes: Uint8Array.of(1, 0, 0, 0, 2, 0, 0, 0, ...BYTES) }]);
  expect([endpoint.check(), friend.failed, side.failed]).toEqual([Status.OK, [], []]);
}

function warnings(): number {
  return net.log.records.filter(({ level }) => level <= LogLevel.WARN).length;
}

function closed(peers: readonly RawPeer[]): number {
  return peers.filter(({ isClosed }) => isClosed).length;
}

it('waiting unauthenticated peers are evicted, the oldest first, by later ones and by peers with the key', async () => {
  net.log.allow(/evicted a connection|more warnings/);
  const clock = new ManualClock(1e9);
  const side = net.open(ENCRYPT, clock);
  const peers: RawPeer[] = [];
  for (let i = 0; i < PER_ADDRESS_MAX + 200; i++) {
    const peer = await net.unauthenticatedPeer(side);
    peer.write(SILENT[i % SILENT.length]!());
    peers.push(peer);
  }
  await net.until([side], () => closed(peers) === 200);
  expect(closed(peers.slice(0, 200))).toBe(200);
  await expectReachable(side);
  expect(closed(peers)).toBe(201);
  expect(warnings()).toBeLessThanOrEqual(WARNINGS_MAX);
  // All have the same time limit, and their places are free afterwards.
  clock.advance(CONNECT_TIMEOUT_NS - 1);
  for (let round = 0; round < 20; round++) side.iface.progress();
  expect(closed(peers)).toBe(201);
  clock.advance(1);
  await net.until([side], () => closed(peers) === peers.length);
  await expectReachable(side);
  expect(side.messages).toHaveLength(2);
}, 60_000);

it('unauthenticated peers of one address have half of the places, and evict only each other', async () => {
  net.log.allow(/evicted a connection|more warnings/);
  const side = net.open(ENCRYPT, new ManualClock(1e9));
  const first = [await net.unauthenticatedPeer(side, '127.0.0.2'), await net.unauthenticatedPeer(side, '127.0.0.3')];
  const flood: RawPeer[] = [];
  for (let i = 0; i < PER_ADDRESS_MAX + 100; i++) flood.push(await net.unauthenticatedPeer(side));
  await net.until([side], () => closed(flood) === 100);
  expect([closed(first), closed(flood.slice(0, 100))]).toEqual([0, 100]);
  // A second address that fills the other half: the places are used up, and the oldest of all is evicted.
  const second: RawPeer[] = [];
  for (let i = 0; i < PER_ADDRESS_MAX; i++) second.push(await net.unauthenticatedPeer(side, '127.0.0.4'));
  await net.until([side], () => closed(first) === 2);
  expect([closed(flood), closed(second)]).toEqual([100, 0]);
  await expectReachable(side);
}, 60_000);

it('unauthenticated peers without a hello are closed at once, with few log lines, and affect no other', async () => {
  net.log.allow(/closed a connection|more warnings/);
  const side = net.open(ENCRYPT, new ManualClock(1e9));
  const friend = net.open(ENCRYPT);
  const endpoint = friend.iface.connect(side.iface.address);
  await greet(side, friend, endpoint);
  const random = createRandom(20_240);
  const message = amFrame(5, Uint8Array.of(1, 2, 3));
  const peers: RawPeer[] = [];
  for (let i = 0; i < 210; i++) {
    const peer = await net.unauthenticatedPeer(side);
    peer.write(GARBAGE[i % GARBAGE.length]!(side, random), message);
    peers.push(peer);
    if (i % 70 === 0) await expectReachable(side);
  }
  await net.until([side], () => closed(peers) === peers.length);
  expect(warnings()).toBeLessThanOrEqual(WARNINGS_MAX);
  await greet(side, friend, endpoint);
  // None of the data of unauthenticated peers was delivered as a message.
  expect(side.messages).toHaveLength(5);
}, 60_000);
