/**
 * The metrics of contexts in a registry of prom-client that a program has: every family is registered once, and collects from all contexts of the registry. It
 * does not load prom-client.
 */

import { acquireLatencies, latencies, releaseLatencies } from '../../../ucs/stats/latency-histograms.ts';
import { checkMethods } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { MetricsRegistry } from '../context.ts';
import type { ContextSnapshot } from '../snapshot.ts';
import { METRIC_NAMES, METRICS, type MetricFamily, type MetricName, metricFamilies } from './metrics.ts';

/** A context. */
export interface MeasuredContext {
  snapshot(): ContextSnapshot;
}

/** The contexts of one registry, by the number that labels them. */
class Collector {
  readonly #contexts: Map<MeasuredContext, string> = new Map();
  #added = 0;
  /** The values, until the end of the call that collects the families. */
  #families: ReadonlyMap<string, MetricFamily> | undefined = undefined;

  add(context: MeasuredContext): void {
    this.#added += 1;
    this.#contexts.set(context, String(this.#added));
  }

  has(context: MeasuredContext): boolean {
    return this.#contexts.has(context);
  }

  remove(context: MeasuredContext): void {
    this.#contexts.delete(context);
  }

  family(name: MetricName): MetricFamily {
    if (this.#families === undefined) {
      const sources = [...this.#contexts].map(([context, number]) => {
        return { snapshot: context.snapshot(), labels: { context: number } };
      });
      const families = metricFamilies(sources, [{ latencies: latencies(), labels: {} }]);
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
 * Adds a context to a registry; its latencies are measured from now on. Does nothing for one that is there.
 * @returns a function that removes it, once
 * @throws UcxError ERR_INVALID_PARAM, also if the registry has another metric with one of the names; nothing was added then
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

/** Registers the families that the registry does not have: all of them at first, and after it was cleared. */
function registerFamilies(registry: MetricsRegistry, collector: Collector): void {
  const missing: Family[] = [];
  for (const name of METRIC_NAMES) {
    const known = registry.getSingleMetric(name);
    if (known === undefined) missing.push(new Family(name, collector));
    else if (!(known instanceof Family && known.isOf(collector))) {
      throw invalidParam('registry', 'must have no other metric with a name of this package', name);
    }
  }
  for (const family of missing) registry.registerMetric(family);
}

/** A family as registries of prom-client call it. */
class Family {
  /** Registries change it: they remove `_total` for the OpenMetrics format, and add it to the values. */
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
