/**
 * The terminal of a live view: the alternate screen, keys, and the way back, whatever ends the program. It knows nothing of what it shows.
 */

import type { Screen } from './render.ts';

/** xterm: alternate screen and cursor. */
const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';
const QUIT_KEYS = new Set(['q', 'Q', '\u0003', '\u001b']);

/** What a live view needs of its process; tests hand in their own. */
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
  readonly #onQuit: () => void;
  readonly #onResize: () => void;
  readonly #onKey = (data: Buffer | string): void => {
    if ([...data.toString()].some((key) => QUIT_KEYS.has(key))) this.#onQuit();
  };
  #open = true;

  /**
   * Takes the screen. {@link close} gives it back.
   * @param onQuit called for q, Escape and Ctrl-C
   * @param onResize called when the screen has another size
   */
  constructor(terminal: Terminal, onQuit: () => void, onResize: () => void) {
    this.#terminal = terminal;
    this.#onQuit = onQuit;
    this.#onResize = onResize;
    const { input, output } = terminal;
    output.write(ENTER);
    output.on('resize', onResize);
    if (input.isTTY !== true) return;
    input.setRawMode?.(true);
    input.on('data', this.#onKey);
    input.resume();
  }

  /** The size now; 80 by 24 where the terminal does not say. */
  get size(): Screen {
    const { columns, rows } = this.#terminal.output;
    return { columns: columns ?? 80, rows: rows ?? 24 };
  }

  /** Shows lines, in place of what was there. */
  show(lines: readonly string[]): void {
    const text = lines.map((line) => line + CLEAR_LINE).join('\r\n');
    this.#terminal.output.write(HOME + text + CLEAR_BELOW);
  }

  /** Gives the terminal back as it was. Idempotent. */
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
