/** Results of perftest as curves, and the tests of a report. */

import { memorySizeType } from '../../../ucs/config/value.ts';
import type { Measurement } from '../measure/meter.ts';
import type { BatchTest } from '../options/batch.ts';
import { sizesOfRange, specOf, type TestOptions } from '../options/options.ts';
import { messageBytes, type TestSpec } from '../options/spec.ts';

/** Tests of a report that names none. */
const DEFAULT_TESTS = 'ucp_put_lat,ucp_put_bw,tag_lat,tag_bw';
/** Sizes of a report that names none. */
const DEFAULT_SIZES = '8..4m';
/** Iterations of one size where none are given: as many as move about this much, within the bounds. */
const BYTES_PER_SIZE = 2 ** 28;
const ITERATIONS_MIN = 100;
const ITERATIONS_MAX = 200_000;

/** One point of a curve. */
export interface Point {
  readonly bytes: number;
  /** One way, averaged over the run. */
  readonly latencyNs: number;
  /** One way, of single iterations: the median, and the ends of the band around it. */
  readonly medianNs: number;
  readonly lowNs: number;
  readonly highNs: number;
  readonly bytesPerSecond: number;
  readonly messagesPerSecond: number;
  readonly iterations: number;
  /** Transport, device and protocol of the messages. */
  readonly carrier: string;
}

/** A curve: one test over sizes. */
export interface Series {
  readonly name: string;
  /** The measured quantity. */
  readonly kind: 'latency' | 'bandwidth';
  readonly points: readonly Point[];
}

/**
 * The tests of a report: every test (names with commas between them) at every power of two of the sizes (`8..4m`, or one size).
 * @throws UcxError ERR_INVALID_PARAM
 */
export function reportTests(options: TestOptions): BatchTest[] {
  const tests = (options.t ?? DEFAULT_TESTS).split(',');
  const sizes = sizesOfRange(options.s ?? DEFAULT_SIZES);
  return tests.flatMap((t) =>
    sizes.map((bytes) => {
      const iterations = Math.ceil(BYTES_PER_SIZE / bytes);
      const n = options.n ?? String(Math.min(ITERATIONS_MAX, Math.max(ITERATIONS_MIN, iterations)));
      return { names: [t, memorySizeType.print(bytes)], spec: specOf({ ...options, t, s: String(bytes), n }) };
    }),
  );
}

/** Collects the results of tests. */
export class SeriesCollector {
  readonly #series: Map<string, { readonly kind: Series['kind']; readonly points: Point[] }> = new Map();

  /** A test has ended. */
  add(spec: TestSpec, measurement: Measurement, carrier: string): void {
    const name = nameOf(spec);
    const kind = spec.kind.column === 'latency' ? 'latency' : 'bandwidth';
    const points = this.#series.get(name)?.points ?? [];
    this.#series.set(name, { kind, points });
    points.push({
      bytes: messageBytes(spec),
      latencyNs: measurement.overallNs,
      // A run that is too short to time an iteration has an average only, and a logarithmic axis has no 0.
      medianNs: measurement.medianNs || measurement.overallNs,
      lowNs: measurement.lowNs || measurement.overallNs,
      highNs: measurement.highNs || measurement.overallNs,
      bytesPerSecond: measurement.overallBytes,
      messagesPerSecond: measurement.overallMessages,
      iterations: measurement.iterations,
      carrier,
    });
  }

  /** The curves, by rising size. */
  get series(): Series[] {
    return [...this.#series].map(([name, { kind, points }]) => {
      return { name, kind, points: [...points].sort((left, right) => left.bytes - right.bytes) };
    });
  }
}

function nameOf({ kind, sendMemory, recvMemory, transport, device, layout }: TestSpec): string {
  const memory = sendMemory === 'host' && recvMemory === 'host' ? '' : ` ${sendMemory} to ${recvMemory}`;
  return kind.api === 'UCT' ? `${kind.name} ${layout} ${transport}/${device}${memory}` : `${kind.name}${memory}`;
}
