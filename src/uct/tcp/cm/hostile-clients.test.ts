/** Clients and servers that violate the protocol of connection managers: they are disconnected with a reason, and no other connection is affected. */

import { once } from 'node:events';
import { createServer, connect as netConnect, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { withoutDescriptors } from '../../../../test/fixtures/processes/no-descriptors.ts';
import { type ManagerFixture, useManagers } from '../../../../test/fixtures/transports/connection-managers.ts';
import { WARNINGS_MAX } from '../../../ucs/debug/limited-log.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ConnectionManager, SocketAddress } from '../../api/connection-manager.ts';
import { CmFrameType, FRAME_HEADER_BYTES, type Frame, FrameReader, NONCE_BYTES, packFrame } from './layout.ts';
import { tcpConnectionManager } from './manager.ts';

const sockets: (Socket | Server)[] = [];
const fixture = useManagers(tcpConnectionManager);
afterEach(async () => {
  // Sockets first: a server closes with the last of them.
  for (const socket of sockets.splice(0).reverse()) {
    if ('destroy' in socket) socket.destroy();
    else await new Promise((resolve) => socket.close(resolve));
  }
});

/** A socket of a program that does not use this library, and its received bytes. */
interface Raw {
  readonly socket: Socket;
  readonly bytes: () => Buffer;
  readonly isEnded: () => boolean;
}

async function rawClient({ port }: SocketAddress): Promise<Raw> {
  const socket = netConnect(port, '127.0.0.1');
  sockets.push(socket);
  const raw = rawOf(socket);
  await once(socket, 'connect');
  return raw;
}

function rawOf(socket: Socket): Raw {
  let bytes = Buffer.alloc(0);
  let isEnded = false;
  socket.on('data', (data: Buffer) => {
    bytes = Buffer.concat([bytes, data]);
  });
  socket.on('close', () => {
    isEnded = true;
  });
  socket.on('error', () => undefined);
  return { socket, bytes: () => bytes, isEnded: () => isEnded };
}

/** A server that is not a listener of this library. */
async function rawServer(onClient: (socket: Socket) => void): Promise<SocketAddress> {
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    onClient(socket);
  });
  sockets.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server.address() as unknown as SocketAddress;
}

function counters(manager: ConnectionManager): Readonly<Record<string, number>> {
  return manager.stats().counters;
}

/** Checks that a manager still accepts clients. */
async function expectServes(to: SocketAddress, requests: ManagerFixture, seen: readonly unknown[]): Promise<void> {
  const before = seen.length;
  const honest = requests.connect(requests.open(), { address: '127.0.0.1', port: to.port });
  await requests.until(() => seen.length > before);
  honest.attempt.cancel();
}

/** A request that was sent without a hello. */
const request = packFrame(CmFrameType.REQUEST, Status.OK, new Uint8Array(NONCE_BYTES + 100));

/** The request of a client that has received the hello of the listener. */
async function requestOf(raw: Raw): Promise<Uint8Array> {
  await fixture.until(() => raw.bytes().byteLength >= FRAME_HEADER_BYTES + NONCE_BYTES);
  const nonce = raw.bytes().subarray(FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + NONCE_BYTES);
  return packFrame(CmFrameType.REQUEST, Status.OK, Buffer.concat([nonce, new Uint8Array(100)]));
}

/** The frame behind the hello of the listener. */
async function rejectionOf(raw: Raw): Promise<Frame> {
  const reader = new FrameReader();
  let at = FRAME_HEADER_BYTES + NONCE_BYTES;
  await fixture.until(() => {
    const bytes = raw.bytes().subarray(at, at + reader.missing);
    at += bytes.byteLength;
    if (bytes.byteLength > 0) reader.take(bytes);
    return reader.frame !== undefined;
  });
  return reader.frame!;
}

function changed(at: number, value: number): Uint8Array {
  const bytes = request.slice();
  bytes[at] = value;
  return bytes;
}

