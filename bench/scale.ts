/** What one operation costs beside many endpoints, posted receives, unexpected messages and outstanding requests: it must not grow with their number. */

import { type Context as AnyContext, Context, type Endpoint, type Worker } from '../src/index.ts';
import { elapsedNs, median, medianPerCallNs, type Result } from './timing.ts';

const ENDPOINTS = [1, 100, 1000];
const WAITING = [1, 1000, 100_000];
const OUTSTANDING = [10, 100, 1000, 10_000];
const IDLE_NS_MAX = 150;
const GROWTH_MAX = 2;
const ROUNDS = 9;
const CALLS = 5000;
/** Calls of progress after which a worker has settled which of its peers it polls. */
const SETTLING_CALLS = 100_000;
const BYTES = new Uint8Array(8);
/** A tag that nothing else in these measurements has. */
const OWN_TAG = 2 ** 40;

/** Runs the measurements. */
export async function benchScale(): Promise<Result[]> {
  const results: Result[] = [];
  for (const transport of ['posix', 'tcp']) results.push(...(await overEndpoints(transport)));
  const matching = { TLS: 'self', UNEXP_MAX_BYTES: '4g' };
  results.push(...(await overCounts('posted receives', WAITING, matching, besidePosted)));
  results.push(...(await overCounts('unexpected messages', WAITING, matching, besideUnexpected)));
  results.push(...(await overCounts('outstanding requests', OUTSTANDING, matching, outstanding)));
  return results;
}

/** A worker that many others send to: its idle progress and the time of a message of one of them. */
async function overEndpoints(transport: string): Promise<Result[]> {
  const idle: number[] = [];
  const message: number[] = [];
  for (const count of ENDPOINTS) {
    const config = { TLS: transport, ...(transport === 'tcp' ? { NET_DEVICES: 'lo' } : {}) };
    await using context = await Context.create({ config });
    await using others = await Context.create({ config });
    const receiver = context.worker();
    const address = receiver.address();
    const senders = Array.from({ length: count }, () => others.worker());
    const endpoints = senders.map((sender) => sender.endpoint(address));
    for (const [i, endpoint] of endpoints.entries()) exchange(receiver, senders[i]!, endpoint);
    for (let i = 0; i < SETTLING_CALLS; i++) receiver.progress();
    idle.push(medianPerCallNs(ROUNDS, CALLS, () => receiver.progress()));
    const [sender, endpoint] = [senders[count - 1]!, endpoints[count - 1]!];
    for (let i = 0; i < SETTLING_CALLS; i++) exchange(receiver, sender, endpoint);
    message.push(medianPerCallNs(ROUNDS, CALLS / 5, () => exchange(receiver, sender, endpoint)));
    await Promise.all(endpoints.map((each) => each.close({ force: true })));
  }
  const what = (name: string): string => `${name}, ${ENDPOINTS.join(', ')} endpoints over ${transport}`;
  const [idleMost] = idle.slice(-1) as [number];
  return [
    {
      name: what('idle progress'),
      value: nanoseconds(idle),
      ratio: idleMost / IDLE_NS_MAX,
      target: `<= ${IDLE_NS_MAX} ns`,
      met: idleMost <= IDLE_NS_MAX,
    },
    growth(what('send and receive 8 B'), message),
  ];
}

/** One message, from the send to the end of the receive. */
function exchange(receiver: Worker, sender: Worker, endpoint: Endpoint): void {
  const sent = endpoint.tagSendNbx(BYTES, 0, BYTES.length, OWN_TAG);
  const received = receiver.tagRecvNbx(BYTES, 0, BYTES.length, OWN_TAG);
  if (typeof received !== 'number') {
    while (!received.isCompleted) {
      receiver.progress();
      if (typeof sent !== 'number') sender.progress();
    }
    received.free();
  }
  // Takes the credit that the receiver has returned.
  sender.progress();
  if (typeof sent === 'number') return;
  while (!sent.isCompleted) sender.progress();
  sent.free();
}

type Measure = (context: AnyContext, count: number) => number;

async function overCounts(
  name: string,
  counts: readonly number[],
  config: Readonly<Record<string, string>>,
  measure: Measure,
): Promise<Result[]> {
  const times: number[] = [];
  for (const count of counts) {
    await using context = await Context.create({ config });
    times.push(measure(context, count));
  }
  return [growth(`tag of 8 B, ${counts.join(', ')} ${name}`, times)];
}

/** The time of a message beside receives that wait for other tags. */
function besidePosted(context: AnyContext, count: number): number {
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const requests = Array.from({ length: count }, (_, tag) => worker.tagRecvNbx(BYTES, 0, BYTES.length, tag));
  const ns = medianPerCallNs(ROUNDS, CALLS, () => exchange(worker, worker, endpoint));
  for (const request of requests) {
    if (typeof request === 'number') throw new Error(`a receive was not posted: ${request}`);
    request.cancel();
    request.free();
  }
  return ns;
}

/** The time of a message beside messages that nothing receives. */
function besideUnexpected(context: AnyContext, count: number): number {
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  for (let tag = 0; tag < count; tag++) {
    const sent = endpoint.tagSendNbx(BYTES, 0, BYTES.length, tag);
    if (sent !== 0) throw new Error(`a message was not sent at once: ${String(sent)}`);
    worker.progress();
  }
  const ns = medianPerCallNs(ROUNDS, CALLS, () => exchange(worker, worker, endpoint));
  for (let tag = 0; tag < count; tag++) worker.tagRecvNbx(BYTES, 0, BYTES.length, tag);
  return ns;
}

/** The time of one of so many synchronous sends that are outstanding together, from the send to its end. */
function outstanding(context: AnyContext, count: number): number {
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  let ended = 0;
  const params = {
    callback: (request: { free(): void }): void => {
      ended += 1;
      request.free();
    },
  };
  const rounds = Math.max(3, Math.ceil((ROUNDS * CALLS) / count / 10));
  const times = Array.from({ length: rounds }, () => {
    ended = 0;
    return elapsedNs(() => {
      for (let i = 0; i < count; i++) endpoint.tagSendSyncNbx(BYTES, 0, BYTES.length, i, params);
      for (let i = 0; i < count; i++) worker.tagRecvNbx(BYTES, 0, BYTES.length, i, undefined, params);
      while (ended < 2 * count) worker.progress();
    });
  });
  return median(times) / count;
}

function growth(name: string, times: readonly number[]): Result {
  const ratio = times.at(-1)! / times[0]!;
  return { name, value: nanoseconds(times), ratio, target: `<= ${GROWTH_MAX} x`, met: ratio <= GROWTH_MAX };
}

function nanoseconds(times: readonly number[]): string {
  return `${times.map((ns) => ns.toFixed(0)).join(', ')} ns`;
}
