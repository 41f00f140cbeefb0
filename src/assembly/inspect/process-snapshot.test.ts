/** The listed contexts of a thread: their numbers, which of them the inspect socket shows, and the sums of those that have closed. */

import { expect, it } from 'vitest';
import { type ListedContext, listContext, processSnapshot, unlistContext } from './process-snapshot.ts';

/** A context with these counters. */
function context(name: string, counters: Readonly<Record<string, number>> = {}): ListedContext {
  const stats = { className: 'ucp_worker', name: 'w', counters, children: [] };
  return { snapshot: () => ({ name }), stats: () => stats } as unknown as ListedContext;
}

it('has the contexts that are served, each with its own number', () => {
  const before = processSnapshot().contexts.length;
  const [first, hidden, second] = [context('first'), context('hidden'), context('second')];
  listContext(first, true);
  listContext(hidden, false);
  listContext(second, true);
  const shown = processSnapshot().contexts.slice(before) as unknown as { name: string; number: number }[];
  expect(shown.map(({ name }) => name)).toEqual(['first', 'second']);
  expect(shown[1]!.number - shown[0]!.number).toBe(2);
  const [dumped] = processSnapshot([hidden]).contexts;
  expect(dumped!.number - shown[0]!.number).toBe(1);
  unlistContext(first);
  const last = context('last');
  listContext(last, true);
  const { contexts } = processSnapshot();
  expect(contexts.at(-1)!.number - shown[0]!.number).toBe(3);
  for (const each of [hidden, second, last]) unlistContext(each);
  expect(processSnapshot().contexts.length).toBe(before);
});

it('sums the contexts that have closed, if they were served, once', () => {
  const before = processSnapshot().closed;
  const hidden = context('hidden', { failures: 5 });
  listContext(hidden, false);
  unlistContext(hidden);
  expect(processSnapshot().closed).toEqual(before);
  const served = context('served', { failures: 5, canceled: 2, tag_tx: 7 });
  listContext(served, true);
  expect(processSnapshot().closed).toEqual(before);
  unlistContext(served);
  const { contexts, operations, failures } = before;
  const after = { contexts: contexts + 1, operations: operations + 7, failures: failures + 3 };
  expect(processSnapshot().closed).toEqual(after);
  unlistContext(served);
  expect(processSnapshot().closed).toEqual(after);
});