describe('a client', () => {
  it.each([
    [
      'that uses another protocol',
      Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'),
      /does not use this protocol/,
    ],
    ['of another version', changed(4, 9), /version 9, but this library uses 2/],
    ['with an unknown frame', changed(5, 99), /unknown type 99/],
    ['with a frame that is too long', changed(10, 1), /has 65652 bytes, more than 16400/],
    ['with an unexpected status', changed(6, 1), /has the status 1/],
    ['with a wrong checksum', changed(50, 1), /wrong checksum/],
    ['that accepts', packFrame(CmFrameType.ACCEPT, Status.OK), /sent a frame of type 2 instead of a request/],
    ['that repeats the request of another client', request, /the request of another connection/],
    [
      'that sends a request before it has received the hello',
      packFrame(CmFrameType.REQUEST, Status.OK),
      /the request of another connection/,
    ],
    ['that confirms', packFrame(CmFrameType.CONFIRM, Status.OK), /sent a frame of type 4 instead of a request/],
  ])('%s is dropped, and gets the reason', async (_, bytes, reason) => {
    fixture.log.allow(reason);
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    raw.socket.write(bytes);
    const rejection = await rejectionOf(raw);
    expect(rejection).toMatchObject({ type: CmFrameType.REJECT, status: Status.INVALID_PARAM });
    expect(Buffer.from(rejection.payload).toString()).toMatch(reason);
    raw.socket.end();
    await fixture.until(raw.isEnded);
    expect(requests).toEqual([]);
    expect(fixture.log.records.filter(({ message }) => reason.test(message))).toHaveLength(1);
    expect(counters(manager)).toMatchObject({ clients: 1, clients_dropped: 1, requests: 0 });
    await expectServes(listener.address, fixture, requests);
  });

  it('that disconnects at any byte causes no warning', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    for (const byteLength of [0, 1, FRAME_HEADER_BYTES - 1, FRAME_HEADER_BYTES, request.byteLength - 1]) {
      const raw = await rawClient(listener.address);
      raw.socket.end(request.subarray(0, byteLength));
      await fixture.until(raw.isEnded);
    }
    await fixture.until(() => manager.outstanding === 1);
    expect(requests).toEqual([]);
    expect(counters(manager)).toMatchObject({ clients: 5, clients_dropped: 5 });
    await expectServes(listener.address, fixture, requests);
  });

  it('may send its request byte by byte', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    raw.socket.setNoDelay(true);
    for (const byte of await requestOf(raw)) {
      raw.socket.write(Uint8Array.of(byte));
      await fixture.idle();
    }
    await fixture.until(() => requests.length === 1);
    expect(requests[0]!.privateData).toEqual(new Uint8Array(100));
  });

  it('that exceeds the time-out is dropped, also if it sends some bytes in between', async () => {
    fixture.log.allow(/did not send its request in time/);
    const clock = new ManualClock();
    const manager = fixture.open({}, clock);
    const { listener } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    for (let i = 0; i < 9; i++) {
      raw.socket.write(request.subarray(i, i + 1));
      await fixture.idle();
      clock.advance(1e9);
    }
    await fixture.idle();
    expect(raw.isEnded()).toBe(false);
    clock.advance(1e9);
    expect(await rejectionOf(raw)).toMatchObject({ type: CmFrameType.REJECT, status: Status.TIMED_OUT });
    clock.advance(1e9);
    await fixture.until(raw.isEnded);
    expect(counters(manager)).toMatchObject({ clients_dropped: 1 });
  });

  it('that sends more than its request is dropped together with its request', async () => {
    fixture.log.allow(/sent data after its last frame/);
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    raw.socket.write(Buffer.concat([await requestOf(raw), Uint8Array.of(1)]));
    await fixture.until(raw.isEnded);
    expect(requests).toHaveLength(1);
    expect(requests[0]!.live).toBe(false);
    const flood = await rawClient(listener.address);
    flood.socket.write(await requestOf(flood));
    await fixture.until(() => requests.length === 2);
    flood.socket.write(new Uint8Array(1 << 20));
    await fixture.until(() => !requests[1]!.live);
  });

  it.each([
    [
      'sends another message',
      packFrame(CmFrameType.REQUEST, Status.OK),
      Status.CONNECTION_RESET,
      /instead of a confirmation/,
    ],
    ['sends garbage', new Uint8Array(64), Status.CONNECTION_RESET, /does not use this protocol/],
    ['sends nothing', new Uint8Array(0), Status.TIMED_OUT, /did not confirm in time/],
  ])('that was accepted and %s fails the acceptance', async (_, bytes, status, reason) => {
    fixture.log.allow(reason);
    const clock = new ManualClock();
    const manager = fixture.open({}, clock);
    const { listener, requests } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    raw.socket.write(await requestOf(raw));
    await fixture.until(() => requests.length === 1);
    const settled: Status[] = [];
    requests[0]!.accept(new Uint8Array(5), (status) => settled.push(status));
    raw.socket.write(bytes);
    if (bytes.byteLength === 0) clock.advance(10e9);
    await fixture.until(() => settled.length === 1);
    expect(settled).toEqual([status]);
    await fixture.until(raw.isEnded);
  });

  it('whose request arrives after the listener has closed is rejected', async () => {
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    await fixture.until(() => counters(manager)['clients'] === 1);
    const asked = await requestOf(raw);
    listener.close();
    raw.socket.write(asked);
    await fixture.until(() => /the listener has closed/.test(raw.bytes().toString('latin1')));
    expect(requests).toEqual([]);
  });

  it('that stays connected after a rejection is disconnected', async () => {
    const clock = new ManualClock();
    const manager = fixture.open({}, clock);
    const { listener, requests } = fixture.listen(manager);
    const raw = await rawClient(listener.address);
    raw.socket.write(await requestOf(raw));
    await fixture.until(() => requests.length === 1);
    requests[0]!.reject(Status.REJECTED, 'no');
    await fixture.idle();
    expect(manager.outstanding).toBe(2);
    clock.advance(1e9);
    await fixture.until(() => manager.outstanding === 1);
    await fixture.until(raw.isEnded);
    expect(raw.bytes().toString('latin1')).toContain('no');
  });

  it('cannot fill the log', async () => {
    fixture.log.allow(/does not use this protocol/);
    fixture.log.allow(/5 more warnings/);
    const manager = fixture.open({}, new ManualClock());
    const { listener } = fixture.listen(manager);
    for (let i = 0; i < WARNINGS_MAX + 5; i++) {
      const raw = await rawClient(listener.address);
      raw.socket.write(new Uint8Array(64).fill(1));
      await rejectionOf(raw);
      raw.socket.end();
      await fixture.until(raw.isEnded);
    }
    expect(fixture.log.records.filter(({ message }) => /does not use this protocol/.test(message))).toHaveLength(
      WARNINGS_MAX,
    );
    manager.close();
    expect(fixture.log.records.at(-1)!.message).toMatch(/5 more warnings/);
  });
});

