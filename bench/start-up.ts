/** Start-up in fresh processes on the bundled package: the import alone, the import with a context of eight open cards, and the command line. */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { median, type Result } from './timing.ts';

const ROUNDS = 7;
const ENTRY = JSON.stringify(new URL('../lib/index.js', import.meta.url).href);
const COMMAND_LINE = fileURLToPath(new URL('../lib/main.js', import.meta.url));
/** Programs that print how many milliseconds they took. */
const IMPORT = `
const begin = process.hrtime.bigint();
await import(${ENTRY});
console.log(Number(process.hrtime.bigint() - begin) / 1e6);
`;
const CONTEXT = `
const begin = process.hrtime.bigint();
const { Context } = await import(${ENTRY});
const context = await Context.create();
const ms = Number(process.hrtime.bigint() - begin) / 1e6;
await context.close();
console.log(ms);
`;

/** Runs the measurements. */
export function benchStartUp(): Result[] {
  return [
    result('import', 70, () => printedBy(IMPORT)),
    result('import + context with 8 cards', 250, () => printedBy(CONTEXT)),
    result('gaudi-ucx --version', 110, versionMs),
    result('node itself, for comparison', undefined, () => processMs(['-e', '0'])),
  ];
}

/** @param msMax the target; undefined for none */
function result(name: string, msMax: number | undefined, run: () => number): Result {
  const ms = median(Array.from({ length: ROUNDS }, run));
  const value = `median ${ms.toFixed(0)} ms`;
  if (msMax === undefined) return { name, value, ratio: undefined, target: 'none', met: true };
  return { name, value, ratio: ms / msMax, target: `<= ${msMax} ms`, met: ms <= msMax };
}

function printedBy(program: string): number {
  return Number(execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' }));
}

function versionMs(): number {
  return processMs([COMMAND_LINE, '--version']);
}

function processMs(args: readonly string[]): number {
  const begin = performance.now();
  execFileSync(process.execPath, args);
  return performance.now() - begin;
}
