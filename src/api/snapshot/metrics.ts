/**
 * Snapshots as metrics: families with names, types and labelled values, in the form that prom-client registries collect. Also the metrics of contexts in the
 * prom-client registry of a program: every family is registered once, and collects from all contexts of the registry.
 */

import { DMABUF_CLASS } from '../../ucs/stats/dmabuf-counts.ts';
import {
  acquireLatencies,
  LATENCY_BOUNDS_NS,
  latencies,
  type OperationLatencies,
  releaseLatencies,
} from '../../ucs/stats/latency-histograms.ts';
import { type Counters, type StatsNode, sumByClass } from '../../ucs/stats/stats-node.ts';
import { checkMethods } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { keysOf } from '../../ucs/type/keys.ts';
import type { Context, MetricsRegistry } from '../contract/context.ts';
import type { ContextSnapshot } from '../contract/snapshot.ts';

/** Labels of a value. */
export type MetricLabels = Readonly<Record<string, string>>;

/** A value. */
export interface MetricValue {
  /** Name, if it differs from that of the family: `_bucket`, `_sum` and `_count` of a histogram. */
  readonly metricName?: string;
  readonly labels: MetricLabels;
  readonly value: number;
}

/** The values of one name. */
export interface MetricFamily {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly values: readonly MetricValue[];
}

/** The data of one context. */
export interface ContextSource {
  readonly snapshot: ContextSnapshot;
  /** Labels of all its values. */
  readonly labels: MetricLabels;
}

/** Measurements of one thread, and the sums of its closed contexts. */
export interface ThreadSource {
  readonly latencies: readonly OperationLatencies[];
  readonly closed: ContextTotals;
  readonly labels: MetricLabels;
}

/** Sums over contexts, which do not decrease when a context closes. */
export interface ContextTotals {
  readonly contexts: number;
  /** Puts, gets, atomic operations and sent messages. */
  readonly operations: number;
  /** Operations that failed without being cancelled: closing a context cancels pending ones. */
  readonly failures: number;
}

/** The sums over no context. */
export const NO_TOTALS: ContextTotals = { contexts: 0, operations: 0, failures: 0 };

/** Adds a context with these statistics to the sums. */
export function addTotals(sums: ContextTotals, { stats }: { readonly stats: StatsNode }): ContextTotals {
  let { operations, failures } = sums;
  for (const { className, counters } of sumByClass(stats)) {
    const counted = OPERATIONS_BY_CLASS[className] ?? [];
    operations += counted.reduce((sum, name) => sum + (counters[name] ?? 0), 0);
    if (className === 'ucp_worker') failures += (counters['failures'] ?? 0) - (counters['canceled'] ?? 0);
  }
  return { contexts: sums.contexts + 1, operations, failures };
}

/** Counters of operations by class. Transports count messages too; a worker over libucp counts operations of libucp. */
const OPERATIONS_BY_CLASS: Readonly<Record<string, readonly string[]>> = {
  uct_iface: ['put', 'get', 'atomic'],
  ucp_worker: ['put', 'get', 'atomic', 'tag_tx', 'am_tx', 'stream_tx'],
};

const NS_PER_S = 1e9;
const MS_PER_S = 1e3;

/** The name of a family. */
type MetricName =
  | 'ucx_context_info'
  | 'ucx_endpoints'
  | 'ucx_requests_pending'
  | 'ucx_requests_oldest_seconds'
  | 'ucx_unexpected_messages'
  | 'ucx_unexpected_bytes'
  | 'ucx_mapped_bytes'
  | 'ucx_operations_total'
  | 'ucx_bytes_total'
  | 'ucx_received_messages_total'
  | 'ucx_received_bytes_total'
  | 'ucx_no_resource_total'
  | 'ucx_protocol_events_total'
  | 'ucx_rcache_events_total'
  | 'ucx_rcache_regions'
  | 'ucx_rcache_bytes'
  | 'ucx_dmabuf_exports_total'
  | 'ucx_dmabuf_export_bytes_total'
  | 'ucx_dmabuf_imports_total'
  | 'ucx_dmabuf_import_bytes_total'
  | 'ucx_dmabuf_mappings'
  | 'ucx_dmabuf_mapped_bytes'
  | 'ucx_dmabuf_descriptors'
  | 'ucx_channel_operations_total'
  | 'ucx_channel_bytes_total'
  | 'ucx_dma_operations_total'
  | 'ucx_dma_bytes_total'
  | 'ucx_dma_errors_total'
  | 'ucx_operation_failures_total'
  | 'ucx_process_contexts_total'
  | 'ucx_process_operations_total'
  | 'ucx_process_operation_failures_total'
  | 'ucx_operation_duration_seconds';

