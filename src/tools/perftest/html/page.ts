/** Report of perftest as one HTML page without scripts and external resources. */

import { BAND } from '../measure/meter.ts';
import { type ChartOptions, type ChartPoint, curveSample, escapeText, lineChart } from './chart.ts';
import { factList, htmlDocument, printBytes, printNumber } from './document.ts';
import type { Point, Series } from './series.ts';

/** Texts of the page besides the curves. */
export interface PageFacts {
  /** When the test ran. */
  readonly time: Date;
  /** The command line. */
  readonly command: string;
  readonly host: string;
  readonly cpu: string;
  readonly node: string;
  readonly version: string;
  /** True where emulated cards took part: the figures say nothing about real ones. */
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
${facts.emulated ? '<p class="note">Emulated cards took part: these figures are of the emulator, not of hardware.</p>' : ''}
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

/** A heading with legend, chart and tables; nothing where no test is of this kind. */
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

/** With this many digits behind the point, and separators between thousands. */
function printFixed(value: number, digits: number): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
