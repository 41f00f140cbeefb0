/** Command `gaudi-ucx perftest`: options and output of client, server and loopback. */

import { basename } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { Command } from 'commander';
import { labelsEmulation } from '../../assembly/open-node.ts';
import { launchedRank } from '../../coll/exchange/listener.ts';
import { schedSetAffinity } from '../../sys/index.ts';
import { invalidParam, isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { EXIT_INTERRUPTED, readArguments, suggestingOption } from '../base/command-line.ts';
import { ProgressBar } from '../base/text-table.ts';
import { acceptChannel, type Channel, connectChannel, type Place, placeOf, placeText } from './channel.ts';
import type { Measurement } from './measure.ts';
import { type BatchTest, batchTests, declareTestOptions, isRange } from './options.ts';
import { reportTests } from './page.ts';
import { isPattern, PATTERN_NAMES, type PatternOptions, readPattern } from './pattern/pattern-spec.ts';
import { runPattern } from './pattern/run-pattern.ts';
import {
  batchLine,
  describeTest,
  ReportFile,
  type ReportOptions,
  resultHeader,
  resultJson,
  resultLine,
  TEST_END,
} from './report.ts';
import { type Meeting, runTest } from './session.ts';
import { packSpec, unpackSpec } from './spec.ts';
import { runThreads } from './threads.ts';

const DEFAULT_PORT = '13337';
/** Limit of V8 for the bytecode that it inlines into one function, in bytes: see docs/guide/tuning.md. */
const INLINING_OPTION = '--max-inlined-bytecode-size-cumulative';
const INLINED_BYTES_MAX = 4000;
/** Version of the protocol between two sides. */
const PROTOCOL = 3;

interface CommandOptions extends PatternOptions {
  readonly c?: string;
  readonly l?: boolean;
  readonly b?: readonly string[];
  readonly p: string;
  readonly bind?: string;
  readonly 6?: boolean;
  readonly N?: boolean;
  readonly f?: boolean;
  readonly v?: boolean;
  readonly I?: boolean;
  readonly X?: boolean;
  readonly json?: boolean;
  readonly report?: string;
}

/** The command. */
export function perftestCommand(): Command {
  const command = new Command('perftest')
    .description(
      'measure latency and bandwidth between two processes, as ucx_perftest does; both sides must be gaudi-ucx perftest, not ucx_perftest ' +
        '(the engine libucx can communicate with other programs that use libucp)',
    )
    .argument('[host]', 'server: a host, or the path of its socket; without it, this process is the server');
  declareTestOptions(command)
    .option('-c <cpus>', 'run only on these processors, comma-separated')
    .option('-l', 'loopback: this process is both client and server')
    .option('-b <file>', 'run the tests of a batch file; with several files, every combination of their lines', collect)
    .option('-p <port>', 'TCP port, or path of a socket, for the connection between client and server', DEFAULT_PORT)
    .option('--bind <address>', 'server: listen on this address, such as 0.0.0.0 (default: loopback)')
    .option('-6', 'IPv6')
    .option('-N', 'separate thousands')
    .option('-f', 'print final results only')
    .option('-v', 'print results as CSV')
    .option('--json', 'print results as lines of JSON')
    .option('-I', 'print transport and protocol of the messages')
    .option('-X', 'same as -I, as in newer ucx_perftest')
    .option(
      '--report <file>',
      'run every test of -t (comma-separated) at every size of -s (8..4m) and write charts to an HTML page',
    )
    .addOption(
      suggestingOption('--pattern <name>', `several ranks: ${PATTERN_NAMES.join(', ')} (pairwise)`, PATTERN_NAMES),
    )
    .option(
      '--ranks <number>',
      'ranks of a pattern, as processes of this host (2); with RANK and WORLD_SIZE set, join the ranks of a launcher',
    )
    .option('--batch <blocks>', 'blocks of -s bytes in each list of a pattern (1; with --kv: the blocks of a layer)')
    .option(
      '--kv <cache>',
      'block sizes of a paged KV cache, such as layers=32,heads=8,head-dim=128,page=16,tokens=4096,dtype=bf16',
    );
  return command.action(run);
}

function collect(file: string, files: readonly string[] = []): string[] {
  return [...files, file];
}

async function run(host: string | undefined, options: CommandOptions, command: Command): Promise<void> {
  if (isPattern(options)) {
    await runRanks(host, options, command);
    return;
  }
  // docs/guide/tuning.md recommends it for short messages. It must be set before the hot functions are compiled.
  const isGiven = process.execArgv.some((argument) => argument.startsWith(INLINING_OPTION));
  if (!isGiven) setFlagsFromString(`${INLINING_OPTION}=${INLINED_BYTES_MAX}`);
  readArguments(command, () => {
    checkArguments(host, options);
    if (options.c !== undefined) runOn(cpusOf(options.c));
  });
  const interruption = new AbortController();
  const interrupt = (): void => interruption.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, interrupt);
  try {
    if (options.l === true) await runBatch({ options, role: 'loopback', interrupt: interruption.signal });
    else if (host !== undefined) await runClient(host, options, interruption.signal);
    else await runServer(options, interruption.signal);
  } catch (error) {
    if (!interruption.signal.aborted || !isEnd(error)) throw error;
    process.stderr.write('gaudi-ucx: interrupted\n');
    process.exitCode = EXIT_INTERRUPTED;
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, interrupt);
  }
}

