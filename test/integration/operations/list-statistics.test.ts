/** Statistics of lists over both engines: every block and byte counts once, whichever transport moves it. */

import { describe, expect, it } from 'vitest';
import { type MemoryHandle, MemoryType, type TransferEntry } from '../../../src/index.ts';
import type { StatsNode } from '../../../src/ucs/stats/stats-node.ts';
import { rkeyOf, type Stack, useContexts } from '../../fixtures/contexts.ts';
import { contents, ENGINES, expectSame, pattern } from '../../fixtures/pair.ts';

const BYTES = 10_000;

/** The sum of counters over a tree. */
function sumOf({ counters, children }: StatsNode, names: readonly string[]): number {
  const own = names.reduce((sum, name) => sum + (counters[name] ?? 0), 0);
  return children.reduce((sum, child) => sum + sumOf(child, names), own);
}

describe.each(ENGINES)('over %s', (engine) => {
  const fixture = useContexts(engine);

  /** Remote memory of each type, and blocks of as many bytes, from host memory. */
  function blocksOf(stack: Stack, types: readonly MemoryType[]) {
    const remotes = types.map((memoryType) => stack.context.memMap({ allocate: BYTES, memoryType }));
    const locals = types.map((_, i) => pattern(BYTES - i, i + 1));
    const entries = remotes.map(
      (remote, i): TransferEntry => ({ local: locals[i]!, rkey: rkeyOf(stack, remote), byteLength: BYTES - i }),
    );
    return { remotes, locals, entries };
  }

  async function expectMoved(stack: Stack, remotes: readonly MemoryHandle[], locals: readonly Uint8Array[]) {
    for (const [i, remote] of remotes.entries()) {
      expectSame((await contents(stack, remote)).subarray(0, locals[i]!.length), locals[i]!);
    }
  }

  const { HOST, GAUDI } = MemoryType;

  it.each([
    ['host memory', [HOST, HOST, HOST]],
    ['HBM', [GAUDI, GAUDI, GAUDI]],
    ['host memory and HBM', [HOST, GAUDI, HOST, GAUDI, GAUDI]],
  ])('a list of puts to and gets from %s', async (_what, types) => {
    const stack = await fixture.open({ node: { cards: 1 } });
    const { context, endpoint } = stack;
    const { remotes, locals, entries } = blocksOf(stack, types);
    const total = locals.reduce((sum, { length }) => sum + length, 0);
    const before = context.stats();
    await endpoint.putList(entries);
    const between = context.stats();
    const back = entries.map((entry, i) => ({ ...entry, local: new Uint8Array(locals[i]!.length) }));
    await endpoint.getList(back);
    const after = context.stats();
    const added = (from: StatsNode, to: StatsNode, ...names: string[]): number => sumOf(to, names) - sumOf(from, names);
    expect({ put: added(before, between, 'put'), get: added(between, after, 'get') }).toEqual({
      put: types.length,
      get: types.length,
    });
    const BYTES_OF = ['bytes_short', 'bytes_bcopy', 'bytes_zcopy', 'bytes_tx', 'bytes_rx'];
    expect(added(before, between, ...BYTES_OF), 'bytes put').toBe(total);
    expect(added(between, after, ...BYTES_OF), 'bytes got').toBe(total);
    await expectMoved(stack, remotes, locals);
    for (const [i, { local }] of back.entries()) expectSame(local, locals[i]!);
  });
});
