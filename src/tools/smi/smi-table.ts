/** The table of `gaudi-ucx smi`, with the columns of hl-smi. */

import { indexText, UNKNOWN } from './queries.ts';
import type { SmiCard } from './smi-card.ts';

const WIDTH = 77;
const MIB = 2 ** 20;
const RULE = '|-------------------------------+----------------------+----------------------+';
const NAME_LENGTH_MAX = 40;

/** Contents of the header. */
export interface SmiHead {
  /** Version of this program. */
  readonly version: string;
  readonly driverVersion: string | undefined;
  readonly emulated: boolean;
}

/** The whole table. */
export function smiTable(cards: readonly SmiCard[], { version, driverVersion, emulated }: SmiHead): string {
  const firmware = cards.find((card) => card.firmware !== undefined)?.firmware;
  return [
    `+${'-'.repeat(WIDTH)}+`,
    headLine('GAUDI-UCX SMI Version:', version),
    headLine('Driver Version:', driverVersion ?? UNKNOWN),
    headLine('Firmware Version:', firmware ?? UNKNOWN),
    ...(emulated ? [headLine('Cards:', 'emulated')] : []),
    RULE,
    '| AIP  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncor-Events|',
    '| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |',
    '|===============================+======================+======================|',
    ...cards.flatMap(cardLines),
    '| Compute Processes:                                               AIP Memory |',
    '|  AIP       PID   Type   Process name                             Usage      |',
    `|${'='.repeat(WIDTH)}|`,
    ...cards.map(processLine),
    `+${'='.repeat(WIDTH)}+`,
  ].join('\n');
}

function headLine(label: string, value: string): string {
  return `| ${label}${value.padStart(WIDTH - 2 - label.length - 10).padEnd(WIDTH - 2 - label.length)} |`;
}

function cardLines({
  index,
  name,
  busId,
  temperature,
  power,
  powerMax,
  memoryBytes,
  memoryUsedBytes,
  ...card
}: SmiCard): string[] {
  const watt = (value: number | undefined): string => (value === undefined ? UNKNOWN : `${Math.round(value)}W`);
  const heat = temperature === undefined ? UNKNOWN : `${Math.round(temperature)}C`;
  const memory =
    memoryBytes === undefined || memoryUsedBytes === undefined
      ? UNKNOWN
      : `${mib(memoryUsedBytes).padStart(8)} / ${mib(memoryBytes).padStart(9)}`;
  const busy = card.utilization === undefined ? UNKNOWN : `${card.utilization}%`;
  const share =
    memoryBytes === undefined || memoryUsedBytes === undefined || memoryBytes === 0
      ? UNKNOWN
      : `${Math.round((100 * memoryUsedBytes) / memoryBytes)}%`;
  const state = card.state === 'operational' ? '' : card.state;
  return [
    `| ${indexText({ index }).padStart(3)}  ${(name ?? UNKNOWN).slice(0, 19).padEnd(20)}${UNKNOWN}  | ${busId.padEnd(12)}     ${UNKNOWN} | ${state.slice(0, 16).padEnd(16)}${UNKNOWN.padStart(4)} |`,
    `| ${UNKNOWN}  ${heat.padStart(4)}   ${UNKNOWN} ${watt(power).padStart(5)} / ${watt(powerMax).padEnd(6)}| ${memory.padStart(20)} | ${busy.padStart(8)} ${share.padStart(11)} |`,
    RULE,
  ];
}

function processLine({ index, pid, command, memoryUsedBytes }: SmiCard): string {
  const id = String(pid ?? UNKNOWN);
  const type = pid === undefined ? UNKNOWN : 'C';
  const usage = pid === undefined || memoryUsedBytes === undefined ? UNKNOWN : mib(memoryUsedBytes);
  const name = (command ?? UNKNOWN).slice(0, NAME_LENGTH_MAX);
  return `| ${indexText({ index }).padStart(3)}  ${id.padStart(9)}   ${type.padEnd(4)}   ${name.padEnd(NAME_LENGTH_MAX)} ${usage.padEnd(10)} |`;
}

function mib(bytes: number): string {
  return `${Math.round(bytes / MIB)}MiB`;
}
