/**
 * Operations with a peer on the same host whose process is stopped: an AbortSignal ends them. What only waits ends at once, the rest with its endpoint, after two
 * checks of the keepalive; nothing writes to their memory afterwards, also when the peer continues.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Context, type Endpoint, type MemoryHandle, Status, type Worker } from '../../../src/index.ts';
import { PosixEndpoint } from '../../../src/uct/shm/posix/endpoint.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { connectionKind, driveUntil, expectSame, pattern, usePairs } from '../../fixtures/pair.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

const BYTES = 2 ** 20;
const ABORTED = { name: 'AbortError', code: 'ABORT_ERR' };
/** Without checks of the keepalive, what ends does so at once. */
const NEVER = 'inf';

type Start = (signal: AbortSignal) => Promise<unknown>;

describe.each(['self,posix', 'self,posix,cma'])('a process that is stopped, over %s', { timeout: 60_000 }, (tls) => {
  expectNoLeaks(SEGMENT_PROBES);
  const hasCma = tls.includes('cma');
  let peer: UcpPeer;
  let context: Context;
  let worker: Worker;
  let endpoint: Endpoint;
  let errors: Status[];

  async function connect(keepalive: string): Promise<void> {
    const env = { UCX_TLS: tls, UCX_KEEPALIVE_INTERVAL: keepalive };
    context = await Context.create({ env, configDirectories: [], logSink: () => {} });
    worker = context.worker();
    errors = [];
    endpoint = worker.endpoint(peer.address, { onError: (_, status) => errors.push(status) });
    const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
    await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
    await worker.tagRecv(new Uint8Array(1), { tag: 1 });
    await connected;
    await peer.tell({ do: 'open', address: worker.address() });
  }

  beforeEach(async () => {
    peer = await UcpPeer.start('', 0, tls);
  });
  afterEach(async () => {
    peer.signal('SIGCONT');
    await peer.close();
    await context.close();
  });

  /** Stops the peer, starts an operation, aborts it, and waits for its end. */
  async function abortWhileStopped(start: Start): Promise<void> {
    peer.signal('SIGSTOP');
    const abort = new AbortController();
    const ended = start(abort.signal);
    const expected = expect(ended).rejects.toMatchObject(ABORTED);
    await sleep(20);
    abort.abort();
    await expected;
  }

  /** The connection works, and messages in both directions come in order: earlier messages have been handled. */
  async function expectConnected(): Promise<void> {
    peer.signal('SIGCONT');
    await peer.tell({ do: 'map', name: 'word', kind: 'bytes', byteLength: 8, seed: 1 });
    const target = new Uint8Array(8);
    const sent = peer.tell({ do: 'tagSend', local: { name: 'word', offset: 0, byteLength: 8 }, tag: 99 });
    await worker.tagRecv(target, { tag: 99 });
    expect((await sent).status).toBe(Status.OK);
    await endpoint.tagSend(target, { tag: 98 });
    expect((await peer.tell({ do: 'tagProbe', tag: 98, remove: true })).byteLength).toBe(8);
    expect(errors).toEqual([]);
  }

  const mapped = (kind: string): Uint8Array | MemoryHandle => {
    if (kind === 'bytes') return pattern(BYTES, 3);
    const memory =
      kind === 'allocated' ? context.memMap({ allocate: BYTES }) : context.memMap({ buffer: new Uint8Array(BYTES) });
    memory.bytes!.set(pattern(BYTES, 3));
    return memory;
  };
  const bytesOf = (memory: Uint8Array | MemoryHandle): Uint8Array =>
    memory instanceof Uint8Array ? memory : memory.bytes!;

  it.each(['bytes', 'registered', 'allocated'])('a long message of %s memory is taken back', async (kind) => {
    await connect(NEVER);
    const memory = mapped(kind);
    await abortWhileStopped((signal) => endpoint.tagSend(memory, { tag: 7, signal }));
    // Its next use must not reach the peer by the old message.
    bytesOf(memory).set(pattern(BYTES, 4));
    await expectConnected();
    await peer.tell({ do: 'map', name: 'target', kind: 'bytes', byteLength: BYTES, seed: 9 });
    const received = peer.tell({ do: 'tagRecv', local: { name: 'target', offset: 0, byteLength: BYTES }, tag: 7 });
    bytesOf(memory).set(pattern(BYTES, 5));
    await endpoint.tagSend(memory, { tag: 7 });
    expect((await received).status).toBe(Status.OK);
    expectSame((await peer.tell({ do: 'read', name: 'target' })).bytes!, pattern(BYTES, 5));
  });

  it.each(
    [
      ['a synchronous message', (signal: AbortSignal) => endpoint.tagSendSync(new Uint8Array(8), { tag: 5, signal })],
      ['an active message', (signal: AbortSignal) => endpoint.amSend(5, new Uint8Array(BYTES), { signal })],
      ['a get', (signal: AbortSignal) => endpoint.get(new Uint8Array(64), key(), { signal })],
      ['an atomic operation', (signal: AbortSignal) => endpoint.atomic('add', 1, key(), { signal })],
      // Over cma, a get does not need the worker of the peer.
    ].filter(([name]) => !(name === 'a get' && hasCma)) as [string, Start][],
  )('%s ends at once', async (_, start) => {
    await connect(NEVER);
    await abortWhileStopped(start);
    await expectConnected();
  });

  function key(): ReturnType<Endpoint['unpackRkey']> {
    return endpoint.unpackRkey(peer.keys['registered']!);
  }

  it('messages that find no room end at once', async () => {
    await connect(NEVER);
    peer.signal('SIGSTOP');
    const abort = new AbortController();
    const sends = Array.from({ length: 3000 }, (_, tag) =>
      endpoint.tagSend(new Uint8Array(1024), { tag, signal: abort.signal }).then(
        () => 'sent',
        (error: Error) => error.name,
      ),
    );
    await sleep(50);
    abort.abort();
    const names = new Set(await Promise.all(sends));
    expect(names).toContain('AbortError');
    expect([...names].every((name) => name === 'sent' || name === 'AbortError')).toBe(true);
    await expectConnected();
  });

  // Over cma, the receiver reads the memory of the sender without its progress.
  it.skipIf(hasCma)('a receive whose sender has no key of its memory ends at once, and gets no byte', async () => {
    await connect(NEVER);
    await peer.ask({ do: 'offer', memory: 'registered', tag: 7 });
    while (worker.tagProbe(7) === undefined) await new Promise(setImmediate);
    const target = new Uint8Array(BYTES);
    await abortWhileStopped((signal) => worker.tagRecv(target, { tag: 7, signal }));
    target.set(pattern(BYTES, 6));
    await expectConnected();
    expectSame(target, pattern(BYTES, 6));
  });

  it.skipIf(hasCma)(
    'a receive whose memory the sender may write ends with the endpoint, and gets no byte',
    async () => {
      await connect('100ms');
      await peer.ask({ do: 'offer', memory: 'registered', tag: 7 });
      while (worker.tagProbe(7) === undefined) await new Promise(setImmediate);
      const target = context.memMap({ allocate: BYTES });
      await abortWhileStopped((signal) => worker.tagRecv(target, { tag: 7, signal }));
      expect(errors).toEqual([Status.ENDPOINT_TIMEOUT]);
      expect(endpoint.status).toBe(Status.ENDPOINT_TIMEOUT);
      target.bytes!.set(pattern(BYTES, 6));
      peer.signal('SIGCONT');
      await peer.ask({ do: 'state' });
      await sleep(100);
      expectSame(target.bytes!, pattern(BYTES, 6));
    },
  );

  it('is not failed while no operation was aborted', async () => {
    await connect('50ms');
    peer.signal('SIGSTOP');
    const sent = endpoint.tagSend(pattern(BYTES, 3), { tag: 7 });
    await sleep(400);
    expect(errors).toEqual([]);
    peer.signal('SIGCONT');
    await peer.tell({ do: 'map', name: 'target', kind: 'bytes', byteLength: BYTES, seed: 9 });
    await peer.tell({ do: 'tagRecv', local: { name: 'target', offset: 0, byteLength: BYTES }, tag: 7 });
    await sent;
    expectSame((await peer.tell({ do: 'read', name: 'target' })).bytes!, pattern(BYTES, 3));
  });
});

