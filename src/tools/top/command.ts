/** Command `gaudi-ucx top`: live view of memory, engines, throughput, links and errors of the cards of a node. Only control nodes are opened. */

import { Command } from 'commander';
import { cardsOf, openShownNode } from '../../assembly/open-node.ts';
import { startProgram } from '../../assembly/program/program.ts';
import { timeType } from '../../ucs/config/value.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { readArguments } from '../base/command-line.ts';
import { pause } from '../base/text-table.ts';
import { type NodeSample, TopSampler } from '../model/sample.ts';
import { type TopModel, topModel } from '../model/top-model.ts';
import { noCards } from '../node-access/card.ts';
import { renderTop, type Screen, SMALLEST_SCREEN, SORT_ORDERS, scrollMax } from './render.ts';
import { type Key, LiveScreen } from './screen.ts';

const INTERVAL_NS_MIN = 10e6;
const INTERVAL_NS_MAX = 3600e9;
const NS_PER_S = 1e9;

interface Options {
  readonly once?: boolean;
  readonly json?: boolean;
  readonly interval: string;
}

/** The command. */
export function topCommand(): Command {
  return new Command('top')
    .description('show a live view of the cards: HBM, engines, throughput, links, errors; q quits')
    .option('--once', 'print the view once, with the rates of one interval')
    .option('--json', 'print a line of JSON for each interval, for scripts')
    .option('--interval <time>', 'time between two samples, such as 500ms', '1s')
    .action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const intervalNs = readArguments(command, () => intervalOf(options.interval));
  const program = startProgram();
  const node = openShownNode(program);
  const sampler = new TopSampler(
    node,
    () => program.clock.nowNs(),
    () => cardsOf(node, program),
  );
  try {
    const view = new View(sampler, program.clock, intervalNs);
    if (options.once === true && cardsOf(node, program).length === 0 && node.lostReason === undefined) {
      throw noCards(node);
    }
    const isLive = hasScreen(program.env['TERM']) && options.once !== true && options.json !== true;
    if (isLive) await view.live();
    else await view.print(options.json === true, options.once === true);
  } finally {
    sampler.close();
    node.close();
  }
}

/** Samples the node periodically. */
class View {
  readonly #sampler: TopSampler;
  readonly #clock: Clock;
  readonly #intervalNs: number;
  readonly #end: AbortController = new AbortController();
  #last: NodeSample | undefined = undefined;
  /** Index into {@link SORT_ORDERS}. */
  #sort = 0;
  #scroll = 0;

  constructor(sampler: TopSampler, clock: Clock, intervalNs: number) {
    this.#sampler = sampler;
    this.#clock = clock;
    this.#intervalNs = intervalNs;
  }

  /** Draws on the terminal until the user quits. */
  async live(): Promise<void> {
    let model = this.#sample();
    const draw = (): void => {
      this.#scroll = Math.min(this.#scroll, scrollMax(model, screen.size));
      const view = { sort: SORT_ORDERS[this.#sort]!, scroll: this.#scroll, isLive: true };
      screen.show(renderTop(model, this.#title, screen.size, view));
    };
    const onPressed = (key: Key): void => {
      this.#press(key);
      if (!this.#end.signal.aborted) draw();
    };
    const screen = new LiveScreen({ output: process.stdout, input: process.stdin }, onPressed, draw);
    const undo = this.#onSignals();
    const ignore = onStops(screen, draw);
    try {
      draw();
      while (await this.#sleep()) {
        model = this.#sample();
        draw();
      }
    } finally {
      undo();
      ignore();
      screen.close();
    }
  }

  /** Prints a view or a line of JSON after every interval, once or until a signal. */
  async print(json: boolean, once: boolean): Promise<void> {
    const undo = this.#onSignals();
    this.#sample();
    try {
      while (await this.#sleep()) {
        const model = this.#sample();
        const text = json ? JSON.stringify(model) : renderTop(model, this.#title, outputSize()).join('\n');
        process.stdout.write(`${text}\n${json || once ? '' : '\n'}`);
        if (once) return;
      }
    } finally {
      undo();
    }
  }

  get #title(): string {
    return `every ${this.#intervalNs / NS_PER_S} s`;
  }

  #sample(): TopModel {
    const sample = this.#sampler.sample();
    const model = topModel(this.#last, sample);
    this.#last = sample;
    return model;
  }

  #press(key: Key): void {
    if (key === 'quit') this.#end.abort();
    // In raw mode, the program itself must stop its job.
    else if (key === 'suspend') process.kill(0, 'SIGTSTP');
    else if (key === 'sort') this.#sort = (this.#sort + 1) % SORT_ORDERS.length;
    else this.#scroll = Math.max(0, this.#scroll + (key === 'up' ? -1 : 1));
  }

  /** Waits for the next sample. Resolves to false at the end. */
  #sleep(): Promise<boolean> {
    return pause(this.#clock, this.#intervalNs, this.#end.signal);
  }

  /** Ends at a signal, so that the terminal is restored. Returns a function that removes the handlers. */
  #onSignals(): () => void {
    const end = (): void => this.#end.abort();
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
    for (const signal of signals) process.on(signal, end);
    // The reader has closed the pipe, as head does.
    process.stdout.on('error', end);
    return () => {
      for (const signal of signals) process.off(signal, end);
      process.stdout.off('error', end);
    };
  }
}

/** Restores the terminal while the program is stopped. Returns a function that removes the handlers. */
function onStops(screen: LiveScreen, draw: () => void): () => void {
  const stop = (): void => {
    screen.close();
    // Without a handler, the signal stops the program.
    process.off('SIGTSTP', stop);
    process.kill(process.pid, 'SIGTSTP');
  };
  const proceed = (): void => {
    process.off('SIGTSTP', stop).on('SIGTSTP', stop);
    // After SIGSTOP, the shell has changed the mode of a terminal that is still open here.
    screen.close();
    screen.open();
    draw();
  };
  process.on('SIGTSTP', stop).on('SIGCONT', proceed);
  return () => process.off('SIGTSTP', stop).off('SIGCONT', proceed);
}

/** Whether standard output is a terminal with a cursor. */
function hasScreen(term: string | undefined): boolean {
  return process.stdout.isTTY === true && term !== undefined && term !== '' && term !== 'dumb';
}

/** Size of a view that does not scroll: as wide as the terminal, and as high as needed. */
function outputSize(): Screen {
  return { columns: process.stdout.columns || SMALLEST_SCREEN.columns, rows: Number.POSITIVE_INFINITY };
}

function intervalOf(text: string): number {
  const ns = timeType.parse(text);
  if (ns === undefined || !(ns >= INTERVAL_NS_MIN && ns <= INTERVAL_NS_MAX)) {
    throw invalidParam('interval', 'must be a time from 10ms to 60m', text);
  }
  return ns;
}
