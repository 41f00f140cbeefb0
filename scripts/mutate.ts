/**
 * Plants faults into a copy of the repository, one at a time, and runs tests until one fails: `npm run mutate -- [--unit] [WORDS]`. First the unit tests
 * of the folder of the fault, then the suites of its area, which `--unit` leaves out. The faults are data, in test/mutation. Prints for each by which test it
 * was found, and a summary.
 *
 * `npm run mutate -- --operators FILE...` leaves the choice of faults to StrykerJS, which changes each operator and condition of a source in turn, and runs
 * the unit tests of its folder.
 *
 * A copy, because a run of the tests beside it must not see the fault. Tests run from their sources; programs that they start run from bundles, which are made
 * anew for the suites only, without types and declarations.
 */

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { argv, execPath } from 'node:process';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import {
  createVitest,
  type Reporter,
  type TestCase,
  type TestModule,
  type TestSpecification,
  type Vitest,
} from 'vitest/node';
import { type Area, type Fault, planted } from '../test/mutation/fault.ts';
import { AREAS } from '../test/mutation/faults.ts';

const ROOT = join(import.meta.dirname, '..');
/** Runs unit tests only. */
const UNIT = '--unit';
/** Faults by StrykerJS. */
const OPERATORS = '--operators';
/** Its folder: a separate package, as the repository works without its 190 packages. */
const STRYKER = 'test/mutation/stryker';
/** A run that hangs has found the fault, if not its test. */
const UNIT_S = 30;
const SUITE_S = 600;
const HUNG = 'none, as they hung or did not start';

/** How a fault was found. */
type Finding =
  | { readonly by: 'unit' | 'suite'; readonly test: string; readonly seconds: number }
  | { readonly by: 'nothing' };

/** The copy that faults are planted into. */
class Copy {
  readonly root: string = mkdtempSync(join(tmpdir(), 'mutate-'));

