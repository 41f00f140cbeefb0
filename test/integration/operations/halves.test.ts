/**
 * Both halves of a connection end together: one that fails notifies the other, and one that has no other half is notified, so that no operation
 * waits for an answer that will not arrive.
 */

import { describe, expect, it } from 'vitest';
import { WireupCode, writeWireup } from '../../../src/api/layout/control.ts';
import { NO_ENDPOINT } from '../../../src/api/layout/frame.ts';
import { MessageId } from '../../../src/api/layout/message.ts';
import { writeRma } from '../../../src/api/layout/rma.ts';
import { type Endpoint, type Request, Status } from '../../../src/index.ts';
import type { Connection } from '../../../src/ucp/base/connection.ts';
import { identitiesOf } from '../../../src/ucp/lane/lanes.ts';
import { packWorkerAddress, unpackWorkerAddress } from '../../../src/ucp/lane/worker-address.ts';
import { LEAVING_MAX } from '../../../src/ucp/wireup/connections.ts';
import { IDLE_PEERS_MAX } from '../../../src/ucp/wireup/peers.ts';
import { WARNINGS_MAX } from '../../../src/ucs/debug/limited-log.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import { messageFrame } from '../../fixtures/messages/message-frame.ts';
import { connectionKind, driveIdle, driveUntil, type Pair, type Side, usePairs } from '../../fixtures/pair.ts';

const fixture = usePairs();
const FREE = { callback: (request: Request): void => request.free() };
const KINDS = ['posix', 'tcp', 'all transports'];

/** The connection of a side to the other one. */
function connectionOf(side: Side): Connection {
  return nativeWorker(side.worker).connections.all.find(
    ({ isLoopback, failure }) => !isLoopback && failure === Status.OK,
  )!;
}

/** Starts operations that only the peer can end, and records the statuses with which they have ended. */
function beginAll(endpoint: Endpoint): Status[] {
  const ended: Status[] = [];
  const params = {
    noImmediateCompletion: true,
    callback: (request: Request, status: Status): void => {
      ended.push(status);
      request.free();
    },
  };
  endpoint.tagSendSyncNbx(new Uint8Array(8), 0, 8, 5, params);
  endpoint.tagSendNbx(new Uint8Array(100_000), 0, 100_000, 6, params);
  endpoint.streamRecvNbx(new Uint8Array(8), 0, 8, params);
  return ended;
}

/** A pair whose halves are attached to each other, and the errors that the endpoint of the first one reports. */
async function knownPair(name: string): Promise<Pair & { readonly errors: readonly Status[] }> {
  const errors: Status[] = [];
  const pair = await fixture.pair(
    connectionKind(name),
    {},
    { onError: (_endpoint: Endpoint, status: Status) => errors.push(status) },
  );
  pair.ab.tagSendNbx(Uint8Array.of(1), 0, 1, 1, FREE);
  await driveUntil(pair, () => [pair.one, pair.two].every((side) => connectionOf(side).remoteId !== NO_ENDPOINT));
  return { ...pair, errors };
}

describe.each(KINDS)('a half that fails alone, over %s', (name) => {
  it('notifies the other, where all pending operations end', async () => {
    const pair = await knownPair(name);
    const ended = beginAll(pair.ab);
    nativeWorker(pair.two.worker).endpoints.onPeerGone(connectionOf(pair.two), Status.ENDPOINT_TIMEOUT);
    await driveUntil(pair, () => ended.length === 3);
    expect(new Set(ended)).toEqual(new Set([Status.CONNECTION_RESET]));
    expect([pair.ab.status, pair.ba.status]).toEqual([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT]);
    expect(new Set(pair.errors)).toEqual(new Set([Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT]));
    await Promise.all([pair.ab.close(), pair.ba.close()]);
  });

  it('before it is attached to the other notifies it as soon as it is', async () => {
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: connectionKind(name).tls };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    const ab = one.worker.endpoint(two.worker.address());
    const failing = connectionOf(one);
    nativeWorker(one.worker).endpoints.onPeerGone(failing, Status.EXCEEDS_LIMIT);
    const closed = ab.close();
    await driveUntil({ one, two }, () => nativeWorker(two.worker).connections.all.every((each) => each.isLoopback));
    await closed;
    await driveUntil({ one, two }, () => !nativeWorker(one.worker).connections.hasPending);
    expect(nativeWorker(one.worker).connections.all).not.toContain(failing);
  });
});

