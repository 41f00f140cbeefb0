/** The report of perftest as one HTML page without scripts and without anything from elsewhere. Pure text. */

import { BAND } from '../meter.ts';
import { type ChartOptions, type ChartPoint, curveSample, escapeText, lineChart } from './chart.ts';
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
const MEGABYTE = 1e6;

/** The page. */
export function reportPage(series: readonly Series[], facts: PageFacts): string {
  const title = 'gaudi-ucx perftest';
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${title}</h1>
${factList(facts)}
${facts.emulated ? '<p class="note">Emulated cards took part: these figures are of the emulator, not of hardware.</p>' : ''}
${[latencySection, bandwidthSection].map((section) => sectionOf(section, series)).join('\n')}
</body>
</html>
`;
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
    const [us, low, high] = [medianNs, lowNs, highNs].map((ns) => ns / 1000) as [number, number, number];
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

function factList(facts: PageFacts): string {
  const rows: readonly (readonly [string, string])[] = [
    ['Time', facts.time.toISOString()],
    ['Command', facts.command],
    ['Host', facts.host],
    ['Processor', facts.cpu],
    ['Versions', `gaudi-ucx ${facts.version}, Node.js ${facts.node}`],
  ];
  return `<dl>\n${rows.map(([name, text]) => `<dt>${name}</dt><dd>${escapeText(text)}</dd>`).join('\n')}\n</dl>`;
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

/** 8 B, 64 KiB, 4 MiB. */
function printBytes(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
  ] as const) {
    if (bytes >= size) return `${printNumber(bytes / size)} ${unit}`;
  }
  return `${bytes} B`;
}

/** Three figures, without an exponent. */
function printNumber(value: number): string {
  return value >= 1000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)));
}
