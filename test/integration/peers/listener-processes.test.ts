/** Listeners and their clients in processes of their own: they connect, and are killed at the worst moments. */

import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type Endpoint, Status } from '../../../src/index.ts';
import { scavenge } from '../../../src/uct/base/key/segment.ts';
import { failureOf } from '../../fixtures/contexts.ts';
import { type Side, usePairs } from '../../fixtures/pair.ts';
import { Child } from '../../fixtures/processes/child.ts';
import type { ListenerReport } from '../../fixtures/programs/listener-program.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/programs/listener-program.ts');
const fixture = usePairs();

type Program = Child<never, ListenerReport>;

const programs: Program[] = [];
afterEach(async () => {
  for (const program of programs.splice(0)) await program.kill();
  scavenge();
});

function start(...args: readonly string[]): Program {
  const program: Program = new Child(PROGRAM, args);
  programs.push(program);
  return program;
}

function side(): Promise<Side> {
  return fixture.side(fixture.node({ cards: 1 }), 0, { UCX_TLS: 'posix,self', UCX_KEEPALIVE_INTERVAL: '100ms' });
}

async function expectEcho(endpoint: Endpoint, byte: number): Promise<void> {
  const received = new Uint8Array(1);
  await Promise.all([endpoint.streamSend(Uint8Array.of(byte)), endpoint.streamRecv(received)]);
  expect(received[0]).toBe(byte);
}

describe('processes', { timeout: 60_000 }, () => {
  it('find each other in both directions', async () => {
    const own = await side();
    const server = start('echo');
    const { port } = await server.next();
    const endpoints = [1, 2, 3].map(() => own.worker.connect({ address: '127.0.0.1', port: Number(port) }));
    for (const [i, endpoint] of (await Promise.all(endpoints)).entries()) await expectEcho(endpoint, i);
    const listener = own.worker.listener();
    const client = start('client', String(listener.port));
    const request = await listener.next();
    expect(request!.clientId).toBe(4711n);
    const endpoint = request!.accept();
    const received = new Uint8Array(1);
    await endpoint.streamRecv(received);
    await endpoint.streamSend(received);
    await client.next();
    expect(await client.next()).toEqual({ byte: 42 });
  });

  it('that are killed between request and answer end their requests; others continue', async () => {
    const own = await side();
    const listener = own.worker.listener();
    const client = start('client', String(listener.port));
    const request = await listener.next();
    await client.kill();
    const other = start('client', String(listener.port));
    const next = await listener.next();
    expect(request!.live).toBe(false);
    expect(await failureOf(() => request!.accept())).toMatchObject({ code: 'ERR_NOT_CONNECTED' });
    const received = new Uint8Array(1);
    await next!.accept().streamRecv(received);
    expect(received[0]).toBe(42);
    await other.kill();
  });

  it('that are killed after they were accepted end their endpoint once', async () => {
    const own = await side();
    const listener = own.worker.listener();
    const client = start('client', String(listener.port));
    const request = await listener.next();
    await client.kill();
    // There was no progress since, so it is not detected yet.
    expect(request!.live).toBe(true);
    const errors: Status[] = [];
    let endpoint: Endpoint | undefined;
    const failure = await failureOf(async () => {
      endpoint = request!.accept({ onError: (_, status) => errors.push(status) });
      await endpoint.tagSendSync(Uint8Array.of(1), { tag: 1 });
    });
    // The transport may detect it first, when the lanes are created.
    if (endpoint === undefined) expect(failure).toMatchObject({ code: 'ERR_UNREACHABLE' });
    else {
      expect([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT]).toContain(failure.status);
      expect(errors).toEqual([failure.status]);
    }
  });

  it('that are killed with pending requests reset them', async () => {
    const own = await side();
    const server = start('deaf');
    const { port } = await server.next();
    const clients = [1, 2, 3].map(() =>
      failureOf(() => own.worker.connect({ address: '127.0.0.1', port: Number(port), sendClientId: true })),
    );
    for (const _ of clients) expect(await server.next()).toEqual({ clientId: String(own.worker.clientId) });
    await server.kill();
    for (const failure of await Promise.all(clients)) expect(failure).toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    expect(own.worker.requestsInUse).toBe(0);
  });

  it('with a listener that is not awaited end by themselves', async () => {
    const program = start('idle');
    await program.next();
    expect(await program.end()).toBe(0);
  });
});
