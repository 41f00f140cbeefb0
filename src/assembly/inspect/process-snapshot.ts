/** The snapshot of one thread of a process: its identity, and the list of its open contexts. */

import { hostname } from 'node:os';
import type { Context } from '../../api/contract/context.ts';
import type { ContextSnapshot } from '../../api/contract/snapshot.ts';
import { addTotals, type ContextTotals, NO_TOTALS } from '../../api/snapshot/metrics.ts';
import { getpid, gettid, processCommand } from '../../sys/index.ts';
import { latencies, type OperationLatencies } from '../../ucs/stats/latency-histograms.ts';
import { wallClockMs } from '../../ucs/sys/clock.ts';
import { packageVersion } from '../../ucs/sys/package.ts';

/** Version of the format; other versions are not read. */
export const SNAPSHOT_FORMAT = 3;
/** Limit of the command line in characters. */
const COMMAND_LENGTH_MAX = 500;

/** The snapshot of one thread of a process: each thread has its own contexts. */
export interface ProcessSnapshot {
  readonly format: typeof SNAPSHOT_FORMAT;
  /** Version of this package. */
  readonly version: string;
  readonly host: string;
  readonly pid: number;
  /** Equals the pid for the main thread. */
  readonly tid: number;
  readonly command: string;
  /** Such as `v20.19.0`. */
  readonly nodeVersion: string;
  /** Time of the snapshot, in milliseconds since 1970. */
  readonly timeMs: number;
  /** Seconds since the process started. */
  readonly uptimeSeconds: number;
  readonly contexts: readonly NumberedContext[];
  /** The sums of its closed contexts. */
  readonly closed: ContextTotals;
  /** Latencies by operation; empty unless they are measured (UCX_STATS_LATENCY, context.metrics()). */
  readonly latencies: readonly OperationLatencies[];
}

/** A context with its number: contexts of a thread are counted from 1, and numbers are not reused. */
export interface NumberedContext extends ContextSnapshot {
  readonly number: number;
}

/** A listed context. */
export type ListedContext = Pick<Context, 'snapshot' | 'stats'>;

const numbers = new Map<ListedContext, number>();
/** Contexts that the inspect socket shows. */
const served = new Set<ListedContext>();
let listed = 0;
let closed = NO_TOTALS;

/** Numbers a context of this thread; {@link unlistContext} removes it. @param isServed whether the inspect socket shows it */
export function listContext(context: ListedContext, isServed: boolean): void {
  listed += 1;
  numbers.set(context, listed);
  if (isServed) served.add(context);
}

/** Removes a context. */
export function unlistContext(context: ListedContext): void {
  numbers.delete(context);
  if (served.delete(context)) closed = addTotals(closed, { stats: context.stats() });
}

/** Takes the snapshot of this thread. @param shown listed contexts; default: those that the inspect socket shows */
export function processSnapshot(shown: Iterable<ListedContext> = served): ProcessSnapshot {
  return {
    format: SNAPSHOT_FORMAT,
    version: packageVersion(),
    host: hostname(),
    pid: getpid(),
    tid: gettid(),
    command: processCommand(getpid(), COMMAND_LENGTH_MAX) ?? process.title,
    nodeVersion: process.version,
    timeMs: Math.round(wallClockMs()),
    uptimeSeconds: Math.round(process.uptime()),
    contexts: [...shown].map((context) => ({ number: numbers.get(context)!, ...context.snapshot() })),
    closed,
    latencies: latencies(),
  };
}
