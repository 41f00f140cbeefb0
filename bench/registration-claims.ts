/**
 * The savings of the registration cache with real registrations, by MEMORY ioctls of the emulated driver: hit rate, saved share of the
 * registration time, and memory. The cost of a lookup is in registration-cache.ts.
 */

import { free, type HostBuffer, type HostMapping, hostMemoryMap, malloc, openDevice } from '../src/hlthunk.ts';
import { Rcache } from '../src/ucs/rcache/rcache.ts';
import type { RcacheRegion } from '../src/ucs/rcache/region.ts';
import { createRandom } from '../src/ucs/sys/random.ts';
import type { Result } from './timing.ts';

const BUFFER_BYTES = 256 * 1024;
const USES = 20_000;
/** Buffers of a program that reuses its buffers. */
const REUSED = 64;
/** Buffers of a program with more buffers than can be registered at a time, and the bound. */
const WORKING_SET = 512;
const REGIONS_MAX = 256;
/** Regions whose heap memory is measured, and their bytes. */
const COUNTED = 20_000;
const COUNTED_BYTES = 65_536;
const HITS_MIN = 0.85;
const SAVED_MIN = 0.5;
const OVERHEAD_MAX = 0.05;
const SEED = 1;

/** Runs all measurements. */
export function benchRegistrationClaims(): Result[] {
  return [
    overhead(),
    ...workload('reused buffers', REUSED, REGIONS_MAX, (random) => Math.floor(random() * REUSED)),
    // A few are used often, most rarely (Zipf): the least recently used ones are evicted.
    ...workload('working set, LRU turnover', WORKING_SET, REGIONS_MAX, zipf(WORKING_SET)),
  ];
}

type Choice = (random: () => number) => number;

/** Uses buffers in random order, registered through the cache and, for comparison, for each use. */
function workload(name: string, buffers: number, maxRegions: number, choose: Choice): Result[] {
  const device = openDevice({ driver: 'emulator' });
  const memory: HostBuffer[] = Array.from({ length: buffers }, () => malloc(BUFFER_BYTES));
  // Memory in use has its pages: creating them is not part of registering.
  for (const { bytes } of memory) bytes.fill(1);
  const map = (start: number, byteLength: number): HostMapping => hostMemoryMap(device, start, byteLength);
  const cache = new Rcache<HostMapping>({
    registrar: { addressOf: () => 0, register: map, deregister: (mapping) => mapping.unmap() },
    maxRegions,
    maxSize: Number.POSITIVE_INFINITY,
  });
  const random = createRandom(SEED);
  const order = Int32Array.from({ length: USES }, () => choose(() => random.nextU32() / 2 ** 32));
  // Both are measured with code that V8 has compiled.
  for (const at of order) map(memory[at]!.address, BUFFER_BYTES).unmap();
  const cachedNs = processorNs(() => {
    for (const at of order) {
      cache.release(cache.acquireRange(memory[at]!.address, BUFFER_BYTES) as RcacheRegion<HostMapping>);
    }
  });
  const { gets, misses } = cache.counters;
  cache.close();
  const aloneNs = processorNs(() => {
    for (const at of order) map(memory[at]!.address, BUFFER_BYTES).unmap();
  });
  for (const buffer of memory) free(buffer);
  device.close();
  const hits = 1 - misses / gets;
  const saved = 1 - cachedNs / aloneNs;
  const times = `${(aloneNs / USES / 1000).toFixed(1)} us, ${(cachedNs / USES / 1000).toFixed(2)} us`;
  return [
    share(`rcache hits, ${name}`, `${gets} uses, ${misses} misses`, hits, HITS_MIN),
    share(`rcache time saved, ${name}`, times, saved, SAVED_MIN),
  ];
}

/** Processor time of `run`, which does not depend on other programs. */
function processorNs(run: () => void): number {
  const begin = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(begin);
  return (user + system) * 1000;
}

function share(name: string, value: string, part: number, min: number): Result {
  const shown = `${(part * 100).toFixed(1)} % (${value})`;
  return { name, value: shown, ratio: part, target: `>= ${min * 100} %`, met: part >= min };
}

/** Selects the k-th of `count` with a probability proportional to 1 / k. */
function zipf(count: number): Choice {
  const sums = new Float64Array(count);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    sum += 1 / (i + 1);
    sums[i] = sum;
  }
  return (random) => {
    const at = random() * sum;
    return sums.findIndex((each) => each >= at);
  };
}

/** Heap bytes for each region, relative to the registered bytes. The registrations themselves belong to the driver. */
function overhead(): Result {
  const registration = {};
  const cache = new Rcache<object>({
    registrar: { addressOf: () => 0, register: () => registration, deregister: () => {} },
    maxRegions: Number.POSITIVE_INFINITY,
    maxSize: Number.POSITIVE_INFINITY,
  });
  const before = heapBytes();
  for (let i = 1; i <= COUNTED; i++) {
    cache.release(cache.acquireRange(i * 2 * COUNTED_BYTES, COUNTED_BYTES) as RcacheRegion<object>);
  }
  const bytes = (heapBytes() - before) / COUNTED;
  cache.close();
  const part = bytes / COUNTED_BYTES;
  return {
    name: 'rcache memory, regions of 64 KiB',
    value: `${bytes.toFixed(0)} bytes each, ${(part * 100).toFixed(2)} %`,
    ratio: part,
    target: `< ${OVERHEAD_MAX * 100} %`,
    met: part < OVERHEAD_MAX,
  };
}

function heapBytes(): number {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}
