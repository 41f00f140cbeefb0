/**
 * Batch files: every line is a test; its first word is the name in the output, the other words are options. Several files run every combination of their
 * lines.
 */

import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { memorySizeType } from '../../../ucs/config/value.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { declareTestOptions, isRange, sizesOfRange, specOf, type TestOptions } from './options.ts';
import type { TestSpec } from './spec.ts';

/** A test with its names, one for each file. */
export interface BatchTest {
  readonly names: readonly string[];
  readonly spec: TestSpec;
}

/** One line of a file. */
interface Line {
  readonly name: string;
  readonly options: TestOptions;
  /** Location for error messages. */
  readonly place: string;
}

/**
 * The tests of a command line, in order. All are checked before the first one runs.
 * @param files batch files; without any the options are the one test
 * @throws UcxError ERR_INVALID_PARAM that names file and line; the error of node:fs
 */
export function batchTests(options: TestOptions, files: readonly string[]): BatchTest[] {
  return expand(
    options,
    files.map((file) => readLines(file)),
    [],
  );
}

function expand(options: TestOptions, files: readonly (readonly Line[])[], names: readonly string[]): BatchTest[] {
  const [lines, ...rest] = files;
  if (lines === undefined) return testsOf(options, names);
  return lines.flatMap((line) => {
    const merged = { ...options, ...line.options };
    if (rest.length === 0 && merged.t === undefined) {
      throw invalidParam(line.place, 'must have a test (-t)', line.name);
    }
    return expand(merged, rest, [...names, line.name]);
  });
}

/** The test of options, or one for each size of a range. */
function testsOf(options: TestOptions, names: readonly string[]): BatchTest[] {
  const { s } = options;
  if (s === undefined || !isRange(options)) return [{ names, spec: specOf(options) }];
  return sizesOfRange(s).map((bytes) => {
    return { names: [...names, memorySizeType.print(bytes)], spec: specOf({ ...options, s: String(bytes) }) };
  });
}

function readLines(file: string): Line[] {
  const lines: Line[] = [];
  for (const [index, text] of readFileSync(file, 'utf8').split('\n').entries()) {
    const words = text.split(/\s+/).filter((word) => word !== '');
    const [name, ...args] = words;
    if (name === undefined || name.startsWith('#')) continue;
    const place = `${file} line ${index + 1}`;
    lines.push({ name, options: parse(args, place), place });
  }
  if (lines.length === 0) throw invalidParam('-b', 'must name files with at least one test', file);
  return lines;
}

function parse(args: readonly string[], place: string): TestOptions {
  const command = declareTestOptions(new Command())
    .exitOverride()
    .configureOutput({ writeErr: () => undefined });
  try {
    return command.helpOption(false).parse(args, { from: 'user' }).opts();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    throw invalidParam(place, `must have options of a test (${error.message})`, args.join(' '));
  }
}
