/** The PCIe throughput that an emulated card reports: what its DMA engines moved, over the time between two queries. */

import { describe, expect, it } from 'vitest';
import { useContexts } from '../../test/fixtures/contexts.ts';
import { getPciCounters, openControl } from '../hlthunk/index.ts';
import { ManualClock } from '../ucs/sys/clock.ts';

const BYTES = 1 << 20;

describe.each(['gaudi', 'gaudi2'] as const)('the PCIe throughput of an emulated card of %s', (asic) => {
  const fixture = useContexts('native');

  it('is that of its transfers since the query before', async () => {
    const clock = new ManualClock();
    const { node, context, endpoint } = await fixture.open({ node: { asic, clock, dmaThreads: 0, cards: 1 } });
    const memory = context.memMap({ allocate: BYTES, memoryType: 'gaudi' });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    using control = openControl(node, 0);
    const throughput = (): readonly number[] => {
      const { rxThroughput, txThroughput } = getPciCounters(control);
      return [Number(rxThroughput), Number(txThroughput)];
    };
    clock.advance(1e9);
    throughput();
    const data = Uint8Array.from({ length: BYTES }, (_, index) => index % 251);
    const got = new Uint8Array(BYTES);
    for (let i = 0; i < 3; i++) await endpoint.put(data, rkey);
    await endpoint.get(got, rkey);
    expect(Buffer.compare(got, data)).toBe(0);
    clock.advance(2e9);
    const kilobytes = (BYTES / 2 / 1000) | 0;
    const [receive, transmit] = throughput();
    // Besides the data, the card fetches and writes words of its queues.
    expect(receive! / kilobytes).toBeCloseTo(3, 1);
    expect(transmit! / kilobytes).toBeCloseTo(1, 1);
    clock.advance(9e6);
    expect(throughput()).toEqual([receive, transmit]);
    clock.advance(1e6);
    expect(throughput()).toEqual([0, 0]);
    rkey.release();
  });
});
