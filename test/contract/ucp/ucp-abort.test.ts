/**
 * Signals of awaited operations, over every kind of connection: what rejects with an AbortError was not carried out, and operations that were carried out resolve, so
 * that a program which repeats an aborted operation does nothing twice. Puts and gets are other: a part of their bytes may have been moved.
 */

import { describe, expect, it } from 'vitest';
import type { TagMessage } from '../../../src/index.ts';
import { CONNECTION_KINDS, keyFor, type Pair, serving, unmap, usePairs } from '../../fixtures/pair.ts';

const SIZES = [64, 9000, 300_000];
const ROUNDS = 12;
const TURNS = 4;
const AM_ID = 3;

type Outcome = 'done' | 'aborted';

/** Runs an operation whose signal fires in the same job, or some turns of the event loop later. */
async function aborted(turns: number, run: (signal: AbortSignal) => Promise<unknown>): Promise<Outcome> {
  const stop = new AbortController();
  const ended = run(stop.signal).then(
    (): Outcome => 'done',
    (error: unknown): Outcome => {
      if (error instanceof Error && error.name === 'AbortError') return 'aborted';
      throw error;
    },
  );
  for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
  stop.abort();
  return await ended;
}

/** Starts operations whose signals fire: some are over then, some under way. @returns the numbers of those that resolve, in the end */
async function startAll(
  run: (number: number, signal: AbortSignal) => Promise<unknown>,
): Promise<() => Promise<number[]>> {
  const numbers = Array.from({ length: ROUNDS }, (_, i) => i + 1);
  const outcomes = numbers.map((number) => aborted(number % TURNS, (signal) => run(number, signal)));
  for (let turn = 0; turn < TURNS; turn++) await new Promise(setImmediate);
  return async () => {
    const ended = await Promise.all(outcomes);
    return numbers.filter((_, i) => ended[i] === 'done');
  };
}

const numbered = (byteLength: number, number: number): Uint8Array => new Uint8Array(byteLength).fill(number);

/** Receives all tagged messages that arrive before one of tag 2. */
async function receiveUntilLast({ ab, two }: Pair, byteLength: number): Promise<number[]> {
  await ab.tagSend(new Uint8Array(1), { tag: 2 });
  await two.worker.tagRecv(new Uint8Array(1), { tag: 2 });
  const received: number[] = [];
  for (let found: TagMessage | undefined; ; ) {
    found = two.worker.tagProbe(1);
    if (found === undefined) return received;
    const bytes = new Uint8Array(byteLength);
    await two.worker.tagRecv(bytes, { tag: 1 });
    expect(new Set(bytes).size).toBe(1);
    received.push(bytes[0]!);
  }
}

for (const kind of CONNECTION_KINDS) {
  describe(`an aborted operation over '${kind.name}'`, () => {
    const { pair } = usePairs(kind);

    it.each(SIZES)('is a message of %s bytes that no receive gets, or resolves', async (byteLength) => {
      const both = await pair(kind);
      await serving(both, async () => {
        const sent = await startAll((number, signal) =>
          both.ab.tagSend(numbered(byteLength, number), { tag: 1, signal }),
        );
        expect(await receiveUntilLast(both, byteLength)).toEqual(await sent());
      });
    });

    it.each(SIZES)('is an active message of %s bytes that no handler gets, or resolves', async (byteLength) => {
      const both = await pair(kind);
      await serving(both, async () => {
        const { ab, two } = both;
        const messages = two.worker.messages(AM_ID);
        const received: number[] = [];
        const receiving = (async () => {
          for await (const message of messages) {
            const bytes = await message.bytes();
            if (bytes[0] === 0) break;
            received.push(bytes[0]!);
          }
        })();
        const sent = await startAll((number, signal) => ab.amSend(AM_ID, numbered(byteLength, number), { signal }));
        await ab.amSend(AM_ID, new Uint8Array(1));
        await receiving;
        expect(received).toEqual(await sent());
      });
    });

    it('is a part of a stream that is not in it, or resolves', async () => {
      const both = await pair(kind);
      await serving(both, async () => {
        const started = await startAll((number, signal) => both.ab.streamSend(numbered(64, number), { signal }));
        const sent = await started();
        await both.ab.streamSend(numbered(64, 0));
        const bytes = new Uint8Array((sent.length + 1) * 64);
        await both.ba.streamRecv(bytes, { waitAll: true });
        expect([...bytes]).toEqual([...sent, 0].flatMap((number) => [...numbered(64, number)]));
      });
    });

    it('is an addition that the word does not have, or resolves', async () => {
      const both = await pair(kind);
      await serving(both, async () => {
        const { ab, two } = both;
        const target = two.context.memMap({ allocate: 64 });
        const rkey = keyFor(ab, two, target);
        const added = await startAll((_number, signal) => ab.atomic('add', 1, rkey, { signal }));
        const adders = await added();
        const last = await ab.atomic('add', 0, rkey);
        expect(Number(last)).toBe(adders.length);
        rkey.release();
        unmap(two, target);
      });
    });
  });
}
