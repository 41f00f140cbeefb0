/** `gaudi-ucx completion`: prints the completion script of a shell. */

import { Argument, Command } from 'commander';
import { bashScript, fishScript, zshScript } from './shells.ts';
import { type CommandTable, tableOf } from './table.ts';

const SCRIPTS: Readonly<Record<string, (program: CommandTable) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};

/** Makes the command. @param loadProgram loads the program with all commands */
export function completionCommand(loadProgram: () => Promise<Command>): Command {
  return new Command('completion')
    .description('print the completion script of a shell, such as for: source <(gaudi-ucx completion bash)')
    .addArgument(new Argument('<shell>', 'shell of the script').choices(Object.keys(SCRIPTS)))
    .action(async (shell: string) => {
      process.stdout.write(SCRIPTS[shell]!(tableOf(await loadProgram())));
    });
}
