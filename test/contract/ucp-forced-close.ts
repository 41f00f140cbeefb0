/** Closing by force, and closing a worker, while operations are in flight to a peer that runs and makes no progress: over every kind of connection of the native engine. */

import { describe, expect, it } from 'vitest';
import { type Endpoint, type MemoryHandle, type Request, Status } from '../../src/index.ts';
import {
  type ConnectionKind,
  expectSame,
  keyFor,
  mappedOf,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../fixtures/pair.ts';

/** More than sockets and rings take. */
const BYTES = 16 * 2 ** 20;
const BLOCK = 65_536;
/** More than the queue of a connection takes. */
const BLOCKS = 200;
const KEEP = { noImmediateCompletion: true };

/** Requests in flight on an endpoint of `one`, and the memory that they use there. */
interface InFlight {
  readonly requests: readonly Request[];
  readonly memories: readonly MemoryHandle[];
}

/** Starts operations of every kind; `two` makes no progress from here on. */
function start({ kind, one, two }: Pair, endpoint: Endpoint): InFlight {
  const far = mappedOf(two, 'allocated', BYTES);
  const rkey = keyFor(endpoint, two, far);
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

    it('closing the worker ends what is in flight', async () => {
      const pair = await fixture.pair(kind);
      const inFlight = start(pair, pair.ab);
      await pair.one.worker.close();
      expectEnded(pair, inFlight);
    });
  });
}
