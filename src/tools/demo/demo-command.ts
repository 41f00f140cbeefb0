/** Command `gaudi-ucx demo`: arguments, and the order of its two parts. */

import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { labelsEmulation } from '../../assembly/open-node.ts';
import { ASIC_PROFILES, type AsicName } from '../../uapi/index.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { readArguments } from '../base/command-line.ts';
import { runExchange } from './exchange.ts';
import { describeExchange } from './exchange-report.ts';
import { describeOneCard, runOneCard } from './one-card.ts';

const ASICS = Object.keys(ASIC_PROFILES) as readonly AsicName[];
const COUNT_MIN = 2;
const COUNT_MAX = 8;
const REPETITIONS_MAX = 10_000;
const ONE_CARD = 'one card: the exchange needs at least two';

interface DemoOptions {
  readonly asic?: string;
  readonly cards?: string;
  readonly nodes?: string;
  readonly bytes: string;
  readonly repetitions: string;
  readonly stages?: boolean;
  readonly json?: boolean;
}

/** Makes the command. Its exit code is 1 if the received file differs. */
export function demoCommand(): Command {
  return new Command('demo')
    .description('send a file through one card, then between all cards with one process each; verify and measure it')
    .argument('[file]', 'file to send', process.execPath)
    .option('--asic <name>', 'emulated cards of this generation, instead of those of the host: gaudi, gaudi2 or gaudi3')
    .option('--cards <number>', `cards in the exchange, ${COUNT_MIN} to ${COUNT_MAX} (default: all)`)
    .option(
      '--nodes <number>',
      `exchange between emulated nodes instead, ${COUNT_MIN} to ${COUNT_MAX}, each with one card and one RDMA device`,
    )
    .option('--bytes <size>', 'maximum number of bytes of the file that the cards exchange', '16M')
    .option('--repetitions <number>', `measured puts per pair of cards, 1 to ${REPETITIONS_MAX}`, '4')
    .option('--stages', 'print a line for each stage of the exchange, if the output is not a terminal')
    .option('--json', 'as JSON')
    .action(async (file: string, options: DemoOptions, command: Command) => {
      const output = process.stdout;
      const [asic, cards, nodes, bytesMax, repetitions] = readArguments(command, () => [
        asicOf(options.asic),
        countOf('cards', options.cards),
        nodesOf(options),
        bytesOf(options.bytes),
        repetitionsOf(options.repetitions),
      ]);
      if (asic !== undefined) useEmulatedCards(asic);
      const isText = options.json !== true;
      labelsEmulation();
      const barOutput = isText ? output : process.stderr;
      const oneCard = nodes === undefined ? await runOneCard({ file, output: barOutput }) : undefined;
      if (isText && oneCard !== undefined) output.write(`${describeOneCard(oneCard)}\n\n`);
      const byteLength = Math.min((await stat(file)).size, bytesMax);
      const stages = options.stages === true;
      const part = { file: resolve(file), byteLength, cards, nodes, repetitions, stages };
      const exchange = await runExchange({ ...part, output: barOutput });
      if (isText) output.write(`${exchange === undefined ? ONE_CARD : describeExchange(exchange)}\n`);
      else output.write(`${JSON.stringify({ oneCard, exchange }, undefined, 2)}\n`);
      const isShared = exchange?.rounds.every(({ different }) => different.length === 0) ?? true;
      if (oneCard?.before !== oneCard?.after || !isShared) process.exitCode = 1;
    });
}

function asicOf(name: string | undefined): AsicName | undefined {
  const asic = ASICS.find((known) => known === name);
  if (asic === undefined && name !== undefined) throw invalidParam('asic', `must be ${ASICS.join(', ')}`, name);
  return asic;
}

/** Selects emulated cards for this process and those that it starts. */
function useEmulatedCards(asic: AsicName): void {
  Object.assign(process.env, { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_ASIC: asic });
}

function nodesOf({ nodes, cards }: DemoOptions): number | undefined {
  if (nodes !== undefined && cards !== undefined) throw invalidParam('cards', 'must not be given with --nodes', cards);
  return countOf('nodes', nodes);
}

function countOf(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isInteger(value) && value >= COUNT_MIN && value <= COUNT_MAX) return value;
  throw invalidParam(name, `must be an integer from ${COUNT_MIN} to ${COUNT_MAX}`, text);
}

function repetitionsOf(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= REPETITIONS_MAX) return value;
  throw invalidParam('repetitions', `must be an integer from 1 to ${REPETITIONS_MAX}`, text);
}

function bytesOf(text: string): number {
  const value = memorySizeType.parse(text.replace(/iB$/i, 'B'));
  if (value !== undefined && value > 0) return value;
  throw invalidParam('bytes', 'must be a size such as 16MiB, at least 1', text);
}
