/** Commands of `gaudi-ucx`, loaded on demand because most of them need only some of the modules. */

import { Command } from 'commander';
import { packageVersion } from '../ucs/sys/package.ts';
import { reportFailure, reportUsage } from './base/command-line.ts';

type Loader = () => Promise<Command>;

const COMMANDS: Readonly<Record<string, Loader>> = {
  info: async () => (await import('./info/command.ts')).infoCommand(),
  demo: async () => (await import('./demo/demo-command.ts')).demoCommand(),
  explain: async () => (await import('./explain/command.ts')).explainCommand(),
  node: async () => (await import('./node/node-command.ts')).nodeCommand(),
  run: async () => (await import('./node/run-command.ts')).runCommand(),
  trace: async () => (await import('./node/trace-command.ts')).traceCommand(),
  perftest: async () => (await import('./perftest/command.ts')).perftestCommand(),
  coll: async () => (await import('./coll/command.ts')).collCommand(),
  profile: async () => (await import('./profile/command.ts')).profileCommand(),
  doctor: async () => (await import('./doctor/command.ts')).doctorCommand(),
  inspect: async () => (await import('./inspect/command.ts')).inspectCommand(),
  metrics: async () => (await import('./metrics/command.ts')).metricsCommand(),
  smi: async () => (await import('./smi/command.ts')).smiCommand(),
  top: async () => (await import('./top/command.ts')).topCommand(),
  web: async () => (await import('./web/command.ts')).webCommand(),
  completion: async () => (await import('./completion/command.ts')).completionCommand(() => loadProgram('')),
};

/** Runs a command line whose first argument names the command. Sets the exit code of the process. */
export async function runCommandLine(args: readonly string[]): Promise<void> {
  try {
    const program = await loadProgram(args[0] ?? '');
    reportUsage(program);
    if (args.length === 0) program.error('no command given');
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    reportFailure(error);
  }
}

/**
 * Makes the program with the commands that the first argument needs: one command, all for the help, none for the version.
 * @param argument name of a command; any other word loads all commands
 */
export async function loadProgram(argument: string): Promise<Command> {
  const program = new Command('gaudi-ucx')
    .description('UCX communication for Intel Gaudi accelerators')
    .version(packageVersion())
    // An option after the name of a command belongs to the command, even if the program has an option with the same letter.
    .enablePositionalOptions();
  for (const load of loadersFor(argument)) program.addCommand(await load());
  return program;
}

function loadersFor(argument: string): readonly Loader[] {
  if (argument === '--version' || argument === '-V') return [];
  return Object.hasOwn(COMMANDS, argument) ? [COMMANDS[argument]!] : Object.values(COMMANDS);
}
