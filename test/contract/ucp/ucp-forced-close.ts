/** Closing by force, and closing a worker, while operations are in flight to a peer that runs and makes no progress: over every kind of connection of the native engine. */

import { describe, expect, it } from 'vitest';
import { type Endpoint, type MemoryHandle, type Request, Status } from '../../../src/index.ts';
import {
  type ConnectionKind,
  driveUntil,
  expectContents,
  expectSame,
  fill,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

/** More than sockets and rings take. */
const BYTES = 16 * 2 ** 20;
const BLOCK = 65_536;
/** More than the queue of a connection takes. */
const BLOCKS = 200;
const KEEP = { noImmediateCompletion: true };

/** Goes by rendezvous over every transport. */
const OFFER_BYTES = 2 ** 20;
const MEMORIES = ['registered', 'allocated', 'gaudi'] as const;

/** Requests in flight on an endpoint of `one`, and the memory that they use there. */
interface InFlight {
  readonly requests: readonly Request[];
  readonly memories: readonly MemoryHandle[];
}

/** Starts operations of every kind; `two` makes no progress from here on. */
function start({ kind, one, two }: Pair, endpoint: Endpoint): InFlight {
  const far = mappedOf(two, 'allocated', BYTES);
  const rkey = keyFor(endpoint, two, far);
  two.worker.setAmHandler(1, () => undefined);
  const near = [mappedOf(one, 'registered', BYTES), ...(kind.hasGaudi ? [mappedOf(one, 'gaudi', BYTES)] : [])];
  const target = mappedOf(one, 'registered', BYTES);
  const started = [
    ...near.flatMap((memory) => [
      endpoint.putNbx(memory, 0, BYTES, rkey, 0, KEEP),
      endpoint.tagSendNbx(memory, 0, BYTES, 1, KEEP),
      endpoint.amSendNbx(1, undefined, memory, 0, BYTES, KEEP),
    ]),
    endpoint.getNbx(target, 0, BYTES, rkey, 0, KEEP),
    ...Array.from({ length: BLOCKS }, (_, i) => endpoint.putNbx(near[0]!, i * BLOCK, BLOCK, rkey, i * BLOCK, KEEP)),
    endpoint.putListNbx([{ local: near[0]!, rkey, byteLength: 512, count: 1000 }], KEEP),
    endpoint.streamSendNbx(near[0]!, 0, BYTES, KEEP),
    endpoint.streamSendNbx(near[0]!, 0, BLOCK, KEEP),
    endpoint.flushNbx(KEEP),
  ];
  for (let i = 0; i < 20; i++) one.worker.progress();
  return { requests: started.map((request) => request as Request), memories: [...near, target] };
}

/** Fails unless all have ended and use their memory no more. Returns the bytes of host memory. */
function expectEnded({ one }: Pair, { requests, memories }: InFlight): Uint8Array[] {
  const bytes = memories.flatMap((memory) => (memory.bytes === undefined ? [] : [memory.bytes]));
  for (const request of requests) {
    expect(request.isCompleted).toBe(true);
    expect([Status.OK, Status.CANCELED]).toContain(request.status);
    request.free();
  }
  for (const memory of memories) one.context.memUnmap(memory);
  return bytes;
}

/** Declares the tests of forced closes over a kind of connection. */
export function forcedCloseContract(kind: ConnectionKind): void {
  describe(`while the peer makes no progress over '${kind.name}'`, () => {
    const fixture = usePairs(kind);

    it('a forced close ends what is in flight, and no other endpoint', async () => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const other = one.worker.endpoint(two.worker.address());
      const inFlight = start(pair, ab);
      await ab.close({ force: true });
      const buffers = expectEnded(pair, inFlight);
      // What the peer sends for the cancelled operations is not written there any more.
      const expected = pattern(BYTES, 7);
      for (const buffer of buffers) buffer.set(expected);
      const far = mappedOf(two, 'allocated', BYTES);
      const rkey = keyFor(other, two, far);
      const read = new Uint8Array(BYTES);
      await serving(pair, async () => {
        await other.put(expected, rkey);
        await other.get(read, rkey);
        await other.flush();
      });
      expectSame(far.bytes!, expected);
      expectSame(read, expected);
      for (const buffer of buffers) expectSame(buffer, expected);
      rkey.release();
      await serving(pair, () => other.close());
    });

    // A device keeps its keys for all peers, and the queue pair of the peer until it has read that the endpoint was closed.
    const revocable = kind.refusalsEnd === true ? [] : MEMORIES.filter((memory) => memory !== 'gaudi' || kind.hasGaudi);

    it.each(revocable)('a message from %s memory that was offered is not read after the close', async (memoryKind) => {
      const pair = await fixture.pair(kind);
      const { one, two, ab } = pair;
      const memory = mappedOf(one, memoryKind, OFFER_BYTES);
      const other = mappedOf(one, memoryKind, OFFER_BYTES);
      await fill(one, memory, pattern(OFFER_BYTES, 1));
      await fill(one, other, pattern(OFFER_BYTES, 2));
      const offer = (source: MemoryHandle, tag: number): Request =>
        ab.tagSendNbx(source, 0, OFFER_BYTES, tag, KEEP) as Request;
      const withdrawn = offer(memory, 1);
      const answered = offer(other, 2);
      await driveUntil(pair, () => two.worker.tagProbe(1) !== undefined && two.worker.tagProbe(2) !== undefined);
      const target = new Uint8Array(OFFER_BYTES);
      const whole = two.worker.tagRecvNbx(target, 0, OFFER_BYTES, 2, undefined, KEEP) as Request;
      await driveUntil(pair, () => whole.isCompleted && answered.isCompleted);
      expectSame(target, pattern(OFFER_BYTES, 2));
      await ab.close({ force: true });
      expect(withdrawn.status).toBe(Status.CANCELED);
      await fill(one, memory, pattern(OFFER_BYTES, 3));
      // It has not read that the endpoint was closed.
      const received = two.worker.tagRecvNbx(target, 0, OFFER_BYTES, 1, undefined, KEEP) as Request;
      await driveUntil(pair, () => received.isCompleted);
      expect(received.status).not.toBe(Status.OK);
      for (const request of [withdrawn, answered, whole, received]) request.free();
      unmap(one, memory, other);
    });

    it.each(revocable)(
      'a receive into %s memory that has matched is not written after the close',
      async (memoryKind) => {
        const pair = await fixture.pair(kind);
        const { one, ab, ba } = pair;
        const memory = mappedOf(one, memoryKind, OFFER_BYTES);
        await fill(one, memory, new Uint8Array(OFFER_BYTES));
        const sent = ba.tagSendNbx(pattern(OFFER_BYTES, 1), 0, OFFER_BYTES, 1, KEEP) as Request;
        await driveUntil(pair, () => one.worker.tagProbe(1) !== undefined);
        const received = one.worker.tagRecvNbx(memory, 0, OFFER_BYTES, 1, undefined, KEEP) as Request;
        await ab.close({ force: true });
        // A transport that reads the memory of the peer needs no help of the peer.
        const expected = received.status === Status.OK ? 1 : 2;
        if (expected === 2) expect(received.status).toBe(Status.CANCELED);
        if (expected === 2) await fill(one, memory, pattern(OFFER_BYTES, 2));
        await driveUntil(pair, () => sent.isCompleted);
        await expectContents(one, memory, pattern(OFFER_BYTES, expected));
        for (const request of [received, sent]) request.free();
        unmap(one, memory);
      },
    );

    it('closing the worker ends what is in flight', async () => {
      const pair = await fixture.pair(kind);
      const inFlight = start(pair, pair.ab);
      await pair.one.worker.close();
      expectEnded(pair, inFlight);
    });
  });
}
