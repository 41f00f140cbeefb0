#!/usr/bin/env node
/** The command line `gaudi-ucx`: arguments in, text out, exit codes. What the commands do is in the file of each. */

import { Command } from 'commander';
import { packageVersion } from '../assembly/package.ts';
import { isUcxError } from '../ucs/type/error.ts';

/** The commands, each loaded only when it is asked for: most need a part of the package only. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  info: async () => (await import('./info-command.ts')).infoCommand(),
  demo: async () => (await import('./demo/demo-command.ts')).demoCommand(),
  explain: async () => (await import('./explain.ts')).explainCommand(),
  node: async () => (await import('./node.ts')).nodeCommand(),
  perftest: async () => (await import('./perftest/command.ts')).perftestCommand(),
  top: async () => (await import('./top/command.ts')).topCommand(),
};

const program = new Command('gaudi-ucx')
  .description('UCX communication for Intel Gaudi accelerators')
  .version(packageVersion())
  .showHelpAfterError()
  // Options of a command are its own, also where the program has one of the same letter.
  .enablePositionalOptions();

/** The line for an error that a user can do something about; undefined for one that is a defect of this program. */
function explanationOf(error: unknown): string | undefined {
  if (isUcxError(error)) return `${error.message} (${error.code})`;
  // Errors of node:fs name the call and the path.
  if (error instanceof Error && 'syscall' in error) return error.message;
  return undefined;
}

// A reader that has seen enough, such as head, ends the output and not the program: it has things to put away.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

try {
  const asked = COMMANDS[process.argv[2] ?? ''];
  for (const load of asked === undefined ? Object.values(COMMANDS) : [asked]) program.addCommand(await load());
  await program.parseAsync();
} catch (error) {
  const explanation = explanationOf(error);
  if (explanation === undefined) throw error;
  process.stderr.write(`gaudi-ucx: ${explanation}\n`);
  process.exitCode = 1;
}
