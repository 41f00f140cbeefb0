/** The limit of latency histograms, in a separate process, because histograms are kept until the process ends. */

import { expect, it } from 'vitest';
import { operationEnd } from '../debug/diagnostics.ts';
import { acquireLatencies, latencies, releaseLatencies } from './latency-histograms.ts';

it('latencies are of a limited number of kinds', () => {
  acquireLatencies();
  for (let kind = 0; kind < 600; kind++) {
    operationEnd.publish({
      protocol: `kind ${kind}`,
      transport: 't',
      device: undefined,
      byteLength: 64,
      status: 0,
      startNs: 1000,
      endNs: 1001,
      worker: 1,
    });
  }
  releaseLatencies();
  expect(latencies().map(({ protocol, count }) => [protocol, count])).toEqual(
    Array.from({ length: 512 }, (_, kind) => [`kind ${kind}`, 1]),
  );
});
