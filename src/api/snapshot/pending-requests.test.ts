/** The summary of pending requests counts all of them, lists the oldest, and is bounded. */

import { describe, expect, it } from 'vitest';
import { createRandom } from '../../ucs/sys/random.ts';
import { SNAPSHOT_REQUESTS_MAX } from '../contract/snapshot.ts';
import { type PendingRequest, PendingRequests } from './summary.ts';

function summaryOf(all: readonly PendingRequest<number>[], described: number[] = []) {
  const requests = new PendingRequests<number>(({ request, protocol, reason, byteLength, ageMs }) => {
    described.push(request);
    return {
      protocol,
      reason,
      byteLength,
      ageMs,
      doneBytes: 0,
      endpoint: undefined,
      transport: undefined,
      waitsFor: '',
    };
  });
  for (const pending of all) requests.add(pending);
  return requests.summary(1000);
}

const pending = (request: number, ageMs: number, protocol = 'tag/recv'): PendingRequest<number> => ({
  request,
  protocol,
  reason: 'message',
  byteLength: request,
  ageMs,
});

describe('pending requests', () => {
  it('of which there are 100,000 are all counted, and the oldest are described, no others', () => {
    const random = createRandom(7);
    const all = Array.from({ length: 100_000 }, (_, index) =>
      pending(index, random.below(1_000_000), index % 2 === 0 ? 'tag/recv' : 'put/zcopy'),
    );
    const described: number[] = [];
    const { pending: count, ended, max, groups, oldest } = summaryOf(all, described);
    expect({ count, ended, max }).toEqual({ count: 100_000, ended: 0, max: 1000 });
    const byAge = [...all].sort((left, right) => right.ageMs - left.ageMs);
    expect(oldest.map(({ ageMs }) => ageMs)).toEqual(byAge.slice(0, SNAPSHOT_REQUESTS_MAX).map(({ ageMs }) => ageMs));
    expect(described).toHaveLength(SNAPSHOT_REQUESTS_MAX);
    for (const [index, { protocol, byteLength, count: each, oldestMs }] of groups.entries()) {
      const members = all.filter((one) => one.protocol === protocol);
      expect([index, each, byteLength]).toEqual([
        index,
        members.length,
        members.reduce((sum, one) => sum + one.byteLength, 0),
      ]);
      expect(oldestMs).toBe(members.reduce((most, one) => Math.max(most, one.ageMs), 0));
    }
    expect(groups).toHaveLength(2);
  });

  it('of very many kinds have one group for each reason of the rest', () => {
    const all = Array.from({ length: 1000 }, (_, index) => pending(index, index, `kind ${index}`));
    const { groups } = summaryOf([...all, { ...pending(7, 5, 'put'), reason: 'peer' }]);
    expect(groups).toHaveLength(66);
    expect(groups).toContainEqual({ protocol: 'others', reason: 'peer', count: 1, byteLength: 7, oldestMs: 5 });
    expect(groups[0]).toMatchObject({ protocol: 'others', count: 1000 - 64, oldestMs: 999 });
  });
});
