/** A progress bar on one line of a terminal; silent if the output is not a terminal. */

const WIDTH = 32;

/** Shows the progress of a transfer. */
export class ProgressBar {
  readonly #stream: NodeJS.WriteStream;
  readonly #total: number;
  #shown = -1;

  /** @param total final value of {@link update} */
  constructor(stream: NodeJS.WriteStream, total: number) {
    this.#stream = stream;
    this.#total = total;
  }

  /** Draws the bar, if it has changed. */
  update(label: string, done: number): void {
    if (!this.#stream.isTTY) return;
    const filled = Math.round((done / this.#total) * WIDTH);
    const percent = Math.round((done / this.#total) * 100);
    if (percent === this.#shown && done !== this.#total) return;
    this.#shown = percent;
    const bar = '#'.repeat(filled).padEnd(WIDTH, '.');
    this.#stream.write(`\r[${bar}] ${String(percent).padStart(3)} %  ${label.padEnd(28)}`);
  }

  /** Removes the bar. */
  clear(): void {
    if (this.#stream.isTTY) this.#stream.write(`\r${' '.repeat(WIDTH + 40)}\r`);
  }
}
