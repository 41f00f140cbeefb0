/** `gaudi-ucx demo`: its arguments, and the order of its parts. What a part does is in its own file. */

import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { labelsEmulation } from '../../assembly/open-node.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { readArguments } from '../command-line.ts';
import { runExchange } from './exchange.ts';
import { describeExchange } from './exchange-report.ts';
import { describeOneCard, runOneCard } from './one-card.ts';

const CARDS_MIN = 2;
const CARDS_MAX = 8;
const ONE_CARD = 'one card: no other to exchange anything with';

interface DemoOptions {
  readonly cards?: string;
  readonly bytes: string;
  readonly json?: boolean;
}

/** The command. It sets exit code 1 if a file arrived changed. */
export function demoCommand(): Command {
  return new Command('demo')
    .description('send a file through one card, then between all cards with one process each; check and measure it')
    .argument('[file]', 'file to send', process.execPath)
    .option('--cards <number>', `cards of the exchange, ${CARDS_MIN} to ${CARDS_MAX} (default: all)`)
    .option('--bytes <size>', 'bytes of the file that the cards exchange at most', '16M')
    .option('--json', 'as JSON')
    .action(async (file: string, options: DemoOptions, command: Command) => {
      const output = process.stdout;
      const [cards, bytesMax] = readArguments(command, () => [
        options.cards === undefined ? undefined : cardsOf(options.cards),
        bytesOf(options.bytes),
      ]);
      const isText = options.json !== true;
      labelsEmulation();
      const barOutput = isText ? output : process.stderr;
      const oneCard = await runOneCard({ file, output: barOutput });
      if (isText) output.write(`${describeOneCard(oneCard)}\n\n`);
      const byteLength = Math.min((await stat(file)).size, bytesMax);
      const exchange = await runExchange({ file: resolve(file), byteLength, cards, output: barOutput });
      if (isText) output.write(`${exchange === undefined ? ONE_CARD : describeExchange(exchange)}\n`);
      else output.write(`${JSON.stringify({ oneCard, exchange }, undefined, 2)}\n`);
      const isShared = exchange?.rounds.every(({ different }) => different.length === 0) ?? true;
      if (oneCard.before !== oneCard.after || !isShared) process.exitCode = 1;
    });
}

function cardsOf(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= CARDS_MIN && value <= CARDS_MAX) return value;
  throw invalidParam('cards', `must be an integer from ${CARDS_MIN} to ${CARDS_MAX}`, text);
}

function bytesOf(text: string): number {
  const value = memorySizeType.parse(text.replace(/iB$/i, 'B'));
  if (value !== undefined && value > 0) return value;
  throw invalidParam('bytes', 'must be a size such as 16MiB, at least 1', text);
}
