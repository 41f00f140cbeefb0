/** What the checks in the guest have in common: the devices, the binding, and one line for each check. */

import { setTimeout as pause } from 'node:timers/promises';
import { Libibverbs } from '../../src/verbs/libibverbs/libibverbs.ts';
import { loadLibibverbs } from '../../src/verbs/libibverbs/library.ts';
import { type Completed, RdmaEnd } from '../fixtures/transports/rdma-end.ts';

/** The devices, and the addresses of their interfaces. */
export const DEVICES = ['rxe0', 'rxe1'] as const;
export const ADDRESSES = ['10.7.0.1', '10.7.0.2'] as const;
/** The binding. */
export const verbs: Libibverbs = new Libibverbs(loadLibibverbs());

const CHECK_MS = 30_000;
const POLL_MS = 1;
const TURNS_MAX = 20_000;

let failures = 0;

/** Runs a check, for a bounded time. */
export async function check(name: string, run: () => void | Promise<void>): Promise<void> {
  const late = new AbortController();
  try {
    await Promise.race([
      run(),
      pause(CHECK_MS, undefined, { signal: late.signal }).then(() => {
        throw new Error(`not done after ${CHECK_MS / 1000} s`);
      }),
    ]);
    console.log(`ok ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED ${name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  } finally {
    late.abort();
  }
}

/** The number of checks that have failed. */
export function failureCount(): number {
  return failures;
}

/** Polls until there is a completion. */
export async function completion(end: RdmaEnd): Promise<Completed> {
  return (await completions(end, 1))[0]!;
}

/** Polls until there are so many completions. */
export async function completions(end: RdmaEnd, count: number): Promise<Completed[]> {
  const found: Completed[] = [];
  for (let turn = 0; found.length < count; turn++) {
    if (turn === TURNS_MAX) throw new Error(`${found.length} completions of ${count}`);
    const some = end.poll();
    found.push(...some);
    if (some.length === 0) await pause(POLL_MS);
  }
  return found;
}

/** Runs a check between one end on each device. */
export async function withEnds(run: (near: RdmaEnd, far: RdmaEnd) => Promise<void>): Promise<void> {
  const contexts = DEVICES.map((name) => verbs.open(name));
  const [near, far] = [new RdmaEnd(contexts[0]!), new RdmaEnd(contexts[1]!)];
  try {
    near.connect(far, { pathMtu: 3 });
    await run(near, far);
  } finally {
    near.close();
    far.close();
    for (const context of contexts) context.close();
  }
}
