/** The charts: rates and latency percentiles of the last minutes. */

import uPlot from 'uplot';
import { setAttribute } from './dom.ts';

/** Limit of kept samples. */
const SAMPLES_MAX = 300;
const HEIGHT = 190;

/** A line of a chart. */
export interface ChartLine {
  readonly label: string;
  /** Name of the CSS variable of its colour. */
  readonly color: string;
  /** Lengths of dashes, so that lines differ without colours; none for a solid line. */
  readonly dash?: readonly number[];
}

/** A chart with a value for each line and time. */
export class LineChart {
  readonly #parent: HTMLElement;
  readonly #lines: readonly ChartLine[];
  readonly #unit: string;
  readonly #seconds: number[] = [];
  /** The values of each line. */
  readonly #columns: readonly (number | null)[][];
  #plot: uPlot;

  readonly #isLogarithmic: boolean;

  /** @param isLogarithmic for values that differ by orders of magnitude */
  constructor(parent: HTMLElement, unit: string, lines: readonly ChartLine[], isLogarithmic = false) {
    this.#parent = parent;
    this.#unit = unit;
    this.#lines = lines;
    this.#isLogarithmic = isLogarithmic;
    this.#columns = lines.map(() => []);
    this.#plot = this.#make();
    new ResizeObserver(() => this.#plot.setSize({ width: parent.clientWidth, height: HEIGHT })).observe(parent);
    // Colours are taken from the theme when the chart is created.
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.#plot.destroy();
      this.#plot = this.#make();
    });
  }

  /** Adds values; null for a line without a value. */
  add(seconds: number, values: readonly (number | null)[]): void {
    append(this.#seconds, seconds);
    for (const [index, column] of this.#columns.entries()) append(column, values[index] ?? null);
    this.#plot.setData([this.#seconds, ...this.#columns]);
    this.#showLast();
    const text = this.#lines.map(({ label }, index) => `${label} ${textOf(values[index], this.#unit)}`).join(', ');
    setAttribute(this.#parent, 'aria-label', text);
  }

  /** The legend shows the latest values, unless the pointer selects a time. */
  #showLast(): void {
    if (typeof this.#plot.cursor.idx !== 'number') this.#plot.setLegend({ idx: this.#seconds.length - 1 }, false);
  }

  #make(): uPlot {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    const axis: uPlot.Axis = {
      stroke: color('--faint'),
      grid: { stroke: color('--line'), width: 1 },
      ticks: { stroke: color('--line') },
    };
    const values: uPlot.Axis = { ...axis, size: 64, label: this.#unit, labelSize: 18 };
    const powers: uPlot.Axis = {
      ...values,
      filter: powersOfTen,
      grid: { ...axis.grid, filter: powersOfTen },
      ticks: { ...axis.ticks, filter: powersOfTen },
    };
    const options: uPlot.Options = {
      width: this.#parent.clientWidth,
      height: HEIGHT,
      cursor: { drag: { setScale: false }, points: { show: false } },
      scales: {
        y: this.#isLogarithmic
          ? { distr: 3, range: (_plot, _min, max) => [0.1, Math.max(max, 1) * 10] }
          : { range: (_plot, _min, max) => [0, Math.max(max, 1e-3) * 1.1] },
      },
      axes: [axis, this.#isLogarithmic ? powers : values],
      series: [
        {},
        ...this.#lines.map(({ label, color: name, dash }): uPlot.Series => {
          return {
            label,
            stroke: color(name),
            width: 2,
            points: { show: false },
            value: (_plot, value) => textOf(value, this.#unit),
            ...(dash && { dash: [...dash] }),
          };
        }),
      ],
    };
    return new uPlot(options, [this.#seconds, ...this.#columns], this.#parent);
  }
}

function append<T>(column: T[], value: T): void {
  column.push(value);
  if (column.length > SAMPLES_MAX) column.shift();
}

function textOf(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return '-';
  return `${value < 1000 ? value.toPrecision(3) : Math.round(value)} ${unit}`;
}

/** Of the splits of a logarithmic axis, those to draw. */
function powersOfTen(_plot: uPlot, splits: readonly number[]): (number | null)[] {
  return splits.map((value) => (Number.isInteger(Math.log10(value)) ? value : null));
}
