/**
 * A thousand endpoints of one worker over loopback, each to its own worker: time to connect, exchange and close, memory and descriptors of one.
 */

import { setMaxListeners } from 'node:events';
import { Context } from '../src/index.ts';
import { openFileDescriptors } from '../src/sys/index.ts';
import type { Result } from './timing.ts';

const COUNT = 1000;
const BYTES_MAX = 16_384;
const CONFIG = { TLS: 'tcp', NET_DEVICES: 'lo' };

/** Runs the measurement. */
export async function benchEndpoints(): Promise<Result[]> {
  await using own = await Context.create({ config: CONFIG });
  await using others = await Context.create({ config: CONFIG });
  const worker = own.worker();
  const peers = Array.from({ length: COUNT }, () => others.worker());
  const addresses = peers.map((peer) => peer.address());
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  const served = peers.map((peer) => peer.serve(stop.signal));

  const before = resources();
  const beginMs = performance.now();
  const endpoints = addresses.map((address) => worker.endpoint(address));
  await Promise.all(endpoints.map((endpoint, tag) => endpoint.tagSend(BYTE, { tag })));
  const connectedMs = performance.now();
  await Promise.all(endpoints.map((endpoint, tag) => endpoint.tagSend(BYTE, { tag })));
  const exchangedMs = performance.now();
  const after = resources();
  await Promise.all(endpoints.map((endpoint) => endpoint.close()));
  const closedMs = performance.now();
  stop.abort();
  await Promise.all(served);

  // Both ends of every connection are in this process.
  const bytes = (after.bytes - before.bytes) / COUNT / 2;
  const descriptors = (after.descriptors - before.descriptors) / COUNT / 2;
  return [
    told('connect and first message', `${((connectedMs - beginMs) / COUNT).toFixed(2)} ms each`),
    told('second message', `${((exchangedMs - connectedMs) / COUNT).toFixed(3)} ms each`),
    told('close', `${((closedMs - exchangedMs) / COUNT).toFixed(3)} ms each`),
    {
      name: `${COUNT} endpoints over tcp: memory of one`,
      value: `${(bytes / 1024).toFixed(1)} KiB`,
      ratio: bytes / BYTES_MAX,
      target: `<= ${BYTES_MAX / 1024} KiB`,
      met: bytes <= BYTES_MAX,
    },
    told('descriptors of one, those for sleeping included', descriptors.toFixed(1)),
  ];
}

const BYTE: Uint8Array = Uint8Array.of(1);

function told(name: string, value: string): Result {
  return { name: `${COUNT} endpoints over tcp: ${name}`, value, ratio: 1, target: 'none', met: true };
}

function resources(): { readonly bytes: number; readonly descriptors: number } {
  (globalThis as { gc?: () => void }).gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return { bytes: heapUsed + external, descriptors: openFileDescriptors() };
}
