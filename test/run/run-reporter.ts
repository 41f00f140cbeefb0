/**
 * A reporter of vitest for what its own reporters leave out: the progress of a long run, how to repeat a failure alone, tests that a process did not
 * end, and tools that were missing.
 */

import { relative } from 'node:path';
import type { Reporter, TestCase, TestModule } from 'vitest/node';

/** Time between two lines of progress. */
const PROGRESS_MS = 10_000;
/** Why a test was skipped, in its title or in the reason that it gives: `(needs libucp)`. */
const NEEDS = /\bneeds ([^()]+?)(?=[)(]|$)/;
/** A seed in a title or in a message, as the variable that repeats it. */
const SEED = /\b[A-Z_]*SEED=-?\d+/;
/** The seed of fast-check in the message of a failed property. */
const PROPERTY_SEED = /\{ seed: (-?\d+)/;

type Case = Pick<TestCase, 'name' | 'fullName' | 'result'> & {
  readonly module: Pick<TestModule, 'moduleId' | 'project'>;
  readonly parent: TestCase['parent'];
};

/** What the reporter needs from its surroundings. */
export interface RunSurroundings {
  write(line: string): void;
  /** Milliseconds. */
  now(): number;
  /** Calls `tick` at this interval until the returned function is called. */
  every(ms: number, tick: () => void): () => void;
}

const PROCESS: RunSurroundings = {
  write: (line) => process.stdout.write(line),
  now: () => Math.round(performance.now()),
  every: (ms, tick) => {
    const timer = setInterval(tick, ms).unref();
    return () => clearInterval(timer);
  },
};

/** Prints a line of progress every ten seconds, and what is above after the last test. */
export class RunReporter implements Reporter {
  readonly #surroundings: RunSurroundings;
  /** Start of each running file, by its id. */
  readonly #running: Map<string, number> = new Map();
  /** The test that a file has begun last, by the id of the file. */
  readonly #begun: Map<string, string> = new Map();
  readonly #failures: string[] = [];
  /** Numbers of skipped tests by what they need. */
  readonly #skipped: Map<string, number> = new Map();
  #start = 0;
  #files = 0;
  #done = 0;
  #stopProgress: () => void = () => undefined;

  constructor(surroundings: RunSurroundings = PROCESS) {
    this.#surroundings = surroundings;
  }

  onTestRunStart(files: readonly unknown[]): void {
    const { now, every, write } = this.#surroundings;
    this.#start = now();
    this.#files = files.length;
    this.#stopProgress = every(PROGRESS_MS, () => write(`${this.progress()}\n`));
  }

  onTestModuleStart({ moduleId }: Pick<TestModule, 'moduleId'>): void {
    this.#running.set(moduleId, this.#surroundings.now());
  }

  onTestModuleEnd({ moduleId }: Pick<TestModule, 'moduleId'>): void {
    this.#running.delete(moduleId);
    this.#done += 1;
  }

  onTestCaseReady({ module, fullName }: Pick<Case, 'fullName' | 'module'>): void {
    this.#begun.set(module.moduleId, fullName);
  }

  onTestCaseResult(test: Case): void {
    const result = test.result();
    if (result.state === 'failed') this.#failures.push(repetitionOf(test));
    if (result.state !== 'skipped') return;
    const [, needed = 'another machine or engine'] = NEEDS.exec(result.note ?? '') ?? NEEDS.exec(test.fullName) ?? [];
    this.#skipped.set(needed, (this.#skipped.get(needed) ?? 0) + 1);
  }

  onTestRunEnd(modules: readonly Pick<TestModule, 'moduleId' | 'state'>[]): void {
    this.#stopProgress();
    const { write } = this.#surroundings;
    for (const module of modules) {
      const state = module.state();
      if (state !== 'pending' && state !== 'queued') continue;
      const test = this.#begun.get(module.moduleId) ?? 'none of its tests';
      write(`the process of ${module.moduleId} has exited; the test that it had begun last: ${test}\n`);
    }
    for (const failure of this.#failures) write(`failed; to repeat it alone: ${failure}\n`);
    for (const [needed, count] of [...this.#skipped].sort(([, one], [, other]) => other - one))
      write(`${count} tests skipped: they need ${needed}\n`);
  }

  /** One line: files done of all, failures, and the files that are running, the longest first. */
  progress(): string {
    const { now } = this.#surroundings;
    const seconds = (since: number): string => `${Math.round((now() - since) / 1000)} s`;
    const running = [...this.#running].sort(([, one], [, other]) => one - other);
    const names = running.map(([id, since]) => `${relative(process.cwd(), id)} for ${seconds(since)}`);
    const failures = `${this.#failures.length} failures`;
    return `[${seconds(this.#start)}] ${this.#done} of ${this.#files} files, ${failures}, running: ${names.join(', ') || 'nothing'}`;
  }
}

/** The command that runs a failed test alone, with its seed. */
function repetitionOf(test: Case): string {
  const { moduleId, project } = test.module;
  const result = test.result();
  const text = [test.fullName, ...(result.errors ?? []).map(({ message }) => message)].join('\n');
  const [, ofProperty] = PROPERTY_SEED.exec(text) ?? [];
  const seed = ofProperty === undefined ? SEED.exec(text)?.[0] : `GAUDI_UCX_PROPERTY_SEED=${ofProperty}`;
  const names: string[] = [test.name];
  for (let suite = test.parent; suite.type === 'suite'; suite = suite.parent) names.unshift(suite.name);
  const pattern = names.join(' ').replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  const command = `npx vitest run --project ${project.name} ${relative(process.cwd(), moduleId)} -t ${quoted(pattern)}`;
  return seed === undefined ? command : `${seed} ${command}`;
}

/** A word of the shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
