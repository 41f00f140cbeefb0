/** `gaudi-ucx explain`: what would move bytes between two kinds of memory, at which size, and why nothing else would. It moves none. */

import { Command } from 'commander';
import type { EngineChoice } from '../../assembly/config.ts';
import { Context } from '../../assembly/context.ts';
import { labelsEmulation } from '../../assembly/open-node.ts';
import type { Endpoint } from '../../ucp/api/endpoint.ts';
import type { MemoryHandle } from '../../ucp/api/memory.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { readArguments } from '../command-line.ts';
import {
  type ExplainArguments,
  type ExplainRequest,
  type MemoryChoice,
  printMemory,
  readExplainArguments,
} from './options.ts';
import { ExplainPeer } from './peer.ts';
import { type ExplainReport, explainText } from './report.ts';

/** Memory to choose for: device memory comes in pages of the card anyway. */
const MEMORY_BYTES = 4096;

interface Options extends ExplainArguments {
  readonly json?: boolean;
}

/** The command. */
export function explainCommand(): Command {
  return new Command('explain')
    .description('show which transport and protocol move bytes between two memories, and why the others do not')
    .option('--op <name>', 'put, get, am, tag, stream or atomic', 'put')
    .option('--local <memory>', 'host, gaudi or gaudi:<card>', 'host')
    .option('--remote <memory>', 'host, gaudi or gaudi:<card>', 'host')
    .option('--size <sizes>', 'sizes and ranges: 8, 4K..1G, 1,8,64..1M', '8..1G')
    .option('--peer <peer>', 'whose the remote memory is: self, or process for another process of this machine', 'self')
    .option('--engine <name>', 'native, libucx or auto (default: what UCX_ENGINE says)')
    .option('--json', 'as JSON')
    .action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const request = readArguments(command, () => readExplainArguments(options));
  labelsEmulation();
  const report = request.otherProcess ? await explainToProcess(request) : await explainToSelf(request);
  process.stdout.write(`${options.json === true ? JSON.stringify(report, undefined, 2) : explainText(report)}\n`);
}

async function explainToSelf(request: ExplainRequest): Promise<ExplainReport> {
  await using context = await Context.create(engineOption(request));
  const worker = context.worker();
  return reportOf(request, context, worker.endpoint(worker.address()), context.packRkey(map(context, request.remote)));
}

/** Two processes divide the cards: the peer has that of the remote memory, this one has the others. */
async function explainToProcess(request: ExplainRequest): Promise<ExplainReport> {
  const { local, remote } = request;
  const sysDevice = remote.memoryType === MemoryType.HOST ? undefined : (remote.card ?? (local.card === 0 ? 1 : 0));
  const peer = await ExplainPeer.start({
    memoryType: remote.memoryType,
    sysDevice,
    byteLength: MEMORY_BYTES,
    accelerators: sysDevice === undefined ? '^gaudi*' : `gaudi${sysDevice}`,
    ...engineOption(request),
  });
  try {
    await using context = await Context.create({
      ...engineOption(request),
      config: { ACC_DEVICES: sysDevice === undefined ? 'all' : `^gaudi${sysDevice}` },
    });
    const endpoint = context.worker().endpoint(peer.address);
    return reportOf(request, context, endpoint, peer.key);
  } finally {
    await peer.end();
  }
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

function map(context: Context, { memoryType, card }: MemoryChoice): MemoryHandle {
  return context.memMap({ allocate: MEMORY_BYTES, memoryType, ...(card === undefined ? {} : { sysDevice: card }) });
}
