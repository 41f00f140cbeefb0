/**
 * More than 4 GiB between two ends, of HBM, whose emulation is sparse: ranges beyond and across 2^32 by every operation, and, in a full run, transfers
 * that are longer.
 */

import { describe, expect, it } from 'vitest';
import type { IovPiece, MemoryHandle } from '../../../src/index.ts';
import { IS_FULL } from '../../fixtures/extent.ts';
import {
  expectSame,
  keyFor,
  mappedOf,
  PAIR_KINDS,
  type Pair,
  pattern,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';

const LIMIT = 2 ** 32;
const WINDOW = 20_000;
const BYTES = LIMIT + 2 * WINDOW + 4093;
/** Across the limit, behind it, and at the end of the memory. */
const PLACES = [LIMIT - WINDOW / 2 + 1, LIMIT, LIMIT + WINDOW + 3, BYTES - WINDOW];
const KINDS = PAIR_KINDS.filter(({ hasGaudi }) => hasGaudi);

const OPERATIONS = ['put', 'get', 'tag', 'am', 'list'] as const;
type Operation = (typeof OPERATIONS)[number];

/** Moves a range between memories of the two ends, at different offsets. */
async function move(
  { one, two, ab, ba }: Pair,
  operation: Operation,
  [source, from]: readonly [MemoryHandle, number],
  [target, to]: readonly [MemoryHandle, number],
  byteLength: number,
): Promise<void> {
  const sent: readonly IovPiece[] = [{ memory: source, offset: from, byteLength }];
  const received: readonly IovPiece[] = [{ memory: target, offset: to, byteLength }];
  const rkey = operation === 'get' ? keyFor(ba, one, source) : keyFor(ab, two, target);
  switch (operation) {
    case 'put':
      await ab.put(source, rkey, { offset: from, byteLength, remoteOffset: to });
      break;
    case 'get':
      await ba.get(target, rkey, { offset: to, byteLength, remoteOffset: from });
      break;
    case 'list':
      await ab.putList([{ local: source, offset: from, rkey, remoteOffset: to, byteLength }]);
      break;
    case 'tag':
      await Promise.all([ab.tagSend(sent, { tag: 7 }), two.worker.tagRecv(received, { tag: 7 })]);
      break;
    case 'am': {
      const taken = new Promise<void>((resolve, reject) => {
        two.worker.setAmHandler(3, (message) => void message.into(received).then(() => resolve(), reject));
      });
      await Promise.all([ab.amSend(3, sent), taken]);
      two.worker.setAmHandler(3, undefined);
    }
  }
  rkey.release();
}

const windowOf = (memory: MemoryHandle, offset: number): Promise<Uint8Array> =>
  memory.read(undefined, { offset, byteLength: WINDOW });

describe.each(KINDS)('over $name', (kind) => {
  const fixture = usePairs(kind);

  it('ranges across and beyond 4 GiB arrive at their places, and at no place below', async () => {
    const pair = await fixture.pair(kind);
    const [source, target] = [mappedOf(pair.one, 'gaudi', BYTES), mappedOf(pair.two, 'gaudi', BYTES)];
    let seed = 1;
    for (const operation of OPERATIONS) {
      for (const [index, from] of PLACES.entries()) {
        const to = PLACES[(index + 1) % PLACES.length]!;
        const sent = pattern(WINDOW, seed);
        const what = `${operation} from ${from} to ${to}`;
        seed += 1;
        await source.write(sent, { offset: from });
        await target.fill(0, { offset: to, byteLength: WINDOW });
        await serving(pair, () => move(pair, operation, [source, from], [target, to], WINDOW));
        expectSame(await windowOf(target, to), sent, what);
        // Where an offset of 32 bits would have written.
        for (const low of [0, to % LIMIT, from % LIMIT]) {
          if (low + WINDOW < PLACES[0]!)
            expectSame(await windowOf(target, low), new Uint8Array(WINDOW), `${what}, below`);
        }
      }
    }
    pair.one.context.memUnmap(source);
    pair.two.context.memUnmap(target);
  });

  const title = 'transfers of more than 4 GiB arrive whole (needs a full run: 8 GiB of memory)';
  it.skipIf(!IS_FULL)(title, { timeout: 600_000 }, async () => {
    const pair = await fixture.pair(kind);
    const [source, target] = [mappedOf(pair.one, 'gaudi', BYTES), mappedOf(pair.two, 'gaudi', BYTES)];
    const windows = [0, LIMIT / 2, ...PLACES];
    for (const [index, operation] of (['put', 'get', 'tag'] as const).entries()) {
      for (const [place, offset] of windows.entries())
        await source.write(pattern(WINDOW, 100 * index + place), { offset });
      const sent = await Promise.all(windows.map((offset) => windowOf(source, offset)));
      await serving(pair, () => move(pair, operation, [source, 0], [target, 0], BYTES));
      for (const [place, offset] of windows.entries()) {
        expectSame(await windowOf(target, offset), sent[place]!, `${operation}, at ${offset}`);
      }
    }
    expect(target.byteLength).toBe(BYTES);
    pair.one.context.memUnmap(source);
    pair.two.context.memUnmap(target);
  });
});
