/** Histograms of latency: their buckets and size classes, failures, bounds, and no subscription without a user. */

import { afterEach, describe, expect, it } from 'vitest';
import { type OperationEnd, operationEnd } from '../debug/diagnostics.ts';
import { Status } from '../type/status.ts';
import {
  acquireLatencies,
  LATENCY_BOUNDS_NS,
  latencies,
  type OperationLatencies,
  releaseLatencies,
} from './latency-histograms.ts';

let users = 0;
const acquire = (): void => {
  acquireLatencies();
  users += 1;
};
const release = (): void => {
  releaseLatencies();
  users -= 1;
};
afterEach(() => {
  while (users > 0) release();
});

function publish(protocol: string, byteLength: number, elapsedNs: number, status: number = Status.OK): void {
  const event: OperationEnd = {
    protocol,
    transport: 'posix',
    device: 'memory',
    byteLength,
    status,
    startNs: 1000,
    endNs: 1000 + elapsedNs,
    worker: 1,
  };
  operationEnd.publish(event);
}

const of = (protocol: string): OperationLatencies[] => latencies().filter((each) => each.protocol === protocol);

describe('latency histograms', () => {
  it('subscribe as long as they have users', () => {
    expect(operationEnd.hasSubscribers).toBe(false);
    acquire();
    acquire();
    release();
    expect(operationEnd.hasSubscribers).toBe(true);
    release();
    expect(operationEnd.hasSubscribers).toBe(false);
    publish('unmeasured', 1, 1);
    expect(of('unmeasured')).toEqual([]);
  });

  it('put every latency into its bucket, by size class', () => {
    acquire();
    for (const [index, boundNs] of LATENCY_BOUNDS_NS.entries()) {
      publish('bounds', 64, boundNs);
      publish('bounds', 65, boundNs + 1);
      expect(index).toBeLessThan(LATENCY_BOUNDS_NS.length);
    }
    const [small, larger, ...others] = of('bounds');
    expect(others).toEqual([]);
    const count = LATENCY_BOUNDS_NS.length;
    expect(small).toMatchObject({ size: '<=64', count, bytes: 64 * count, transport: 'posix', failures: 0 });
    expect(small!.buckets).toEqual([...LATENCY_BOUNDS_NS.map(() => 1), 0]);
    expect(larger).toMatchObject({ size: '<=1K', count, bytes: 65 * count });
    expect(larger!.buckets).toEqual([0, ...LATENCY_BOUNDS_NS.map(() => 1)]);
    expect(small!.sumNs).toBe(LATENCY_BOUNDS_NS.reduce((sum, boundNs) => sum + boundNs, 0));
  });

  it('count failures apart', () => {
    acquire();
    publish('failing', 8, 100, Status.IO_ERROR);
    publish('failing', 8, 100);
    expect(of('failing')).toMatchObject([{ failures: 1, count: 1, bytes: 8 }]);
  });
});
