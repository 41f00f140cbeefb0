/** Programs of other projects on emulated cards: whether they are installed, and what they print there. */

import { spawnSync } from 'node:child_process';
import { deviceNodesSkipReason, environment, run } from '../fixtures/tools/run-command.ts';

/** Why a program cannot run on device nodes here; undefined if it can. @param source the Debian package that has it */
export function programSkipReason(program: string, source: string): string | undefined {
  const reason = deviceNodesSkipReason();
  if (reason !== undefined) return `device nodes: ${reason}`;
  const found = spawnSync('sh', ['-c', 'command -v "$0"', program]).status === 0;
  return found ? undefined : `${program} (Debian package ${source})`;
}

/** What a program prints outside, on standard error, such as a missing database of kernel modules. */
export function errorsOutside(program: string, args: readonly string[]): string {
  return spawnSync(program, args, { encoding: 'utf8', env: environment() }).stderr;
}

/** Runs a program to its end on a node of cards, and returns its output; it must succeed. */
export function outputOf(
  node: readonly string[],
  command: readonly string[],
  env: Record<string, string> = {},
): string {
  const [status, out, errors] = run([...node, '--', ...command], env);
  if (status !== 0) throw new Error(`${command.join(' ')} exited with ${status}: ${errors || out}`);
  return out;
}
