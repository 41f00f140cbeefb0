/** Endpoints by socket addresses over libucp whose worker is not driven by the program: the other end can connect, close and end. */

import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { type Endpoint, Status, type Worker } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const { skipReason } = installedLibucp();
if (skipReason !== undefined) console.info(`skipped: endpoints by socket addresses over libucp (${skipReason})`);

const contexts = useContexts();
const CONFIG = { TLS: 'tcp,self', NET_DEVICES: 'lo' };

interface Pair {
  readonly server: Worker;
  readonly accepted: Endpoint;
  readonly endpoint: Endpoint;
  /** The status that the endpoint of the server reports. */
  readonly failed: Promise<Status>;
}

async function connect(): Promise<Pair> {
  const { context } = await contexts.openOn(contexts.node(), { engine: 'libucx', config: CONFIG });
  const [server, client] = [context.worker(), context.worker()];
  await using listener = server.listener({ port: 0 });
  const connecting = client.connect({ address: '127.0.0.1', port: listener.port });
  const request = await listener.next();
  const failure = new EventTarget();
  const failed = once(failure, 'status').then(([event]) => (event as CustomEvent<Status>).detail);
  const accepted = request!.accept({
    onError: (_endpoint, status) => failure.dispatchEvent(new CustomEvent('status', { detail: status })),
  });
  return { server, accepted, endpoint: await connecting, failed };
}

describe.skipIf(skipReason !== undefined)('a worker without progress of the program (needs libucp)', () => {
  it('accepts a client, and reports that it closes', async () => {
    const { accepted, endpoint, failed } = await connect();
    await endpoint.close();
    expect(await failed).toBe(Status.CONNECTION_RESET);
    expect(accepted.status).toBe(Status.CONNECTION_RESET);
  });

  it('reports a client that closes by force', async () => {
    const { endpoint, failed } = await connect();
    await endpoint.close({ force: true });
    expect(await failed).toBeLessThan(0);
  });

  it('can close its endpoint while the client makes no progress', async () => {
    const { accepted, endpoint } = await connect();
    await accepted.close();
    while (endpoint.status === Status.OK) await setImmediate();
    expect(endpoint.status).toBe(Status.CONNECTION_RESET);
  });

  it('keeps messages until they are received', async () => {
    const { server, endpoint } = await connect();
    await endpoint.tagSend(Uint8Array.of(1, 2, 3), { tag: 5 });
    await endpoint.close();
    const received = new Uint8Array(3);
    expect(await server.tagRecv(received, { tag: 5 })).toMatchObject({ byteLength: 3 });
    expect(received).toEqual(Uint8Array.of(1, 2, 3));
  });
});