/** Types and help texts of all families, in their print order. */
export const METRICS: Readonly<Record<MetricName, readonly [MetricFamily['type'], string]>> = {
  ucx_context_info: ['gauge', '1 for each open context; the labels describe it'],
  ucx_endpoints: ['gauge', 'Endpoints by state'],
  ucx_requests_pending: ['gauge', 'Pending requests, by protocol and wait reason'],
  ucx_requests_oldest_seconds: [
    'gauge',
    'Upper bound of the age of the oldest pending request of a protocol: workers read the clock rarely',
  ],
  ucx_unexpected_messages: ['gauge', 'Tagged messages that arrived before their receive'],
  ucx_unexpected_bytes: ['gauge', 'Bytes that have arrived but were not received'],
  ucx_mapped_bytes: ['gauge', 'Memory that programs have mapped'],
  ucx_operations_total: ['counter', 'Operations of transports'],
  ucx_bytes_total: ['counter', 'Bytes moved by transports, by method'],
  ucx_received_messages_total: ['counter', 'Messages received by transports'],
  ucx_received_bytes_total: ['counter', 'Bytes of messages received by transports'],
  ucx_no_resource_total: ['counter', 'Operations queued and retried because a transport had no resources'],
  ucx_protocol_events_total: ['counter', 'Protocol events, by the counter names of UCX'],
  ucx_rcache_events_total: ['counter', 'Events of registration caches, by the counter names of UCX'],
  ucx_rcache_regions: ['gauge', 'Registrations in a cache'],
  ucx_rcache_bytes: ['gauge', 'Bytes of the registrations in a cache'],
  ucx_dmabuf_exports_total: ['counter', 'Exported dma-buf descriptors, by the owner of the memory'],
  ucx_dmabuf_export_bytes_total: ['counter', 'Bytes of exported dma-bufs'],
  ucx_dmabuf_imports_total: ['counter', 'Imported dma-bufs that were mapped or registered'],
  ucx_dmabuf_import_bytes_total: ['counter', 'Bytes of imported dma-bufs'],
  ucx_dmabuf_mappings: ['gauge', 'Imported dma-bufs that are mapped now'],
  ucx_dmabuf_mapped_bytes: ['gauge', 'Bytes of imported dma-bufs that are mapped now'],
  ucx_dmabuf_descriptors: ['gauge', 'Dma-buf descriptors that are kept open'],
  ucx_channel_operations_total: ['counter', 'Transfers between a card and the memory of another card, by channel'],
  ucx_channel_bytes_total: ['counter', 'Bytes moved between a card and the memory of another card, by channel'],
  ucx_dma_operations_total: ['counter', 'Transfers of a card by direction'],
  ucx_dma_bytes_total: ['counter', 'Bytes of transfers of a card by direction'],
  ucx_dma_errors_total: ['counter', 'Failed transfers of a card'],
  ucx_operation_failures_total: ['counter', 'Failed operations'],
  ucx_process_contexts_total: ['counter', 'Contexts created by a process, including closed ones'],
  ucx_process_operations_total: [
    'counter',
    'Puts, gets, atomics and sent messages of all contexts of a process, including closed ones',
  ],
  ucx_process_operation_failures_total: [
    'counter',
    'Failed operations, without cancelled ones, of all contexts of a process, including closed ones',
  ],
  ucx_operation_duration_seconds: ['histogram', 'Latency of operations of all contexts of a thread'],
};

/** Names of the families. */
const METRIC_NAMES: readonly MetricName[] = keysOf(METRICS);