describe('too many clients', () => {
  it('that send nothing are evicted, the oldest first', async () => {
    fixture.log.allow(/evicted: it sent no request/);
    const manager = fixture.open({ TCP_CM_MAX_CLIENTS: '4' });
    const { listener, requests } = fixture.listen(manager);
    // Of one address, which has half of the places.
    const silent = [await rawClient(listener.address), await rawClient(listener.address)];
    await fixture.until(() => counters(manager)['clients'] === 2);
    await expectServes(listener.address, fixture, requests);
    await fixture.until(silent[0]!.isEnded);
    expect(silent[0]!.bytes().toString('latin1')).toContain('it sent no request');
    expect(silent[1]!.isEnded()).toBe(false);
    expect(counters(manager)).toMatchObject({ clients: 3, clients_sent_away: 1 });
  });

  it('that send nothing, and connect repeatedly, lock no client out', async () => {
    fixture.log.allow(/evicted: it sent no request|more warnings/);
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const silent: Raw[] = [];
    for (let i = 0; i < 1100; i++) {
      silent.push(await rawClient(listener.address));
      manager.progress();
    }
    await fixture.until(() => silent.filter(({ isEnded }) => isEnded()).length === 1100 - 512);
    await expectServes(listener.address, fixture, requests);
  });

  it('let an evicted one connect again, and keep one with a request', async () => {
    fixture.log.allow(/evicted: it sent no request/);
    const clock = new ManualClock();
    const manager = fixture.open({ TCP_CM_MAX_CLIENTS: '1' }, clock);
    const { listener, requests } = fixture.listen(manager, {}, 64);
    const client = fixture.connect(fixture.open({}, clock), listener.address);
    await fixture.until(() => requests.length === 1);
    const silent = await rawClient(listener.address);
    await fixture.until(() => counters(manager)['clients'] === 2);
    const late = await rawClient(listener.address);
    await fixture.until(silent.isEnded);
    expect([requests[0]!.live, client.answers, late.isEnded()]).toEqual([true, [], false]);
    // A listener that evicts every client but the fifth.
    let tries = 0;
    const address = await rawServer((socket) => {
      tries += 1;
      if (tries === 5) socket.end(Buffer.concat([hello(), packFrame(CmFrameType.REJECT, Status.REJECTED)]));
      else socket.end(packFrame(CmFrameType.REJECT, Status.NO_RESOURCE));
    });
    const again = fixture.connect(fixture.open(), { address: '127.0.0.1', port: address.port });
    await fixture.until(() => again.answers.length === 1);
    expect([again.answers[0]!.status, tries]).toEqual([Status.REJECTED, 5]);
  });

  it('with requests are rejected with BUSY until one is answered', async () => {
    fixture.log.allow(/because 2 connection requests are pending/);
    const manager = fixture.open({ TCP_CM_MAX_REQUESTS: '2' });
    const { listener, requests } = fixture.listen(manager);
    const client = fixture.open();
    const waiting = [0, 1].map(() => fixture.connect(client, listener.address));
    await fixture.until(() => requests.length === 2);
    const { answers } = fixture.connect(client, listener.address);
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.BUSY });
    requests[0]!.accept(new Uint8Array(0), () => undefined);
    await fixture.until(() => waiting.some(({ answers: heard }) => heard.length === 1));
    await expectServes(listener.address, fixture, requests);
    expect(counters(manager)).toMatchObject({ requests: 3, requests_busy: 1, accepted: 1 });
  });

  it('for the descriptors of the process are disconnected, without spinning', async () => {
    fixture.log.allow(/listener .* disconnected a new client: too many open files/);
    const manager = fixture.open();
    const { listener, requests } = fixture.listen(manager);
    const clients = [await rawClient(listener.address), await rawClient(listener.address)];
    await withoutDescriptors(() => fixture.until(() => clients.every(({ isEnded }) => isEnded())));
    expect(counters(manager)).toMatchObject({ clients: 0, clients_sent_away: 2 });
    expect(fixture.log.records.filter(({ message }) => /disconnected a new client/.test(message))).toHaveLength(2);
    await expectServes(listener.address, fixture, requests);
  });
});

