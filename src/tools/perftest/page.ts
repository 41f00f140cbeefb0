/** Report of perftest as one HTML page with charts, without scripts and external resources. */

import { memorySizeType } from '../../ucs/config/value.ts';
import { type ChartOptions, type ChartPoint, curveSample, escapeText, lineChart } from './chart.ts';
import { BAND, type Measurement } from './measure.ts';
import { type BatchTest, sizesOfRange, specOf, type TestOptions } from './options.ts';
import { messageBytes, type TestSpec } from './spec.ts';

/** Data of the page besides the curves. */
export interface PageFacts {
  /** When the test ran. */
  readonly time: Date;
  /** The command line. */
  readonly command: string;
  readonly host: string;
  readonly cpu: string;
  readonly node: string;
  readonly version: string;
  /** True if cards were emulated: the figures do not describe real cards. */
  readonly emulated: boolean;
}

const MEGABYTE = 1e6;

/** The page. */
export function reportPage(series: readonly Series[], facts: PageFacts): string {
  const title = 'gaudi-ucx perftest';
  return htmlDocument(
    title,
    `${factList([
      ['Time', facts.time.toISOString()],
      ['Command', facts.command],
      ['Host', facts.host],
      ['Processor', facts.cpu],
      ['Versions', `gaudi-ucx ${facts.version}, Node.js ${facts.node}`],
    ])}
${facts.emulated ? '<p class="note">Measured with emulated cards: these figures describe the emulator, not hardware.</p>' : ''}
${[latencySection, bandwidthSection].map((section) => sectionOf(section, series)).join('\n')}`,
  );
}

/** Properties that the tests of one kind share. */
interface Section {
  readonly kind: Series['kind'];
  readonly heading: string;
  readonly axes: Omit<ChartOptions, 'curves'>;
  readonly pointOf: (point: Point) => ChartPoint;
}

const [LOW, HIGH] = BAND;

const latencySection: Section = {
  kind: 'latency',
  heading: 'Latency tests',
  axes: {
    id: 'latency',
    title: `Time of one message, one way: median, and ${LOW}th to ${HIGH}th percentile`,
    xLabel: 'message size',
    yLabel: 'microseconds',
    printX: printBytes,
    printY: (us: number): string => printNumber(us),
  },
  pointOf: ({ bytes, medianNs, lowNs, highNs }) => {
    const [us, low, high] = [medianNs / 1000, lowNs / 1000, highNs / 1000];
    const text = `${printBytes(bytes)}, ${printNumber(us)} us (${printNumber(low)} to ${printNumber(high)})`;
    return { x: bytes, y: us, band: [low, high], text };
  },
};

const bandwidthSection: Section = {
  kind: 'bandwidth',
  heading: 'Bandwidth tests',
  axes: {
    id: 'bandwidth',
    title: 'Bandwidth',
    xLabel: 'message size',
    yLabel: 'MB per second',
    printX: printBytes,
    printY: (rate: number): string => printNumber(rate),
  },
  pointOf: ({ bytes, bytesPerSecond }) => {
    const rate = bytesPerSecond / MEGABYTE;
    return { x: bytes, y: rate, text: `${printBytes(bytes)}, ${printNumber(rate)} MB/s` };
  },
};

/** A heading with legend, chart and tables; empty if no test is of this kind. */
function sectionOf({ kind, heading, axes, pointOf }: Section, all: readonly Series[]): string {
  const series = all.filter((each) => each.kind === kind);
  if (series.length === 0) return '';
  const legend = series.map(({ name }, index) => `<li>${curveSample(index)}${escapeText(name)}</li>`);
  const curves = series.map(({ name, points }) => ({ name, points: points.map(pointOf) }));
  return `<h2>${heading}</h2>
<ul class="legend">
${legend.join('\n')}
</ul>
<div class="wide">
${lineChart({ ...axes, curves })}
</div>
${series.map(tableOf).join('\n')}`;
}

const COLUMNS = [
  'size',
  'iterations',
  'average (us)',
  'median (us)',
  `${LOW}% (us)`,
  `${HIGH}% (us)`,
  'MB/s',
  'messages/s',
  'carried by',
];

