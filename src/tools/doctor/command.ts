/** Command `gaudi-ucx doctor`: checks for frequent errors of deployments. Files created by a check are removed. */

import { Command } from 'commander';
import { labelsEmulation } from '../../assembly/open-node.ts';
import { startProgram } from '../../assembly/program/program.ts';
import { EXIT_FAILURE } from '../base/command-line.ts';
import { type Check, runChecks } from './checks.ts';
import { readFacts } from './facts.ts';

const STATE_COLUMNS = 9;
const NAME_COLUMNS = 17;

/** The command. */
export function doctorCommand(): Command {
  return new Command('doctor')
    .description(
      'check limits, memory, namespaces, driver, cards, UCX library and network; exit code 1 if something does not work',
    )
    .option('--json', 'as JSON')
    .action(run);
}

async function run({ json }: { readonly json?: boolean }): Promise<void> {
  labelsEmulation();
  const checks = runChecks(await readFacts(startProgram()));
  process.stdout.write(
    json === true ? `${JSON.stringify(checks, undefined, 2)}\n` : `${checks.map(lineOf).join('\n')}\n`,
  );
  if (checks.some(({ state }) => state === 'failure')) process.exitCode = EXIT_FAILURE;
}

function lineOf({ name, state, found, remedy }: Check): string {
  const lines = [...found.split('\n'), ...(remedy === undefined ? [] : [remedy])];
  return `${state.padEnd(STATE_COLUMNS)}${name.padEnd(NAME_COLUMNS)}${lines.join(`\n${' '.repeat(STATE_COLUMNS + NAME_COLUMNS)}`)}`;
}
