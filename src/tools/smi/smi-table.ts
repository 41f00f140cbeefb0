/**
 * Tables of `gaudi-ucx smi` in the form of hl-smi: the cards, the network ports (`smi -n`), and links between cards, nearest processors and memory (`smi
 * topo`).
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NicPort } from '../../hlthunk/index.ts';
import { asError, invalidParam } from '../../ucs/type/error.ts';
import { formatTable } from '../base/text-table.ts';
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

/** Views of ports for `-n`: states of the links, or whether ports are internal or external. */
export const PORT_VIEWS = ['link', 'ports'] as const;
/** One of them. */
export type PortView = (typeof PORT_VIEWS)[number];

const PORTS_MAX = 64;

/** State of a link. */
export function linkText({ linkUp }: NicPort): string {
  if (linkUp === undefined) return UNKNOWN;
  return linkUp ? 'UP' : 'DOWN';
}

/** Whether a port is internal, to a card of the server, or external. */
export function sideText({ external }: NicPort): string {
  return external ? 'external' : 'internal';
}

/** Reads the argument of `-n`. @throws UcxError ERR_INVALID_PARAM */
export function readPortView(text: string): PortView {
  const view = PORT_VIEWS.find((name) => name === text);
  if (view === undefined) throw invalidParam('-n', `must be one of ${PORT_VIEWS.join(', ')}`, text);
  return view;
}

/** Reads the argument of `-P`: comma-separated numbers. @throws UcxError ERR_INVALID_PARAM */
export function readPorts(text: string): ReadonlySet<number> {
  const words = text.split(',');
  if (words.every((word) => /^\d{1,2}$/.test(word) && Number(word) < PORTS_MAX)) return new Set(words.map(Number));
  throw invalidParam('-P', `must be ports from 0 to ${PORTS_MAX - 1}, comma-separated`, text);
}

/**
 * A line for each port, below the bus id of its card if there are several cards.
 * @param chosen ports to print; by default all, or with `link`, as in hl-smi, the internal ones
 * @throws UcxError ERR_INVALID_PARAM for a chosen port that a card does not have
 */
export function portLines(
  cards: readonly SmiCard[],
  view: PortView,
  chosen: ReadonlySet<number> | undefined,
): readonly string[] {
  return cards.flatMap(({ busId, ports }) => {
    const isShown = (each: NicPort): boolean => chosen?.has(each.port) ?? (view === 'ports' || !each.external);
    const missing = ports && [...(chosen ?? [])].filter((number) => ports.every(({ port }) => port !== number));
    if (missing !== undefined && missing.length > 0) {
      const known = ports!.map(({ port }) => port);
      throw invalidParam('-P', `must be ports of the card ${busId}: ${known.join(', ')}`, missing.join(', '));
    }
    const lines = ports
      ?.filter(isShown)
      .map((each) => `port ${String(each.port).padStart(2)}:\t${view === 'link' ? linkText(each) : sideText(each)}`);
    return [...(cards.length > 1 ? [busId] : []), ...(lines ?? [`ports:\t${UNKNOWN}`])];
  });
}

/** Columns of affinity to print. */
export interface TopologyColumns {
  readonly cpu: boolean;
  readonly numa: boolean;
}

/** Matrix of links between cards: number of links that are up, and number of all links. */
export function linkMatrix(cards: readonly SmiCard[]): string {
  const head = ['', ...cards.map((card) => `AIP${indexText(card)}`)];
  const rows = cards.map((card, row) => [
    `AIP${indexText(card)}`,
    ...cards.map((_, column) => {
      const link = card.links[column];
      if (column === row) return 'X';
      return link === undefined ? UNKNOWN : `${link.up}/${link.total}`;
    }),
  ]);
  return `${formatTable([head, ...rows])}\n\nNumber of links that are up, of all 100 GbE links between two cards; X: the card itself`;
}

/** A row for each module, with the columns of hl-smi. @param sysRoot mount point of sysfs */
export function affinityTable(cards: readonly SmiCard[], { cpu, numa }: TopologyColumns, sysRoot: string): string {
  const titles = ['modID', ...(cpu ? ['CPU Affinity'] : []), ...(numa ? ['NUMA Affinity'] : [])];
  const rows = cards.map(({ moduleId, numaNode }) => [
    String(moduleId ?? UNKNOWN),
    ...(cpu ? [cpusOf(numaNode, sysRoot)] : []),
    ...(numa ? [String(numaNode ?? UNKNOWN)] : []),
  ]);
  return formatTable([titles, titles.map((title) => '-'.repeat(title.length)), ...rows]);
}

function cpusOf(numaNode: number | undefined, sysRoot: string): string {
  if (numaNode === undefined) return UNKNOWN;
  try {
    return readFileSync(join(sysRoot, `devices/system/node/node${numaNode}/cpulist`), 'utf8').trim() || UNKNOWN;
  } catch (error) {
    // A container may hide the processors of other NUMA nodes.
    if (asError(error).syscall === undefined) throw error;
    return UNKNOWN;
  }
}
