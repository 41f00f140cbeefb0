/** The queue of requests against an array. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PendingQueue } from './queued.ts';
import { FlushRequest, type Request } from './request/request.ts';

const OWNER = { freeRequest: () => undefined, cancelRequest: () => false, onObservedEnd: () => {}, onThrown: () => {} };
type Step = { readonly do: 'push' } | { readonly do: 'shift' } | { readonly do: 'remove'; readonly at: number };
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant('push' as const) }),
  fc.record({ do: fc.constant('shift' as const) }),
  fc.record({ do: fc.constant('remove' as const), at: fc.nat(20) }),
);

describe('PendingQueue', () => {
  it('does what an array does', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const queue = new PendingQueue();
        const model: Request[] = [];
        for (const action of steps) {
          if (action.do === 'push') {
            const request = new FlushRequest(OWNER);
            queue.push(request);
            model.push(request);
            expect(request.queued).toBe(true);
          } else if (action.do === 'shift') {
            expect(queue.shift()).toBe(model.shift());
          } else {
            const request = model[action.at] ?? new FlushRequest(OWNER);
            expect(queue.remove(request)).toBe(model.includes(request));
            if (model.includes(request)) model.splice(action.at, 1);
          }
          expect([queue.head === model[0], queue.isEmpty]).toEqual([true, model.length === 0]);
        }
        await Promise.resolve();
      }),
    );
  });

  it('takes what comes behind one that was removed from its end, or from all of it', () => {
    const queue = new PendingQueue();
    const [one, two, three] = [new FlushRequest(OWNER), new FlushRequest(OWNER), new FlushRequest(OWNER)];
    queue.push(one);
    queue.push(two);
    expect([queue.remove(two), two.queued, queue.remove(two)]).toEqual([true, false, false]);
    queue.push(three);
    expect([queue.shift() === one, one.queued, queue.shift() === three, queue.isEmpty]).toEqual([
      true,
      false,
      true,
      true,
    ]);
    queue.push(two);
    expect([queue.shift() === two, queue.shift()]).toEqual([true, undefined]);
  });
});
