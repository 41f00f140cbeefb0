/**
 * Model of the page: the model of `top`, snapshots of processes as in `inspect`, and the actions that are available. Data for JSON.
 */

import type { CardSnapshot } from '../../api/contract/snapshot.ts';
import type { InspectAnswer } from '../../assembly/inspect/inspect-client.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { DeviceMemoryMap } from '../../uct/api/memory-domain.ts';
import type { TopModel } from './top-model.ts';

/** Limit of processes on the page; those with the most pending requests first. */
export const PROCESSES_MAX = 200;
/** Limit of kinds of requests per process on the page. */
const GROUPS_MAX = 8;

/** Device memory of one card in one process. */
export interface ArenaUse {
  /** Logical index of the card in the process. */
  readonly card: number;
  readonly arenas: number;
  readonly arenaBytes: number;
  readonly blocks: number;
  readonly blockBytes: number;
  readonly largestFreeBytes: number;
  /** Block maps by arena, for the first 128 arenas. */
  readonly maps: readonly DeviceMemoryMap[];
}

/** Pending requests with the same protocol and the same wait reason. */
export interface PendingGroup {
  readonly protocol: string;
  readonly reason: string;
  readonly count: number;
  readonly byteLength: number;
  readonly oldestMs: number;
}

/** A process. */
export interface WebProcess {
  readonly pid: number;
  readonly command: string;
  readonly contexts: number;
  readonly workers: number;
  readonly endpoints: number;
  readonly pending: number;
  readonly groups: readonly PendingGroup[];
  readonly arenas: readonly ArenaUse[];
  /** Reason why the process has not replied; undefined if it has. */
  readonly failure: string | undefined;
}

/** Latencies of all processes together, as histogram: number of operations by bucket since their start. */
export interface WebLatencies {
  readonly boundsNs: readonly number[];
  readonly buckets: readonly number[];
}

/** A stage of the exchange. */
export interface ExchangeStage {
  readonly text: string;
  readonly done: number;
  readonly total: number;
}

/** The demo's exchange between all cards. */
export interface WebExchange {
  readonly state: 'idle' | 'running' | 'done' | 'failed';
  /** Its last lines. */
  readonly output: string;
  /** Current stage and progress; undefined before the first stage. */
  readonly stage?: ExchangeStage | undefined;
}

/** The complete model. */
export interface WebModel {
  readonly top: TopModel;
  readonly processes: readonly WebProcess[];
  /** Number of all processes, including those not on the page. */
  readonly processCount: number;
  readonly latencies: WebLatencies;
  readonly exchange: WebExchange;
  /** Whether faults can be injected, which only emulated nodes support. */
  readonly canInject: boolean;
  /** Value of UCX_GAUDI_DRIVER for programs that use this node; undefined for real cards. */
  readonly driver: string | undefined;
}

/** The processes of the replies, in the order of the page. */
export function webProcesses(answers: readonly InspectAnswer[]): WebProcess[] {
  return answers.map(processOf).sort((left, right) => right.pending - left.pending || left.pid - right.pid);
}

/** The latencies of all processes that measure them. */
export function webLatencies(answers: readonly InspectAnswer[], boundsNs: readonly number[]): WebLatencies {
  const buckets = new Array<number>(boundsNs.length + 1).fill(0);
  for (const { snapshot } of answers) {
    for (const each of snapshot?.latencies ?? []) {
      for (const [index, count] of each.buckets.entries()) buckets[index] = (buckets[index] ?? 0) + count;
    }
  }
  return { boundsNs, buckets };
}

function processOf({ pid, snapshot, failure }: InspectAnswer): WebProcess {
  const contexts = snapshot?.contexts ?? [];
  const workers = contexts.flatMap((context) => context.workers);
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  return {
    pid,
    command: snapshot?.command ?? '',
    contexts: contexts.length,
    workers: workers.length,
    endpoints: sum(workers.map(({ endpointCount }) => endpointCount)),
    pending: sum(workers.map(({ requests }) => requests.pending)),
    groups: workers
      .flatMap(({ requests }) => requests.groups)
      .map(({ protocol, reason, count, byteLength, oldestMs }) => ({ protocol, reason, count, byteLength, oldestMs }))
      .sort((left, right) => right.oldestMs - left.oldestMs)
      .slice(0, GROUPS_MAX),
    arenas: contexts.flatMap(({ stats, cards }) => arenasOf(stats, cards)),
    failure,
  };
}

/** The arenas of every card, from the statistics of a context and its cards. */
function arenasOf(node: StatsNode, cards: readonly CardSnapshot[]): ArenaUse[] {
  const { arenas, arena_bytes, blocks, block_bytes, largest_free_bytes } = node.counters;
  const own: ArenaUse[] = [];
  const card = /^gaudi(\d+)$/.exec(node.name);
  if (node.className === 'gaudi_card' && card !== null && arenas !== undefined && arenas > 0) {
    own.push({
      card: Number(card[1]),
      arenas,
      arenaBytes: arena_bytes ?? 0,
      blocks: blocks ?? 0,
      blockBytes: block_bytes ?? 0,
      largestFreeBytes: largest_free_bytes ?? 0,
      maps: cards.find(({ name }) => name === node.name)?.arenas ?? [],
    });
  }
  return [...own, ...node.children.flatMap((child) => arenasOf(child, cards))];
}
