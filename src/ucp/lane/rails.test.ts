/** Dividing transfers between devices: shares by bandwidth, and transfers that are not divided. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DeviceType } from '../../uct/api/iface.ts';
import { type Candidate, type Plan, Protocol } from '../proto/selection.ts';
import type { Lane } from './lanes.ts';
import { railsOf } from './rails.ts';

const LIMITS = { railsMax: 2, chunkBytesMin: 16_384, bandwidthRatioMax: 4 };

function laneOf(deviceType: DeviceType): Lane {
  return { iface: { attributes: { resource: { deviceType } } } } as unknown as Lane;
}

function candidate(lane: number, perByteNs: number, protocol: Protocol = Protocol.ZCOPY): Candidate {
  return { lane, protocol, bytesMin: 1, bytesMax: Number.MAX_SAFE_INTEGER, fixedNs: 10, perByteNs };
}

function planOf(...candidates: readonly Candidate[]): Plan {
  const bytesMax = Number.MAX_SAFE_INTEGER;
  return { steps: [{ bytesMax, candidate: candidates[0]! }], candidates, rejected: [] };
}

const NETWORKS = [0, 1, 2].map(() => laneOf(DeviceType.NET));

describe('rails', () => {
  it('have shares in proportion to the bandwidth, and all of the bytes', async () => {
    await fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2 ** 31 }),
        fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 3 }),
        fc.integer({ min: 1, max: 8 }),
        (byteLength, costs, railsMax) => {
          const sorted = [...costs].sort((left, right) => left - right);
          const plan = planOf(...sorted.map((cost, lane) => candidate(lane, cost)));
          const rails = railsOf(plan, NETWORKS, byteLength, { ...LIMITS, railsMax });
          const countMax = Math.min(railsMax, sorted.length, Math.floor(byteLength / LIMITS.chunkBytesMin));
          expect(rails?.length ?? 1).toBe(Math.max(1, countMax));
          let at = 0;
          for (const { offset, byteLength: bytes } of rails ?? []) {
            expect(offset).toBe(at);
            expect(bytes).toBeGreaterThan(0);
            at += bytes;
          }
          if (rails === undefined) return;
          expect(at).toBe(byteLength);
          const total = rails.reduce((sum, { candidate: { perByteNs } }) => sum + 1 / perByteNs, 0);
          for (const { candidate: each, byteLength: bytes } of rails) {
            expect(Math.abs(bytes - byteLength / each.perByteNs / total)).toBeLessThanOrEqual(64 * rails.length);
          }
        },
      ),
    );
  });

  it('have shares that their lanes take', () => {
    const limited = (lane: number, bytesMin: number, bytesMax: number): Candidate => {
      return { ...candidate(lane, 1), bytesMin, bytesMax };
    };
    const three = { ...LIMITS, railsMax: 3 };
    const bytes = 2 ** 20;
    const lanesOf = (...candidates: readonly Candidate[]): unknown =>
      railsOf(planOf(...candidates), NETWORKS, bytes, three)?.map((rail) => [rail.candidate.lane, rail.byteLength]);
    const half = bytes / 2;
    expect(lanesOf(candidate(0, 1), limited(1, 1, 1000), candidate(2, 1))).toEqual([
      [0, half],
      [2, half],
    ]);
    expect(lanesOf(candidate(0, 1), limited(1, half + 1, bytes))).toBeUndefined();
    expect(lanesOf(limited(0, half, bytes), candidate(1, 1), candidate(2, 1))).toEqual([
      [0, half],
      [1, half],
    ]);
  });

  it('are not made of slow devices, of transports within the node, or of what is not zero copy', () => {
    const bytes = 2 ** 20;
    expect(railsOf(planOf(candidate(0, 1), candidate(1, 4)), NETWORKS, bytes, LIMITS)).toHaveLength(2);
    expect(railsOf(planOf(candidate(0, 1), candidate(1, 5)), NETWORKS, bytes, LIMITS)).toBeUndefined();
    expect(
      railsOf(planOf(candidate(0, 1), candidate(1, 1, Protocol.SOFTWARE)), NETWORKS, bytes, LIMITS),
    ).toBeUndefined();
    expect(railsOf(planOf(candidate(0, 1, Protocol.SHORT), candidate(1, 1)), NETWORKS, bytes, LIMITS)).toBeUndefined();
    const near = [laneOf(DeviceType.SHM), laneOf(DeviceType.SHM)];
    expect(railsOf(planOf(candidate(0, 1), candidate(1, 1)), near, bytes, LIMITS)).toBeUndefined();
    expect(railsOf({ steps: [], candidates: [], rejected: [] }, NETWORKS, bytes, LIMITS)).toBeUndefined();
  });
});
