/**
 * Options of one test, with the letters of ucx_perftest: their declarations and their parsing. Batch files: every line is a test; its first word is the name
 * in the output, the other words are options. With several files, every combination of their lines runs.
 */

import { readFileSync } from 'node:fs';
import { Command, CommanderError, Option } from 'commander';
import { memorySizeType } from '../../ucs/config/value.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { suggestingOption } from '../base/command-line.ts';
import {
  checkSpec,
  isOneSided,
  TESTS,
  type TestSpec,
  testNamed,
  UCT_HEADER_BYTES,
  unsupported,
  WAIT_MODES,
} from './spec.ts';

const TEST_NAMES: readonly string[] = TESTS.map(({ name }) => name);
const DEFAULT_BYTES = 8;
const DEFAULT_ITERATIONS = 1_000_000;
const DEFAULT_WARM_UP = 10_000;
const DEFAULT_PERCENTILE = 50;
const DEFAULT_FLOW_WINDOW = 127;

/** Options of a test as text; undefined if not given. */
export interface TestOptions {
  readonly t?: string;
  readonly s?: string;
  readonly m?: string;
  readonly n?: string;
  readonly w?: string;
  readonly O?: string;
  readonly i?: string;
  readonly o?: boolean;
  readonly B?: boolean;
  readonly R?: string;
  readonly V?: boolean;
  readonly d?: string;
  readonly x?: string;
  readonly D?: string;
  readonly W?: string;
  readonly H?: string;
  readonly A?: string;
  readonly P?: string;
  readonly T?: string;
  readonly M?: string;
  readonly C?: boolean;
  readonly U?: boolean;
  readonly r?: string;
  readonly e?: boolean;
  readonly E?: string;
  readonly z?: boolean;
}

/** Declares the options of a test: for the command line, and for the lines of batch files. */
export function declareTestOptions(command: Command): Command {
  return command
    .addOption(suggestingOption('-t <test>', `test to run: ${TEST_NAMES.join(', ')}`, TEST_NAMES))
    .option(
      '-s <sizes>',
      `size of a message (${DEFAULT_BYTES}); or a list, the elements of one message: 16,48,8192 (with -D iov also 1024:16, sixteen elements of 1024 bytes); or a range, such as 8..4k: one test for each power of two`,
    )
    .addOption(
      suggestingOption('-m <types>', 'memory of the sender[,receiver]: host or gaudi (host)', [
        'host',
        'gaudi',
        'host,gaudi',
        'gaudi,host',
      ]),
    )
    .option('-n <iterations>', `iterations to run (${DEFAULT_ITERATIONS})`)
    .option(
      '-w <iterations>',
      'warm-up iterations, at most a tenth of -n (default: until the rate is steady, 0.2 s to 2 s)',
    )
    .option('-O <count>', 'maximum number of outstanding operations (default: 1 or 32, by the test)')
    .option('-i <bytes>', 'stride between the elements of a message (0: contiguous)')
    .option('-o', 'do not call progress at the target of a one-sided test')
    .option('-R <rank>', `percentile to report (${DEFAULT_PERCENTILE.toFixed(1)})`)
    .option('-V', 'verify all data')
    .option('-d <device>', 'UCT: device, such as memory or gaudi0')
    .option('-x <transport>', 'UCT: transport, such as posix or gaudi_ipc')
    .option('-D <layout>', 'UCT: short, bcopy or zcopy (short); UCP: contig or iov of the sender[,receiver] (contig)')
    .option('-W <count>', `UCT: flow control window in messages, up to ${DEFAULT_FLOW_WINDOW} (${DEFAULT_FLOW_WINDOW})`)
    .option(
      '-H <bytes>',
      `header bytes of active messages (UCT: ${UCT_HEADER_BYTES}, included in the size; UCP: 0, not included)`,
    )
    .option('-C', 'UCP: receive any tag')
    .option('-U', 'UCP: receive a message only after a probe has found it')
    .option('-r <mode>', 'UCP: receive a stream by recv or recv_data (recv)')
    .option('-e', 'UCP: endpoints with error handling')
    .option('-z', 'UCP: pass memory handles to all operations, instead of bytes for host memory')
    .addOption(suggestingOption('-E <mode>', 'UCP messages: poll, or sleep while idle (poll)', WAIT_MODES))
    .option('-T <threads>', `UCP: threads of each side, each with its own worker and peer (1)`)
    .addOption(new Option('-M <mode>', 'UCP: single').hideHelp())
    .addOption(new Option('-A <mode>', 'UCT: refused').hideHelp())
    .addOption(new Option('-P <mode>', 'only 0 is accepted').hideHelp())
    .addOption(new Option('-B', 'refused').hideHelp());
}

