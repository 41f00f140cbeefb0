/** The out-of-band channel of perftest: messages, barriers, and peers that end or speak something else. */

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { boundAddress } from '../base/bound-address.ts';
import { acceptChannel, type Channel, connectChannel, type Place, placeOf } from './channel.ts';

let folder = '';
let place: Place = { path: '' };
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-channel-'));
  place = { path: join(folder, 'socket') };
});
afterEach(() => rmSync(folder, { recursive: true }));

async function pair(): Promise<[Channel, Channel]> {
  let listening: () => void = () => undefined;
  const ready = new Promise<void>((resolve) => {
    listening = resolve;
  });
  const accepted = acceptChannel(place, new AbortController().signal, listening);
  await ready;
  const client = await connectChannel(place);
  return [await accepted, client];
}

/** A channel whose peer sends arbitrary lines. */
async function rawPair(): Promise<[Channel, Socket]> {
  let socket: Socket | undefined;
  const server = await acceptChannel(place, new AbortController().signal, () => {
    socket = connect(place as { path: string });
    // The server closes a connection after a malformed line.
    socket.on('error', () => undefined);
  });
  return [server, socket!];
}

describe('Channel', () => {
  it('brings messages in order, and meets at barriers', async () => {
    const [server, client] = await pair();
    client.send({ type: 'a', value: 1 });
    client.send({ type: 'b' });
    expect(await server.receive('a')).toEqual({ type: 'a', value: 1 });
    expect(await server.receive('a', 'b')).toEqual({ type: 'b' });
    await Promise.all([server.barrier(), client.barrier()]);
    expect(server.hasMessage).toBe(false);
    await Promise.all([server.close(), client.close()]);
  });

  it('fails with the reason of the peer', async () => {
    const [server, client] = await pair();
    client.sendError(new TypeError('no card'));
    await expect(server.receive('side')).rejects.toMatchObject({
      code: 'ERR_PERFTEST_PEER',
      message: expect.stringContaining('no card'),
    });
    expect(() => server.check()).toThrow(/no card/);
    await Promise.all([server.close(), client.close()]);
  });

  it('notices that the peer is gone, also while it waits', async () => {
    const [server, client] = await pair();
    const waiting = expect(server.receive('side')).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    await client.close();
    await waiting;
    await expect(server.barrier()).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    await server.close();
  });

  it('refuses a message out of order', async () => {
    const [server, client] = await pair();
    client.send({ type: 'end' });
    await expect(server.receive('side')).rejects.toMatchObject({ code: 'ERR_INVALID_PARAM' });
    await Promise.all([server.close(), client.close()]);
  });

  it.each([
    ['an object without a type', '{"a":1}\n'],
    ['invalid JSON', '{type}\n'],
    ['a line without an end', `{${'x'.repeat(2 ** 20 + 1)}`],
  ])('refuses %s', async (_what, text) => {
    const [server, socket] = await rawPair();
    socket.write(text);
    await expect(server.receive('hello')).rejects.toMatchObject({
      code: 'ERR_INVALID_PARAM',
      message: expect.stringContaining('line of the peer'),
    });
    await server.close();
    socket.destroy();
  });

  it.each([
    ['text', 'GET / HTTP/1.1\n'],
    ['a list', '[]\n'],
    ['the record with which ucx_perftest begins', '\u0001\0\0\0'],
  ])('names the protocol of its peer: %s', async (_what, text) => {
    const [server, socket] = await rawPair();
    socket.write(text);
    await expect(server.receive('hello')).rejects.toMatchObject({
      code: 'ERR_PERFTEST_PROTOCOL',
      message: expect.stringContaining('ucx_perftest of UCX has a different protocol'),
    });
    await server.close();
    socket.destroy();
  });

  it('stops listening on request', async () => {
    const controller = new AbortController();
    const accepted = acceptChannel(place, controller.signal, () => controller.abort());
    await expect(accepted).rejects.toMatchObject({ name: 'AbortError' });
    const socket = connect(place as { path: string });
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toMatch(/ENOENT|ECONNREFUSED/);
  });
});

describe('connectChannel', () => {
  it.each(['127.0.0.1', 'localhost'])('says what is missing where no server listens: %s', async (host) => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = boundAddress(server);
    server.close();
    await once(server, 'close');
    await expect(connectChannel({ host, port })).rejects.toMatchObject({
      code: 'ERR_PERFTEST_REFUSED',
      message: expect.stringMatching(
        /^connect ECONNREFUSED 127\.0\.0\.1:\d+: start the server first: gaudi-ucx perftest/,
      ),
    });
  });
});

describe('placeOf', () => {
  it('reads ports, hosts and paths', () => {
    expect(placeOf(undefined, '13337', false)).toEqual({ port: 13337, host: '127.0.0.1' });
    expect(placeOf(undefined, '1', true)).toEqual({ port: 1, host: '::1' });
    expect(placeOf('node7', '13337', false)).toEqual({ port: 13337, host: 'node7' });
    expect(placeOf('[::1]', '13337', false)).toEqual({ port: 13337, host: '::1' });
    expect(placeOf('/run/socket', '13337', false)).toEqual({ path: '/run/socket' });
    expect(placeOf(undefined, './socket', false)).toEqual({ path: './socket' });
  });

  it.each(['', '0', '65536', 'http', '-1', '1.5'])('refuses the port %j', (port) => {
    expect(() => placeOf('localhost', port, false)).toThrow(/-p must be a port/);
  });
});
