/**
 * The second half of the demonstration: one process per card. The cards belong to one node, or each to another node (--nodes). Each process has a slice of a
 * file in the HBM of its card. It sends its slice to all others, once per kind of operation, and the whole file in every card is compared by SHA-256. Then
 * every pair is measured separately.
 */

import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { GAUDI_CONFIG_TABLE } from '../../assembly/program/config.ts';
import { startProgram } from '../../assembly/program/program.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { interruptedBy } from '../base/command-line.ts';
import { ProgressBar } from '../base/text-table.ts';
import { cardEnvironment, openSharedNode, type PrivateNode, startPrivateNode } from '../node-access/node.ts';
import { Crew, ExchangePlace, type Party } from './crew.ts';
import type { Assignment, Round, RoundAnswer } from './exchange-messages.ts';
import type { ExchangeResult, MatrixRow, RoundResult } from './exchange-report.ts';
import { readFully } from './one-card.ts';

const ROUNDS: readonly Round[] = ['put', 'get', 'tag'];
/** Bytes of one measured put. */
const MEASURED_BYTES = 8 * 2 ** 20;

/** Default transports between the nodes. */
const TLS = 'rc,gaudi_cpy,self';

/** Options of the exchange. */
export interface ExchangeOptions {
  /** Absolute path of the file. */
  readonly file: string;
  /** Bytes of the file that are exchanged, from offset 0. */
  readonly byteLength: number;
  /** Number of cards; all by default. */
  readonly cards: number | undefined;
  /** Number of emulated nodes with one card each, connected by RDMA devices, instead of the cards of one node. */
  readonly nodes: number | undefined;
  /** Stream of the progress bar, which is shown on a terminal only. */
  readonly output: NodeJS.WriteStream;
  /** Whether an output that is not a terminal gets a line for each stage. */
  readonly stages: boolean;
  /** Measured puts per pair. */
  readonly repetitions: number;
}

/**
 * Runs the exchange. Its processes, sockets and files are removed at its end, also after a failure.
 * @returns undefined for fewer than two cards
 * @throws UcxError ERR_INVALID_PARAM for more cards than there are; IO_ERROR for a process that has ended or whose work failed; CANCELED after a signal
 */
