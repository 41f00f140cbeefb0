/** A thousand endpoints of one worker over loopback: they connect, exchange and close, and idle ones hold no buffers. */

import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { mappedMemoryStatistics, openFileDescriptors, scratchStatistics } from '../../../src/sys/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';

const ENDPOINTS = 1000;
/** Each peer has this number of endpoints to it, which share a connection. */
const SHARED = 5;
/** The most frames of one interface that had to wait while all connected: they are kept for reuse. */
const POOLED_BYTES_MAX = 2 ** 20;

describe('a thousand endpoints', { timeout: 60_000 }, () => {
  const fixture = useContexts();

  it('connect, exchange and close; idle ones hold no memory outside of the heap', async () => {
    const context = { config: { TLS: 'tcp', NET_DEVICES: 'lo' } };
    const one = await fixture.open({ context });
    const two = await fixture.open({ context });
    const peers = Array.from({ length: ENDPOINTS / SHARED }, () => two.context.worker());
    const addresses = peers.map((peer) => peer.address());
    const stop = new AbortController();
    const served = peers.map((peer) => peer.serve(stop.signal));
    // Node warns about a signal with more than ten.
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(1);
    const received = peers.flatMap((peer) =>
      Array.from({ length: SHARED }, (_, i) => {
        const bytes = new Uint8Array(8);
        return peer.tagRecv(bytes, { tag: i }).then(() => bytes);
      }),
    );

    const before = memoryOutsideOfTheHeap();
    const descriptors = openFileDescriptors();
    const endpoints = addresses.flatMap((address) =>
      Array.from({ length: SHARED }, () => one.worker.endpoint(address)),
    );
    const sent = endpoints.map((_, i) => Uint8Array.from({ length: 8 }, (__, at) => i * 3 + (i >> 8) + at));
    await Promise.all(endpoints.map((endpoint, i) => endpoint.tagSend(sent[i]!, { tag: i % SHARED })));
    expect(await Promise.all(received)).toEqual(sent);
    expect(endpoints.every((endpoint) => endpoint.messageTransport === 'tcp/lo')).toBe(true);
    // A socket at both ends of every connection; the workers of the peers sleep on two more.
    expect(openFileDescriptors() - descriptors).toBeLessThanOrEqual(4 * peers.length + 2);
    expect(memoryOutsideOfTheHeap() - before).toBeLessThanOrEqual(POOLED_BYTES_MAX);

    await Promise.all(endpoints.map((endpoint) => endpoint.close()));
    stop.abort();
    await Promise.all(served);
  });
});

function memoryOutsideOfTheHeap(): number {
  const { arenaBytes, liveBytes } = scratchStatistics();
  return mappedMemoryStatistics().liveBytes - arenaBytes + liveBytes;
}
