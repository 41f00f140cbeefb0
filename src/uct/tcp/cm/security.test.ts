/** Listeners and clients with a shared key. */

import { once } from 'node:events';
import { createServer, connect as netConnect, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { useManagers } from '../../../../test/fixtures/transports/connection-managers.ts';
import { KEY, keyFile } from '../../../../test/fixtures/transports/key-files.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { createRandom } from '../../../ucs/sys/random.ts';
import { Status } from '../../../ucs/type/status.ts';
import { tcpComponent } from '../md.ts';
import { HELLO_BYTES, KeyExchange, PROOF_BYTES } from '../secure/key-exchange.ts';

const PATH = keyFile();
const OTHER_PATH = keyFile(`${KEY} 2`);
const AUTH = { TCP_SECURITY: 'auth', TCP_KEY_FILE: PATH };
const OTHER_KEY = { TCP_SECURITY: 'auth', TCP_KEY_FILE: OTHER_PATH };
const ENCRYPT = { ...AUTH, TCP_SECURITY: 'encrypt' };
const DATA = Uint8Array.from({ length: 10_000 }, (_, i) => i);

const fixture = useManagers(tcpComponent().openConnectionManager!);
const sockets: (Socket | Server)[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0).reverse()) {
    if ('destroy' in socket) socket.destroy();
    else await new Promise((resolve) => socket.close(resolve));
  }
});

describe('a listener with a shared key', () => {
  it.each(['auth', 'encrypt'])('and clients with it exchange messages: %s', async (level) => {
    const config = { ...AUTH, TCP_SECURITY: level };
    const { listener, requests } = fixture.listen(fixture.open(config));
    const { answers } = fixture.connect(fixture.open(config), listener.address, DATA);
    await fixture.until(() => requests.length === 1);
    expect(requests[0]!.privateData).toEqual(DATA);
    const settled: Status[] = [];
    requests[0]!.accept(DATA.subarray(1), (status) => settled.push(status));
    await fixture.until(() => answers.length === 1 && settled.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.OK });
    expect(answers[0]!.privateData).toEqual(DATA.slice(1));
    expect(settled).toEqual([Status.OK]);
  });

  it.each([
    ['another level', ENCRYPT, AUTH, Status.REJECTED, /=auth, this end encrypt/, /=encrypt, this end auth/],
    ['another key', AUTH, OTHER_KEY, Status.REJECTED, /does not have the key/, /does not have the key/],
    [
      'none at the listener',
      AUTH,
      {},
      Status.REJECTED,
      /its UCX_TCP_SECURITY is none/,
      /UCX_TCP_SECURITY is none here/,
    ],
    ['none at the client', {}, AUTH, Status.UNREACHABLE, /UCX_TCP_SECURITY is none here/, /closed the connection/],
  ])(
    'accepts no client with %s, and both ends log the reason',
    async (_name, client, server, status, clientReason, serverReason) => {
      fixture.log.allow(serverReason);
      const { listener, requests } = fixture.listen(fixture.open(server));
      const { answers } = fixture.connect(fixture.open(client), listener.address, DATA);
      await fixture.until(() => answers.length === 1);
      expect(answers[0]).toMatchObject({ status, error: { code: 'ERR_TCP_CM' } });
      expect(answers[0]!.error!.message).toMatch(clientReason);
      await fixture.until(() => fixture.log.records.some(({ message }) => serverReason.test(message)));
      expect(requests).toEqual([]);
    },
  );

  it('disconnects clients with another protocol', async () => {
    fixture.log.allow(/does not authenticate itself/);
    const { listener, requests } = fixture.listen(fixture.open(AUTH));
    const socket = netConnect(listener.address.port, '127.0.0.1');
    sockets.push(socket);
    let isEnded = false;
    socket.on('close', () => {
      isEnded = true;
    });
    socket.on('error', () => undefined);
    socket.resume();
    socket.write('GET / HTTP/1.1\r\n\r\n');
    await fixture.until(() => isEnded);
    expect(requests).toEqual([]);
  });

  it('that is silent, or has closed, fails the attempt', async () => {
    const server = createServer((socket) => {
      sockets.push(socket);
      socket.end();
    });
    sockets.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { answers } = fixture.connect(fixture.open(AUTH), { address: '127.0.0.1', port });
    await fixture.until(() => answers.length === 1);
    expect(answers[0]).toMatchObject({ status: Status.REJECTED });
    expect(answers[0]!.error!.message).toMatch(/closed the connection instead of authenticating itself/);
  });
});

