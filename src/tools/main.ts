#!/usr/bin/env node
/** The command line `gaudi-ucx`: arguments in, text out, exit codes. What the commands do is in the file of each. */

import { Command } from 'commander';
import { packageVersion } from '../assembly/package.ts';
import { startProgram } from '../assembly/program.ts';
import { isUcxError } from '../ucs/error.ts';
import { demoCommand } from './demo/demo-command.ts';
import { explainCommand } from './explain.ts';
import { describeInfo, type InfoOptions } from './info.ts';
import { type BlocksArguments, blocksOptions, describeBlocks } from './info-blocks.ts';
import { nodeCommand } from './node.ts';
import { perftestCommand } from './perftest/command.ts';
import { topCommand } from './top/command.ts';

const program = new Command('gaudi-ucx')
  .description('UCX communication for Intel Gaudi accelerators')
  .version(packageVersion())
  .showHelpAfterError()
  // Options of a command are its own, also where the program has one of the same letter.
  .enablePositionalOptions();

program
  .command('info')
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

program.addCommand(demoCommand());
program.addCommand(explainCommand());
program.addCommand(nodeCommand());
program.addCommand(perftestCommand());
program.addCommand(topCommand());

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
  await program.parseAsync();
} catch (error) {
  const explanation = explanationOf(error);
  if (explanation === undefined) throw error;
  process.stderr.write(`gaudi-ucx: ${explanation}\n`);
  process.exitCode = 1;
}
