/** The command `info`: its options, and which descriptions they ask for. What is described is in info.ts and info-blocks.ts. */

import { Command } from 'commander';
import { startProgram } from '../assembly/program.ts';
import { describeInfo, type InfoOptions } from './info.ts';
import { type BlocksArguments, blocksOptions, describeBlocks } from './info-blocks.ts';

/** `gaudi-ucx info`. */
export function infoCommand(): Command {
  return new Command('info')
    .showHelpAfterError()
    .description('show version, cards, memory domains, transports and configuration, as ucx_info does')
    .option('-v, --version', 'library version', false)
    .option('-d, --devices', 'memory domains, transports and devices', false)
    .option('-c, --config', 'configuration', false)
    .option('-f, --full-config', 'configuration with meaning, syntax, default and source', false)
    .option(
      '-a, --all',
      'configuration with hidden and deprecated variables; with --blocks: also registers that are 0',
      false,
    )
    .option('-C, --comment-defaults', 'with -c, -f, -a: # before variables that nothing has set', false)
    .option('-F, --filter <text>', 'with -c, -f, -a: only variables whose name contains the text')
    .option('-s, --system', 'the Gaudi cards', false)
    .option('--blocks [name]', 'register blocks of a card, or the registers of one of them (takes the card)')
    .option('--card <minor>', 'with --blocks: the card', '0')
    .action((options: InfoOptions & BlocksArguments, command: Command) => {
      const { version, devices, system, blocks } = options;
      const config = options.config || options.fullConfig || (options.all && blocks === undefined);
      const isInfo = version || devices || config || system;
      if (!isInfo && blocks === undefined) command.help();
      if (isInfo) process.stdout.write(`${describeInfo({ ...options, config })}\n`);
      if (blocks !== undefined) process.stdout.write(`${describeBlocks(startProgram(), blocksOptions(options))}\n`);
    });
}
