#!/usr/bin/env node
/** The command line `gaudi-ucx`: arguments in, text out, exit codes. What the commands do is in the file of each. */

import { Command } from 'commander';
import { packageVersion } from '../assembly/package.ts';
import { reportFailure, reportUsage, watchOutput } from './command-line.ts';

/** The commands, each loaded only when it is asked for: most need a part of the package only. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  info: async () => (await import('./info/command.ts')).infoCommand(),
  demo: async () => (await import('./demo/demo-command.ts')).demoCommand(),
  explain: async () => (await import('./explain/command.ts')).explainCommand(),
  node: async () => (await import('./node/command.ts')).nodeCommand(),
  perftest: async () => (await import('./perftest/command.ts')).perftestCommand(),
  top: async () => (await import('./top/command.ts')).topCommand(),
};

const program = new Command('gaudi-ucx')
  .description('UCX communication for Intel Gaudi accelerators')
  .version(packageVersion())
  // Options of a command are its own, also where the program has one of the same letter.
  .enablePositionalOptions();

watchOutput();
try {
  const asked = COMMANDS[process.argv[2] ?? ''];
  for (const load of asked === undefined ? Object.values(COMMANDS) : [asked]) program.addCommand(await load());
  reportUsage(program);
  if (process.argv.length === 2) program.error('no command is given');
  await program.parseAsync();
} catch (error) {
  reportFailure(error);
}