  constructor() {
    const files = run('git', ['ls-files', '-z'], ROOT).stdout.split('\0').filter(Boolean);
    for (const file of files) cpSync(join(ROOT, file), join(this.root, file));
    cpSync(join(ROOT, 'dist'), join(this.root, 'dist'), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules'), join(this.root, 'node_modules'));
  }

  /** Runs with a fault planted. */
  async withFault<T>(fault: Fault, use: () => Promise<T>): Promise<T> {
    const path = join(this.root, fault.file);
    const text = readFileSync(path, 'utf8');
    writeFileSync(path, planted(text, fault));
    try {
      return await use();
    } finally {
      writeFileSync(path, text);
    }
  }

  /** Bundles the programs that tests start. */
  bundle(): void {
    run(
      execPath,
      [join(ROOT, 'node_modules/rolldown/bin/cli.mjs'), '--config', 'test/mutation/bundles.config.ts'],
      this.root,
    );
  }

  /** The first test of suites that fails; undefined if all pass. */
  firstFailure(suites: readonly string[]): string | undefined {
    const report = join(this.root, 'report.json');
    rmSync(report, { force: true });
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const args = ['run', '--project', 'ci', '--bail', '1', '--reporter', 'json', '--outputFile', report, ...suites];
    // It stops the processes of vitest too: one that runs in a circle does not see that its parent is gone.
    const { status } = run('timeout', ['--signal=KILL', `${SUITE_S}`, execPath, vitest, ...args], this.root);
    if (status === 0) return undefined;
    return existsSync(report) ? failureIn(report, this.root) : HUNG;
  }

  /** Runs StrykerJS over sources, one after the other; prints what survives. */
  changeOperators(files: readonly string[]): void {
    const show = (program: string, args: readonly string[], env: NodeJS.ProcessEnv): void => {
      const { status } = spawnSync(program, args, {
        cwd: this.root,
        env: { ...process.env, ...env },
        stdio: 'inherit',
      });
      if (status !== 0) throw new Error(`${program} ${args.join(' ')}: exit code ${status}`);
    };
    show('npm', ['ci', '--prefix', STRYKER, '--silent'], {});
    const stryker = join(STRYKER, 'node_modules/@stryker-mutator/core/bin/stryker.js');
    for (const file of files) {
      show(execPath, [stryker, 'run', join(STRYKER, 'stryker.config.json'), '--mutate', file], { MUTATED_FILE: file });
    }
  }

  close(): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** The unit tests of the copy, in one instance of vitest for all faults: its start takes longer than they do. */
class UnitTests implements Reporter {
  readonly #root: string;
  #vitest!: Vitest;
  #all: readonly TestSpecification[] = [];
  #failure: string | undefined = undefined;

  private constructor(root: string) {
    this.#root = root;
  }

  static async open(root: string): Promise<UnitTests> {
    // Its configuration stands for this folder.
    process.chdir(root);
    // An instance whose process was killed may still write to it.
    process.on('uncaughtException', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE' && error.code !== 'ERR_IPC_CHANNEL_CLOSED') throw error;
    });
    const units = new UnitTests(root);
    await units.#start();
    return units;
  }

  async #start(): Promise<void> {
    const options = { root: this.#root, watch: false, bail: 1, reporters: [this], project: ['quick*'] };
    this.#vitest = await createVitest('test', options);
    this.#all = await this.#vitest.globTestSpecifications();
  }

  /** For vitest. */
  onTestCaseResult(test: TestCase): void {
    if (test.result().state === 'failed')
      this.#fails(`${relative(this.#root, test.module.moduleId)} > ${test.fullName}`);
  }

  /** For vitest: the module may not be loaded. */
  onTestModuleEnd(module: TestModule): void {
    if (!module.ok()) this.#fails(relative(this.#root, module.moduleId));
  }

  /** The first test in or below the folder of a changed file that fails; undefined if all pass, or there are none. */
  async firstFailure(file: string): Promise<string | undefined> {
    const path = join(this.#root, file);
    const tests = this.#all.filter(({ moduleId }) => moduleId.startsWith(`${dirname(path)}/`));
    if (tests.length === 0) return undefined;
    this.#failure = undefined;
    this.#vitest.invalidateFile(path);
    const run = this.#vitest.runTestSpecifications([...tests]);
    const limit = new AbortController();
    const ended = await Promise.race([run, setTimeout(UNIT_S * 1000, undefined, { signal: limit.signal })]);
    limit.abort();
    if (ended === undefined) {
      // An instance whose process is killed does not end its run.
      this.#fails(HUNG);
      spawnSync('pkill', ['-KILL', '-P', `${process.pid}`, '-f', 'vitest']);
      await this.#start();
    } else {
      this.#vitest.invalidateFile(path);
      for (const error of ended.unhandledErrors) this.#fails(inspect(error));
    }
    return this.#failure;
  }

  async close(): Promise<void> {
    process.chdir(ROOT);
    await this.#vitest.close();
  }

  #fails(how: string): void {
    this.#failure ??= how;
  }
}

function run(
  program: string,
  args: readonly string[],
  cwd: string,
): { readonly status: number | null; readonly stdout: string } {
  return spawnSync(program, args, { cwd, encoding: 'utf8', maxBuffer: 2 ** 28 });
}

interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

function failureIn(report: string, root: string): string {
  const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as Report;
  for (const { name, status, assertionResults } of testResults) {
    const failed = assertionResults.find((each) => each.status === 'failed');
    if (failed !== undefined) return `${relative(root, name)} > ${failed.fullName}`;
    if (status === 'failed') return relative(root, name);
  }
  return 'the run itself';
}

function find(copy: Copy, units: UnitTests, area: Area, fault: Fault, onlyUnit: boolean): Promise<Finding> {
  return copy.withFault(fault, async () => {
    const begin = performance.now();
    const seconds = (): number => (performance.now() - begin) / 1000;
    const unit = await units.firstFailure(fault.file);
    if (unit !== undefined) return { by: 'unit', test: unit, seconds: seconds() };
    if (onlyUnit) return { by: 'nothing' };
    copy.bundle();
    const suite = copy.firstFailure(area.suites);
    return suite === undefined ? { by: 'nothing' } : { by: 'suite', test: suite, seconds: seconds() };
  });
}

async function plantAll(copy: Copy, words: readonly string[], onlyUnit: boolean): Promise<void> {
  const counts = { unit: 0, suite: 0, nothing: 0 };
  let known = 0;
  const units = await UnitTests.open(copy.root);
  for (const area of AREAS) {
    for (const fault of area.faults) {
      if (words.length > 0 && !words.some((word) => fault.file.includes(word) || area.name === word)) continue;
      if (fault.equivalent !== undefined) continue;
      console.log(`${fault.file}: ${fault.breaks}`);
      const finding = await find(copy, units, area, fault, onlyUnit);
      counts[finding.by] += 1;
      if (finding.by !== 'nothing') console.log(`  ${finding.by} ${finding.seconds.toFixed(1)} s: ${finding.test}`);
      else if (fault.unfound === undefined) console.log('  NOT FOUND');
      else {
        known += 1;
        console.log(`  not found, as ${fault.unfound}`);
      }
    }
  }
  await units.close();
  // Vitest sets it for the tests that find faults.
  process.exitCode = counts.nothing > known ? 1 : 0;
  const total = counts.unit + counts.suite + counts.nothing;
  console.log(
    `${total} faults: ${counts.unit} found by unit tests, ${counts.suite} by suites, ${counts.nothing} not found (${known} for a known reason)`,
  );
}

async function main(options: ReadonlySet<string>, words: readonly string[]): Promise<void> {
  process.env['TESTS_ARE_BUILT'] = '1';
  const copy = new Copy();
  try {
    if (options.has(OPERATORS)) copy.changeOperators(words);
    else await plantAll(copy, words, options.has(UNIT));
  } finally {
    copy.close();
  }
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const [options, words] = [true, false].map((isOption) =>
    argv.slice(2).filter((word) => word.startsWith('--') === isOption),
  );
  await main(new Set(options), words!);
  // A process that outlives the test that started it holds the output of vitest open, which would keep this process alive.
  process.exit();
}