/** Options of patterns in addition to those of a test. */
const PATTERN_FLAGS: ReadonlySet<string> = new Set(['pattern', 'ranks', 'batch', 'kv', 'p', 'f', 'v', 'json']);

async function runRanks(host: string | undefined, options: CommandOptions, command: Command): Promise<void> {
  const isLaunched = process.env['RANK'] !== undefined && process.env['WORLD_SIZE'] !== undefined;
  const { spec, launched } = readArguments(command, () => {
    if (host !== undefined) throw invalidParam('host', 'must not be used with --pattern', host);
    const rank = isLaunched ? launchedRank(process.env) : undefined;
    const names = Object.keys(options).filter((name) => !PATTERN_FLAGS.has(name));
    return { spec: readPattern(options, names, rank?.size), launched: rank };
  });
  labelsEmulation();
  const form = options.json === true ? 'json' : options.v === true ? 'csv' : 'text';
  await runPattern(spec, launched, form, print);
}

/** Throws ERR_INVALID_PARAM or ERR_UNSUPPORTED for options that no side supports, before the connection is made. */
function checkArguments(host: string | undefined, options: CommandOptions): void {
  const isLoopback = options.l === true;
  const [, name, port] = /^(?:([^:/]+)|\[(.*)\]):(\d+)$/.exec(host ?? '')?.filter((part) => part !== undefined) ?? [];
  if (port !== undefined) throw invalidParam('host', `must not contain the port: use ${name} -p ${port}`, host);
  if (isLoopback && host !== undefined) {
    throw invalidParam('host', 'must not be used with loopback (-l)', host);
  }
  if (options.bind !== undefined && (isLoopback || host !== undefined)) {
    throw invalidParam('--bind', 'must be used on the server', options.bind);
  }
  if (options.report !== undefined && !isLoopback && host === undefined) {
    throw invalidParam('--report', 'must be used on the client, or with loopback (-l)', options.report);
  }
  // The client sends its tests to the server, but the server accepts these options too, as ucx_perftest does.
  if (isLoopback || host !== undefined || options.t !== undefined) testsOf(options);
}

/** Whether an error is the result of an interruption. */
function isEnd(error: unknown): boolean {
  return (
    (isUcxError(error) && error.status === Status.CANCELED) || (error instanceof Error && error.name === 'AbortError')
  );
}

async function runClient(host: string, options: CommandOptions, interrupt: AbortSignal): Promise<void> {
  const place = placeOf(host, options.p, options[6] === true);
  const channel = await connectChannel(place);
  await converse(channel, interrupt, async () => {
    await channel.hello(PROTOCOL);
    await runBatch({ options, role: 'client', channel, interrupt, place });
    channel.send({ type: 'end' });
  });
}

async function runServer(options: CommandOptions, interrupt: AbortSignal): Promise<void> {
  const place: Place = placeOf(options.bind, options.p, options[6] === true);
  const channel = await acceptChannel(place, interrupt, () => {
    print(`Waiting for connection...\nListening on ${placeText(place)}`);
  });
  print(`Accepted connection from ${channel.peerName}`);
  await converse(channel, interrupt, async () => {
    const { protocol } = await channel.receive('hello');
    if (protocol !== PROTOCOL) throw invalidParam('protocol of the peer', `must be ${PROTOCOL}`, protocol);
    channel.send({ type: 'hello', protocol: PROTOCOL });
    for (let index = 0; ; index++) {
      const message = await channel.receive('test', 'end');
      if (message.type === 'end') return;
      const spec = unpackSpec(message['spec']);
      await runOne({ names: [], spec }, index, { options, role: 'server', channel, interrupt, place });
    }
  });
}

