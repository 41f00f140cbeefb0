/** How an endpoint tells a peer that has closed it from one that is gone: peers in processes of their own that close, or are killed, over both engines. */

import { inspect } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { type Endpoint, Status } from '../../../src/index.ts';
import { type Stack, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';

const GONE: readonly Status[] = [Status.ENDPOINT_TIMEOUT, Status.CONNECTION_RESET];
/** Intervals of the keepalive that are short for a test. */
const OFTEN = { UCX_KEEPALIVE_INTERVAL: '100ms' };
const CONNECTIONS = [
  ['native', 'self,posix'],
  ['native', 'self,tcp'],
  ['libucx', 'self,posix'],
  ['libucx', 'self,tcp'],
] as const;

describe.each(CONNECTIONS)('a peer over the engine %s and %s', { timeout: 60_000 }, (engine, tls) => {
  const fixture = useContexts();
  const isMissing = engine === 'libucx' && installedLibucp().libucp === undefined;
  let peer: UcpPeer;
  let ended: AbortController;
  afterEach(async () => {
    ended.abort();
    await peer.kill();
  });

  /** An endpoint to a peer with an endpoint back; and the argument of `onError`, once called. */
  async function connect(
    keepalive: Readonly<Record<string, string>>,
  ): Promise<{ readonly endpoint: Endpoint; readonly told: Promise<readonly unknown[]> }> {
    const env = { UCX_TLS: tls, ...keepalive };
    const { worker } = await fixture.open({ context: { engine, env } });
    peer = await UcpPeer.start('', 0, tls, { UCX_ENGINE: engine });
    ended = new AbortController();
    let tell: (told: readonly unknown[]) => void = () => {};
    const told = new Promise<readonly unknown[]>((resolve) => {
      tell = resolve;
    });
    const endpoint = worker.endpoint(peer.address, {
      onError: (failed, status) => tell([failed === endpoint, status, failed.closedByPeer]),
    });
    const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
    await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
    await worker.tagRecv(new Uint8Array(1), { tag: 1 });
    await connected;
    expect(endpoint.closedByPeer).toBe(undefined);
    void worker.serve(ended.signal);
    return { endpoint, told };
  }

  it.skipIf(isMissing)('that closes its context has closed the endpoint (needs libucp)', async () => {
    // A check of libucp may come before its close message is read: docs/guide/libucx.md.
    const { endpoint, told } = await connect(engine === 'native' ? OFTEN : {});
    const stream = endpoint.stream().next();
    await peer.close();
    expect(await told).toEqual([true, Status.CONNECTION_RESET, true]);
    expect(inspect(endpoint)).toContain('state: closed by the peer');
    expect(await stream).toEqual({ done: true, value: undefined });
  });

  it.skipIf(isMissing)('that is killed has not (needs libucp)', async () => {
    const { endpoint, told } = await connect(OFTEN);
    const stream = endpoint.stream().next();
    const lost = expect(stream).rejects.toMatchObject({ name: 'UcxError' });
    await peer.kill();
    const [isOwn, status, closedByPeer] = await told;
    expect({ isOwn, closedByPeer }).toEqual({ isOwn: true, closedByPeer: false });
    expect(GONE).toContain(status);
    expect(inspect(endpoint)).toMatch(/state: failed with (ENDPOINT_TIMEOUT|CONNECTION_RESET)/);
    await lost;
  });
});

describe('a peer that closes while this side makes no progress', () => {
  const fixture = useContexts();

  /** Two sides that have exchanged a message: the endpoint of the peer, and the argument of the error callback of this side. */
  async function connect(): Promise<{ two: Stack; back: Endpoint; told: Promise<readonly unknown[]> }> {
    const env = { UCX_TLS: 'posix', UCX_KEEPALIVE_INTERVAL: '50ms' };
    const [one, two] = [await fixture.open({ context: { env } }), await fixture.open({ context: { env } })];
    const told = new Promise<readonly unknown[]>((resolve) => {
      const onError = (failed: Endpoint, status: Status): void => resolve([status, failed.closedByPeer]);
      one.worker.endpoint(two.worker.address(), { onError });
    });
    const back = two.worker.endpoint(one.worker.address());
    const sent = back.tagSend(Uint8Array.of(1), { tag: 1 });
    await one.worker.tagRecv(new Uint8Array(1), { tag: 1 });
    await sent;
    return { two, back, told };
  }

  it('has closed the endpoint, also if the keepalive finds out first', async () => {
    const { two, told } = await connect();
    await two.context.close();
    expect(await told).toEqual([Status.CONNECTION_RESET, true]);
  });

  it('has closed the endpoint, also if many messages precede its close message', async () => {
    const { two, back, told } = await connect();
    const messages = Array.from({ length: 100 }, (_, i) => Uint8Array.of(i));
    await Promise.all(messages.map((message) => back.tagSend(message, { tag: 2 })));
    await two.context.close();
    expect(await told).toEqual([Status.CONNECTION_RESET, true]);
  });
});
