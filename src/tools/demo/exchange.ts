/**
 * The second part of the demonstration: one process per card, each with its own slice of a file in the HBM of its card. Each sends its slice to all others,
 * once per kind of operation, and the whole file in every card is compared by SHA-256. Then every pair of cards is measured by itself.
 */

import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import type { AllowedCard } from '../../assembly/allowed-cards.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { ProgressBar } from '../progress-bar.ts';
import { Crew } from './crew.ts';
import type { Assignment, Round, RoundAnswer } from './exchange-messages.ts';
import { type ExchangeNode, openExchangeNode } from './exchange-node.ts';
import type { ExchangeResult, MatrixRow, RoundResult } from './exchange-report.ts';
import { readFully } from './read-fully.ts';

const ROUNDS: readonly Round[] = ['put', 'get', 'tag'];
/** Bytes of one measured put, and number of puts in a measurement. */
const MEASURED_BYTES = 8 * 2 ** 20;
const REPETITIONS = 4;

/** What it was asked for. */
export interface ExchangeOptions {
  /** Absolute path. */
  readonly file: string;
  /** Bytes of the file that are exchanged, from offset 0. */
  readonly byteLength: number;
  /** Cards; all by default. */
  readonly cards: number | undefined;
  /** Stream for the progress bar; no bar unless it is a terminal. */
  readonly output: NodeJS.WriteStream;
}

/**
 * Runs the exchange. Its processes, sockets and files are removed however it ends.
 * @returns undefined for fewer than two cards
 * @throws UcxError ERR_INVALID_PARAM for more cards than there are; IO_ERROR for a process that has ended or whose work failed; CANCELED after a signal
 */
export async function runExchange(options: ExchangeOptions): Promise<ExchangeResult | undefined> {
  const node = openExchangeNode(options.cards);
  try {
    const count = options.cards ?? node.cards.length;
    if (count > node.cards.length)
      throw invalidParam('cards', `must not exceed the number of cards that may be used (${node.cards.length})`, count);
    if (count < 2) return undefined;
    return await runCrew(options, node, node.cards.slice(0, count));
  } finally {
    await node.close();
  }
}

async function runCrew(
  options: ExchangeOptions,
  node: ExchangeNode,
  cards: readonly AllowedCard[],
): Promise<ExchangeResult> {
  const crew = new Crew(cards, node.driver);
  const bar = new ProgressBar(options.output, ROUNDS.length + cards.length ** 2);
  const onSignal = (signal: NodeJS.Signals): void => crew.stop(statusError(Status.CANCELED, `demo ended by ${signal}`));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    return await exchange(options, crew, bar, { indices: cards.map(({ index }) => index), emulated: node.emulated });
  } catch (error) {
    throw (await crew.end()) ?? error;
  } finally {
    bar.clear();
    await crew.end();
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

async function exchange(
  { file, byteLength }: ExchangeOptions,
  crew: Crew,
  bar: ProgressBar,
  { indices, emulated }: { readonly indices: readonly number[]; readonly emulated: boolean },
): Promise<ExchangeResult> {
  const expected = await digestOf(file, byteLength);
  const count = indices.length;
  const assignment: Omit<Assignment, 'index'> = { count, file, byteLength, spareBytes: MEASURED_BYTES };
  const cards = await crew.askAll<'open'>((index) => ({ kind: 'open', index, ...assignment }));
  await crew.askAll<'connect'>(() => ({ kind: 'connect', cards }));
  const rounds: RoundResult[] = [];
  for (const [index, round] of ROUNDS.entries()) {
    bar.update(`all cards: ${round}`, index);
    rounds.push(await runRound(crew, round, expected, indices));
  }
  const matrix = await measure(crew, count, bar);
  return { file, byteLength, cards: indices, emulated, expected, rounds, matrix, measuredBytes: MEASURED_BYTES };
}

async function runRound(crew: Crew, round: Round, expected: string, indices: readonly number[]): Promise<RoundResult> {
  await crew.askAll<'load'>(() => ({ kind: 'load' }));
  const begin = systemClock.nowNs();
  const answers = await crew.askAll<'exchange'>(() => ({ kind: 'exchange', round }));
  const ns = systemClock.nowNs() - begin;
  const digests = await crew.askAll<'digest'>(() => ({ kind: 'digest' }));
  const different = indices.filter((_card, position) => digests[position] !== expected);
  const moved = answers.find(({ bytes }) => bytes > 0);
  return { round, bytes: sumOf(answers), ns, transport: moved?.transport, protocol: moved?.protocol, different };
}

function sumOf(answers: readonly RoundAnswer[]): number {
  return answers.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Measures one pair at a time, so that pairs do not share bandwidth. */
async function measure(crew: Crew, count: number, bar: ProgressBar): Promise<MatrixRow[]> {
  const matrix: MatrixRow[] = [];
  for (let from = 0; from < count; from++) {
    const rates: number[] = [];
    for (let to = 0; to < count; to++) {
      bar.update(`card ${from} -> card ${to}`, ROUNDS.length + from * count + to);
      const ns = await crew.ask<'measure'>(from, { kind: 'measure', to, repetitions: REPETITIONS });
      rates.push((MEASURED_BYTES * REPETITIONS) / ns);
    }
    matrix.push(rates);
  }
  return matrix;
}

async function digestOf(path: string, byteLength: number): Promise<string> {
  const data = new Uint8Array(byteLength);
  const file = await open(path, 'r');
  try {
    await readFully(file, data, 0);
  } finally {
    await file.close();
  }
  return createHash('sha256').update(data).digest('hex');
}
