/** The report of perftest as one HTML page without scripts and without anything from elsewhere. Pure text. */

import { type ChartPoint, CURVE_COLORS, type Curve, escapeText, lineChart } from './chart.ts';
import type { Point, Series } from './series.ts';

/** What the page tells besides the curves. */
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
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; color: var(--muted); }
dd { margin: 0; color: var(--text); overflow-wrap: anywhere; }
.note { background: var(--note); border-radius: .4rem; padding: .5rem .8rem; }
.chart { display: block; width: 100%; height: auto; margin: 1rem 0; }
.chart text { fill: var(--muted); font-size: 12px; }
.chart .title { fill: var(--text); font-size: 16px; font-weight: 600; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; margin: 0; list-style: none; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; margin-right: .4rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 1rem 0 .3rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:last-child, td:last-child { text-align: left; }
`;
const MEGABYTE = 1e6;

/** The page. */
export function reportPage(series: readonly Series[], facts: PageFacts): string {
  const title = 'gaudi-ucx perftest';
  const legend = series.map(({ name }, index) => {
    return `<li><i style="background:${CURVE_COLORS[index % CURVE_COLORS.length]}"></i>${escapeText(name)}</li>`;
  });
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
<ul class="legend">
${legend.join('\n')}
</ul>
${lineChart({ ...latencyAxes, curves: curvesOf(series, latencyOf) })}
${lineChart({ ...bandwidthAxes, curves: curvesOf(series, bandwidthOf) })}
${series.map(tableOf).join('\n')}
</body>
</html>
`;
}

const latencyAxes = {
  id: 'latency',
  title: 'Latency: time of one message, one way',
  xLabel: 'message size',
  yLabel: 'microseconds',
  printX: printBytes,
  printY: (us: number): string => printNumber(us),
};
const bandwidthAxes = {
  id: 'bandwidth',
  title: 'Bandwidth',
  xLabel: 'message size',
  yLabel: 'MB per second',
  printX: printBytes,
  printY: (rate: number): string => printNumber(rate),
};

function latencyOf({ bytes, latencyNs }: Point): ChartPoint {
  const us = latencyNs / 1000;
  return { x: bytes, y: us, text: `${printBytes(bytes)}, ${printNumber(us)} us` };
}

function bandwidthOf({ bytes, bytesPerSecond }: Point): ChartPoint {
  const rate = bytesPerSecond / MEGABYTE;
  return { x: bytes, y: rate, text: `${printBytes(bytes)}, ${printNumber(rate)} MB/s` };
}

function curvesOf(series: readonly Series[], pointOf: (point: Point) => ChartPoint): Curve[] {
  return series.map(({ name, points }) => ({ name, points: points.map(pointOf) }));
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

function tableOf({ name, points }: Series): string {
  const rows = points.map((point) => {
    const cells = [
      printBytes(point.bytes),
      point.iterations.toLocaleString('en-US'),
      (point.latencyNs / 1000).toFixed(3),
      (point.percentileNs / 1000).toFixed(3),
      (point.bytesPerSecond / MEGABYTE).toFixed(2),
      Math.round(point.messagesPerSecond).toLocaleString('en-US'),
      point.carrier,
    ];
    return `<tr>${cells.map((cell) => `<td>${escapeText(cell)}</td>`).join('')}</tr>`;
  });
  return `<div class="table"><table>
<caption>${escapeText(name)}</caption>
<thead><tr><th>size</th><th>iterations</th><th>average (us)</th><th>percentile (us)</th><th>MB/s</th><th>messages/s</th><th>carried by</th></tr></thead>
<tbody>
${rows.join('\n')}
</tbody>
</table></div>`;
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
