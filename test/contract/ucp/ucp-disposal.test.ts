/** Endpoints of `await using` blocks, over every kind of connection between two workers. */

import { describe, expect, it } from 'vitest';
import { keyFor, PAIR_KINDS, type Pair, pattern, serving, unmap, usePairs } from '../../fixtures/pair.ts';

/** Goes by rendezvous over every transport. */
const OFFER_BYTES = 2 ** 20;

/** A block that an exception leaves while a message waits for a peer that never receives it. */
async function failing({ one, two }: Pair, sends: Promise<unknown>[]): Promise<never> {
  await using endpoint = one.worker.endpoint(two.worker.address());
  sends.push(endpoint.tagSend(new Uint8Array(OFFER_BYTES), { tag: 1 }));
  sends.at(-1)!.catch(() => undefined);
  throw new Error('a bug of the program');
}

for (const kind of PAIR_KINDS) {
  describe(`the endpoint of an 'await using' block over '${kind.name}'`, () => {
    const { pair } = usePairs(kind);

    it('does not hide the exception that leaves the block', async () => {
      const both = await pair(kind);
      await serving(both, async () => {
        const sends: Promise<unknown>[] = [];
        await expect(failing(both, sends)).rejects.toThrow('a bug of the program');
        await expect(sends[0]).rejects.toMatchObject({ code: 'ERR_CANCELED' });
      });
    });

    it('has delivered the awaited operations', async () => {
      const both = await pair(kind);
      const { one, two } = both;
      await serving(both, async () => {
        const target = two.context.memMap({ allocate: 300_000 });
        const received = new Uint8Array(300_000);
        {
          await using endpoint = one.worker.endpoint(two.worker.address());
          const rkey = keyFor(endpoint, two, target);
          const receiving = two.worker.tagRecv(received, { tag: 1 });
          await endpoint.put(pattern(300_000, 1), rkey);
          await endpoint.tagSend(pattern(300_000, 2), { tag: 1 });
          await receiving;
          rkey.release();
        }
        expect(Buffer.compare(target.bytes!, pattern(300_000, 1))).toBe(0);
        expect(Buffer.compare(received, pattern(300_000, 2))).toBe(0);
        unmap(two, target);
      });
    });
  });
}