function tableOf({ name, points }: Series): string {
  const rows = points.map((point) => {
    const times = [point.latencyNs, point.medianNs, point.lowNs, point.highNs].map((ns) => printFixed(ns / 1000, 3));
    const cells = [
      printFixed(point.iterations, 0),
      ...times,
      printFixed(point.bytesPerSecond / MEGABYTE, 2),
      printFixed(point.messagesPerSecond, 0),
      point.carrier,
    ];
    const size = `<th scope="row">${printBytes(point.bytes)}</th>`;
    return `<tr>${size}${cells.map((cell) => `<td>${escapeText(cell)}</td>`).join('')}</tr>`;
  });
  return `<div class="wide"><table>
<caption>${escapeText(name)}</caption>
<thead><tr>${COLUMNS.map((column) => `<th scope="col">${column}</th>`).join('')}</tr></thead>
<tbody>
${rows.join('\n')}
</tbody>
</table></div>`;
}

/** Formats with this many decimal places, and separators between thousands. */
function printFixed(value: number, digits: number): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const STYLE = `
:root { color-scheme: light dark; --text: #1b1f24; --muted: #59636e; --line: #d9dee3; --back: #ffffff; --note: #fff4d6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ec; --muted: #9aa4ae; --line: #363c43; --back: #16191d; --note: #43370f; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; color: var(--muted); }
dd { margin: 0; color: var(--text); overflow-wrap: anywhere; }
.note { background: var(--note); border-radius: .4rem; padding: .5rem .8rem; }
.wide { overflow-x: auto; }
.chart { display: block; width: 100%; min-width: 44rem; height: auto; margin: 1rem 0; }
.chart text { fill: var(--muted); font-size: 14px; }
.chart .title { fill: var(--text); font-size: 16px; font-weight: 600; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; margin: 0; list-style: none; }
.sample { width: 2.25rem; height: 1rem; margin-right: .4rem; vertical-align: middle; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 1rem 0 .3rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th[scope=row] { font-weight: inherit; }
th:last-child, td:last-child { text-align: left; }
`;

/** A page without scripts and external resources. @param body HTML below the heading */
export function htmlDocument(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeText(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${escapeText(title)}</h1>
${body}
</body>
</html>
`;
}

/** List of names and values. */
export function factList(rows: readonly (readonly [string, string])[]): string {
  return `<dl>\n${rows.map(([name, text]) => `<dt>${name}</dt><dd>${escapeText(text)}</dd>`).join('\n')}\n</dl>`;
}

/** 8 B, 64 KiB, 4 MiB. */
export function printBytes(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
  ] as const) {
    if (bytes >= size) return `${printNumber(bytes / size)} ${unit}`;
  }
  return `${bytes} B`;
}

/** Formats three significant digits, without an exponent. */
export function printNumber(value: number): string {
  return value >= 1000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)));
}

/** Default tests of a report. */
const DEFAULT_TESTS = 'ucp_put_lat,ucp_put_bw,tag_lat,tag_bw';
/** Default sizes of a report. */
const DEFAULT_SIZES = '8..4m';
/** Default iterations of one size: as many as move about this much, within the bounds. */
const BYTES_PER_SIZE = 2 ** 28;
const ITERATIONS_MIN = 100;
const ITERATIONS_MAX = 200_000;

/** One point of a curve. */
interface Point {
  readonly bytes: number;
  /** Average one-way latency over the run. */
  readonly latencyNs: number;
  /** One-way latency of single iterations: the median, and the ends of the band around it. */
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
interface Series {
  readonly name: string;
  /** The measured quantity. */
  readonly kind: 'latency' | 'bandwidth';
  readonly points: readonly Point[];
}

/**
 * The tests of a report: every test (comma-separated names) at every power of two of the sizes (`8..4m`, or one size).
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

  /** Adds the result of a test. */
  add(spec: TestSpec, measurement: Measurement, carrier: string): void {
    const name = nameOf(spec);
    const kind = spec.kind.column === 'latency' ? 'latency' : 'bandwidth';
    const points = this.#series.get(name)?.points ?? [];
    this.#series.set(name, { kind, points });
    points.push({
      bytes: messageBytes(spec),
      latencyNs: measurement.overallNs,
      // A run that is too short to time an iteration has only an average, and a logarithmic axis has no 0.
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