describe('a flood of unauthenticated peers to an encrypted listener', () => {
  /** An unauthenticated peer can send a valid hello, because the hello does not depend on the key. */
  const hello = (): Uint8Array => new KeyExchange({ level: 'encrypt', key: Buffer.from('guess') }, 'connecting').hello;

  /** Connects as a peer without the key and sends these bytes. */
  async function unauthenticatedPeer(port: number, bytes: Uint8Array): Promise<{ isEnded: boolean }> {
    const socket = netConnect(port, '127.0.0.1');
    sockets.push(socket);
    const state = { isEnded: false };
    socket.on('close', () => {
      state.isEnded = true;
    });
    socket.on('error', () => undefined);
    socket.resume();
    await once(socket, 'connect');
    socket.write(bytes);
    return state;
  }

  /** Checks that the request of a client with the key arrives. */
  async function expectServes(port: number, requests: readonly { readonly privateData: Uint8Array }[]): Promise<void> {
    const before = requests.length;
    const { attempt } = fixture.connect(fixture.open(ENCRYPT), { address: '127.0.0.1', port }, DATA);
    await fixture.until(() => requests.length > before);
    expect(requests.at(-1)!.privateData).toEqual(DATA);
    attempt.cancel();
  }

  it('that wait in the key exchange: clients with the key evict them, the oldest first', async () => {
    fixture.log.allow(/evicted: it sent no request|more warnings/);
    const PLACES = 64;
    // The clock stands still: no connection times out.
    const manager = fixture.open({ ...ENCRYPT, TCP_CM_MAX_CLIENTS: String(2 * PLACES) }, new ManualClock());
    const { listener, requests } = fixture.listen(manager);
    const { port } = listener.address;
    const silent = [
      () => new Uint8Array(0),
      () => hello().subarray(0, HELLO_BYTES - 1),
      hello,
      () => Buffer.concat([hello(), new Uint8Array(PROOF_BYTES - 1)]),
    ];
    const unauthenticatedPeers: { isEnded: boolean }[] = [];
    for (let i = 0; i < PLACES + 36; i++) {
      unauthenticatedPeers.push(await unauthenticatedPeer(port, silent[i % silent.length]!()));
      manager.progress();
    }
    const ended = (): number => unauthenticatedPeers.filter(({ isEnded }) => isEnded).length;
    await fixture.until(() => ended() === 36);
    expect(unauthenticatedPeers.slice(0, 36).every(({ isEnded }) => isEnded)).toBe(true);
    await expectServes(port, requests);
    expect(ended()).toBe(37);
  });

  it('with another protocol is disconnected at once, and locks out no other', async () => {
    fixture.log.allow(/does not|reflected or invalid|more warnings/);
    const manager = fixture.open(ENCRYPT, new ManualClock());
    const { listener, requests } = fixture.listen(manager);
    const { port } = listener.address;
    const random = createRandom(20_240);
    const noise = (byteLength: number): Uint8Array => Uint8Array.from({ length: byteLength }, () => random.below(256));
    const unauthenticatedPeers: { isEnded: boolean }[] = [];
    for (let i = 0; i < 60; i++) {
      const proof = noise(PROOF_BYTES + random.below(200));
      const bytes = i % 2 === 0 ? noise(8 + random.below(200)) : Buffer.concat([hello(), proof]);
      unauthenticatedPeers.push(await unauthenticatedPeer(port, bytes));
      if (i % 20 === 10) await expectServes(port, requests);
    }
    await fixture.until(() => unauthenticatedPeers.every(({ isEnded }) => isEnded));
    await expectServes(port, requests);
    expect(requests).toHaveLength(4);
  });
});