/**
 * Parses the options of a test.
 * @throws UcxError ERR_INVALID_PARAM that names option, rule and value; ERR_UNSUPPORTED with the reason
 */
export function specOf(options: TestOptions): TestSpec {
  refuse(options);
  if (options.t === undefined) throw invalidParam('-t', 'must name a test', options.t);
  const kind = testNamed(options.t);
  if (kind === undefined) {
    throw invalidParam('-t', `must be one of ${TEST_NAMES.join(', ')}`, options.t);
  }
  const isUct = kind.api === 'UCT';
  const [sendMemory, recvMemory] = pairOf('-m', options.m ?? 'host');
  const [sendType, bothType] = isUct ? ['contig', 'contig'] : pairOf('-D', options.D ?? 'contig');
  // The remote memory of a put or get is one range.
  const recvType = isOneSided(kind.operation) && !options.D?.includes(',') ? 'contig' : bothType;
  const { r: mode = 'recv' } = options;
  if (mode !== 'recv' && mode !== 'recv_data') throw invalidParam('-r', 'must be recv or recv_data', mode);
  if (options.o === true && !isOneSided(kind.operation)) {
    throw invalidParam('-o', 'must be used with a one-sided test', kind.name);
  }
  const isVerified = options.V === true;
  return checkSpec({
    kind,
    sizes: (options.s ?? String(DEFAULT_BYTES)).split(',').flatMap((text) => piecesOf(text, takesPieces(options))),
    iterations: numberOf('-n', options.n, DEFAULT_ITERATIONS),
    warmUp: numberOf('-w', options.w, DEFAULT_WARM_UP),
    steady: options.w === undefined,
    window: numberOf('-O', options.O, isVerified ? 1 : kind.window),
    stride: numberOf('-i', options.i, 0),
    sendMemory,
    recvMemory,
    percentile: numberOf('-R', options.R, DEFAULT_PERCENTILE),
    passive: options.o === true,
    verify: isVerified,
    transport: options.x ?? '',
    device: options.d ?? '',
    layout: isUct ? (options.D ?? (kind.operation === 'get' ? 'zcopy' : 'short')) : 'short',
    flowWindow: numberOf('-W', options.W, DEFAULT_FLOW_WINDOW),
    headerBytes: numberOf('-H', options.H, isUct ? UCT_HEADER_BYTES : 0),
    sendType,
    recvType,
    wildcard: options.C === true,
    unexpected: options.U === true,
    streamData: mode === 'recv_data',
    errorHandling: options.e === true,
    mapped: options.z === true,
    wait: options.E ?? 'poll',
    threads: numberOf('-T', options.T, 1),
  });
}

const RANGE = /\.\.|:/;
/** Size limit of a range: every power of two that a size can be. */
const RANGE_SIZES_MAX = 64;

/** True if the sizes are a range, whose powers of two are one test each: `8..4m`, or `8:4m`, which means a list of elements with -D iov. */
export function isRange({ s, D }: Pick<TestOptions, 's' | 'D'>): boolean {
  return s !== undefined && RANGE.test(s) && !(takesPieces({ D }) && !s.includes('..'));
}

/** Whether the sizes are those of the elements of a list. */
function takesPieces({ D }: { readonly D?: string | undefined }): boolean {
  return D?.split(',').includes('iov') === true;
}

/** The sizes of elements: `1024`, or `1024:16` for sixteen. */
function piecesOf(text: string, takesCount: boolean): number[] {
  const [size = '', count] = takesCount ? text.split(':') : [text];
  const bytes = sizeOf('-s', size);
  if (count === undefined) return [bytes];
  if (!/^[1-9]\d{0,5}$/.test(count)) throw invalidParam('-s', 'must have a number of elements after the colon', text);
  return new Array<number>(Number(count)).fill(bytes);
}

