#!/usr/bin/env node
/** The command line `gaudi-ucx`: arguments in, text out, exit codes. What the commands do is in the file of each. */

import { Command } from 'commander';
import { packageVersion } from '../assembly/program/package.ts';
import { reportFailure, reportUsage, watchOutput } from './command-line.ts';

/** The commands, each loaded only when it is asked for: most need a part of the package only. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  info: async () => (await import('./info/command.ts')).infoCommand(),
  demo: async () => (await import('./demo/demo-command.ts')).demoCommand(),
  explain: async () => (await import('./explain/command.ts')).explainCommand(),
  node: async () => (await import('./node/command.ts')).nodeCommand(),
  run: async () => (await import('./run/command.ts')).runCommand(),
  trace: async () => (await import('./trace/command.ts')).traceCommand(),
  perftest: async () => (await import('./perftest/command.ts')).perftestCommand(),
  coll: async () => (await import('./coll/command.ts')).collCommand(),
  top: async () => (await import('./top/command.ts')).topCommand(),
};

/** The commands that a first argument needs: one, all for the help, none for the version. */
function commandsFor(argument: string): readonly (() => Promise<Command>)[] {
  if (argument === '--version' || argument === '-V') return [];
  const asked = COMMANDS[argument];
  return asked === undefined ? Object.values(COMMANDS) : [asked];
}

const program = new Command('gaudi-ucx')
  .description('UCX communication for Intel Gaudi accelerators')
  .version(packageVersion())
  // Options of a command are its own, also where the program has one of the same letter.
  .enablePositionalOptions();

// Node.js makes a pipe non-blocking when its stream is made, which the program that run becomes would inherit.
if (process.argv[2] !== 'run') watchOutput();
try {
  for (const load of commandsFor(process.argv[2] ?? '')) program.addCommand(await load());
  reportUsage(program);
  if (process.argv.length === 2) program.error('no command is given');
  await program.parseAsync();
} catch (error) {
  reportFailure(error);
}