describe('a server', () => {
  it.each([
    ['garbage', Buffer.from('SSH-2.0-OpenSSH_9.6\r\n'), /does not use this protocol/],
    ['a request', request, /unexpected frame of type 1/],
    ['an acceptance before the request', packFrame(CmFrameType.ACCEPT, Status.OK), /unexpected frame of type 2/],
    ['a second hello', Buffer.concat([hello(), hello()]), /unexpected frame of type 5/],
    ['nothing, and disconnects', new Uint8Array(0), /closed the connection|ECONNRESET|connection reset/],
  ])('that sends %s is rejected', async (_, bytes, reason) => {
    const address = await rawServer((socket) => socket.end(bytes));
    const { answers } = fixture.connect(fixture.open(), { address: '127.0.0.1', port: address.port });
    await fixture.until(() => answers.length === 1);
    const isSilent = bytes.byteLength === 0;
    expect(answers[0]!.status).toBe(isSilent ? Status.CONNECTION_RESET : Status.UNREACHABLE);
    expect(answers[0]!.error).toMatchObject({ code: 'ERR_TCP_CM', message: expect.stringMatching(reason) });
  });

  it('that sends nothing causes TIMED_OUT after some tries', async () => {
    let tries = 0;
    const address = await rawServer(() => (tries += 1));
    const clock = new ManualClock();
    const { answers } = fixture.connect(fixture.open({}, clock), { address: '127.0.0.1', port: address.port });
    for (let second = 0; second < 10; second++) {
      expect(answers).toEqual([]);
      await fixture.idle();
      clock.advance(1e9);
    }
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.TIMED_OUT, error: { code: 'ERR_TCP_CM' } });
    expect(tries).toBeGreaterThan(1);
  });

  it('that disconnects after its hello has reset the connection', async () => {
    const address = await rawServer((socket) => {
      socket.write(hello());
      socket.once('data', () => socket.destroy());
    });
    const { answers } = fixture.connect(fixture.open(), { address: '127.0.0.1', port: address.port });
    await fixture.until(() => answers.length === 1);
    expect(answers[0]!.status).toBe(Status.CONNECTION_RESET);
  });

  it('whose reason has control characters is reported as printable text', async () => {
    const reason = Buffer.from('no\u001b[31m\nreally\u0000');
    const address = await rawServer((socket) => {
      socket.end(Buffer.concat([hello(), packFrame(CmFrameType.REJECT, Status.REJECTED, reason)]));
    });
    const { answers } = fixture.connect(fixture.open(), { address: '127.0.0.1', port: address.port });
    await fixture.until(() => answers.length === 1);
    expect(answers[0]!.error!.message).toBe('no?[31m?really?');
  });
});

function hello(): Uint8Array {
  return packFrame(CmFrameType.HELLO, Status.OK, new Uint8Array(NONCE_BYTES));
}
