/** Command `gaudi-ucx info`: the options of ucx_info, and the sections that they select. */

import { Command, Option } from 'commander';
import { startProgram } from '../../assembly/program/program.ts';
import { memorySizeType } from '../../ucs/config/value.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { readArguments } from '../base/command-line.ts';
import { type BlocksOptions, blocksOptions, blocksText, readBlocks } from './blocks.ts';
import { type InfoOptions, readInfo } from './info.ts';
import { measureMemcpy, memcpyText } from './system.ts';
import { featuresOf, readUcp, type UcpInfoOptions, ucpText } from './ucp.ts';

/** Options of ucx_info that this command lacks, and their replacements. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  b: 'this package has no build configuration; -v prints the versions',
  y: 'there are no C structures; docs/ARCHITECTURE.md describes the types',
  n: 'no resource is sized by the number of endpoints',
  N: 'no resource is sized by the number of endpoints of a host',
  D: 'select devices by UCX_TLS, UCX_SHM_DEVICES, UCX_NET_DEVICES and UCX_ACC_DEVICES',
  P: 'gaudi-ucx explain --peer self or process shows the transports to a peer',
  A: 'select the network device by UCX_NET_DEVICES',
};

/** Limit of memMap for host memory. */
const MEMORY_BYTES_MAX = 2 ** 32;

interface Options {
  readonly version?: true;
  readonly devices?: true;
  readonly t?: string;
  readonly config?: true;
  readonly fullConfig?: true;
  readonly all?: true;
  readonly commentDefaults?: true;
  readonly filter?: string;
  readonly system?: true;
  readonly T?: true;
  readonly M?: true;
  readonly p?: true;
  readonly w?: true;
  readonly e?: true;
  readonly m?: string;
  readonly u?: string;
  readonly blocks?: string | true;
  readonly card: string;
  readonly json?: true;
}

/** The requested sections; undefined for others. */
interface Request {
  readonly info: InfoOptions | undefined;
  readonly ucp: UcpInfoOptions | undefined;
  readonly blocks: BlocksOptions | undefined;
  readonly memcpy: boolean;
}

/** `gaudi-ucx info`. */
export function infoCommand(): Command {
  const command = new Command('info')
    .description('show version, cards, memory domains, transports and configuration, as ucx_info does')
    .option('-v, --version', 'library version')
    .option('-d, --devices', 'memory domains, transports and devices')
    .option('-t <transport>', 'with -d: only this transport, by its name, an alias or its memory domain')
    .option('-c, --config', 'configuration')
    .option('-f, --full-config', 'configuration with meaning, syntax, default and source')
    .option('-a, --all', 'configuration with hidden and deprecated variables; with --blocks: also registers that are 0')
    .option('-C, --comment-defaults', 'with -c, -f, -a: print # before variables that have their default')
    .option('-F, --filter <text>', 'with -c, -f, -a: only variables whose name contains this string')
    .option('-s, --system', 'the Gaudi cards')
    .option('-T', 'distances between cards, and network devices')
    .option('-M', 'memory copy bandwidth')
    .option('-p', 'UCP context (needs -u)')
    .option('-w', 'UCP worker (needs -u)')
    .option('-e', 'UCP endpoint (needs -u)')
    .option('-m <size>', 'UCP memory: allocate this much (needs -u)')
    .option(
      '-u <features>',
      'features of the context: any of a (atomics), r (rma), t (tag), s (stream), m (am); the letters w and e of ucx_info have no effect',
    )
    .option('--blocks [name]', 'register blocks of a card, or the registers of one block (opens the card exclusively)')
    .option('--card <card>', 'with --blocks: the card, by index, device node or bus id', '0')
    .option('--json', 'as JSON');
  for (const letter of Object.keys(ELSEWHERE)) command.addOption(new Option(`-${letter} [value]`).hideHelp());
  return command.action(run);
}