/** Sums and maxima of values by name and labels. */
class Sums {
  readonly #values: Map<MetricName, Map<string, { labels: MetricLabels; value: number; metricName?: string }>> =
    new Map();

  add(name: MetricName, labels: MetricLabels, value: number, metricName?: string): void {
    this.#at(name, labels, metricName).value += value;
  }

  /** Sets the maximum; values are not negative. */
  raise(name: MetricName, labels: MetricLabels, value: number): void {
    const known = this.#at(name, labels);
    known.value = Math.max(known.value, value);
  }

  #at(name: MetricName, labels: MetricLabels, metricName?: string): { value: number } {
    const values = this.#values.get(name) ?? new Map();
    this.#values.set(name, values);
    const key = `${metricName} ${JSON.stringify(labels)}`;
    const known = values.get(key);
    if (known !== undefined) return known;
    const added = { labels, value: 0, ...(metricName === undefined ? {} : { metricName }) };
    values.set(key, added);
    return added;
  }

  families(): MetricFamily[] {
    return METRIC_NAMES.map((name) => {
      const [type, help] = METRICS[name];
      return { name, help, type, values: [...(this.#values.get(name)?.values() ?? [])] };
    });
  }
}

/** All families, including those without values. */
export function metricFamilies(
  contexts: readonly ContextSource[],
  threads: readonly ThreadSource[],
): readonly MetricFamily[] {
  const sums = new Sums();
  for (const source of contexts) addContext(sums, source);
  for (const { snapshot, labels } of contexts) {
    const { context, ...ofThread } = labels;
    addProcess(sums, ofThread, addTotals(NO_TOTALS, snapshot));
  }
  for (const source of threads) {
    addProcess(sums, source.labels, source.closed);
    addLatencies(sums, source);
  }
  return sums.families();
}

function addContext(sums: Sums, { snapshot, labels }: ContextSource): void {
  const { engine, memory, channels, workers, stats } = snapshot;
  const { name, version } = engine;
  sums.add('ucx_context_info', { ...labels, engine: name, version, ...nodeLabels(snapshot) }, 1);
  for (const { memoryType, sysDevice, byteLength } of memory) {
    const card = sysDevice === undefined ? {} : { card: String(sysDevice) };
    sums.add('ucx_mapped_bytes', { ...labels, memory_type: memoryType, ...card }, byteLength);
  }
  for (const { id, local, remote, puts, gets, bytesPut, bytesGot } of channels) {
    const channel = { ...labels, channel: String(id), local, remote };
    sums.add('ucx_channel_operations_total', { ...channel, operation: 'put' }, puts);
    sums.add('ucx_channel_operations_total', { ...channel, operation: 'get' }, gets);
    sums.add('ucx_channel_bytes_total', { ...channel, operation: 'put' }, bytesPut);
    sums.add('ucx_channel_bytes_total', { ...channel, operation: 'get' }, bytesGot);
  }
  for (const { endpointStates, requests, unexpected } of workers) {
    for (const [state, count] of Object.entries(endpointStates)) sums.add('ucx_endpoints', { ...labels, state }, count);
    for (const { protocol, reason, count, oldestMs } of requests.groups) {
      sums.add('ucx_requests_pending', { ...labels, protocol, reason }, count);
      sums.raise('ucx_requests_oldest_seconds', { ...labels, protocol, reason }, oldestMs / MS_PER_S);
    }
    if (unexpected === undefined) continue;
    sums.add('ucx_unexpected_messages', labels, unexpected.messages);
    sums.add('ucx_unexpected_bytes', { ...labels, kind: 'tag' }, unexpected.messageBytes);
    sums.add('ucx_unexpected_bytes', { ...labels, kind: 'stream' }, unexpected.streamBytes);
    sums.add('ucx_unexpected_bytes', { ...labels, kind: 'am' }, unexpected.amBytes);
  }
  addStats(sums, stats, labels);
}

/** Labels of the node: `private`, `kernel`, or the socket of its server, with the process of the server. */
function nodeLabels({ emulated, node: { kind, pid, socket = '' } }: ContextSnapshot): MetricLabels {
  const cards = emulated ? 'emulated' : 'real';
  return kind === 'server' ? { cards, node: socket, node_pid: String(pid) } : { cards, node: kind };
}

function addProcess(sums: Sums, labels: MetricLabels, { contexts, operations, failures }: ContextTotals): void {
  sums.add('ucx_process_contexts_total', labels, contexts);
  sums.add('ucx_process_operations_total', labels, operations);
  sums.add('ucx_process_operation_failures_total', labels, failures);
}

function addStats(sums: Sums, node: StatsNode, labels: MetricLabels, parent = ''): void {
  const { className, name, counters, children } = node;
  const add = ADDERS[className];
  add?.(sums, counters, labels, { name, parent });
  for (const child of children) addStats(sums, child, labels, name);
}

type Adder = (
  sums: Sums,
  counters: Counters,
  labels: MetricLabels,
  place: { readonly name: string; readonly parent: string },
) => void;

/** Gauges among the counters of a worker. */
const WORKER_LEVELS: ReadonlySet<string> = new Set([
  'requests_in_use',
  'endpoints',
  'unexp_messages',
  'unexp_bytes',
  'stream_bytes',
  'am_bytes',
  'unexp_granted',
]);
const OPERATIONS = ['put', 'get', 'am', 'atomic', 'flush', 'fence'] as const;
const PATHS = ['short', 'bcopy', 'zcopy'] as const;
/** Gauges of a cache; those of gaudi_ipc have separate names. */
const CACHE_LEVELS: Readonly<Record<string, MetricName>> = {
  num_regions: 'ucx_rcache_regions',
  regions: 'ucx_rcache_regions',
  total_size: 'ucx_rcache_bytes',
  bytes: 'ucx_rcache_bytes',
};

const addCache: Adder = (sums, counters, labels, { name, parent }) => {
  const cache = { ...labels, cache: name === '' ? parent : name };
  for (const [counter, value] of Object.entries(counters)) {
    const level = CACHE_LEVELS[counter];
    if (level === undefined) sums.add('ucx_rcache_events_total', { ...cache, event: counter }, value);
    else sums.add(level, cache, value);
  }
};

const ADDERS: Readonly<Record<string, Adder>> = {
  uct_iface(sums, counters, labels, { name }) {
    const [transport = '', device = ''] = name.split('/');
    const place = { ...labels, transport, device };
    for (const operation of OPERATIONS) {
      sums.add('ucx_operations_total', { ...place, operation }, counters[operation] ?? 0);
    }
    for (const path of PATHS) sums.add('ucx_bytes_total', { ...place, path }, counters[`bytes_${path}`] ?? 0);
    sums.add('ucx_received_messages_total', place, counters['rx_am'] ?? 0);
    sums.add('ucx_received_bytes_total', place, counters['rx_am_bytes'] ?? 0);
    sums.add('ucx_no_resource_total', place, counters['no_res'] ?? 0);
  },
  ucp_worker(sums, counters, labels) {
    // Covers all operations, whether latencies are measured or not.
    sums.add('ucx_operation_failures_total', labels, counters['failures'] ?? 0);
    for (const [event, value] of Object.entries(counters)) {
      if (event !== 'failures' && !WORKER_LEVELS.has(event))
        sums.add('ucx_protocol_events_total', { ...labels, event }, value);
    }
  },
  ucs_rcache: addCache,
  gaudi_ipc_cache: addCache,
  [DMABUF_CLASS](sums, counters, labels, { name: owner }) {
    for (const [counter, value] of Object.entries(counters)) {
      const metric = METRIC_NAMES.find((known) => known === `ucx_${counter}_total` || known === `ucx_${counter}`);
      if (metric !== undefined) sums.add(metric, { ...labels, owner }, value);
    }
  },
  gaudi_dma(sums, counters, labels, { name, parent }) {
    const place = { ...labels, card: parent, direction: name };
    sums.add('ucx_dma_operations_total', place, counters['operations'] ?? 0);
    sums.add('ucx_dma_bytes_total', place, counters['bytes'] ?? 0);
    sums.add('ucx_dma_errors_total', place, counters['errors'] ?? 0);
  },
};

function addLatencies(sums: Sums, { latencies, labels }: ThreadSource): void {
  const family = 'ucx_operation_duration_seconds';
  for (const { protocol, transport, size, buckets, count, sumNs } of latencies) {
    const kind = { ...labels, protocol, transport, size };
    let below = 0;
    for (const [index, inBucket] of buckets.entries()) {
      below += inBucket;
      const boundNs = LATENCY_BOUNDS_NS[index];
      const le = boundNs === undefined ? '+Inf' : String(boundNs / NS_PER_S);
      sums.add(family, { ...kind, le }, below, `${family}_bucket`);
    }
    sums.add(family, kind, sumNs / NS_PER_S, `${family}_sum`);
    sums.add(family, kind, count, `${family}_count`);
  }
}

/** A context whose snapshots are read. */
type MeasuredContext = Pick<Context, 'snapshot'>;

/** The contexts of one registry, by the number in their label. */
class Collector {
  readonly #contexts: Map<MeasuredContext, string> = new Map();
  #added = 0;
  /** Sums of the removed contexts. */
  #closed = NO_TOTALS;
  /** The values, during the call that collects the families. */
  #families: ReadonlyMap<string, MetricFamily> | undefined = undefined;

  add(context: MeasuredContext): void {
    this.#added += 1;
    this.#contexts.set(context, String(this.#added));
  }

  has(context: MeasuredContext): boolean {
    return this.#contexts.has(context);
  }

  remove(context: MeasuredContext): void {
    this.#closed = addTotals(this.#closed, context.snapshot());
    this.#contexts.delete(context);
  }

  family(name: MetricName): MetricFamily {
    if (this.#families === undefined) {
      const sources = [...this.#contexts].map(([context, number]) => {
        return { snapshot: context.snapshot(), labels: { context: number } };
      });
      const families = metricFamilies(sources, [{ latencies: latencies(), closed: this.#closed, labels: {} }]);
      this.#families = new Map(families.map((family) => [family.name, family]));
      // A registry calls `get()` of all families before microtasks run.
      queueMicrotask(() => {
        this.#families = undefined;
      });
    }
    return this.#families.get(name)!;
  }
}

const collectors = new WeakMap<MetricsRegistry, Collector>();

/**
 * Adds a context to a registry; its latencies are measured from now on. No effect if already added.
 * @returns a function that removes it, once
 * @throws UcxError ERR_INVALID_PARAM, also if the registry has another metric with one of the names; then nothing was added
 */
export function addToRegistry(registry: MetricsRegistry, context: MeasuredContext): () => void {
  checkMethods('registry', registry, ['registerMetric', 'getSingleMetric']);
  const joined = collectors.get(registry) ?? new Collector();
  registerFamilies(registry, joined);
  collectors.set(registry, joined);
  if (joined.has(context)) return () => {};
  joined.add(context);
  acquireLatencies();
  return () => {
    joined.remove(context);
    releaseLatencies();
  };
}

/** Registers the families that the registry does not have: all at first, and after it was cleared. */
function registerFamilies(registry: MetricsRegistry, collector: Collector): void {
  const missing: Family[] = [];
  for (const name of METRIC_NAMES) {
    const known = registry.getSingleMetric(name);
    if (known === undefined) missing.push(new Family(name, collector));
    else if (!(known instanceof Family && known.isOf(collector))) {
      throw invalidParam('registry', 'must not have another metric with a name of this package', name);
    }
  }
  for (const family of missing) registry.registerMetric(family);
}

/** A family in the form that prom-client registries call. */
class Family {
  /** Registries change it: for the OpenMetrics format, they remove `_total`, and add it to the values. */
  name: string;
  readonly type: MetricFamily['type'];
  readonly help: string;
  readonly #key: MetricName;
  readonly #collector: Collector;

  constructor(name: MetricName, collector: Collector) {
    this.name = name;
    [this.type, this.help] = METRICS[name];
    this.#key = name;
    this.#collector = collector;
  }

  isOf(collector: Collector): boolean {
    return this.#collector === collector;
  }

  /** The values now. */
  async get(): Promise<MetricFamily> {
    return { ...this.#collector.family(this.#key), name: this.name };
  }

  /** Counters of contexts are not reset. */
  reset(): void {}
}
