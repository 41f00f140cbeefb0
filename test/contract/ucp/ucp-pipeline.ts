/**
 * Device memory over transports that do not reach it: windows that are read into fragments, written from fragment to fragment, and written to the
 * device, several at a time; and such transfers that end early.
 */

import { describe, expect, it } from 'vitest';
import type { Endpoint } from '../../../src/index.ts';
import { nativeWorker } from '../../fixtures/libucp/native-engine.ts';
import {
  connectionKind,
  expectContents,
  fill,
  type MemoryKind,
  memoryOf,
  pattern,
  type Side,
  unmap,
  usePairs,
} from '../../fixtures/pair.ts';

export const FRAGMENT = 65_536;
export const SMALL = { UCX_RNDV_FRAG_SIZE: '64k', UCX_RNDV_FRAG_ALLOC_COUNT: '8', UCX_RNDV_THRESH: '1' };
export const SIZES: readonly number[] = [
  1,
  8193,
  FRAGMENT - 1,
  FRAGMENT,
  FRAGMENT + 1,
  2 * FRAGMENT,
  9 * FRAGMENT + 4097,
];

/** Two ends with endpoints in both directions. */
export interface Ends {
  readonly one: Side;
  readonly two: Side;
  readonly ab: Endpoint;
  readonly ba: Endpoint;
}

export const WAYS = [
  ['gaudi', 'gaudi'],
  ['gaudi', 'registered'],
  ['gaudi', 'bytes'],
  ['bytes', 'gaudi'],
  ['registered', 'gaudi'],
] as const;

export function inUse({ worker }: Side): number {
  return nativeWorker(worker).protocols.rendezvous.staging.inUse;
}

/** Sends a message, and checks the received bytes. */
export async function send(
  ends: Ends,
  from: MemoryKind,
  to: MemoryKind,
  byteLength: number,
): Promise<string | undefined> {
  const { one, two, ab } = ends;
  const [source, target] = [memoryOf(one, from, byteLength), memoryOf(two, to, byteLength)];
  await fill(one, source, pattern(byteLength, byteLength));
  const [sent] = await Promise.all([ab.tagSend(source, { tag: 1 }), two.worker.tagRecv(target, { tag: 1 })]);
  await expectContents(two, target, pattern(byteLength, byteLength), `${byteLength} bytes`);
  expect([inUse(one), inUse(two)]).toEqual([0, 0]);
  unmap(one, source);
  unmap(two, target);
  return sent.protocol;
}

/** Declares the tests of pipelines of device memory over a kind of connection. */
export function pipelineContract(name: string): void {
  describe(`a pipeline over ${name}`, () => {
    const fixture = usePairs();

    it('writes from fragment to fragment', async () => {
      const pair = await fixture.pair(connectionKind(name), SMALL);
      const protocols = new Set<string>();
      for (const [from, to] of WAYS) {
        for (const byteLength of SIZES) protocols.add(`${from} ${to} ${await send(pair, from, to, byteLength)}`);
      }
      const reachesAll = name !== 'staging, posix';
      const expected = WAYS.map(([from, to]) => {
        // Shared memory has keys of allocated memory only.
        const isReachable = to === 'gaudi' || reachesAll;
        return `${from} ${to} ${isReachable ? 'tag/rndv/put-pipeline' : 'tag/rndv/am'}`;
      });
      expect([...protocols]).toEqual(expected);
    });
  });
}
