/** Command `gaudi-ucx trace`: compares traces of ioctls, which `gaudi-ucx node up --trace` records. */

import { Command } from 'commander';
import { diffTraces } from '../../assembly/node-server.ts';
import { readText } from '../../ucs/sys/file-name.ts';
import { EXIT_FAILURE, readArguments } from '../base/command-line.ts';

/** Makes the command with its subcommands. */
export function traceCommand(): Command {
  const trace = new Command('trace').description('work with ioctl traces, recorded by node up --trace');
  trace
    .command('diff')
    .description('compare two traces, ignoring processes, times, and the values of handles, addresses and descriptors')
    .argument('<first>', 'file written by node up --trace or run --trace')
    .argument('<second>', 'file written by node up --trace or run --trace')
    .action((first: string, second: string, _options: object, command: Command) => {
      const difference = readArguments(command, () => diffTraces(readText('first', first), readText('second', second)));
      if (difference === undefined) return;
      process.stdout.write(`call ${difference.call} differs\n< ${difference.first}\n> ${difference.second}\n`);
      process.exitCode = EXIT_FAILURE;
    });
  return trace;
}
