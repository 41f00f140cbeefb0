/** Memory of the program that an operation has used, over every kind of connection: once the operation has ended, the library keeps no reference to it. */

import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { collectGarbage } from '../../fixtures/collect-garbage.ts';
import { CONNECTION_KINDS, keyFor, type Pair, serving, unmap, usePairs } from '../../fixtures/pair.ts';

/** Short, packed, zero copy or rendezvous. */
const SIZES = [40, 3000, 400_000];
const AM_ID = 3;

type Operation = (pair: Pair, bytes: Uint8Array, other: Uint8Array) => Promise<unknown>;

const OPERATIONS: Readonly<Record<string, Operation>> = {
  'a put': (pair, bytes) => withRemote(pair, bytes.length, async (rkey) => pair.ab.put(bytes, rkey)),
  'a get': (pair, bytes) => withRemote(pair, bytes.length, async (rkey) => pair.ab.get(bytes, rkey)),
  'a tagged message': ({ ab, two }, bytes, other) =>
    Promise.all([ab.tagSend(bytes, { tag: 1 }), two.worker.tagRecv(other, { tag: 1 })]),
  // The second memory is the second piece, and receives nothing.
  'a list of pieces': ({ ab, two }, bytes, other) =>
    Promise.all([
      ab.tagSend([{ memory: bytes }, { memory: other }], { tag: 1 }),
      two.worker.tagRecv(new Uint8Array(bytes.length + other.length), { tag: 1 }),
    ]),
  'a stream': ({ ab, ba }, bytes, other) =>
    Promise.all([ab.streamSend(bytes), ba.streamRecv(other, { waitAll: true })]),
  'an active message': async ({ ab, two }, bytes, other) => {
    const messages = two.worker.messages(AM_ID);
    const received = messages.next().then(({ value }) => value!.into(other));
    await Promise.all([ab.amSend(AM_ID, bytes), received]);
    await messages.return();
  },
};

async function withRemote(
  { ab, two }: Pair,
  byteLength: number,
  run: (rkey: ReturnType<typeof keyFor>) => Promise<unknown>,
): Promise<void> {
  const target = two.context.memMap({ allocate: byteLength });
  const rkey = keyFor(ab, two, target);
  await run(rkey);
  rkey.release();
  unmap(two, target);
}

/** Runs an operation on new memory. @returns weak references to it */
async function used(pair: Pair, operation: Operation, byteLength: number): Promise<readonly WeakRef<Uint8Array>[]> {
  const memory = [new Uint8Array(byteLength), new Uint8Array(byteLength)] as const;
  await serving(pair, () => operation(pair, ...memory));
  return memory.map((bytes) => new WeakRef(bytes));
}

for (const kind of CONNECTION_KINDS) {
  describe(`released memory over '${kind.name}'`, () => {
    const { pair } = usePairs(kind);

    it.each(Object.keys(OPERATIONS))('is not kept by %s', async (name) => {
      const both = await pair(kind);
      for (const byteLength of SIZES) {
        const references = await used(both, OPERATIONS[name]!, byteLength);
        // A reference that was made or read in a turn of the event loop keeps its object for that turn.
        await setImmediate();
        collectGarbage();
        expect(
          references.map((each) => each.deref()?.byteLength),
          `${byteLength} bytes`,
        ).toEqual([undefined, undefined]);
      }
    });
  });
}
