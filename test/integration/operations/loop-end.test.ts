/** Loops over notifications and messages that end with the connection of an endpoint, over both engines: peers in processes of their own close, or are killed. */

import { afterEach, describe, expect, it } from 'vitest';
import { type Endpoint, Status, type Worker } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { ENGINES } from '../../fixtures/pair.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';

const GONE: readonly string[] = ['ERR_ENDPOINT_TIMEOUT', 'ERR_CONNECTION_RESET'];

describe.each(ENGINES)('over %s', { timeout: 60_000 }, (engine) => {
  const fixture = useContexts(engine);
  let peer: UcpPeer | undefined;
  afterEach(() => peer?.kill());

  interface Own {
    readonly worker: Worker;
    readonly endpoint: Endpoint;
  }

  /** An endpoint to a process with an endpoint back. */
  async function connect(): Promise<Own> {
    const env = { UCX_TLS: 'self,tcp', UCX_KEEPALIVE_INTERVAL: '100ms' };
    const { worker } = await fixture.open({ context: { engine, env } });
    peer = await UcpPeer.start('', 0, 'self,tcp', { UCX_ENGINE: engine });
    const endpoint = worker.endpoint(peer.address);
    const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
    await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
    await worker.tagRecv(new Uint8Array(1), { tag: 1 });
    await connected;
    return { worker, endpoint };
  }

  const isMissing = engine === 'libucx' && installedLibucp().libucp === undefined;

  it.skipIf(isMissing)('with a peer that closes (needs libucp)', async () => {
    const { worker, endpoint } = await connect();
    const ended = Promise.all([
      worker.notifications({ until: endpoint }).next(),
      worker.messages(40, { until: endpoint }).next(),
    ]);
    await peer!.close();
    expect(await ended).toEqual([
      { done: true, value: undefined },
      { done: true, value: undefined },
    ]);
    expect(endpoint.closedByPeer).toBe(true);
    // The id is free again.
    worker.setAmHandler(40, () => {});
  });

  it.skipIf(isMissing)('with a peer that is killed (needs libucp)', async () => {
    const { worker, endpoint } = await connect();
    const ended = Promise.allSettled([
      worker.notifications({ until: endpoint }).next(),
      worker.messages(40, { until: endpoint }).next(),
    ]);
    await peer!.kill();
    for (const result of await ended) {
      expect(result.status).toBe('rejected');
      expect(GONE).toContain((result as PromiseRejectedResult).reason.code);
    }
    expect(endpoint.status).not.toBe(Status.OK);
  });

  it('with an endpoint that is closed here, behind what has arrived; others wait for other peers', async () => {
    const { worker, endpoint } = await fixture.open();
    const other = worker.endpoint(worker.address());
    await other.notify(Uint8Array.of(7));
    await worker.flush();
    const arrived: number[] = [];
    const loop = (async () => {
      for await (const { bytes } of worker.notifications({ until: endpoint })) arrived.push(bytes[0]!);
    })();
    const forever = worker.messages(41, { until: other });
    const message = forever.next();
    await endpoint.close();
    await loop;
    expect(arrived).toEqual([7]);
    await other.amSend(41, Uint8Array.of(8));
    expect(await (await message).value!.bytes()).toEqual(Uint8Array.of(8));
    expect(await worker.notifications({ until: endpoint }).next()).toEqual({ done: true, value: undefined });
    await forever.return();
    await other.close();
  });

  it('notify sends to the handler of an id, as put does', async () => {
    const { worker, endpoint } = await fixture.open();
    const heads: (readonly number[])[] = [];
    worker.setAmHandler(42, ({ header }) => heads.push([...header]));
    await endpoint.notify(Uint8Array.of(1, 2), { notifyId: 42 });
    await endpoint.notify(Uint8Array.of(3));
    expect((await worker.notifications().next()).value!.bytes).toEqual(Uint8Array.of(3));
    expect(heads).toEqual([[1, 2]]);
    for (const notifyId of [-1, 65_536, 'x'] as never[]) {
      await expect(endpoint.notify(Uint8Array.of(1), { notifyId })).rejects.toMatchObject({
        code: 'ERR_INVALID_PARAM',
      });
    }
    expect(() => worker.notifications({ until: {} as Endpoint })).toThrow(/until must be an endpoint/);
  });
});