async function run(options: Options, command: Command): Promise<void> {
  const request = readArguments(command, () => requestOf(options));
  const { info } = request;
  const { report, text } = info === undefined ? { report: {}, text: '' } : readArguments(command, () => readInfo(info));
  const ucp = request.ucp === undefined ? undefined : await readUcp(request.ucp);
  const memcpy = request.memcpy ? measureMemcpy() : undefined;
  const { blocks: wanted } = request;
  const blocks = wanted && readArguments(command, () => readBlocks(startProgram(), wanted));
  if (options.json === true) {
    const all = { ...report, ...(ucp && { ucp }), ...(memcpy && { memcpy }), ...(blocks && { blocks }) };
    process.stdout.write(`${JSON.stringify(all, jsonValue, 2)}\n`);
    return;
  }
  const parts = [
    text,
    ucp === undefined ? '' : ucpText(ucp),
    memcpy === undefined ? '' : memcpyText(memcpy),
    blocks === undefined ? '' : blocksText(blocks, options.all === true),
  ];
  process.stdout.write(`${parts.filter((part) => part !== '').join('\n')}\n`);
}

/** Reads the requested sections from the options. Throws ERR_INVALID_PARAM, ERR_UNSUPPORTED. */
function requestOf(options: Options): Request {
  for (const [letter, advice] of Object.entries(ELSEWHERE)) {
    if (Object.hasOwn(options, letter)) throw elsewhere(letter, advice);
  }
  const { version, devices, system, T, M, blocks, t } = options;
  if (t !== undefined && devices !== true) throw invalidParam('-t', 'must be given with -d', t);
  const ucp = ucpOf(options);
  const config = options.config ?? options.fullConfig ?? (blocks === undefined ? options.all : undefined);
  const isInfo = [version, devices, system, T, config].includes(true);
  if (!isInfo && ucp === undefined && M !== true && blocks === undefined) {
    if (options.u !== undefined) throw invalidParam('-u', 'must be given with -p, -w, -e or -m', options.u);
    throw invalidParam(
      'options',
      'must include at least one of -v, -d, -c, -f, -a, -s, -T, -M, -p, -w, -e, -m, --blocks',
      undefined,
    );
  }
  return {
    info: isInfo ? infoOf(options, config === true) : undefined,
    ucp,
    blocks: blocks === undefined ? undefined : blocksOptions(blocks, options.card),
    memcpy: M === true,
  };
}

function ucpOf({ u, p, w, e, m }: Options): Request['ucp'] {
  if (p !== true && w !== true && e !== true && m === undefined) return undefined;
  if (u === undefined) throw invalidParam('-u', 'must be given with -p, -w, -e and -m', u);
  return {
    features: featuresOf(u),
    context: p === true,
    worker: w === true,
    endpoint: e === true,
    memoryBytes: m === undefined ? undefined : bytesOf(m),
  };
}

function infoOf(options: Options, isConfig: boolean): InfoOptions {
  const { fullConfig, all, commentDefaults, filter } = options;
  const print = {
    decorated: fullConfig === true,
    hidden: all === true,
    commentDefaults: commentDefaults === true,
    ...(filter === undefined ? {} : { filter }),
  };
  return {
    version: options.version === true,
    system: options.system === true,
    topology: options.T === true,
    devices: options.devices === true,
    transport: options.t,
    config: isConfig ? print : undefined,
  };
}

function bytesOf(text: string): number {
  const bytes = memorySizeType.parse(text);
  if (bytes === undefined || !Number.isSafeInteger(bytes) || bytes < 1 || bytes > MEMORY_BYTES_MAX) {
    throw invalidParam('-m', 'must be a size of at most 4g, such as 1m', text);
  }
  return bytes;
}

function elsewhere(letter: string, advice: string): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `-${letter} of ucx_info: ${advice}`,
  });
}

/** Converts values that JSON cannot represent. */
function jsonValue(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return `0x${value.toString(16)}`;
  return value === Number.POSITIVE_INFINITY ? 'inf' : value;
}
