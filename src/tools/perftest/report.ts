/**
 * Formats the output of perftest: headers, rows and CSV with the columns of ucx_perftest. Also the file of a report, which is opened before the first test
 * and written after the last.
 */

import { closeSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, hostname } from 'node:os';
import { packageVersion } from '../../ucs/sys/package.ts';
import { asError, invalidParam } from '../../ucs/type/error.ts';
import type { Measurement } from './measure.ts';
import { reportPage, SeriesCollector } from './page.ts';
import { messageBytes, type TestSpec } from './spec.ts';

const MEBIBYTE = 2 ** 20;
const RULE =
  '+--------------+--------------+------------------------------+---------------------+-----------------------+';
const FINE_RULE =
  '+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+';
const TEST_RULE =
  '+----------------------------------------------------------------------------------------------------------+';
const TEST_WIDTH = 60;
const ROOM_AFTER = 31;

/** Output format of the results. */
export interface ReportOptions {
  /** -v */
  readonly csv: boolean;
  /** -f */
  readonly finalOnly: boolean;
  /** -N */
  readonly numeric: boolean;
  /** -I */
  readonly extra: boolean;
  /** Base names of the batch files: columns of the CSV. */
  readonly batchFiles: readonly string[];
  /** Thread of the results. Default: 0 */
  readonly thread?: number;
}

/** Description of a test: a box without its lower edge. */
export function describeTest(spec: TestSpec, emulated: boolean): string {
  const { kind } = spec;
  const memory = (type: string): string => (type === 'gaudi' && emulated ? 'gaudi (emulated)' : type);
  const rows: [string, string][] = [
    ['API:', kind.api === 'UCT' ? 'transport layer' : 'protocol layer'],
    ['Test:', kind.description],
    ['Data layout:', kind.api === 'UCT' ? spec.layout : '(automatic)'],
    ['Send memory:', memory(spec.sendMemory)],
    ['Recv memory:', memory(spec.recvMemory)],
    ['Message size:', String(messageBytes(spec))],
    ['Window size:', String(spec.window)],
  ];
  if (spec.threads > 1) rows.push(['Threads:', String(spec.threads)]);
  if (spec.wait !== 'poll') rows.push(['Wait mode:', spec.wait]);
  if (kind.operation === 'am') rows.push(['AM header size:', String(spec.headerBytes)]);
  if (kind.api === 'UCT' && emulated) rows.push(['Cards:', 'emulated']);
  const lines = rows.map(([name, value]) => {
    const label = name.padEnd(Math.max(14, name.length + 1));
    return `| ${label}${value.padEnd(TEST_WIDTH - Math.max(0, label.length - 14))}${' '.repeat(ROOM_AFTER)}|`;
  });
  return [TEST_RULE, ...lines].join('\n');
}

/** The lower edge of {@link describeTest} if no results follow. */
export const TEST_END: string = TEST_RULE;

/** Header of the results. */
export function resultHeader(spec: TestSpec, options: ReportOptions, emulated: boolean): string {
  const rank = spec.percentile.toFixed(1);
  if (options.csv) {
    const names = [
      ...options.batchFiles,
      'iterations',
      `${rank}_percentile_lat`,
      'avg_lat',
      'overall_lat',
      'avg_bw',
      'overall_bw',
      'avg_mr',
      'overall_mr',
    ];
    return `${emulated ? '# emulated cards\n' : ''}${names.join(',')}`;
  }
  const column = options.batchFiles.length > 0 ? 'overhead' : spec.kind.column;
  const stage = (options.finalOnly ? 'Test' : 'Stage').padStart(5);
  const lines = [
    RULE,
    `|              |              |       ${column.padStart(8)} (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |`,
    FINE_RULE,
    `|    ${stage}     | # iterations | ${rank.padStart(4)}%ile | average | overall |  average |  overall |  average  |  overall  |`,
    FINE_RULE,
  ];
  if (emulated) lines.splice(0, 0, TEST_RULE, `| ${'Cards: emulated'.padEnd(TEST_RULE.length - 4)} |`);
  return lines.join('\n');
}

