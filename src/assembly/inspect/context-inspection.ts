/** Makes a new context visible: the inspect socket of its thread, the dump of the snapshot at a signal, and the table of transports in the log. */

import { constants } from 'node:os';
import { isMainThread } from 'node:worker_threads';
import { waitAtSignals } from '../../sys/index.ts';
import { LogLevel } from '../../ucs/debug/log.ts';
import { acquireLatencies, releaseLatencies } from '../../ucs/stats/latency-histograms.ts';
import { STATS_CONFIG_TABLE } from '../../ucs/stats/stats-config.ts';
import { atSignal } from '../../ucs/sys/process-events.ts';
import { INSPECT_CONFIG_TABLE } from '../program/config.ts';
import type { Program } from '../program/program.ts';
import { acquireServer, releaseServer } from './inspect-server.ts';
import { type ListedContext, listContext, processSnapshot, unlistContext } from './process-snapshot.ts';
import { snapshotText, transportTable } from './snapshot-text.ts';

/** Contexts with a configured signal, by signal: the first of them logs all. */
const dumping = new Map<NodeJS.Signals, ListedContext[]>();

/**
 * Makes a context visible.
 * @returns a function that undoes it
 * @throws SyscallError, UcxError if UCX_INSPECT=y and the socket cannot be created
 */
export function inspectContext({ config, clock, log, env }: Program, context: ListedContext): () => void {
  const { INSPECT, DEBUG_SIGNO, PRINT_TRANSPORT_TABLES, HANDLE_ERRORS, ERROR_SIGNALS } =
    config.get(INSPECT_CONFIG_TABLE);
  if (HANDLE_ERRORS.includes('freeze')) waitAtSignals(ERROR_SIGNALS.map((name) => constants.signals[name]));
  const { STATS_LATENCY } = config.get(STATS_CONFIG_TABLE);
  const isServed = acquireServer({ mode: INSPECT, runtimeDirectory: env['XDG_RUNTIME_DIR'], clock, log });
  listContext(context, isServed);
  if (STATS_LATENCY) acquireLatencies();
  const stopDump = DEBUG_SIGNO === 'none' ? () => {} : dumpAt(DEBUG_SIGNO, context, log);
  if (PRINT_TRANSPORT_TABLES === 'yes' || (PRINT_TRANSPORT_TABLES === 'try' && log.level >= LogLevel.INFO)) {
    for (const line of transportTable(context.snapshot())) log.print(line);
  }
  return () => {
    stopDump();
    if (STATS_LATENCY) releaseLatencies();
    unlistContext(context);
    if (isServed) releaseServer();
  };
}

function dumpAt(signal: NodeJS.Signals, context: ListedContext, log: Program['log']): () => void {
  if (!isMainThread) {
    // Node.js would accept the listener without installing a handler: the signal would end the process.
    log.warn(
      `UCX_DEBUG_SIGNO=${signal} has no effect in a worker thread: Node.js handles signals on the main thread only`,
    );
    return () => {};
  }
  const members = dumping.get(signal) ?? [];
  dumping.set(signal, members);
  members.push(context);
  const stop = atSignal(signal, () => {
    if (members[0] !== context) return;
    for (const line of snapshotText(processSnapshot(members))) log.print(line);
  });
  return () => {
    stop();
    members.splice(members.indexOf(context), 1);
  };
}