/**
 * The sizes of a range, or the one size.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function sizesOfRange(text: string): number[] {
  const words = text.split(RANGE);
  const [from, to] = words.map((word) => memorySizeType.parse(word));
  const isWhole = words.length === 1 || (words.length === 2 && to !== undefined);
  if (!isWhole || from === undefined || from < 1)
    throw invalidParam('-s', 'must be a size or a range such as 8..4m', text);
  if (to === undefined) return [from];
  if (to < from) throw invalidParam('-s', 'must not end below its start', text);
  const sizes: number[] = [];
  for (let bytes = from; bytes <= to && sizes.length < RANGE_SIZES_MAX; bytes *= 2) sizes.push(bytes);
  return sizes;
}

/** Rejects options and values of ucx_perftest that this tool does not have. */
function refuse({ M: threadMode = 'single', A, B, D, P = '0' }: TestOptions): void {
  if (threadMode !== 'single') throw unsupported(`-M ${threadMode}`, 'a worker belongs to one thread');
  if (A !== undefined) throw unsupported(`-A ${A}`, 'asynchronous progress does not exist');
  if (P !== '0') throw unsupported(`-P ${P}`, 'the two sides cannot be started by MPI; start each side separately');
  if (B === true) throw unsupported('-B', 'memory registration has no such mode');
  if (D === 'shortiov') throw unsupported('-D shortiov', 'transports do not send lists as short messages');
}

function pairOf(option: string, text: string): [string, string] {
  const parts = text.split(',');
  if (parts.length > 2) throw invalidParam(option, 'must be one or two names, comma-separated', text);
  return [parts[0]!, parts[1] ?? parts[0]!];
}

function numberOf(option: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  if (!/^\d+(\.\d+)?$/.test(text)) throw invalidParam(option, 'must be a number', text);
  return Number(text);
}

function sizeOf(option: string, text: string): number {
  const bytes = memorySizeType.parse(text);
  if (bytes === undefined || !Number.isSafeInteger(bytes)) {
    throw invalidParam(option, 'must be sizes such as 8 or 64K, comma-separated', text);
  }
  return bytes;
}

/** A test with its name in each batch file. */
export interface BatchTest {
  readonly names: readonly string[];
  readonly spec: TestSpec;
}

/** One line of a file. */
interface Line {
  readonly name: string;
  readonly options: TestOptions;
  /** Location for error messages. */
  readonly place: string;
}

/**
 * The tests of a command line, in order. All are checked before the first one runs.
 * @param files batch files; without any the options are the one test
 * @throws UcxError ERR_INVALID_PARAM that names file and line; the error of node:fs
 */
export function batchTests(options: TestOptions, files: readonly string[]): BatchTest[] {
  return expand(
    options,
    files.map((file) => readLines(file)),
    [],
  );
}

function expand(options: TestOptions, files: readonly (readonly Line[])[], names: readonly string[]): BatchTest[] {
  const [lines, ...rest] = files;
  if (lines === undefined) return testsOf(options, names);
  return lines.flatMap((line) => {
    const merged = { ...options, ...line.options };
    if (rest.length === 0 && merged.t === undefined) {
      throw invalidParam(line.place, 'must have a test (-t)', line.name);
    }
    return expand(merged, rest, [...names, line.name]);
  });
}

/** The test of options, or one for each size of a range. */
function testsOf(options: TestOptions, names: readonly string[]): BatchTest[] {
  const { s } = options;
  if (s === undefined || !isRange(options)) return [{ names, spec: specOf(options) }];
  return sizesOfRange(s).map((bytes) => {
    return { names: [...names, memorySizeType.print(bytes)], spec: specOf({ ...options, s: String(bytes) }) };
  });
}

function readLines(file: string): Line[] {
  const lines: Line[] = [];
  for (const [index, text] of readFileSync(file, 'utf8').split('\n').entries()) {
    const words = text.split(/\s+/).filter((word) => word !== '');
    const [name, ...args] = words;
    if (name === undefined || name.startsWith('#')) continue;
    const place = `${file} line ${index + 1}`;
    lines.push({ name, options: parse(args, place), place });
  }
  if (lines.length === 0) throw invalidParam('-b', 'must be files with at least one test', file);
  return lines;
}

function parse(args: readonly string[], place: string): TestOptions {
  const command = declareTestOptions(new Command())
    .exitOverride()
    .configureOutput({ writeErr: () => undefined });
  try {
    return command.helpOption(false).parse(args, { from: 'user' }).opts();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    throw invalidParam(place, `must have options of a test (${error.message})`, args.join(' '));
  }
}
