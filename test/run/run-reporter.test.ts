import { describe, expect, it } from 'vitest';
import { RunReporter } from './run-reporter.ts';

type Case = Parameters<RunReporter['onTestCaseResult']>[0];

/** A reporter with its own clock; `tick` is its timer. */
function makeReporter() {
  const lines: string[] = [];
  let ms = 0;
  let tick = (): void => undefined;
  let isStopped = false;
  const reporter = new RunReporter({
    write: (line) => lines.push(line),
    now: () => ms,
    every: (_ms, call) => {
      tick = call;
      return () => {
        isStopped = true;
      };
    },
  });
  const advance = (by: number): void => {
    ms += by;
    tick();
  };
  return { reporter, lines, advance, isStopped: () => isStopped };
}

const moduleOf = (moduleId: string, state: 'passed' | 'failed' | 'pending' | 'queued' = 'passed') => ({
  moduleId,
  state: () => state,
});

/** A test in a suite, with its result. */
function caseOf(name: string, result: Readonly<Record<string, unknown>>): Case {
  const parent = { type: 'suite', name: 'a suite (of 2)', parent: { type: 'module' } };
  return {
    name,
    fullName: `a suite (of 2) > ${name}`,
    module: { moduleId: `${process.cwd()}/test/fuzz/a.test.ts`, project: { name: 'ci' } },
    parent,
    result: () => result,
  } as unknown as Case;
}

describe('the reporter of a run', () => {
  it('prints a line of progress with the files that are running, the longest first', () => {
    const { reporter, lines, advance, isStopped } = makeReporter();
    reporter.onTestRunStart([1, 2, 3]);
    advance(10_000);
    reporter.onTestModuleStart(moduleOf(`${process.cwd()}/a`));
    advance(10_000);
    reporter.onTestModuleStart(moduleOf(`${process.cwd()}/b`));
    reporter.onTestCaseResult(caseOf('x', { state: 'failed', errors: [] }));
    advance(10_000);
    reporter.onTestModuleEnd(moduleOf(`${process.cwd()}/a`));
    advance(10_000);
    expect(lines).toEqual([
      '[10 s] 0 of 3 files, 0 failures, running: nothing\n',
      '[20 s] 0 of 3 files, 0 failures, running: a for 10 s\n',
      '[30 s] 0 of 3 files, 1 failures, running: a for 20 s, b for 10 s\n',
      '[40 s] 1 of 3 files, 1 failures, running: b for 20 s\n',
    ]);
    expect(isStopped()).toBe(false);
    reporter.onTestRunEnd([]);
    expect(isStopped()).toBe(true);
  });

  it('names the files that have not ended, and the test that each had begun last', () => {
    const { reporter, lines } = makeReporter();
    const modules = [moduleOf('a'), moduleOf('b', 'pending'), moduleOf('c', 'queued'), moduleOf('d', 'failed')];
    for (const module of modules.slice(0, 2)) {
      for (const fullName of ['first', 'second']) reporter.onTestCaseReady({ module: module as never, fullName });
    }
    reporter.onTestRunEnd(modules);
    expect(lines).toEqual([
      'the process of b has exited; the test that it had begun last: second\n',
      'the process of c has exited; the test that it had begun last: none of its tests\n',
    ]);
  });

  it.each([
    ['plain', 'expected 1 to be 2', ''],
    ['a property', 'Property failed after 1 tests\n{ seed: -17, path: "0" }', 'GAUDI_UCX_PROPERTY_SEED=-17 '],
    ['a schedule', 'schedule 5: hangs\nreplay: SIMULATION_SEED=5 npx vitest', 'SIMULATION_SEED=5 '],
    ['chaos (GAUDI_UCX_CHAOS_SEED=9)', 'expected 1 to be 2', 'GAUDI_UCX_CHAOS_SEED=9 '],
    ["it's", '', ''],
  ])('prints the command that repeats a failure, with its seed: %s', (name, message, seed) => {
    const { reporter, lines } = makeReporter();
    reporter.onTestCaseResult(caseOf(name, { state: 'failed', errors: [{ message }] }));
    reporter.onTestRunEnd([]);
    const pattern = `a suite \\(of 2\\) ${name}`.replace('chaos (', 'chaos \\(').replace('9)', '9\\)');
    const command = `npx vitest run --project ci test/fuzz/a.test.ts -t '${pattern.replace("'", `'\\''`)}'`;
    expect(lines).toEqual([`failed; to repeat it alone: ${seed}${command}\n`]);
  });

  it('counts skipped tests by what they need', () => {
    const { reporter, lines } = makeReporter();
    for (const [name, note] of [
      ['a', 'needs libucp'],
      ['b (needs libucp)', undefined],
      ['c (needs root)', undefined],
      ['e (needs root)', 'needs zsh'],
      ['d', undefined],
    ] as const) {
      reporter.onTestCaseResult(caseOf(name, { state: 'skipped', note }));
    }
    reporter.onTestRunEnd([]);
    expect(lines).toEqual([
      '2 tests skipped: they need libucp\n',
      '1 tests skipped: they need root\n',
      '1 tests skipped: they need zsh\n',
      '1 tests skipped: they need another machine or engine\n',
    ]);
  });
});
