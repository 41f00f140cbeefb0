/**
 * Every alignment of both sides: puts, gets and messages of sizes around every threshold and around fragments, from and into memory of every kind, touch no adjacent byte.
 */

import * as fc from 'fast-check';
import { describe, it } from 'vitest';
import { catches } from '../fixtures/catches.ts';
import { extent } from '../fixtures/extent.ts';
import { nativeWorker } from '../fixtures/libucp/native-engine.ts';
import {
  CONNECTION_KINDS,
  contents,
  expectSame,
  fill,
  keyFor,
  memoryKinds,
  memoryOf,
  type Pair,
  pattern,
  serving,
  unmap,
  usePairs,
} from '../fixtures/pair.ts';

const RUNS = extent('GAUDI_UCX_ALIGNMENT_RUNS', 150, 3000);
const OFFSETS = 64;
const AROUND = 2;
/** Besides the limits of the transports: words, cache lines, pages. */
const SIZES = [1, 8, 64, 4096, 65_536];
const SIZE_MAX = 300_000;
/** Of UCX_RNDV_FRAG_SIZE: the default, and one of which many are moved in little time. */
const FRAGMENTS = [2 ** 19, 2 ** 16] as const;
/** Around one fragment and several, the last of them short. */
const FRAGMENT_COUNTS = [1, 2, 3, 3.5];
const TIMEOUT_MS = 600_000;

const OPERATIONS = ['put', 'get', 'tag', 'am', 'stream'] as const;
type Operation = (typeof OPERATIONS)[number];

/** Sizes at which the protocol may change. */
function thresholds({ one, kind }: Pair): readonly number[] {
  if (kind.engine === 'libucx') return [...SIZES, 8192, 262_144];
  const limits = nativeWorker(one.worker).ifaces.flatMap(({ attributes: { put, get, am } }) => [
    put.shortBytesMax,
    get.shortBytesMax,
    am.shortBytesMax,
    am.bcopyBytesMax,
  ]);
  return [...new Set([...SIZES, ...limits])].filter((size) => size > 0 && size <= SIZE_MAX);
}

/** Moves bytes from `from` of the one memory to `to` of the other. */
async function move(
  pair: Pair,
  operation: Operation,
  source: { readonly memory: ReturnType<typeof memoryOf>; readonly offset: number },
  target: { readonly memory: ReturnType<typeof memoryOf>; readonly offset: number },
  byteLength: number,
): Promise<void> {
  const { two, ab, ba } = pair;
  const sent = [{ memory: source.memory, offset: source.offset, byteLength }];
  const received = [{ memory: target.memory, offset: target.offset, byteLength }];
  switch (operation) {
    case 'put': {
      const rkey = keyFor(ab, two, target.memory as never);
      await ab.put(source.memory, rkey, { offset: source.offset, byteLength, remoteOffset: target.offset });
      rkey.release();
      break;
    }
    case 'get': {
      const rkey = keyFor(ba, pair.one, source.memory as never);
      await ba.get(target.memory, rkey, { offset: target.offset, byteLength, remoteOffset: source.offset });
      rkey.release();
      break;
    }
    case 'tag':
      await Promise.all([ab.tagSend(sent, { tag: 7 }), two.worker.tagRecv(received, { tag: 7 })]);
      break;
    case 'stream':
      await Promise.all([ab.streamSend(sent), ba.streamRecv(received, { waitAll: true })]);
      break;
    default: {
      const taken = new Promise<void>((resolve, reject) => {
        two.worker.setAmHandler(3, (message) => void message.into(received).then(() => resolve(), reject));
      });
      await Promise.all([ab.amSend(3, sent), taken]);
    }
  }
}

describe.each(CONNECTION_KINDS)('over $name', (kind) => {
  const fixture = usePairs(kind);

  it('sizes around thresholds, at every alignment, move their bytes and no others', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const pair = await fixture.pair(kind);
    await check(pair, thresholds(pair), RUNS, move);
  });

  it.each(FRAGMENTS)(
    'sizes around fragments of %i bytes, at every alignment, too',
    { timeout: TIMEOUT_MS },
    async (bytes) => {
      const pair = await fixture.pair(kind, { UCX_RNDV_FRAG_SIZE: String(bytes) });
      // As many bytes for each size of fragments.
      const runs = Math.ceil((RUNS * FRAGMENTS[1]) / (2 * bytes));
      await check(
        pair,
        FRAGMENT_COUNTS.map((count) => count * bytes),
        runs,
        move,
      );
    },
  );

  it.each([-1, 1])('a move of %i byte too many is noticed', async (more) => {
    const pair = await fixture.pair(kind);
    const broken: typeof move = (to, operation, source, target, byteLength) =>
      move(to, operation, source, target, byteLength + more);
    await catches((moving: typeof move) => check(pair, [4096], 1, moving), broken, /the target/);
  });

  async function check(pair: Pair, sizes: readonly number[], runs: number, moving: typeof move): Promise<void> {
    const { one, two } = pair;
    const local = memoryKinds(kind);
    // Keys exist for mapped memory only.
    const mapped = local.filter((each) => each !== 'bytes');
    const step = fc.record({
      operation: fc.constantFrom(...OPERATIONS),
      size: fc.constantFrom(...sizes),
      more: fc.integer({ min: -AROUND, max: AROUND }),
      here: fc.nat(OFFSETS - 1),
      there: fc.nat(OFFSETS - 1),
      from: fc.nat(),
      to: fc.nat(),
    });
    let seed = 0;
    const property = fc.asyncProperty(step, async ({ operation, size, more, here, there, from, to }) => {
      const byteLength = Math.max(1, size + more);
      const [sources, targets] = [operation === 'get' ? mapped : local, operation === 'put' ? mapped : local];
      const source = memoryOf(one, sources[from % sources.length]!, byteLength + OFFSETS);
      const target = memoryOf(two, targets[to % targets.length]!, byteLength + OFFSETS);
      seed += 1;
      const [sent, before] = [pattern(byteLength + OFFSETS, seed), pattern(byteLength + OFFSETS, seed + 100_000)];
      await serving(pair, async () => {
        await fill(one, source, sent);
        await fill(two, target, before);
        await moving(pair, operation, { memory: source, offset: here }, { memory: target, offset: there }, byteLength);
        before.set(sent.subarray(here, here + byteLength), there);
        expectSame(await contents(two, target), before, 'the target');
        expectSame(await contents(one, source), sent, 'the source');
      });
      unmap(one, source);
      unmap(two, target);
    });
    await fc.assert(property, { numRuns: runs, seed: 20_240 });
    two.worker.setAmHandler(3, undefined);
  }
});
