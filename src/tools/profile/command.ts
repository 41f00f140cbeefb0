/** Command `gaudi-ucx profile`: prints the summary of a profile. */

import { Command } from 'commander';
import { readArguments } from '../base/command-line.ts';
import { readProfile } from './read-profile.ts';
import { summarize, summaryText } from './summary.ts';

/** The command. */
export function profileCommand(): Command {
  return new Command('profile')
    .description('summarize a profile of UCX_PROFILE_MODE: counts, times and bytes by event')
    .argument('<file>', 'profile, written to UCX_PROFILE_FILE; Perfetto can show it too')
    .option('--json', 'print JSON, with times in nanoseconds')
    .action((file: string, options: { readonly json?: boolean }, command: Command) => {
      const summary = summarize(readArguments(command, () => readProfile(file)));
      const text = options.json === true ? JSON.stringify(summary, undefined, 2) : summaryText(summary);
      process.stdout.write(`${text}\n`);
    });
}
