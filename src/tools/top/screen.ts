/**
 * Terminal of a live view: switches to the alternate screen, reads keys, and restores the terminal at every end of the program.
 */

import { type Screen, SMALLEST_SCREEN } from './render.ts';

/** xterm: alternate screen and cursor. */
const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';
/** Keys by terminal input. A single escape character quits; escape sequences begin with one. */
const KEYS: ReadonlyMap<string, Key> = new Map([
  ['q', 'quit'],
  ['Q', 'quit'],
  ['\u0003', 'quit'],
  ['\u001b', 'quit'],
  ['\u001a', 'suspend'],
  ['s', 'sort'],
  ['S', 'sort'],
  ['k', 'up'],
  ['\u001b[A', 'up'],
  ['\u001bOA', 'up'],
  ['j', 'down'],
  ['\u001b[B', 'down'],
  ['\u001bOB', 'down'],
]);
const ESCAPE = '\u001b';

/** Actions of the keys. */
export type Key = 'quit' | 'suspend' | 'sort' | 'up' | 'down';

/** Standard input and output of a live view; tests pass their own. */
export interface Terminal {
  readonly output: {
    readonly columns?: number | undefined;
    readonly rows?: number | undefined;
    write(text: string): unknown;
    on(event: 'resize', listener: () => void): unknown;
    off(event: 'resize', listener: () => void): unknown;
  };
  readonly input: {
    readonly isTTY?: boolean | undefined;
    setRawMode?(on: boolean): unknown;
    resume(): unknown;
    pause(): unknown;
    on(event: 'data', listener: (data: Buffer | string) => void): unknown;
    off(event: 'data', listener: (data: Buffer | string) => void): unknown;
  };
}

/** A live view on a terminal. */
export class LiveScreen {
  readonly #terminal: Terminal;
  readonly #onPressed: (key: Key) => void;
  readonly #onResize: () => void;
  readonly #onKey = (data: Buffer | string): void => {
    for (const sequence of sequencesIn(data.toString())) {
      const key = KEYS.get(sequence);
      if (key !== undefined) this.#onPressed(key);
    }
  };
  #open = false;

  /**
   * Switches to the alternate screen. {@link close} restores the terminal.
   * @param onPressed called for q, Escape and Ctrl-C (`quit`), Ctrl-Z (`suspend`), s (`sort`), and the arrow keys or k and j (`up`, `down`)
   * @param onResize called when the size of the screen changes
   */
  constructor(terminal: Terminal, onPressed: (key: Key) => void, onResize: () => void) {
    this.#terminal = terminal;
    this.#onPressed = onPressed;
    this.#onResize = onResize;
    this.open();
  }

  /** Switches to the alternate screen again, after {@link close}. Idempotent. */
  open(): void {
    if (this.#open) return;
    this.#open = true;
    const { input, output } = this.#terminal;
    // The mode is set first: in the background this stops the program, before anything on the terminal has changed.
    if (input.isTTY === true) {
      input.setRawMode?.(true);
      input.on('data', this.#onKey);
      input.resume();
    }
    output.on('resize', this.#onResize);
    output.write(ENTER);
  }

  /** Current size; 80 by 24 if the terminal does not report it, or reports 0, as a serial line does. */
  get size(): Screen {
    const { columns, rows } = this.#terminal.output;
    return { columns: columns || SMALLEST_SCREEN.columns, rows: rows || SMALLEST_SCREEN.rows };
  }

  /** Replaces the contents of the screen, unless it is closed. */
  show(lines: readonly string[]): void {
    if (!this.#open) return;
    const text = lines.map((line) => line + CLEAR_LINE).join('\r\n');
    this.#terminal.output.write(HOME + text + CLEAR_BELOW);
  }

  /** Restores the terminal. Idempotent. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    const { input, output } = this.#terminal;
    output.off('resize', this.#onResize);
    if (input.isTTY === true) {
      input.off('data', this.#onKey);
      input.setRawMode?.(false);
      input.pause();
    }
    output.write(LEAVE);
  }
}

/** The keys in the input of a terminal: single characters, and escape sequences of three. */
function sequencesIn(text: string): string[] {
  const sequences: string[] = [];
  for (let start = 0; start < text.length; ) {
    const isSequence = text[start] === ESCAPE && (text[start + 1] === '[' || text[start + 1] === 'O');
    const end = start + (isSequence ? 3 : 1);
    sequences.push(text.slice(start, end));
    start = end;
  }
  return sequences;
}
