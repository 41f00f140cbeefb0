/**
 * Command `gaudi-ucx explain`: prints the transport and protocol that an operation between two memories uses for each size, and the reasons against the
 * alternatives.
 */

import { Command } from 'commander';
import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { MemoryHandle } from '../../api/contract/memory.ts';
import { Context } from '../../assembly/context.ts';
import { type AllowedCard, allowedCards, labelsEmulation, openNode } from '../../assembly/open-node.ts';
import type { EngineChoice } from '../../assembly/program/config.ts';
import { startProgram } from '../../assembly/program/program.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { readArguments } from '../base/command-line.ts';
import {
  type ExplainArguments,
  type ExplainRequest,
  type MemorySide,
  printMemory,
  readExplainArguments,
} from './options.ts';
import { ExplainPeer } from './peer.ts';
import { askPeer, type PeerPlace, servedAt, serveMemory } from './remote-peer.ts';
import { type ExplainReport, explainText } from './report.ts';

/** Bytes of the memory on each side; card memory is rounded up to pages. */
const MEMORY_BYTES = 4096;

interface Options extends ExplainArguments {
  readonly json?: boolean;
  readonly serve?: string;
}

/** The command. */
export function explainCommand(): Command {
  return new Command('explain')
    .description('show the transport and protocol that UCP selects between two memories, and why not the others')
    .option('--op <name>', 'put, get, am, tag, stream or atomic', 'put')
    .option('--local <memory>', 'host, gaudi or gaudi:<card>', 'host')
    .option('--remote <memory>', 'host, gaudi or gaudi:<card>', 'host')
    .option('--size <sizes>', 'sizes and ranges: 8, 4K..1G, 1,8,64..1M', '8..1G')
    .option(
      '--peer <peer>',
      'owner of the remote memory: self; process (another process of this host); or the address that explain --serve prints',
      'self',
    )
    .option('--serve <address>', 'serve the remote memory for other hosts at <address>[:<port>], until a signal')
    .option('--engine <name>', 'native, libucx or auto (default: UCX_ENGINE)')
    .option('--json', 'as JSON')
    .action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const request = readArguments(command, () => readExplainArguments(options));
  labelsEmulation();
  const { serve: address } = options;
  if (address !== undefined) {
    const at = readArguments(command, () => servedAt(address));
    await serve(request, at);
    return;
  }
  const report = await explainTo(request);
  process.stdout.write(`${options.json === true ? JSON.stringify(report, undefined, 2) : explainText(report)}\n`);
}

function explainTo(request: ExplainRequest): Promise<ExplainReport> {
  if (request.place !== undefined) return explainToPlace(request, request.place);
  return request.otherProcess ? explainToProcess(request) : explainToSelf(request);
}

/** The remote memory belongs to the peer; its remote key has the memory type. */
async function explainToPlace(request: ExplainRequest, place: PeerPlace): Promise<ExplainReport> {
  await using context = await Context.create(engineOption(request));
  const { endpoint, key } = await askPeer(context.worker(), place);
  const { memoryType } = endpoint.unpackRkey(key);
  return reportOf({ ...request, remote: { memoryType, card: undefined } }, context, endpoint, key);
}

/** Serves as the peer of other processes (`--serve`). */
async function serve(request: ExplainRequest, at: Parameters<typeof serveMemory>[2]): Promise<void> {
  await using context = await Context.create(engineOption(request));
  const ending = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => ending.abort());
  const tell = (line: string): void => void process.stdout.write(`${line}\n`);
  await serveMemory(context, map(context, request.remote), at, { signal: ending.signal, tell });
}

async function explainToSelf(request: ExplainRequest): Promise<ExplainReport> {
  await using context = await Context.create(engineOption(request));
  const worker = context.worker();
  return reportOf(request, context, worker.endpoint(worker.address()), context.packRkey(map(context, request.remote)));
}

/** Divides the allowed cards between two processes: the peer gets the card of the remote memory, this process the others. */
async function explainToProcess(request: ExplainRequest): Promise<ExplainReport> {
  const { remote } = request;
  const cards = usableCards();
  const sysDevice = remote.memoryType === MemoryType.HOST ? undefined : cardOfPeer(request, cards);
  // First, so that a wrong setting, which the peer inherits, is not reported as a failure of the peer.
  await using context = await Context.create({
    ...engineOption(request),
    config: deviceList(cards, ({ index }) => index !== sysDevice),
  });
  const peer = await ExplainPeer.start({
    memoryType: remote.memoryType,
    sysDevice,
    byteLength: MEMORY_BYTES,
    config: deviceList(cards, ({ index }) => index === sysDevice),
    ...engineOption(request),
  });
  try {
    const endpoint = context.worker().endpoint(peer.address);
    return reportOf(request, context, endpoint, peer.key);
  } finally {
    await context.close();
    await peer.end();
  }
}

/** The cards that the configuration allows. */
function usableCards(): AllowedCard[] {
  const program = startProgram();
  const node = openNode(program);
  try {
    return allowedCards(program, node);
  } finally {
    node.close();
  }
}

/** Card of the remote memory: by default the first card that the local memory does not use. */
function cardOfPeer({ local, remote }: ExplainRequest, cards: readonly AllowedCard[]): number {
  const isLocal = local.memoryType !== MemoryType.HOST;
  const needed = isLocal ? (local.card ?? cards.findLast(({ index }) => index !== remote.card)?.index) : undefined;
  const card = cards.find(({ index }) => index !== needed && (remote.card ?? index) === index);
  if (card !== undefined) return card.index;
  const others = isLocal ? ' besides the card of the local memory' : '';
  const names = cards.map(({ name }) => name).join(', ');
  throw invalidParam('remote', `needs a card${others}; available cards: ${names || 'none'}`, printMemory(remote));
}

/** Setting for the cards of one process; empty without cards. */
function deviceList(
  cards: readonly AllowedCard[],
  has: (card: AllowedCard) => boolean,
): Readonly<Record<string, string>> {
  if (cards.length === 0) return {};
  const names = cards.filter(has).map(({ name }) => name);
  return { ACC_DEVICES: names.length === 0 ? '^gaudi*' : names.join(',') };
}

/** The engine of both processes. */
function engineOption({ engine }: ExplainRequest): { readonly engine?: EngineChoice } {
  return engine === undefined ? {} : { engine };
}

function reportOf(request: ExplainRequest, context: Context, endpoint: Endpoint, key: Uint8Array): ExplainReport {
  const { operation, local, remote, otherProcess, sizes } = request;
  const explanation = endpoint.explain(operation, map(context, local), endpoint.unpackRkey(key));
  return {
    operation,
    local: printMemory(local),
    remote: printMemory(remote),
    otherProcess,
    emulated: context.emulated,
    engine: context.engine,
    sizes: sizes.map((bytes) => explanation.at(bytes)),
  };
}

function map(context: Context, { memoryType, card }: MemorySide): MemoryHandle {
  return context.memMap({ allocate: MEMORY_BYTES, memoryType, ...(card === undefined ? {} : { sysDevice: card }) });
}
