/**
 * Line chart with logarithmic axes as SVG, for reports of perftest, which are single files without scripts; the charts of the web page (uPlot) need scripts.
 */

/** A curve: its points in the order of x, all values above 0. */
export interface Curve {
  readonly name: string;
  readonly points: readonly ChartPoint[];
}

/** A point, with its tooltip. */
export interface ChartPoint {
  readonly x: number;
  readonly y: number;
  readonly text: string;
  /** The ends of a band around the point; undefined for none. */
  readonly band?: readonly [number, number];
}

/** Titles and units of a chart. */
export interface ChartOptions {
  readonly id: string;
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly curves: readonly Curve[];
  readonly printX: (value: number) => string;
  readonly printY: (value: number) => string;
}

const WIDTH = 860;
const HEIGHT = 420;
const LEFT = 84;
const RIGHT = 16;
const TOP = 44;
const BOTTOM = 56;
/** Labels of the horizontal axis at most. */
const X_LABELS_MAX = 12;
/** Colours of curves, in order: distinguishable with red-green colour blindness (Okabe and Ito). */
const CURVE_COLORS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f'] as const;

/** Dashes of lines by order, which distinguish curves without colours. */
const DASHES = ['', '8 4', '2 3', '10 3 2 3', '5 5', '14 4', '1 5'] as const;
/** SVG of the marks of points around the origin, by order. */
const MARKS = [
  '<circle r="4"/>',
  '<rect x="-3.5" y="-3.5" width="7" height="7"/>',
  '<path d="M0-5 5 4H-5z"/>',
  '<path d="M0-5 5 0 0 5-5 0z"/>',
  '<path d="M0 5 5-4H-5z"/>',
  '<path d="M-4-4 4 4M-4 4 4-4" stroke-width="2"/>',
  '<path d="M-5 0H5M0-5V5" stroke-width="2"/>',
] as const;

/** Sample of a curve for a legend: `svg`. */
export function curveSample(index: number): string {
  const { color, dash, mark } = styleOf(index);
  const line = `<path d="M0 8H36" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}"/>`;
  const point = `<g transform="translate(18 8)" fill="${color}" stroke="${color}">${mark}</g>`;
  return `<svg class="sample" viewBox="0 0 36 16" aria-hidden="true">${line}${point}</svg>`;
}

function styleOf(index: number): { readonly color: string; readonly dash: string; readonly mark: string } {
  const pick = <T>(list: readonly T[]): T => list[index % list.length]!;
  return { color: pick(CURVE_COLORS), dash: pick(DASHES), mark: pick(MARKS) };
}

/** The chart as an `svg` element. */
export function lineChart(options: ChartOptions): string {
  const { id, title, curves } = options;
  const points = curves.flatMap((curve) => curve.points);
  const x = new LogScale(
    points.map((point) => point.x),
    2,
    LEFT,
    WIDTH - RIGHT,
  );
  const y = new LogScale(
    points.flatMap((point) => [point.y, ...(point.band ?? [])]),
    10,
    HEIGHT - BOTTOM,
    TOP,
  );
  const lines = curves.map((curve, index) => curveOf(curve, index, x, y));
  return [
    `<svg id="${id}" class="chart" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escapeText(title)}">`,
    `<text class="title" x="${LEFT}" y="22">${escapeText(title)}</text>`,
    ...xAxis(x, options),
    ...yAxis(y, options),
    ...lines,
    '</svg>',
  ].join('\n');
}

/** Escapes text for HTML and SVG. */
export function escapeText(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

/** Maps values to coordinates; both ends of the axis are powers. */
class LogScale {
  readonly ticks: readonly number[];
  readonly #low: number;
  readonly #high: number;
  readonly #from: number;
  readonly #to: number;

  constructor(values: readonly number[], base: number, from: number, to: number) {
    const logs = values.map((value) => Math.log2(value) / Math.log2(base));
    const low = Math.floor(Math.min(...logs) + 1e-9);
    const high = Math.max(low + 1, Math.ceil(Math.max(...logs) - 1e-9));
    this.ticks = Array.from({ length: high - low + 1 }, (_, index) => base ** (low + index));
    this.#low = Math.log2(base ** low);
    this.#high = Math.log2(base ** high);
    this.#from = from;
    this.#to = to;
  }

  at(value: number): number {
    const part = (Math.log2(value) - this.#low) / (this.#high - this.#low);
    return Math.round((this.#from + part * (this.#to - this.#from)) * 10) / 10;
  }
}

function xAxis(scale: LogScale, { xLabel, printX }: ChartOptions): string[] {
  const step = Math.ceil(scale.ticks.length / X_LABELS_MAX);
  const bottom = HEIGHT - BOTTOM;
  const ticks = scale.ticks.map((tick, index) => {
    const at = scale.at(tick);
    const line = `<line class="grid" x1="${at}" y1="${TOP}" x2="${at}" y2="${bottom}"/>`;
    if (index % step !== 0) return line;
    return `${line}<text class="tick" x="${at}" y="${bottom + 22}" text-anchor="middle">${escapeText(printX(tick))}</text>`;
  });
  const middle = (LEFT + WIDTH - RIGHT) / 2;
  return [
    ...ticks,
    `<text class="label" x="${middle}" y="${HEIGHT - 12}" text-anchor="middle">${escapeText(xLabel)}</text>`,
  ];
}

function yAxis(scale: LogScale, { yLabel, printY }: ChartOptions): string[] {
  const ticks = scale.ticks.map((tick) => {
    const at = scale.at(tick);
    const line = `<line class="grid" x1="${LEFT}" y1="${at}" x2="${WIDTH - RIGHT}" y2="${at}"/>`;
    return `${line}<text class="tick" x="${LEFT - 8}" y="${at + 4}" text-anchor="end">${escapeText(printY(tick))}</text>`;
  });
  const middle = (TOP + HEIGHT - BOTTOM) / 2;
  const label = `<text class="label" x="16" y="${middle}" text-anchor="middle" transform="rotate(-90 16 ${middle})">`;
  return [...ticks, `${label}${escapeText(yLabel)}</text>`];
}

function curveOf({ name, points }: Curve, index: number, x: LogScale, y: LogScale): string {
  const { color, dash, mark } = styleOf(index);
  const places = points.map((point) => ({ ...point, left: x.at(point.x), top: y.at(point.y) }));
  const line = places.map(({ left, top }) => `${left},${top}`).join(' ');
  const banded = places.flatMap(({ left, band }) => (band === undefined ? [] : [{ left, band }]));
  const edge = (side: 0 | 1): string[] => banded.map(({ left, band }) => `${left},${y.at(band[side])}`);
  const band = [...edge(1), ...edge(0).reverse()].join(' ');
  const marks = places.map(({ left, top, text }) => {
    const title = `<title>${escapeText(`${name}: ${text}`)}</title>`;
    return `<g class="point" transform="translate(${left} ${top})" fill="${color}" stroke="${color}">${mark}${title}</g>`;
  });
  return [
    `<g class="curve" data-name="${escapeText(name)}">`,
    ...(banded.length === 0 ? [] : [`<polygon points="${band}" fill="${color}" fill-opacity="0.15"/>`]),
    `<polyline points="${line}" fill="none" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}"/>`,
    ...marks,
    '</g>',
  ].join('\n');
}