/** The line that begins a test of a batch file; undefined if there is none. */
export function batchLine(names: readonly string[], options: ReportOptions): string | undefined {
  if (names.length === 0 || options.csv || options.finalOnly) return undefined;
  const name = names.join('/').slice(0, FINE_RULE.length - 2);
  return `+${name}${FINE_RULE.slice(name.length + 1)}`;
}

/** Context of a line of results. */
export interface ResultPlace {
  /** False for an intermediate result. */
  readonly isFinal: boolean;
  /** Names of the test in its batch files. */
  readonly names: readonly string[];
  /** Transport and protocol of the messages. */
  readonly extra: string;
}

/** One line of results; undefined for an intermediate result if only final results are printed. */
export function resultLine(
  measurement: Measurement,
  { isFinal, names, extra }: ResultPlace,
  options: ReportOptions,
): string | undefined {
  if (!isFinal && options.finalOnly) return undefined;
  const { iterations, percentileNs, averageNs, overallNs, averageMessages, overallMessages } = measurement;
  const us = [percentileNs, averageNs, overallNs].map((ns) => (ns / 1000).toFixed(3));
  const rates = [measurement.averageBytes, measurement.overallBytes].map((bytes) => (bytes / MEBIBYTE).toFixed(2));
  const messages = [averageMessages, overallMessages];
  if (options.csv) {
    const values = [iterations, ...us, ...rates, ...messages.map((rate) => rate.toFixed(0))];
    return [...names, ...values].join(',');
  }
  let label = `[thread ${options.thread ?? 0}]`;
  if (isFinal) label = options.finalOnly ? names.join('/').padStart(10) : 'Final:    ';
  const whole = (value: number, width: number): string => {
    const rounded = Math.round(value);
    return (options.numeric ? rounded.toLocaleString('en-US') : String(rounded)).padStart(width);
  };
  const cells = [
    whole(iterations, 18),
    ...us.map((text, column) => text.padStart(column === 0 ? 10 : 9)),
    ...rates.map((text, column) => text.padStart(column === 0 ? 11 : 10)),
    ...messages.map((rate) => whole(rate, 11)),
  ];
  return `${label}${cells.join(' ')}${options.extra ? `  ${extra}` : ''}`;
}

/** A result as a line of JSON. Times in nanoseconds per message, one way; rates per second. */
export function resultJson(
  { kind, sendMemory, recvMemory, ...spec }: TestSpec,
  names: readonly string[],
  measurement: Measurement,
  facts: {
    readonly isFinal: boolean;
    readonly emulated: boolean;
    readonly carrier: string;
    readonly thread: number | undefined;
  },
): string {
  const bytes = messageBytes(spec);
  return JSON.stringify({ test: kind.name, names, bytes, sendMemory, recvMemory, ...facts, ...measurement });
}

/** A report. */
export class ReportFile {
  readonly #path: string;
  readonly #fd: number;
  readonly #collector: SeriesCollector = new SeriesCollector();
  readonly #time: Date = new Date();
  #emulated = false;

  /** @throws UcxError ERR_INVALID_PARAM for a file that cannot be written */
  constructor(path: string) {
    this.#path = path;
    try {
      this.#fd = openSync(path, 'w');
    } catch (error) {
      throw invalidParam('--report', `must be a writable file (${asError(error).message})`, path);
    }
  }

  /** Called when a test begins. */
  begin(emulated: boolean): void {
    this.#emulated ||= emulated;
  }

  /** Called when a test has ended. */
  add(spec: TestSpec, measurement: Measurement, carrier: string): void {
    this.#collector.add(spec, measurement, carrier);
  }

  /** Writes the report. */
  write(): void {
    const page = reportPage(this.#collector.series, {
      time: this.#time,
      command: `gaudi-ucx ${process.argv.slice(2).join(' ')}`,
      host: hostname(),
      cpu: `${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}`,
      node: process.version,
      version: packageVersion(),
      emulated: this.#emulated,
    });
    writeFileSync(this.#fd, page);
    closeSync(this.#fd);
  }

  /** Removes the file after a failure. */
  discard(): void {
    closeSync(this.#fd);
    rmSync(this.#path, { force: true });
  }
}
