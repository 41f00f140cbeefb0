/** The C suite of hl-thunk: builds it outside of its checkout, and runs each case in its own process. */

import { spawnSync } from 'node:child_process';
import { accessSync, constants, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** What one case did: `crashed` if a signal ended its process, or if it printed no result. */
export type Outcome = 'passed' | 'skipped' | 'failed' | 'crashed';

/** A case that is not expected to pass, with the reason. */
export interface Exception {
  readonly program: RegExp;
  readonly case: RegExp;
  readonly result: 'not run' | 'failed' | 'crashed';
  readonly reason: string;
}

/** One case: a test of a program. */
export interface SuiteCase {
  readonly program: string;
  readonly name: string;
}

/** Runs a command, such as on device nodes. Returns the exit code, null after a signal, and everything printed. */
export type Launch = (command: readonly string[]) => readonly [number | null, string];

/** Cases by what became of them, as `program: case`. */
export interface SuiteReport {
  readonly passed: readonly string[];
  readonly skipped: readonly string[];
  readonly notRun: readonly string[];
  /** Other results than expected, with the output of the case. */
  readonly unexpected: readonly string[];
}

/** The list that `-l` prints ends with the names, one a line. */
const LIST_END = /^-+$/m;
const CASE_NAME = /^\w+$/;
/** Results of cmocka. */
const RESULTS: readonly (readonly [RegExp, Outcome])[] = [
  [/^\[ {2}FAILED {2}\]/m, 'failed'],
  [/^\[ {2}SKIPPED \]/m, 'skipped'],
  [/^\[ {2}PASSED {2}\]/m, 'passed'],
];
const OUTPUT_CHARS = 600;

/** Builds the suite in a folder. Returns the folder of its programs. @throws Error with the output of a failed step */
export function buildSuite(checkout: string, folder: string): string {
  // Newer compilers warn of more, and the suite makes errors of warnings.
  const flags = ['-DUNIT_TESTING=ON', '-DCMAKE_BUILD_TYPE=Release', '-DCMAKE_C_FLAGS_RELEASE=-O2 -Wno-error'];
  step(['cmake', '-S', checkout, '-B', folder, ...flags]);
  step(['cmake', '--build', folder, '--parallel', '2']);
  return join(folder, 'bin');
}

function step([file, ...args]: readonly [string, ...string[]]): void {
  const { status, stdout, stderr, error } = spawnSync(file, args, { encoding: 'utf8' });
  if (status === 0) return;
  throw new Error(`${file} ${args.join(' ')} failed: ${error?.message ?? stdout + stderr}`);
}

/** The programs of the suite: executable files. */
export function programsIn(folder: string): readonly string[] {
  return readdirSync(folder)
    .filter((name) => statSync(join(folder, name)).isFile() && isExecutable(join(folder, name)))
    .sort();
}

/** Runs all cases, and compares them with the exceptions. */
export function runSuite(folder: string, exceptions: readonly Exception[], launch: Launch): SuiteReport {
  const lists: Record<keyof SuiteReport, string[]> = { passed: [], skipped: [], notRun: [], unexpected: [] };
  for (const { program, name } of programsIn(folder).flatMap((each) => casesOf(folder, each, launch))) {
    const label = `${program}: ${name}`;
    const exception = exceptions.find((each) => each.program.test(program) && each.case.test(name));
    if (exception?.result === 'not run') {
      lists.notRun.push(label);
      continue;
    }
    const [outcome, output] = runCase(folder, { program, name }, launch);
    if (exception === undefined && (outcome === 'passed' || outcome === 'skipped')) lists[outcome].push(label);
    else if (outcome !== exception?.result)
      lists.unexpected.push(`${label} ${outcome}, expected: ${exception?.result ?? 'passed'}\n${output}`);
  }
  return lists;
}

function casesOf(folder: string, program: string, launch: Launch): SuiteCase[] {
  const [status, output] = launch([join(folder, program), '-l']);
  const [, listed] = output.split(LIST_END);
  if (status !== 0 || listed === undefined)
    throw new Error(`${program} -l printed no list (exit code ${status}): ${output}`);
  return listed
    .split('\n')
    .filter((line) => CASE_NAME.test(line))
    .map((name) => ({ program, name }));
}

function runCase(folder: string, { program, name }: SuiteCase, launch: Launch): [Outcome, string] {
  const [status, output] = launch([join(folder, program), '-s', name]);
  const found = RESULTS.find(([pattern]) => pattern.test(output));
  const isCrash = status === null || status > 127 || found === undefined;
  return [isCrash ? 'crashed' : found[1], output.slice(-OUTPUT_CHARS)];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
