/** Progress bar on a terminal; prints nothing if the output is not a terminal, or a line for each stage if they are wanted. */

const WIDTH = 32;

/** Output of a bar: standard output or standard error. */
export interface BarStream {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/** Shows the progress of a transfer. */
export class ProgressBar {
  readonly #stream: BarStream;
  readonly #total: number;
  readonly #isLines: boolean;
  /** Percentage that is shown; -1 if no bar is shown. */
  #shown = -1;

  /**
   * @param total final value of {@link update}
   * @param isLines whether an output that is not a terminal gets a line for each stage
   */
  constructor(stream: BarStream, total: number, isLines = false) {
    this.#stream = stream;
    this.#isLines = isLines;
    this.#total = total;
  }

  /** Draws the bar if its percentage has changed. */
  update(label: string, done: number): void {
    if (this.#stream.isTTY !== true) {
      if (this.#isLines) this.#stream.write(`stage ${done} of ${this.#total}: ${label}\n`);
      return;
    }
    const filled = Math.round((done / this.#total) * WIDTH);
    const percent = Math.round((done / this.#total) * 100);
    if (percent === this.#shown && done !== this.#total) return;
    this.#shown = percent;
    const bar = '#'.repeat(filled).padEnd(WIDTH, '.');
    this.#stream.write(`\r[${bar}] ${String(percent).padStart(3)} %  ${label.padEnd(28)}`);
  }

  /** Removes the bar if one is shown. */
  clear(): void {
    if (this.#shown < 0) return;
    this.#shown = -1;
    this.#stream.write(`\r${' '.repeat(WIDTH + 40)}\r`);
  }
}
