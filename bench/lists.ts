/** Lists of puts beside one put of as many bytes, and beside single awaited puts. */

import { Context, type Endpoint, type Request, Status, type TransferEntry, type Worker } from '../src/index.ts';
import { elapsedNs, median, type Result } from './timing.ts';

const ROUNDS = 101;
/** Single puts are timed for so many blocks at most: they take a turn of the event loop each. */
const SINGLES_MAX = 256;

interface ListCase {
  readonly name: string;
  readonly tls: string;
  readonly blocks: number;
  readonly byteLength: number;
  readonly isDevice: boolean;
  /** Share of the rate of one put. */
  readonly target: number;
  /** How many times as fast as single awaited puts; undefined for no target. */
  readonly timesSingle?: number;
}

const CASES: readonly ListCase[] = [
  { name: 'host->HBM', tls: 'self,gaudi_cpy', blocks: 1024, byteLength: 65_536, isDevice: true, target: 0.95 },
  {
    name: 'host->HBM',
    tls: 'self,gaudi_cpy',
    blocks: 4096,
    byteLength: 4096,
    isDevice: true,
    target: 0.5,
    timesSingle: 5,
  },
  { name: 'tcp', tls: 'tcp', blocks: 1024, byteLength: 16_384, isDevice: false, target: 0.9 },
];

/** Runs all comparisons. */
export async function benchLists(): Promise<Result[]> {
  const results: Result[] = [];
  for (const each of CASES) results.push(...(await benchCase(each)));
  return results;
}

async function benchCase({
  name,
  tls,
  blocks,
  byteLength,
  isDevice,
  target,
  timesSingle,
}: ListCase): Promise<Result[]> {
  await using own = await Context.create({ config: { TLS: tls } });
  await using other = isDevice ? undefined : await Context.create({ config: { TLS: tls } });
  const peer = other ?? own;
  const one = own.worker();
  const two = other === undefined ? one : other.worker();
  const endpoint = one.endpoint(two.address());
  const total = blocks * byteLength;
  const local = own.memMap({ allocate: total });
  local.bytes!.fill(7);
  const remote = peer.memMap({ allocate: total, ...(isDevice && { memoryType: 'gaudi' as const }) });
  const rkey = endpoint.unpackRkey(peer.packRkey(remote));
  // In reverse order, so that no two blocks are one.
  const entries = Array.from({ length: blocks }, (_, i) => {
    return { local, offset: i * byteLength, rkey, remoteOffset: (blocks - 1 - i) * byteLength, byteLength };
  });
  const list = endpoint.prepareList('put', entries);
  const end = (started: Status | Request): void => drive([one, two], started);
  const whole: number[] = [];
  const listed: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    whole.push(
      elapsedNs(() => {
        end(endpoint.putNbx(local, 0, total, rkey, 0));
        end(endpoint.flushNbx());
      }),
    );
    listed.push(elapsedNs(() => end(endpoint.putListNbx(list, { flush: true }))));
  }
  const ratio = median(whole) / median(listed);
  const value = `${(median(listed) / 1e6).toFixed(2)} ms to ${(median(whole) / 1e6).toFixed(2)} ms`;
  const label = `${blocks} x ${byteLength / 1024} KiB ${name}`;
  const results: Result[] = [
    { name: `list of ${label} to one put`, value, ratio, target: `>= ${target}`, met: ratio >= target },
  ];
  if (timesSingle !== undefined) {
    const each = await awaitedNs(endpoint, entries.slice(0, SINGLES_MAX));
    const times = (each * blocks) / median(listed);
    const single = `${(each / 1e3).toFixed(1)} us for one`;
    results.push({
      name: `list of ${label} to single puts`,
      value: single,
      ratio: times,
      target: `>= ${timesSingle}`,
      met: times >= timesSingle,
    });
  }
  rkey.release();
  return results;
}

/** Nanoseconds of one awaited put. */
async function awaitedNs(endpoint: Endpoint, entries: readonly TransferEntry[]): Promise<number> {
  const begin = process.hrtime.bigint();
  for (const { local, rkey, ...range } of entries) await endpoint.put(local, rkey, range);
  return Number(process.hrtime.bigint() - begin) / entries.length;
}

function drive(workers: readonly Worker[], started: Status | Request): void {
  if (typeof started === 'number') {
    if (started !== Status.OK) throw new Error(`an operation ended with ${started}`);
    return;
  }
  while (!started.isCompleted) for (const worker of workers) worker.progress();
  if (started.status !== Status.OK) throw new Error(`a request ended with ${started.status}`);
  started.free();
}
