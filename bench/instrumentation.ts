/** The cost of statistics and events for an 8-byte put without subscribers: counting and checks alone, as a share of the total. */

import { Context } from '../src/index.ts';
import { operationEnd } from '../src/ucs/debug/diagnostics.ts';
import { Transfer, TransferCounters } from '../src/uct/base/counters.ts';
import { medianPerCallNs, type Result } from './timing.ts';

const ROUNDS = 15;
const CALLS = 20_000;
const CHEAP_CALLS = 2_000_000;
const SHARE_MAX = 0.03;

/** Runs the measurement. */
export async function benchInstrumentation(): Promise<Result[]> {
  // The shortest operation: a put to the memory of another process, which ends in its call.
  await using context = await Context.create({ config: { TLS: 'posix' } });
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const memory = context.memMap({ allocate: 4096 });
  const key = endpoint.unpackRkey(context.packRkey(memory));
  const bytes = new Uint8Array(8);
  const put = (): void => {
    if (endpoint.putNbx(bytes, 0, 8, key, 64) !== 0) throw new Error('the put did not end in its call');
  };
  for (let i = 0; i < CALLS; i++) put();
  const putNs = medianPerCallNs(ROUNDS, CALLS, put);
  const counters = new TransferCounters();
  let observed = 0;
  const count = (): void => {
    if (operationEnd.hasSubscribers) observed += 1;
    counters.short(Transfer.PUT, 8);
  };
  const nothing = (): void => {
    observed += 0;
  };
  const countNs = medianPerCallNs(ROUNDS, CHEAP_CALLS, count) - medianPerCallNs(ROUNDS, CHEAP_CALLS, nothing);
  if (observed !== 0) throw new Error('instrumentation is on');
  const share = Math.max(0, countNs) / putNs;
  return [
    {
      name: 'instrumentation in an 8-byte put',
      value: `${countNs.toFixed(1)} ns of a put of ${putNs.toFixed(0)} ns over posix`,
      ratio: share,
      target: `<= ${SHARE_MAX}`,
      met: share <= SHARE_MAX,
    },
  ];
}