describe('a half', () => {
  it('that causes too many pending answers at its peer ends on both sides, and both report it', async () => {
    const pair = await knownPair('posix');
    const { am, remoteId } = connectionOf(pair.one);
    // Gets of memory without a valid key: each must be answered, and the answers are not read.
    const header = writeRma(remoteId, { request: 1, remoteOffset: 0, byteLength: 8 }).slice();
    while (pair.ba.status === Status.OK) {
      if (am!.amShort(MessageId.PUT, header, header.length, undefined, 0, 0) === Status.NO_RESOURCE)
        pair.two.worker.progress();
    }
    expect(pair.ba.status).toBe(Status.EXCEEDS_LIMIT);
    await driveUntil(pair, () => pair.errors.length === 2);
    expect([...pair.errors].sort()).toEqual([Status.CONNECTION_RESET, Status.EXCEEDS_LIMIT].sort());
    await Promise.all([pair.ab.close(), pair.ba.close()]);
  });

  it('that a peer refuses because it has too many ends', async () => {
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: 'tcp,self' };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    fixture.allow(/connection request rejected: 4096 connections/);
    const { connections } = nativeWorker(two.worker);
    const address = one.worker.address();
    const { openIfaces } = nativeWorker(two.worker);
    const [source] = identitiesOf(openIfaces, unpackWorkerAddress(address).entries);
    for (let number = 1; number <= 4096; number++) {
      const fields = { code: WireupCode.REQUEST, from: 0x1000 + number, number, windowBytes: 0 };
      connections.onMessage(messageFrame(writeWireup(NO_ENDPOINT, fields), address, source));
    }
    const ended = beginAll(one.worker.endpoint(two.worker.address()));
    await driveUntil({ one, two }, () => ended.length === 3);
    expect(new Set(ended)).toEqual(new Set([Status.CONNECTION_RESET]));
  });

  it('that requests an occupied number under another address of the peer ends', async () => {
    const pair = await knownPair('posix');
    const { connections } = nativeWorker(pair.one.worker);
    const address = unpackWorkerAddress(pair.two.worker.address());
    // Another id is another worker, whose connections are counted from the start.
    const endpoint = pair.one.worker.endpoint(packWorkerAddress({ ...address, id: new Uint8Array(16).fill(7) }));
    const ended = beginAll(endpoint);
    await driveUntil(pair, () => ended.length === 3);
    expect(new Set(ended)).toEqual(new Set([Status.CONNECTION_RESET]));
    await endpoint.close();
    expect(connections.all.filter(({ isLoopback }) => !isLoopback)).toHaveLength(1);
    expect(pair.ab.status).toBe(Status.OK);
  });

  it('that is closed before its peer has answered waits for the answer, except for the oldest beyond the bound', async () => {
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: 'posix,self' };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    const { connections } = nativeWorker(one.worker);
    const address = two.worker.address();
    const before = connections.all.length;
    const first = connections.connect(address);
    connections.close(first);
    for (let i = 1; i < LEAVING_MAX; i++) connections.close(connections.connect(address));
    expect([connections.all.length, connections.leaves(first)]).toEqual([before + LEAVING_MAX, true]);
    connections.close(connections.connect(address));
    expect([connections.all.length, connections.leaves(first)]).toEqual([before + LEAVING_MAX, false]);
    await driveUntil({ one, two }, () => connections.all.length === before);
  });

  it('that attaches to a closed one ends', async () => {
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: 'posix,self' };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    const server = nativeWorker(two.worker).connections;
    const accepted = server.accept(one.worker.address());
    server.drop(accepted);
    const client = nativeWorker(one.worker).connections.attach(two.worker.address(), accepted.id, 0);
    await driveUntil({ one, two }, () => client.failure !== Status.OK);
    expect(client.failure).toBe(Status.CONNECTION_RESET);
    await driveIdle({ one, two }, 300);
    expect([...server.all, ...nativeWorker(one.worker).connections.all].filter((each) => !each.isLoopback)).toEqual([]);
  });
});

describe('requests to connect', () => {
  /** Delivers a request to a worker, as its transport would. */
  function request(side: Side, source: string, payload: Uint8Array, number = 0): void {
    const header = writeWireup(NO_ENDPOINT, { code: WireupCode.REQUEST, from: 7, number, windowBytes: 0 });
    nativeWorker(side.worker).connections.onMessage(messageFrame(header, payload, source));
  }

  it('that are malformed, or for another worker, are logged and leave nothing behind', async () => {
    const node = fixture.node({ cards: 2 });
    const env = { UCX_TLS: 'posix,self' };
    const [one, two] = [await fixture.side(node, 0, env), await fixture.side(node, 1, env)];
    fixture.allow(/connection request ignored|more warnings about peers/);
    const { connections } = nativeWorker(two.worker);
    const before = connections.all.length;
    const address = one.worker.address();
    const cut = address.subarray(0, 20);
    for (let i = 0; i < 10_000; i++) request(two, 'an unauthenticated peer', i % 2 === 0 ? cut : address, i);
    expect([connections.all.length, connections.knownPeers]).toEqual([before, 0]);
    await two.worker.close();
    const lines = fixture.records.filter(({ message }) => /connection request ignored/.test(message));
    expect(lines).toHaveLength(WARNINGS_MAX);
  });

  it('of workers that have closed leave a bounded number of entries in the table of workers', async () => {
    const pair = await knownPair('tcp');
    const { connections, openIfaces } = nativeWorker(pair.two.worker);
    const address = unpackWorkerAddress(pair.one.worker.address());
    const [source] = identitiesOf(openIfaces, address.entries);
    const known = connections.knownPeers;
    for (let i = 0; i < IDLE_PEERS_MAX + 100; i++) {
      const id = new Uint8Array(16);
      new Int32Array(id.buffer)[0] = i;
      request(pair.two, source!, packWorkerAddress({ ...address, id }));
      connections.drop(connections.all.at(-1)!);
    }
    expect(connections.knownPeers).toBe(known + IDLE_PEERS_MAX);
    // Entries with connections stay.
    pair.ba.tagSendNbx(Uint8Array.of(1), 0, 1, 2, FREE);
    await pair.one.worker.tagRecv(new Uint8Array(1), { tag: 2 });
  });
});
