/** The snapshot of a context over libucp: what is known of its endpoints and requests, and that the rest is said to be unknown. */

import { describe, expect, it } from 'vitest';
import type { WorkerSnapshot } from '../../../src/api/contract/snapshot.ts';
import { snapshotText } from '../../../src/assembly/inspect/snapshot-text.ts';
import type { Context, Request, Status } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { connected } from '../../fixtures/transports/socket-pairs.ts';

const { libucp } = installedLibucp();
/** First minor version that tells the lanes of an endpoint. */
const LANES_MINOR = 14;
const MIB = 2 ** 20;

/** The worker with a client id in the snapshot of a context, as JSON carries it. */
function seenOf(context: Context, clientId: bigint): WorkerSnapshot {
  const { workers } = JSON.parse(JSON.stringify(context.snapshot())) as { workers: WorkerSnapshot[] };
  return workers.find((worker) => worker.clientId === `0x${clientId.toString(16)}`)!;
}

/** The lines that show a context. */
function linesOf(context: Context): string {
  const { contexts: _, ...head } = {
    format: 3,
    version: '',
    host: '',
    pid: 1,
    tid: 1,
    command: '',
    contexts: [],
  } as const;
  const rest = {
    nodeVersion: '',
    timeMs: 0,
    uptimeSeconds: 0,
    latencies: [],
    closed: { contexts: 0, operations: 0, failures: 0 },
  };
  return snapshotText({ ...head, ...rest, contexts: [{ number: 1, ...context.snapshot() }] }).join('\n');
}

function requestOf(started: Status | Request): Request {
  if (typeof started === 'number') throw new TypeError('the operation has ended at once');
  return started;
}

describe.skipIf(libucp === undefined)('the snapshot over libucp (needs libucp)', () => {
  const fixture = useContexts('libucx');
  const open = () => fixture.open({ context: { config: { TLS: 'tcp,self,gaudi', NET_DEVICES: 'lo' } } });

  it('has pending requests with their bytes, their age and what they wait for', async () => {
    const { context, worker, endpoint } = await open();
    const received = requestOf(worker.tagRecvNbx(new Uint8Array(100), 0, 100, 5));
    const streamed = requestOf(endpoint.streamRecvNbx(new Uint8Array(8), 0, 8, { waitAll: true }));
    const offered = requestOf(endpoint.tagSendNbx(new Uint8Array(4 * MIB), 0, 4 * MIB, 6));
    const { requests } = seenOf(context, worker.clientId);
    expect(requests).toMatchObject({ pending: 3, ended: 0 });
    expect(
      requests.groups.map(({ protocol, reason, count, byteLength }) => [protocol, reason, count, byteLength]),
    ).toEqual(
      expect.arrayContaining([
        ['tag/libucp', 'message', 1, 100],
        ['tag/libucp', 'transport', 1, 4 * MIB],
        ['stream/recv', 'message', 1, 8],
      ]),
    );
    const waits = new Map(requests.oldest.map(({ byteLength, waitsFor }) => [byteLength, waitsFor]));
    expect(waits).toEqual(
      new Map([
        [100, 'a message with tag 0x5'],
        [4 * MIB, 'libucp'],
        [8, 'bytes of the stream'],
      ]),
    );
    for (const { ageMs, transport, endpoint: id } of requests.oldest) {
      expect(ageMs).toBeGreaterThanOrEqual(0);
      expect([transport, id]).toEqual(['libucp', undefined]);
    }
    const ages = (): number[] => seenOf(context, worker.clientId).requests.oldest.map(({ ageMs }) => ageMs);
    // Age grows while a request waits.
    while (Math.min(...ages()) < 2) worker.progress();
    const long = requestOf(worker.tagRecvNbx(new Uint8Array(4 * MIB), 0, 4 * MIB, 6));
    while (!long.isCompleted || !offered.isCompleted) worker.progress();
    expect(seenOf(context, worker.clientId).requests).toMatchObject({ pending: 2, ended: 2 });
    for (const request of [received, streamed]) {
      expect(request.cancel()).toBe(true);
      while (!request.isCompleted) worker.progress();
    }
    for (const request of [received, streamed, offered, long]) request.free();
    expect(seenOf(context, worker.clientId).requests).toMatchObject({ pending: 0, ended: 0, groups: [], oldest: [] });
  });

  it('has operations on device memory with the transports of the node', async () => {
    const { context, worker, endpoint } = await open();
    const memory = context.memMap({ allocate: 4 * MIB, memoryType: 'gaudi' });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    const put = requestOf(
      endpoint.putNbx(new Uint8Array(4 * MIB), 0, 4 * MIB, rkey, 0, { noImmediateCompletion: true }),
    );
    const { requests } = seenOf(context, worker.clientId);
    expect(requests.pending + requests.ended).toBe(1);
    while (!put.isCompleted) worker.progress();
    expect(`${put.transport}/${put.device}`).toBe('gaudi_cpy/gaudi0');
    put.free();
    rkey.release();
  });

  it('has the lanes of endpoints where libucp tells them, and the peers of those by socket address', async () => {
    const { context, worker, endpoint } = await open();
    const peer = context.worker();
    const listener = peer.listener({ address: '127.0.0.1' });
    const [client, server] = await connected(worker, listener);
    const own = seenOf(context, worker.clientId);
    expect(own).toMatchObject({ endpointCount: 2, endpointStates: { 'not known': 2 } });
    const [byAddress, bySocket] = own.endpoints;
    expect(byAddress).not.toHaveProperty('peer');
    expect(bySocket!.peer).toBe(`127.0.0.1:${listener.port}`);
    const [accepted] = seenOf(context, peer.clientId).endpoints;
    const { address, port } = client.query().localAddress!;
    expect(accepted!.peer).toBe(`${address}:${port}`);
    for (const [seen, shown] of [
      [byAddress, endpoint],
      [bySocket, client],
      [accepted, server],
    ] as const) {
      expect(seen!.lanes.map(({ transport }) => transport)).toEqual(shown!.transports);
      expect(seen!.lanes.length > 0).toBe(libucp!.minor >= LANES_MINOR);
    }
    const text = linesOf(context);
    expect(text).toMatch(/endpoint \d+ to a libucp peer: state unknown; /);
    expect(text).toContain(`to 127.0.0.1:${listener.port}: state unknown; `);
    expect(text.includes('lanes unknown')).toBe(libucp!.minor < LANES_MINOR);
    expect(text).not.toContain('lanes none');
    const ids = own.endpoints.map(({ id }) => id);
    expect(new Set(ids).size).toBe(2);
    expect(seenOf(context, worker.clientId).endpoints.map(({ id }) => id)).toEqual(ids);
    await Promise.all([client.close(), server.close()]);
    await listener.close();
    expect(seenOf(context, worker.clientId).endpointCount).toBe(1);
  });

  it('says that messages which came before their receive are not known', async () => {
    const { context, worker, endpoint } = await open();
    const sent = endpoint.tagSend(new Uint8Array(100), { tag: 9 });
    while (worker.tagProbe(9) === undefined) worker.progress();
    expect(seenOf(context, worker.clientId)).not.toHaveProperty('unexpected');
    expect(linesOf(context)).toMatch(/^ +arrived, not received yet: unknown$/m);
    await Promise.all([sent, worker.tagRecv(new Uint8Array(100), { tag: 9 })]);
  });
});
