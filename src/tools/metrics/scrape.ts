/**
 * One scrape: queries the processes of the user and the cards, and formats their metrics by prom-client. Also the check of Host headers for servers on
 * loopback.
 */

import { existsSync } from 'node:fs';
import { type OpenMetricsContentType, type PrometheusContentType, Registry } from 'prom-client';
import { type MetricFamily, metricFamilies } from '../../api/snapshot/metrics.ts';
import { type InspectAnswer, type InspectQuery, inspectProcesses } from '../../assembly/inspect/inspect-client.ts';
import { socketFolder } from '../../assembly/inspect/inspect-sockets.ts';
import { cardsOf, openShownNode } from '../../assembly/open-node.ts';
import type { Program } from '../../assembly/program/program.ts';
import type { DriverNode } from '../../driver/port.ts';
import { isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { lostNode, noCards } from '../node-access/card.ts';
import { cardFamilies } from './cards.ts';

/** Content type of the OpenMetrics format. */
export const OPENMETRICS: OpenMetricsContentType = Registry.OPENMETRICS_CONTENT_TYPE;
export const PROMETHEUS: PrometheusContentType = Registry.PROMETHEUS_CONTENT_TYPE;
export type MetricsFormat = OpenMetricsContentType | PrometheusContentType;

/** Result of a scrape. */
export interface Scraped {
  readonly text: string;
  /** Why the cards of the node could not be read; undefined if they were read, and on a host without a node. */
  readonly cardsError: UcxError | undefined;
  /** Why the folder with the inspect sockets could not be read; undefined if it was read, or does not exist. */
  readonly folderError: UcxError | undefined;
}

/** Reads everything now. */
export async function scrape(program: Program, query: InspectQuery, format: MetricsFormat): Promise<Scraped> {
  const { answers, error: folderError } = await readProcesses(query);
  const registry = new Registry<MetricsFormat>();
  registry.setContentType(format);
  const { families: ofCards, error: cardsError } = readCards(program);
  const folder = folderFamily(query, folderError);
  const families = [folder, ...processFamilies(answers), ...ofCards];
  for (const { name, help, type, values } of families) {
    const family = {
      // The registry removes `_total` from this name for OpenMetrics.
      name,
      help,
      type,
      get() {
        return { name: this.name, help, type, values };
      },
    };
    (registry as { registerMetric(metric: object): void }).registerMetric(family);
  }
  return { text: await registry.metrics(), cardsError, folderError };
}

async function readProcesses(
  query: InspectQuery,
): Promise<{ readonly answers: readonly InspectAnswer[]; readonly error?: UcxError }> {
  try {
    return { answers: await inspectProcesses(query) };
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return { answers: [], error };
  }
}

function folderFamily({ runtimeDirectory }: InspectQuery, error: UcxError | undefined): MetricFamily {
  const folder = socketFolder(runtimeDirectory);
  return {
    name: 'ucx_socket_folder_readable',
    help: '1 if the folder of the inspect sockets could be read, 0 if it could not be read or does not exist',
    type: 'gauge',
    values: [{ labels: { folder }, value: error === undefined && existsSync(folder) ? 1 : 0 }],
  };
}

function processFamilies(answers: readonly InspectAnswer[]): MetricFamily[] {
  const contexts: Parameters<typeof metricFamilies>[0][number][] = [];
  const threads: Parameters<typeof metricFamilies>[1][number][] = [];
  for (const { pid, tid, snapshot } of answers) {
    if (snapshot === undefined) continue;
    const labels = { pid: String(pid), tid: String(tid) };
    threads.push({ latencies: snapshot.latencies, closed: snapshot.closed, labels });
    for (const { number, ...context } of snapshot.contexts) {
      contexts.push({ snapshot: context, labels: { ...labels, context: String(number) } });
    }
  }
  // Two instances of the package in one thread have separate sockets.
  const isAnswered = new Map<string, boolean>();
  for (const { pid, tid, snapshot } of answers) {
    const thread = `${pid}/${tid}`;
    isAnswered.set(thread, snapshot !== undefined && isAnswered.get(thread) !== false);
  }
  const up: MetricFamily = {
    name: 'ucx_process_answers',
    help: '1 if the process replied in time, 0 if not: its event loop is busy, or it is stopped',
    type: 'gauge',
    values: [...isAnswered].map(([thread, answered]) => {
      const [pid = '', tid = ''] = thread.split('/');
      return { labels: { pid, tid }, value: answered ? 1 : 0 };
    }),
  };
  return [up, ...metricFamilies(contexts, threads)];
}

/** Cards of the host or of a node server; none if they would be emulated in this process. */
function readCards(program: Program): { readonly families: MetricFamily[]; readonly error?: UcxError } {
  let node: DriverNode | undefined;
  try {
    node = openShownNode(program);
    const isOwn = node.emulated && node.kind === 'emulator' && node.serverPid === undefined;
    if (isOwn) return { families: [nodeFamily(undefined), ...cardFamilies(undefined)] };
    const cards = cardsOf(node, program);
    if (cards.length === 0 && node.lostReason === undefined) throw noCards(node);
    const families = cardFamilies(node, cards);
    if (node.lostReason !== undefined) throw lostNode(node);
    return { families: [nodeFamily(1), ...families] };
  } catch (error) {
    // The node server has ended or is stopped, or the driver has no cards.
    if (!isUcxError(error)) throw error;
    return { families: [nodeFamily(0), ...cardFamilies(undefined)], error };
  } finally {
    node?.close();
  }
}

/** @param up undefined for a host without a node */
function nodeFamily(up: 0 | 1 | undefined): MetricFamily {
  return {
    name: 'ucx_node_up',
    help: '1 if the cards could be read, 0 if the node server is stopped or was killed, or the driver has no cards',
    type: 'gauge',
    values: up === undefined ? [] : [{ labels: {}, value: up }],
  };
}

/** Host names of a server on loopback, as seen by programs on this host. */
export const LOOPBACK_NAMES: readonly string[] = ['127.0.0.1', 'localhost', '[::1]'];

/** Whether a server at this address is on loopback. */
export function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.');
}

/**
 * Whether a Host header names a server on loopback, at any port, because a port may be forwarded. Prevents DNS rebinding: a web page whose host name resolves
 * to this host sends that name as Host.
 * @param address of the server
 */
export function namesLoopback(host: string | undefined, address: string): boolean {
  const name = host?.replace(/:\d{1,5}$/, '').toLowerCase() ?? '';
  return name === address || LOOPBACK_NAMES.includes(name);
}
