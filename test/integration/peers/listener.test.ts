/**
 * Connections by socket addresses in one process: listeners, requests, client ids, accept and reject, which endpoints are connected, and their end.
 * Behaviour of the native engine only is in listener-native.test.ts, processes of their own in listener-processes.test.ts.
 */

import { describe, expect, it } from 'vitest';
import {
  type ConnectionRequest,
  type Endpoint,
  isUcxError,
  type Request,
  Status,
  type UcxError,
} from '../../../src/index.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import { connectionKind, driveUntil, ENGINES, type Side, serving, usePairs } from '../../fixtures/pair.ts';
import { connected, expectPaired, LOOPBACK, portOf, requestOf } from '../../fixtures/transports/socket-pairs.ts';

const CLIENTS = 12;

interface Sides {
  readonly one: Side;
  readonly two: Side;
}

/** Codes of failures: libucp has fewer statuses, and no causes. */
const CODES = {
  native: { absent: 'ERR_UNREACHABLE', foreign: 'ERR_SYSCALL_EADDRNOTAVAIL' },
  libucx: { absent: 'ERR_UNREACHABLE', foreign: 'ERR_IO_ERROR' },
};

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = usePairs(engine === 'libucx' ? connectionKind('libucx, tcp') : undefined);
  const isNative = engine === 'native';
  const codes = CODES[engine];

  /** Two workers; the first one will listen. */
  async function sides(env: Readonly<Record<string, string>> = {}): Promise<Sides> {
    const node = fixture.node();
    // By default libucp does not listen at a port again while it has connections.
    const own = isNative ? { UCX_TLS: 'posix,self' } : { UCX_TLS: 'tcp,self', UCX_TCP_CM_REUSEADDR: 'y' };
    const settings = { ...own, ...env };
    const [one, two] = [0, 1].map((card) => fixture.side(node, card, settings, engine));
    return { one: await one!, two: await two! };
  }

  describe('a listener', () => {
    it('reports the client, and both addresses of an accepted connection', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      expect(listener.query()).toEqual({ address: LOOPBACK, port: listener.port, backlog: 128, waiting: 0 });
      const connecting = two.worker.connect({ ...portOf(listener), sendClientId: true });
      const request = await requestOf(listener);
      expect(listener.query().waiting).toBe(1);
      expect(request.clientId).toBe(two.worker.clientId);
      expect(request.query()).toEqual({
        clientAddress: { address: LOOPBACK, port: expect.any(Number) },
        serverAddress: portOf(listener),
        clientId: two.worker.clientId,
      });
      const server = request.accept();
      expect([request.live, listener.query().waiting]).toEqual([false, 0]);
      const client = await connecting;
      expect(client.query()).toEqual({
        localAddress: request.clientAddress,
        remoteAddress: portOf(listener),
        // Old versions of libucp do not report it.
        transports: isNative ? ['posix/memory'] : expect.any(Array),
        messageTransport: isNative ? 'posix/memory' : client.query().transports[0],
      });
      expect(server.query()).toMatchObject({ localAddress: portOf(listener), remoteAddress: request.clientAddress });
      await expectPaired(client, server, 1);
      await expectPaired(server, client, 2);
      expect(one.endpoint.query()).toMatchObject({ localAddress: undefined, remoteAddress: undefined });
    });

    it('passes its requests to a callback', async () => {
      const { one, two } = await sides();
      const accepted: Endpoint[] = [];
      const listener = one.worker.listener({ onConnection: (request) => accepted.push(request.accept()) });
      const client = await serving({ one, two }, () => two.worker.connect(portOf(listener)));
      await expectPaired(client, accepted[0]!, 3);
      expect(await failureOf(() => listener.next())).toMatchObject({ code: 'ERR_INVALID_PARAM' });
    });

    it('is iterable; ending the loop leaves it open, closing it ends the loop', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const clients: Promise<Endpoint>[] = [];
      const connect = (): unknown => clients.push(two.worker.connect(portOf(listener)));
      connect();
      for await (const request of listener) {
        request.accept();
        if (clients.length === 3) break;
        connect();
      }
      expect(await Promise.all(clients)).toHaveLength(3);
      connect();
      const rest = (async () => {
        for await (const request of listener) request.accept();
        return 'ended';
      })();
      await clients[3];
      await listener.close();
      expect(await rest).toBe('ended');
      expect(await listener.next()).toBeUndefined();
      expect(await failureOf(() => two.worker.connect(portOf(listener)))).toMatchObject({ code: codes.absent });
    });

    it('closes when its signal fires', async () => {
      const { one, two } = await sides();
      const stop = new AbortController();
      const listener = one.worker.listener({ signal: stop.signal });
      const next = listener.next();
      const loop = (async () => {
        for await (const request of listener) request.reject();
        return 'ended';
      })();
      stop.abort(new Error('enough'));
      expect(await next).toBeUndefined();
      expect(await loop).toBe('ended');
      expect(await listener.next()).toBeUndefined();
      expect(listener.closed).toBe(true);
      expect(await failureOf(() => two.worker.connect(portOf(listener)))).toMatchObject({ code: codes.absent });
      expect(await failureOf(() => one.worker.listener({ signal: stop.signal }))).toMatchObject({ code: 'ABORT_ERR' });
      const other = one.worker.listener();
      expect(await failureOf(() => other.next({ signal: AbortSignal.abort() }))).toMatchObject({ code: 'ABORT_ERR' });
      const waiting = new AbortController();
      const aborted = failureOf(() => other.next({ signal: waiting.signal }));
      waiting.abort();
      expect(await aborted).toMatchObject({ code: 'ABORT_ERR' });
      expect(other.closed).toBe(false);
    });

    it('rejects unanswered requests when it closes, and when its worker closes', async () => {
      for (const closeWorker of [false, true]) {
        const { one, two } = await sides();
        const listener = one.worker.listener();
        const taken = failureOf(() => two.worker.connect(portOf(listener)));
        const request = await requestOf(listener);
        const queued = failureOf(() => two.worker.connect(portOf(listener)));
        await driveUntil({ one, two }, () => listener.query().waiting === 2);
        await (closeWorker ? one.worker.close() : listener.close());
        for (const failure of [await taken, await queued]) {
          expect(failure).toMatchObject({ code: 'ERR_REJECTED', status: Status.REJECTED });
          if (isNative) expect(failure.message).toContain('the listener has closed');
        }
        expect(request.live).toBe(false);
        expect(await failureOf(() => request.accept())).toMatchObject({ code: 'ERR_NOT_CONNECTED' });
        request.reject();
      }
    });

    it('can bind its address again at once', async () => {
      const { one, two } = await sides();
      let port = 0;
      for (let round = 0; round < 4; round++) {
        const listener = one.worker.listener({ port });
        ({ port } = listener);
        const [client, server] = await connected(two.worker, listener);
        await expectPaired(client, server, round);
        expect(await failureOf(() => two.worker.listener({ port }))).toMatchObject({
          code: 'ERR_SYSCALL_EADDRINUSE',
          status: Status.BUSY,
          message: expect.stringMatching(/address already in use/) as string,
        });
        await listener.close();
        await listener.close();
        // Endpoints are independent of the listener.
        await expectPaired(server, client, round);
      }
    });

    it('refuses bad options', async () => {
      const { one } = await sides();
      for (const options of [
        null,
        { address: 'localhost' },
        { address: '' },
        { port: -1 },
        { port: 65_536 },
        { port: '80' },
        { backlog: 0 },
        { onConnection: 5 },
        { signal: {} },
      ]) {
        const failure = await failureOf(() => one.worker.listener(options as never));
        expect(failure, JSON.stringify(options)).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      }
      expect(await failureOf(() => one.worker.listener({ address: '192.0.2.1' }))).toMatchObject({
        code: codes.foreign,
      });
      for (const clientId of [-1, 1.5, 2n ** 64n, '1']) {
        expect(await failureOf(() => one.context.worker({ clientId: clientId as never }))).toMatchObject({
          code: 'ERR_INVALID_PARAM',
        });
      }
      expect(one.context.worker({ clientId: 2n ** 64n - 1n }).clientId).toBe(2n ** 64n - 1n);
      expect(one.context.worker().clientId).not.toBe(one.context.worker().clientId);
      await one.worker.close();
      expect(await failureOf(() => one.worker.listener())).toMatchObject({ code: 'ERR_CLOSED' });
      expect(await failureOf(() => one.worker.connect({ address: LOOPBACK, port: 1 }))).toMatchObject({
        code: 'ERR_CLOSED',
      });
    });
  });

  describe('endpoints that were accepted', () => {
    it.each(['posix,self', 'tcp,self'])(
      'over %s belong to the clients that were accepted, whatever else is connected, in any order',
      async (tls) => {
        const { one, two } = await sides({ UCX_TLS: tls });
        const listener = one.worker.listener({ backlog: 64 });
        const clients: Promise<Endpoint>[] = [];
        const numbered: Endpoint[] = [];
        for (let i = 0; i < CLIENTS; i++) {
          clients.push(two.worker.connect(portOf(listener)));
          numbered.push((i % 2 === 0 ? one : two).worker.endpoint((i % 2 === 0 ? two : one).worker.address()));
        }
        const requests: ConnectionRequest[] = [];
        while (requests.length < CLIENTS) requests.push(await requestOf(listener));
        // In reverse order.
        const servers = new Map<number, Endpoint>();
        for (const request of requests.reverse()) servers.set(request.clientAddress.port, request.accept());
        for (const [i, client] of (await Promise.all(clients)).entries()) {
          const server = servers.get(client.query().localAddress!.port)!;
          await expectPaired(client, server, i);
          await expectPaired(server, client, i + 100);
        }
        // The numbering of the other connections is not affected.
        const [fromOne, fromTwo] = [numbered.filter((_, i) => i % 2 === 0), numbered.filter((_, i) => i % 2 === 1)];
        for (const [i, endpoint] of fromOne.entries()) await expectPaired(endpoint, fromTwo[i]!, i);
      },
    );

    it('of one worker that connects to itself are two ends', async () => {
      for (const tls of isNative ? ['self', 'posix,self', 'tcp', 'all'] : ['tcp', 'all']) {
        const { one } = await sides({ UCX_TLS: tls });
        const listener = one.worker.listener();
        const pairs: (readonly [Endpoint, Endpoint])[] = [];
        for (let i = 0; i < 3; i++) pairs.push(await connected(one.worker, listener));
        for (const [i, [client, server]] of pairs.entries()) {
          expect(client).not.toBe(server);
          await expectPaired(client, server, i);
          await expectPaired(server, client, i + 50);
        }
        const big = new Uint8Array(300_000).fill(7);
        const target = new Uint8Array(big.byteLength);
        await Promise.all([pairs[0]![0].tagSend(big, { tag: 5 }), one.worker.tagRecv(target, { tag: 5 })]);
        expect(target).toEqual(big);
        const [client, server] = pairs[1]!;
        await client.close();
        await driveUntil({ one, two: one }, () => server.status !== Status.OK);
        expect(server.status).toBe(Status.CONNECTION_RESET);
      }
    });

    it('can be used before the client is notified', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const connecting = two.worker.connect(portOf(listener));
      const server = (await requestOf(listener)).accept();
      const sent = server.tagSend(Uint8Array.of(9), { tag: 1 });
      const flushed = server.flush();
      const received = new Uint8Array(1);
      await Promise.all([connecting, sent, flushed, two.worker.tagRecv(received, { tag: 1 })]);
      expect(received[0]).toBe(9);
    });

    it('and closed before that close the other end', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const connecting = two.worker.connect(portOf(listener)).catch((error: UcxError) => error);
      const server = (await requestOf(listener)).accept();
      await server.close();
      const client = await serving({ one, two }, () => connecting);
      // Over libucp it may be notified of the connection and of its end at once, and is not connected then.
      if (isNative) expect(isUcxError(client)).toBe(false);
      await driveUntil({ one, two }, () => client.status !== Status.OK);
      expect(client.status).toBe(Status.CONNECTION_RESET);
    });
  });

  describe('a client', () => {
    it('that is rejected is notified', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const connecting = failureOf(() => two.worker.connect(portOf(listener)));
      const request = await requestOf(listener);
      for (const bad of [Status.OK, Status.INPROGRESS, -100, 1.5]) {
        expect(() => request.reject(bad as Status)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
      }
      expect(request.live).toBe(true);
      request.reject();
      expect([request.live, listener.query().waiting]).toEqual([false, 0]);
      const failure = await connecting;
      expect(failure).toMatchObject({ code: 'ERR_REJECTED', status: Status.REJECTED });
      expect(failure.message).toContain(`connect to ${LOOPBACK}:${listener.port}`);
    });

    it('that is rejected receives the status and the reason', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      for (const [status, reason, code] of [
        [undefined, undefined, 'ERR_REJECTED'],
        [Status.REJECTED, 'wrong token', 'ERR_REJECTED'],
        [Status.BUSY, 'later', 'ERR_BUSY'],
      ] as const) {
        const connecting = failureOf(() => two.worker.connect(portOf(listener)));
        const request = await requestOf(listener);
        request.reject(status, reason);
        const failure = await connecting;
        expect(failure).toMatchObject({ code, cause: expect.objectContaining({ code: 'ERR_TCP_CM' }) });
        if (reason !== undefined) expect(failure.message).toContain(reason);
      }
    });

    it('without a common transport fails with the reason, and so does accept', async () => {
      const node = fixture.node();
      const one = await fixture.side(node, 0, { UCX_TLS: 'posix,self' });
      const two = await fixture.side(node, 1, { UCX_TLS: 'self' });
      const listener = one.worker.listener();
      const connecting = failureOf(() => two.worker.connect(portOf(listener)));
      const request = await requestOf(listener);
      expect(await failureOf(() => request.accept())).toMatchObject({ code: 'ERR_UNREACHABLE' });
      const failure = await connecting;
      expect(failure).toMatchObject({ code: 'ERR_UNREACHABLE' });
      expect(failure.message).toContain('posix/memory');
      expect(listener.query().waiting).toBe(0);
      if (isNative) expect(nativeWorker(one.worker).connections.all.every(({ isLoopback }) => isLoopback)).toBe(true);
    });

    it('fails with the reason if there is no listener', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      await listener.close();
      for (const address of [{ address: LOOPBACK }, { host: LOOPBACK }]) {
        const failure = await failureOf(() => two.worker.connect({ ...address, port: listener.port }));
        expect(failure).toMatchObject({ code: codes.absent });
        if (isNative) expect(failure.cause).toMatchObject({ code: 'ERR_SYSCALL_ECONNREFUSED' });
      }
      const unknown = await failureOf(() => two.worker.connect({ host: 'no-such-host.invalid', port: 80 }));
      expect(unknown).toMatchObject({ code: 'ERR_UNREACHABLE' });
      expect(unknown.message).toContain('no-such-host.invalid');
    });

    it('finds a host by its name', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const connecting = two.worker.connect({ host: 'localhost', port: listener.port });
      const server = (await requestOf(listener)).accept();
      await expectPaired(await connecting, server, 1);
    });

    it('can be aborted by its signal at any time', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const aborted = { code: 'ABORT_ERR' };
      const signal = AbortSignal.abort();
      expect(await failureOf(() => two.worker.connect({ ...portOf(listener), signal }))).toMatchObject(aborted);
      expect(await failureOf(() => two.worker.connect({ host: 'localhost', port: 1, signal }))).toMatchObject(aborted);
      const during = new AbortController();
      const lookup = failureOf(() => two.worker.connect({ host: 'localhost', port: 1, signal: during.signal }));
      during.abort();
      expect(await lookup).toMatchObject(aborted);
      const early = new AbortController();
      const connecting = failureOf(() => two.worker.connect({ ...portOf(listener), signal: early.signal }));
      early.abort();
      expect(await connecting).toMatchObject(aborted);
      const late = new AbortController();
      const waiting = failureOf(() => two.worker.connect({ ...portOf(listener), signal: late.signal }));
      const request = await requestOf(listener);
      late.abort();
      expect(await waiting).toMatchObject(aborted);
      // libucp does not report disconnected clients.
      if (isNative) await driveUntil({ one, two }, () => !request.live);
      else {
        request.reject();
        // libucp still closes the endpoint of the attempt.
        await driveUntil({ one, two }, () => two.worker.requestsInUse === 0);
      }
      expect(two.worker.requestsInUse).toBe(0);
      if (isNative) expect(nativeWorker(two.worker).sockets.outstanding).toBe(0);
    });

    it('is aborted when its worker closes', async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener();
      const connecting = failureOf(() => two.worker.connect(portOf(listener)));
      const request = await requestOf(listener);
      await two.worker.close();
      expect(await connecting).toMatchObject({ code: 'ERR_CANCELED' });
      if (isNative) await driveUntil({ one, two: one }, () => !request.live);
      else request.reject();
    });

    it('refuses bad options', async () => {
      const { two } = await sides();
      for (const options of [
        {},
        { port: 80 },
        { address: LOOPBACK },
        { address: LOOPBACK, host: 'localhost', port: 80 },
        { address: 'localhost', port: 80 },
        { address: 7, port: 80 },
        { address: null, port: 80 },
        { address: [LOOPBACK], port: 80 },
        { host: 7, port: 80 },
        { address: LOOPBACK, port: 0 },
        { address: LOOPBACK, port: 65_536 },
        { host: '', port: 80 },
        { host: 'a'.repeat(300), port: 80 },
        { address: LOOPBACK, port: 80, sendClientId: 1 },
        { address: LOOPBACK, port: 80, errorHandling: 'some' },
        { address: LOOPBACK, port: 80, signal: 1 },
      ]) {
        const failure = await failureOf(() => two.worker.connect(options as never));
        expect(failure, JSON.stringify(options)).toMatchObject({ code: 'ERR_INVALID_PARAM' });
      }
      const noCallback = { address: LOOPBACK, port: 80 };
      expect(await failureOf(() => two.worker.connectNbx(noCallback as never))).toMatchObject({
        code: 'ERR_INVALID_PARAM',
      });
      expect(two.worker.requestsInUse).toBe(0);
    });
  });

  describe('connectNbx', () => {
    it('connects inside progress, and can be cancelled', async () => {
      const { one, two } = await sides();
      const requests: ConnectionRequest[] = [];
      const listener = one.worker.listener({ onConnection: (request) => requests.push(request) });
      const endpoints: Endpoint[] = [];
      const onConnected = (endpoint: Endpoint): unknown => endpoints.push(endpoint);
      const [first, second] = [0, 1].map(
        () => two.worker.connectNbx({ ...portOf(listener), onConnected }, { userData: 5 }) as Request,
      );
      expect(first).toMatchObject({ status: Status.INPROGRESS, userData: 5, protocol: 'connect' });
      await driveUntil({ one, two }, () => requests.length === 2);
      expect(second!.cancel()).toBe(true);
      expect(second!.cancel()).toBe(false);
      if (isNative) await driveUntil({ one, two }, () => requests.some(({ live }) => !live));
      for (const request of requests) if (request.live) request.accept();
      await driveUntil({ one, two }, () => first!.isCompleted);
      expect([first!.status, second!.status, endpoints.length]).toEqual([Status.OK, Status.CANCELED, 1]);
      for (const request of [first!, second!]) request.free();
    });
  });

  describe('many clients at once', () => {
    it('connect through a short backlog', { timeout: 60_000 }, async () => {
      const { one, two } = await sides();
      const listener = one.worker.listener({ backlog: 8 });
      const clients = Array.from({ length: 200 }, () => two.worker.connect(portOf(listener)));
      const servers = new Map<number, Endpoint>();
      while (servers.size < clients.length) {
        const request = await requestOf(listener);
        servers.set(request.clientAddress.port, request.accept());
      }
      const endpoints = await Promise.all(clients);
      for (const [i, client] of endpoints.entries()) {
        await expectPaired(client, servers.get(client.query().localAddress!.port)!, i & 255);
      }
      expect(listener.query().waiting).toBe(0);
    });
  });
});