/** Runs the tests over the channel; reports a failure to the other side. */
async function converse(channel: Channel, interrupt: AbortSignal, talk: () => Promise<void>): Promise<void> {
  const onInterrupt = (): void => channel.fail(statusError(Status.CANCELED, 'perftest'));
  interrupt.addEventListener('abort', onInterrupt);
  try {
    await talk();
  } catch (error) {
    channel.sendError(error);
    throw error;
  } finally {
    interrupt.removeEventListener('abort', onInterrupt);
    await channel.close();
  }
}

/** The tests over one channel. */
type Run = Meeting & {
  readonly options: CommandOptions;
  readonly interrupt: AbortSignal;
};

async function runBatch(run: Run): Promise<void> {
  const tests = testsOf(run.options);
  const { report: path } = run.options;
  const report = path === undefined ? undefined : new ReportFile(path);
  try {
    for (const [index, test] of tests.entries()) {
      run.channel?.send({ type: 'test', spec: packSpec(test.spec) });
      await runOne(test, index, run, report);
    }
  } catch (error) {
    report?.discard();
    throw error;
  }
  report?.write();
}

/** The tests that the options select. */
function testsOf(options: CommandOptions): BatchTest[] {
  const { b: files = [], report } = options;
  return report !== undefined && files.length === 0 ? reportTests(options) : batchTests(options, files);
}

async function runOne(test: BatchTest, index: number, run: Run, report?: ReportFile): Promise<void> {
  const { names, spec } = test;
  const format = formatOf(run.options);
  const isJson = run.options.json === true;
  const bar = run.role === 'server' ? undefined : new ProgressBar(process.stderr, spec.iterations * spec.threads);
  let emulated = false;
  const onStart = (side: { readonly emulated: boolean }): void => {
    emulated = side.emulated;
    report?.begin(emulated);
    if (isJson) return;
    if (run.role === 'server' || (run.role === 'loopback' && names.length === 0)) print(describeTest(spec, emulated));
    if (run.role === 'server') print(TEST_END);
    else if (index === 0) print(resultHeader(spec, format, emulated));
    if (run.role !== 'server') print(batchLine(names, format));
  };
  const onReport = (measurement: Measurement, isFinal: boolean, carrier: string, thread?: number): void => {
    bar?.clear();
    if (!isJson) {
      const place = { isFinal, names, extra: carrier };
      print(resultLine(measurement, place, thread === undefined ? format : { ...format, thread }));
    } else if (isFinal || !format.finalOnly) {
      print(resultJson(spec, names, measurement, { isFinal, emulated, carrier, thread }));
    }
    if (isFinal) report?.add(spec, measurement, carrier);
  };
  const onProgress = (iterations: number, isMeasured = true): void => {
    if (isMeasured) bar?.update(spec.kind.name, iterations);
  };
  try {
    if (spec.threads > 1) await runThreads({ ...run, spec, onStart, onReport, onProgress });
    else await runTest({ ...run, spec, onStart, onReport, onProgress });
  } finally {
    bar?.clear();
  }
}

function formatOf(options: CommandOptions): ReportOptions {
  const { v, f, N, I, X, b = [], report } = options;
  const batchFiles = report !== undefined && b.length === 0 ? ['test', 'size'] : b.map((file) => basename(file));
  if (report === undefined && isRange(options)) batchFiles.push('size');
  return { csv: v === true, finalOnly: f === true, numeric: N === true, extra: I === true || X === true, batchFiles };
}

function cpusOf(text: string): number[] {
  return text.split(',').map((word) => {
    if (!/^\d+$/.test(word)) throw invalidParam('-c', 'must be processor numbers, comma-separated', text);
    return Number(word);
  });
}

/** Binds this thread, and the threads that it starts, to the processors. */
function runOn(cpus: readonly number[]): void {
  try {
    schedSetAffinity(0, cpus);
  } catch (error) {
    if (!isUcxError(error) || error.status !== Status.INVALID_PARAM) throw error;
    throw invalidParam(
      '-c',
      'must include a processor on which this process may run (taskset, cpuset)',
      cpus.join(','),
    );
  }
}

function print(line: string | undefined): void {
  if (line !== undefined) process.stdout.write(`${line}\n`);
}
