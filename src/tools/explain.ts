/** `gaudi-ucx explain`: what would move bytes between two kinds of memory, at which size, and why nothing else would. It moves none. */

import { Command } from 'commander';
import { Context } from '../assembly/context.ts';
import type { MemoryHandle } from '../ucp/mem/memory-handle.ts';
import { type ExplainArguments, type MemoryChoice, printMemory, readExplainArguments } from './explain-options.ts';
import { type ExplainReport, explainText } from './explain-report.ts';
import { readArguments } from './usage-error.ts';

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
    .option('--json', 'as JSON')
    .showHelpAfterError()
    .action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const request = readArguments(command, () => readExplainArguments(options));
  if (request === undefined) return;
  const { operation, local, remote, sizes } = request;
  await using context = await Context.create();
  const worker = context.worker();
  const endpoint = worker.endpoint(worker.address());
  const map = ({ memoryType, card }: MemoryChoice): MemoryHandle =>
    context.memMap({ allocate: MEMORY_BYTES, memoryType, ...(card === undefined ? {} : { sysDevice: card }) });
  const rkey = endpoint.unpackRkey(context.packRkey(map(remote)));
  const explanation = endpoint.explain(operation, map(local), rkey);
  const report: ExplainReport = {
    operation,
    local: printMemory(local),
    remote: printMemory(remote),
    emulated: context.emulated,
    sizes: sizes.map((bytes) => explanation.at(bytes)),
  };
  process.stdout.write(`${options.json === true ? JSON.stringify(report, undefined, 2) : explainText(report)}\n`);
}