describe('a receive that is matched to a message that was taken back', () => {
  const kind = connectionKind('posix');
  const fixture = usePairs(kind);
  afterEach(() => vi.restoreAllMocks());

  it.each(['bytes', 'allocated'] as const)('fails, and gets none of the next bytes: %s memory', async (memoryKind) => {
    const pair = await fixture.pair(kind);
    const { one, two, ab } = pair;
    const first = ab.tagSendNbx(new Uint8Array(1), 0, 1, 1);
    await driveUntil(pair, () => two.worker.tagProbe(1, undefined, true) !== undefined);
    if (typeof first !== 'number') first.free();
    vi.spyOn(PosixEndpoint.prototype, 'isPeerStopped').mockReturnValue(true);
    const memory = memoryKind === 'bytes' ? pattern(BYTES, 1) : one.context.memMap({ allocate: BYTES });
    const bytes = memory instanceof Uint8Array ? memory : memory.bytes!;
    const sent = ab.tagSendNbx(memory, 0, BYTES, 7);
    if (typeof sent === 'number') expect.fail(`the send ended with ${sent}`);
    expect(sent.cancel()).toBe(true);
    expect(sent.status).toBe(Status.CANCELED);
    sent.free();
    bytes.set(pattern(BYTES, 2));
    const target = new Uint8Array(BYTES);
    const received = two.worker.tagRecvNbx(target, 0, BYTES, 7, undefined, { noImmediateCompletion: true });
    if (typeof received === 'number') expect.fail(`the receive ended with ${received}`);
    await driveUntil(pair, () => received.isCompleted);
    expect([Status.CANCELED, Status.INVALID_ADDR]).toContain(received.status);
    expectSame(target, new Uint8Array(BYTES));
    received.free();
    // The connection continues.
    const again = two.worker.tagRecvNbx(target, 0, 8, 8, undefined, { noImmediateCompletion: true });
    ab.tagSendNbx(pattern(8, 3), 0, 8, 8);
    await driveUntil(pair, () => typeof again === 'number' || again.isCompleted);
    expectSame(target.subarray(0, 8), pattern(8, 3));
    if (typeof again !== 'number') again.free();
    if (!(memory instanceof Uint8Array)) one.context.memUnmap(memory);
  });
});
