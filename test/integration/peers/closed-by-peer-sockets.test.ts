/**
 * How the ends of a connection by socket address tell a peer that has closed it from one that is gone: over both engines, in both directions, and with
 * another UCX program as the peer.
 */

import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type Endpoint, Status } from '../../../src/index.ts';
import { isMarked } from '../../../src/libucx/endpoint/unproven-peers.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import {
  clientServerMessage,
  compileClientServer,
  startClientServerClient,
  startClientServerServer,
} from '../../fixtures/libucp/ucx-programs.ts';
import { ENGINES, expectSame } from '../../fixtures/pair.ts';
import { Child } from '../../fixtures/processes/child.ts';
import type { SocketEndAnswer, SocketEndRequest } from '../../fixtures/programs/socket-end-program.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/programs/socket-end-program.ts');
const GONE: readonly Status[] = [Status.ENDPOINT_TIMEOUT, Status.CONNECTION_RESET];
const TLS = { native: ['tcp,self', 'posix,self'], libucx: ['tcp,self', 'all'] } as const;
const CONNECTIONS = ENGINES.flatMap((engine) =>
  TLS[engine].flatMap((tls) => (['listens', 'connects'] as const).map((role) => ({ engine, tls, role }))),
);

interface Connection {
  readonly endpoint: Endpoint;
  /** The argument of `onError`. */
  readonly told: Promise<readonly unknown[]>;
}

describe.each(CONNECTIONS)('a peer over $engine and $tls that $role', { timeout: 60_000 }, ({ engine, tls, role }) => {
  const fixture = useContexts(engine);
  const env = { UCX_TLS: tls, UCX_KEEPALIVE_INTERVAL: '100ms' };
  let peer: Child<SocketEndRequest, SocketEndAnswer>;
  const ended = new AbortController();
  afterEach(async () => {
    await peer.kill();
  });

  async function connect(): Promise<Connection> {
    const { worker } = await fixture.open({ node: { cards: 1 }, context: { env } });
    const listener = role === 'connects' ? worker.listener() : undefined;
    const args = listener === undefined ? ['listen', engine, tls] : ['connect', engine, tls, String(listener.port)];
    peer = new Child(PROGRAM, args);
    let tell: (told: readonly unknown[]) => void = () => {};
    const told = new Promise<readonly unknown[]>((resolve) => {
      tell = resolve;
    });
    const onError = (failed: Endpoint, status: Status): void => tell([status, failed.closedByPeer]);
    let endpoint: Endpoint;
    const byte = new Uint8Array(1);
    if (listener === undefined) {
      const { port } = await peer.next();
      endpoint = await worker.connect({ address: '127.0.0.1', port: port!, onError });
      await worker.tagRecv(byte, { tag: 1 });
      await endpoint.tagSend(byte, { tag: 1 });
    } else {
      const request = await listener.next();
      endpoint = request!.accept({ onError });
      await listener.close();
      await endpoint.tagSend(byte, { tag: 1 });
      await worker.tagRecv(byte, { tag: 1 });
      await endpoint.tagSend(byte, { tag: 1 });
    }
    expect(await peer.next()).toEqual({ exchanged: true });
    expect(endpoint.closedByPeer).toBe(undefined);
    void worker.serve(ended.signal).catch(() => undefined);
    return { endpoint, told };
  }

  it.each(['close', 'leave'] as const)('has closed the connection if it does so: %s', async (how) => {
    const { told } = await connect();
    await peer.ask({ do: how });
    expect(await told).toEqual([Status.CONNECTION_RESET, true]);
  });

  it('has not if it is killed', async () => {
    const { told } = await connect();
    await peer.kill();
    const [status, closedByPeer] = await told;
    expect(closedByPeer).toBe(false);
    expect(GONE).toContain(status);
  });

  it('knows that this end has closed the connection', async () => {
    const { endpoint } = await connect();
    const answer = peer.ask({ do: 'ended' });
    await endpoint.close();
    expect(await answer).toEqual({ closedByPeer: true });
  });
});

describe.each(ENGINES)('a server over the engine %s', { timeout: 60_000 }, (engine) => {
  const fixture = useContexts(engine);

  it('has closed the connection, also if it does so right after its first message', async () => {
    const env = { UCX_TLS: 'tcp,self', UCX_KEEPALIVE_INTERVAL: '100ms' };
    const { worker } = await fixture.open({ node: { cards: 1 }, context: { env } });
    const server = new Child<SocketEndRequest, SocketEndAnswer>(PROGRAM, ['hasty', engine, 'tcp,self']);
    const { port } = await server.next();
    const ended = new AbortController();
    // The attempt itself fails if the server has closed before it ends.
    const outcome = new Promise<unknown>((resolve) => {
      const onError = (endpoint: Endpoint): void => resolve(endpoint.closedByPeer);
      worker.connect({ address: '127.0.0.1', port: port!, onError }).catch(({ code }) => resolve(code));
    });
    void worker.serve(ended.signal).catch(() => undefined);
    await worker.tagRecv(new Uint8Array(1), { tag: 1 });
    expect([true, 'ERR_CONNECTION_RESET']).toContain(await outcome);
    ended.abort();
    await server.kill();
  });
});

const { skipReason } = installedLibucp();
const example = skipReason === undefined ? compileClientServer() : { reason: skipReason };

describe.skipIf(example.reason !== undefined)('another UCX program (needs libucx-dev)', { timeout: 60_000 }, () => {
  const fixture = useContexts('libucx');
  const env = { UCX_TLS: 'tcp,self', UCX_NET_DEVICES: 'lo' };

  it('as client is not recognised, and is sent no message of this engine', async () => {
    const { worker } = await fixture.open({ context: { env } });
    const listener = worker.listener();
    const client = startClientServerClient(example.path!, { mode: 'tag', port: listener.port });
    const request = await listener.next();
    expect(isMarked(request!.clientId ?? 0n)).toBe(false);
    let tell: (closedByPeer: boolean | undefined) => void = () => {};
    const told = new Promise<boolean | undefined>((resolve) => {
      tell = resolve;
    });
    const endpoint = request!.accept({ onError: ({ closedByPeer }) => tell(closedByPeer) });
    const received = new Uint8Array(16);
    await worker.tagRecv(received, { tag: 0xcafe });
    expectSame(received, clientServerMessage({}));
    client.endInput();
    expect(await told).toBe(undefined);
    await endpoint.close();
    expect(await client.ended()).toBe(0);
    expect(client.output).not.toMatch(/WARN|ERROR|no registered callback/);
  });

  it('as server is not, whatever it makes of the client id', async () => {
    const { program, port } = await startClientServerServer(example.path!, { mode: 'tag' });
    const { worker } = await fixture.open({ context: { env } });
    expect(isMarked(worker.clientId)).toBe(true);
    const endpoint = await worker.connect({ address: '127.0.0.1', port, onError: () => {} });
    await endpoint.tagSend(clientServerMessage({}), { tag: 0xcafe });
    await program.waitFor(/iteration #1\n[\s\S]*SUCCESS/);
    await endpoint.close();
    expect(endpoint.closedByPeer).toBe(undefined);
    await program.waitFor(/iteration #1\n[\s\S]*Waiting for connection/);
    expect(program.output).not.toMatch(/WARN|no registered callback/);
    await program.stop();
  });
});
