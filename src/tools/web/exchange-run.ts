/** Exchange of the demonstration as a child process, at most one at a time. The page shows its traffic like that of any program. */

import { type ChildProcess, spawn } from 'node:child_process';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { WebExchange } from '../model/web-model.ts';

/** Puts of each pair: with eight cards the exchange takes long enough to watch it. */
const REPETITIONS = 64;
/** A line of a stage; see ProgressBar. */
const STAGE = /^stage (\d+) of (\d+): (.*)\n/gm;
/** Maximum number of characters of output; older ones are dropped. */
const OUTPUT_LENGTH_MAX = 4000;

/** The exchange. */
export class ExchangeRun {
  readonly #driver: string | undefined;
  #child: ChildProcess | undefined;
  #shown: WebExchange = { state: 'idle', output: '' };

  /** @param driver value of UCX_GAUDI_DRIVER for the cards of the page; undefined for real ones */
  constructor(driver: string | undefined) {
    this.#driver = driver;
  }

  get shown(): WebExchange {
    return this.#shown;
  }

  /** Starts it. @throws UcxError BUSY while it runs */
  start(): void {
    if (this.#child !== undefined) throw statusError(Status.BUSY, 'the exchange runs already');
    const env = {
      ...process.env,
      UCX_STATS_LATENCY: 'y',
      ...(this.#driver !== undefined && { UCX_GAUDI_DRIVER: this.#driver }),
    };
    const child = spawn(
      process.execPath,
      [...process.execArgv, process.argv[1]!, 'demo', '--stages', '--repetitions', String(REPETITIONS)],
      {
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    this.#child = child;
    this.#shown = { state: 'running', output: '' };
    const take = (bytes: Buffer): void => {
      this.#shown = withOutput(this.#shown, String(bytes));
    };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    const end = (isDone: boolean): void => {
      this.#child = undefined;
      this.#shown = { ...this.#shown, state: isDone ? 'done' : 'failed' };
    };
    child.once('error', (error) => {
      take(Buffer.from(error.message));
      end(false);
    });
    child.once('close', (code) => end(code === 0));
  }

  /** Ends it. */
  close(): void {
    this.#child?.kill('SIGTERM');
  }
}

/** Adds output. Lines of stages, which come whole, are not kept: the last one is the stage. */
export function withOutput(shown: WebExchange, text: string): WebExchange {
  const [, done, total, stage] = [...text.matchAll(STAGE)].at(-1) ?? [];
  const output = `${shown.output}${text.replaceAll(STAGE, '')}`.slice(-OUTPUT_LENGTH_MAX);
  if (stage === undefined) return { ...shown, output };
  return { ...shown, output, stage: { text: stage, done: Number(done), total: Number(total) } };
}
