/** A line chart with logarithmic axes as SVG. It knows numbers and texts, not what they mean. */

/** One curve: its points by rising x, all values above 0. */
export interface Curve {
  readonly name: string;
  readonly points: readonly ChartPoint[];
}

/** A point and what is shown where a pointer rests on it. */
export interface ChartPoint {
  readonly x: number;
  readonly y: number;
  readonly text: string;
}

/** What a chart is of. */
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
/** Colours of curves, by order: told apart also by those who do not see red and green apart (Okabe and Ito). */
export const CURVE_COLORS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f'] as const;

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
    points.map((point) => point.y),
    10,
    HEIGHT - BOTTOM,
    TOP,
  );
  const lines = curves.map((curve, index) => curveOf(curve, CURVE_COLORS[index % CURVE_COLORS.length]!, x, y));
  return [
    `<svg id="${id}" class="chart" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escapeText(title)}">`,
    `<text class="title" x="${LEFT}" y="22">${escapeText(title)}</text>`,
    ...xAxis(x, options),
    ...yAxis(y, options),
    ...lines,
    '</svg>',
  ].join('\n');
}

/** Text as HTML and SVG have it. */
export function escapeText(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

/** Values to places, with whole powers at both ends. */
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

function curveOf({ name, points }: Curve, color: string, x: LogScale, y: LogScale): string {
  const places = points.map((point) => ({ ...point, left: x.at(point.x), top: y.at(point.y) }));
  const line = places.map(({ left, top }) => `${left},${top}`).join(' ');
  const dots = places.map(
    ({ left, top, text }) =>
      `<circle cx="${left}" cy="${top}" r="3.5" fill="${color}"><title>${escapeText(`${name}: ${text}`)}</title></circle>`,
  );
  return [
    `<g class="curve" data-name="${escapeText(name)}">`,
    `<polyline points="${line}" fill="none" stroke="${color}" stroke-width="2"/>`,
    ...dots,
    '</g>',
  ].join('\n');
}