export async function runExchange(options: ExchangeOptions): Promise<ExchangeResult | undefined> {
  const { cards, nodes } = options;
  const ending = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => ending.abort(interruptedBy(signal));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    const place = await (nodes === undefined ? openCards(cards) : openNodes(nodes));
    try {
      ending.signal.throwIfAborted();
      return place.parties.length < 2 ? undefined : await runCrew(options, place, ending.signal);
    } finally {
      await place.close();
    }
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

/** The cards of one node. @param limit their number; all by default */
async function openCards(limit: number | undefined): Promise<ExchangePlace> {
  const node = openSharedNode(limit);
  const { cards, driver, emulated } = node;
  if (limit !== undefined && limit > cards.length) {
    await node.close();
    throw invalidParam('cards', `must not exceed the number of available cards (${cards.length})`, limit);
  }
  const parties = cards.slice(0, limit).map((card) => {
    return { index: card.index, name: `card ${card.index}`, env: cardEnvironment(card, driver) };
  });
  return new ExchangePlace('card', parties, emulated, [node]);
}

/**
 * Starts emulated nodes: node servers of this process, each with one card and RDMA devices. Only the wire between the RDMA devices connects the cards.
 * @throws UcxError ERR_INVALID_PARAM if UCX_GAUDI_DRIVER names a node or forbids emulation; SyscallError
 */
async function openNodes(count: number): Promise<ExchangePlace> {
  const program = startProgram();
  const { DRIVER, EMULATOR_NICS } = program.config.get(GAUDI_CONFIG_TABLE);
  if (DRIVER !== 'auto' && DRIVER !== 'emulator') {
    throw invalidParam(
      'UCX_GAUDI_DRIVER',
      'must be emulator or auto with --nodes, which starts emulated nodes',
      DRIVER,
    );
  }
  const nodes: PrivateNode[] = [];
  try {
    const description = { cards: '1', nics: String(Math.max(1, EMULATOR_NICS)) };
    const parties = Array.from({ length: count }, (_, index) => {
      const node = startPrivateNode(program, description);
      nodes.push(node);
      return partyOf(index, node);
    });
    return new ExchangePlace('node', parties, true, nodes);
  } catch (error) {
    await Promise.all(nodes.map((node) => node.close()));
    throw error;
  }
}

/** Parameters of the process for the card of a node. */
function partyOf(index: number, { server, driver }: PrivateNode): Party {
  const card = { name: 'gaudi0', index: 0, card: server.node.cards()[0]! };
  const environment = cardEnvironment(card, driver);
  const env = { UCX_TLS: TLS, ...environment, UCX_ENGINE: 'native', UCX_IB_DRIVER: 'emulator' };
  return { index, name: `node ${index}`, env };
}

async function runCrew(options: ExchangeOptions, place: ExchangePlace, signal: AbortSignal): Promise<ExchangeResult> {
  const { parties } = place;
  const crew = new Crew(parties);
  const bar = new ProgressBar(options.output, ROUNDS.length + parties.length ** 2, options.stages);
  signal.addEventListener('abort', () => crew.stop(signal.reason as Error));
  try {
    return await exchange(options, crew, bar, place);
  } catch (error) {
    throw (await crew.end()) ?? error;
  } finally {
    bar.clear();
    await crew.end();
  }
}

async function exchange(
  { file, byteLength, repetitions }: ExchangeOptions,
  crew: Crew,
  bar: ProgressBar,
  { unit, emulated, parties }: ExchangePlace,
): Promise<ExchangeResult> {
  const expected = await digestOf(file, byteLength);
  const indices = parties.map(({ index }) => index);
  const count = parties.length;
  const assignment: Omit<Assignment, 'index'> = { count, file, byteLength, spareBytes: MEASURED_BYTES };
  const cards = await crew.askAll<'open'>((index) => ({ kind: 'open', index, ...assignment }));
  await crew.askAll<'connect'>(() => ({ kind: 'connect', cards }));
  const rounds: RoundResult[] = [];
  for (const [index, round] of ROUNDS.entries()) {
    bar.update(`all ${unit}s: ${round}`, index);
    rounds.push(await runRound(crew, round, expected, indices));
  }
  const matrix = await measure(crew, parties, bar, repetitions);
  const measuredBytes = MEASURED_BYTES;
  return { unit, file, byteLength, cards: indices, emulated, expected, rounds, matrix, measuredBytes };
}

async function runRound(crew: Crew, round: Round, expected: string, indices: readonly number[]): Promise<RoundResult> {
  await crew.askAll<'load'>(() => ({ kind: 'load' }));
  const begin = systemClock.nowNs();
  const answers = await crew.askAll<'exchange'>(() => ({ kind: 'exchange', round }));
  const ns = systemClock.nowNs() - begin;
  const digests = await crew.askAll<'digest'>(() => ({ kind: 'digest' }));
  const different = indices.filter((_card, position) => digests[position] !== expected);
  const moved = answers.find(({ bytes }) => bytes > 0);
  const { transport, protocol, note } = moved ?? {};
  return { round, bytes: sumOf(answers), ns, transport, protocol, note, different };
}

function sumOf(answers: readonly RoundAnswer[]): number {
  return answers.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Measures one pair at a time, so that pairs do not share bandwidth. */
async function measure(
  crew: Crew,
  parties: readonly Party[],
  bar: ProgressBar,
  repetitions: number,
): Promise<MatrixRow[]> {
  const count = parties.length;
  const matrix: MatrixRow[] = [];
  for (let from = 0; from < count; from++) {
    const rates: number[] = [];
    for (let to = 0; to < count; to++) {
      bar.update(`${parties[from]!.name} -> ${parties[to]!.name}`, ROUNDS.length + from * count + to);
      const ns = await crew.ask<'measure'>(from, { kind: 'measure', to, repetitions });
      rates.push((MEASURED_BYTES * repetitions) / ns);
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
