/** Memory of cards is safe when an operation settles, also one that is closed by force while a card moves a part of it and the rest waits. */

import { describe, expect, it } from 'vitest';
import { DMA_REQUESTS_MAX } from '../../../src/hlthunk/index.ts';
import { type Endpoint, type MemoryHandle, type RemoteKey, type Request, Status } from '../../../src/index.ts';
import { ManualClock } from '../../../src/ucs/sys/clock.ts';
import {
  connectionKind,
  contents,
  driveIdle,
  driveUntil,
  ENGINES,
  expectContents,
  fill,
  keyFor,
  mappedOf,
  pattern,
  serving,
  usePairs,
} from '../../fixtures/pair.ts';

const BLOCK = 4096;
/** Blocks of the list that the card still accepts, and the others. */
const ACCEPTED = 16;
const BLOCKS = 4 * ACCEPTED;
/** Turns of the event loop in which everything settles that does not wait for the card. */
const TURNS = 4 * BLOCKS;
const HANG_NS = 1e6;

/** Starts a list of single blocks, which lie apart: the card moves each separately. */
function startList(
  endpoint: Endpoint,
  name: 'putListNbx' | 'getListNbx',
  [local, rkey]: readonly [MemoryHandle, RemoteKey],
  count: number,
  statuses: Status[],
): void {
  const callback = (request: Request, status: Status): void => {
    statuses.push(status);
    request.free();
  };
  const strides = { localStride: 2 * BLOCK, remoteStride: 2 * BLOCK };
  const started = endpoint[name]([{ local, rkey, byteLength: BLOCK, count, ...strides }], { callback });
  expect(typeof started).toBe('object');
}

describe.each(ENGINES)('a list between two cards over %s, when a card hangs and its queue is full', (engine) => {
  const fixture = usePairs();

  it.each([
    ['putListNbx', 'endpoint'],
    ['getListNbx', 'endpoint'],
    ['putListNbx', 'worker'],
    ['getListNbx', 'worker'],
  ] as const)('%s does not use its memory after its end by the close of its %s', async (name, closing) => {
    const clock = new ManualClock();
    const kind = connectionKind(engine === 'native' ? 'all transports' : 'libucx, all');
    const pair = await fixture.pair({ ...kind, node: { dmaThreads: 1, clock } });
    const { node, one, two, ab } = pair;
    const worker = one.context.worker();
    const other = { ...one, worker, endpoint: worker.endpoint(worker.address()) };
    const filling = worker.endpoint(two.worker.address());
    const bytes = 2 * BLOCK * DMA_REQUESTS_MAX;
    const [many, few] = [mappedOf(one, 'gaudi', bytes), mappedOf(one, 'gaudi', 2 * BLOCK * BLOCKS)];
    const [farMany, farFew] = [mappedOf(two, 'gaudi', bytes), mappedOf(two, 'gaudi', 2 * BLOCK * BLOCKS)];
    const [manyKey, fewKey] = [keyFor(filling, two, farMany), keyFor(ab, two, farFew)];
    await serving({ one: other, two }, () => filling.get(many, manyKey, { byteLength: BLOCK }));
    await serving(pair, () => ab.get(few, fewKey, { byteLength: BLOCK }));

    node.inject(0, { kind: 'hang', delayNs: HANG_NS });
    const filled: Status[] = [];
    const statuses: Status[] = [];
    startList(filling, 'getListNbx', [many, manyKey], DMA_REQUESTS_MAX - ACCEPTED, filled);
    startList(ab, name, [few, fewKey], BLOCKS, statuses);
    const closed = closing === 'endpoint' ? ab.close({ force: true }) : one.worker.close();
    for (let turn = 0; turn < TURNS && statuses.length === 0; turn++) {
      // Wakes what waits in the worker, as the end of any other operation does.
      const stop = new AbortController();
      const served = one.worker.serve(stop.signal);
      await new Promise(setImmediate);
      stop.abort();
      await served;
    }

    // The card still uses the memory of the blocks that it has accepted.
    const early = [...statuses];
    clock.advance(HANG_NS);
    await closed;
    await driveUntil(
      { one: closing === 'endpoint' ? one : other, two: other },
      () => statuses.length + filled.length > 1,
    );
    expect(early).toEqual([]);
    expect([Status.OK, Status.CANCELED]).toContain(statuses[0]);
    expect(filled).toEqual([Status.OK]);

    const moved = await contents(two, farFew);
    const reused = pattern(2 * BLOCK * BLOCKS, 3);
    await fill(other, few, reused);
    await driveIdle({ one: other, two }, TURNS);
    await expectContents(other, few, reused);
    await expectContents(two, farFew, moved);
  });
});
