/**
 * Starts ranks as processes of this host, each with a separate card if there are enough, and collects their results. Also the main function of a rank: reads
 * its assignment, opens the exchange with the other ranks, and sends results or a failure to the process that started it.
 */

import type { ChildProcess } from 'node:child_process';
import { forkedExchange, serveForked } from '../../coll/exchange/forked.ts';
import type { LaunchedRank } from '../../coll/exchange/listener.ts';
import { setParentDeathSignal } from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { scavenge } from '../../uct/index.ts';
import { CHANNEL_STDIO, commandError, interruptedBy, spawnProgram } from '../base/command-line.ts';
import { cardEnvironment, openSharedNode, type SharedNode } from '../node-access/node.ts';

/** Time after which ranks still running after the first failure are killed. */
const END_TIMEOUT_NS = 10e9;
/** Transports of ranks without cards. */
const HOST_TLS = '^gaudi_cpy,gaudi_ipc';

/** A run of several ranks. */
export interface RankRun<S, R> {
  /** Program of a rank: it calls runRankProgram. */
  readonly program: URL;
  /** Specification for all ranks. */
  readonly spec: S;
  readonly size: number;
  /** Whether ranks have cards. */
  readonly needsCards: boolean;
  /** Called with each result of a rank. */
  readonly onResult: (result: R) => void;
}

/**
 * Runs all ranks.
 * @throws UcxError IO_ERROR with the failure of the rank that is the cause, or how it ended; with the first failure if each names another rank; errors of
 * opening the node; CANCELED after a signal
 */
export async function launchRanks<S, R>(run: RankRun<S, R>): Promise<void> {
  const node = run.needsCards ? openSharedNode(undefined) : undefined;
  try {
    await runProcesses(run, node);
  } finally {
    await node?.close();
    // Removes the shared memory files of processes that were killed.
    scavenge();
  }
}

async function runProcesses<S, R>(
  { program, spec, size, onResult }: RankRun<S, R>,
  node: SharedNode | undefined,
): Promise<void> {
  const children: ChildProcess[] = [];
  let failure: string | undefined;
  let interruption: UcxError | undefined;
  // Ranks that lose another rank may report before the message with the cause is read.
  let consequence: string | undefined;
  let killing = false;
  let timer: { cancel(): void } | undefined;
  const kill = (): void => {
    killing = true;
    for (const child of children) child.kill('SIGKILL');
  };
  const fail = (text: string, blamed?: number): void => {
    if (blamed === undefined) failure ??= text;
    else consequence ??= text;
    timer ??= systemClock.setTimer(END_TIMEOUT_NS, kill);
  };
  const stop = (signal: NodeJS.Signals): void => {
    interruption ??= interruptedBy(signal);
    kill();
  };
  process.on('SIGINT', stop).on('SIGTERM', stop);
  const ended = Array.from({ length: size }, (_, rank) => {
    let child: ChildProcess;
    try {
      child = startRank(program, { spec, rank, size }, node);
    } catch (error) {
      // A lack of memory, for example: unlike other errors, it is thrown. The previous ranks run already.
      fail(`rank ${rank} could not be started: ${error instanceof Error ? error.message : String(error)}`);
      return Promise.resolve();
    }
    children.push(child);
    let reported = false;
    child.on('message', (message: RankMessage<R>) => {
      if (message.kind === 'result') onResult(message.result);
      else if (message.kind === 'failure') {
        reported = true;
        fail(`rank ${rank}: ${message.text}`, message.blamed);
      }
    });
    return new Promise<void>((resolve) => {
      child.once('error', (error) => {
        fail(`rank ${rank} could not be started: ${error.message}`);
        resolve();
      });
      // `close` follows the last message, `exit` may precede it.
      child.once('close', (code, signal) => {
        if (code !== 0 && !reported && !killing)
          fail(`rank ${rank} (pid ${child.pid}) ended ${signal === null ? `with code ${code}` : `by ${signal}`}`);
        resolve();
      });
    });
  });
  serveForked(children);
  await Promise.all(ended);
  timer?.cancel();
  process.off('SIGINT', stop).off('SIGTERM', stop);
  const message = failure ?? consequence;
  if (interruption !== undefined) throw interruption;
  if (message !== undefined) throw commandError(Status.IO_ERROR, message);
}

/** @throws the error of the system, if it is not one that the process reports as an event */
function startRank<S>(program: URL, assignment: RankAssignment<S>, node: SharedNode | undefined): ChildProcess {
  const env = environmentOf(assignment.rank, node);
  return spawnProgram(program, [JSON.stringify(assignment)], { env, stdio: CHANNEL_STDIO });
}

/** The environment of a rank: with its own card, or with a shared one if there are fewer cards than ranks. */
function environmentOf(rank: number, node: SharedNode | undefined): NodeJS.ProcessEnv {
  if (node === undefined) return { UCX_TLS: HOST_TLS, ...process.env };
  return cardEnvironment(node.cards[rank % node.cards.length]!, node.driver);
}

/** Argument of the process of a rank: specification of the run, and number of the rank. */
interface RankAssignment<S> {
  readonly spec: S;
  readonly rank: number;
  readonly size: number;
}

/** Message of a rank: a result, or the reason of its failure; `blamed` is the other rank in the error, if any. */
type RankMessage<R> =
  | { readonly kind: 'result'; readonly result: R }
  | { readonly kind: 'failure'; readonly text: string; readonly blamed?: number | undefined };

/**
 * Runs the rank of this process, which launchRanks has started.
 * @param run function of the rank; it passes its results to `report`
 */
export async function runRankProgram<S, R>(
  run: (spec: S, launched: LaunchedRank, report: (result: R) => void) => Promise<void>,
): Promise<void> {
  setParentDeathSignal();
  const { spec, rank, size }: RankAssignment<S> = JSON.parse(process.argv[2]!);
  const send = (message: RankMessage<R>): void => {
    if (process.connected) process.send?.(message, undefined, undefined, () => {});
  };
  try {
    const exchange = forkedExchange(process);
    await run(spec, { rank, size, exchange }, (result) => send({ kind: 'result', result }));
  } catch (error) {
    if (!isUcxError(error) && !(error instanceof Error && 'syscall' in error)) throw error;
    if (isUcxError(error)) {
      const { rank: named } = error.details;
      const blamed = typeof named === 'number' && named !== rank ? named : undefined;
      send({ kind: 'failure', text: `${error.message} (${error.code})`, blamed });
    } else {
      send({ kind: 'failure', text: error.message });
    }
    process.exitCode = 1;
  }
  if (process.connected) process.disconnect();
}
