/** Command `gaudi-ucx smi`: the options of hl-smi, and repeated output. */

import { Command, Option } from 'commander';
import { cardsOf, emulationNotice, openShownNode } from '../../assembly/open-node.ts';
import { startProgram } from '../../assembly/program/program.ts';
import type { DriverNode } from '../../driver/port.ts';
import { wallClockMs } from '../../ucs/sys/clock.ts';
import { packageVersion } from '../../ucs/sys/package.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { readArguments, suggestingOption } from '../base/command-line.ts';
import { pause } from '../base/text-table.ts';
import { lostNode, noCards } from '../node-access/card.ts';
import { detailLines, firmwareLines, listLines, SECTION_NAMES } from './details.ts';
import { QUERY_NAMES, queryLines, readFormat, readQueries } from './queries.ts';
import { readSmiCards, type SmiCard } from './smi-card.ts';
import { affinityTable, linkMatrix, PORT_VIEWS, portLines, readPorts, readPortView, smiTable } from './smi-table.ts';

const LOOP_SECONDS_DEFAULT = '5';
const LOOP_SECONDS_MAX = 86_400;
const NS_PER_S = 1e9;

interface Options {
  readonly listAips?: boolean;
  readonly query?: boolean;
  readonly display?: string | true;
  readonly queryAip?: string;
  readonly format?: string;
  readonly n?: string;
  readonly P?: string;
  readonly device?: string;
  readonly loop?: string | true;
  readonly json?: boolean;
  readonly fwVersions?: boolean;
  readonly reset?: string | true;
  readonly xml?: string | true;
}

/** Makes the text of one reading. */
type Printer = (cards: readonly SmiCard[], node: DriverNode) => string;

/** The command. */
export function smiCommand(): Command {
  const smi = new Command('smi')
    .description('show the cards in the formats of hl-smi: a table, values as CSV, details, topology, processes')
    .option('-L, --list-aips', 'list the cards')
    .option('-q, --query', 'all details of the cards')
    .addOption(
      suggestingOption('-d, --display [section]', `one section of -q: ${SECTION_NAMES.join(', ')}`, SECTION_NAMES),
    )
    .addOption(
      suggestingOption(
        '-Q, --query-aip <names>',
        `values as CSV, comma-separated: ${QUERY_NAMES.join(', ')}`,
        QUERY_NAMES,
      ),
    )
    .addOption(
      suggestingOption(
        '-f, --format <format>',
        'format of -Q: csv, csv,noheader, csv,nounits or csv,noheader,nounits',
        ['csv', 'csv,noheader', 'csv,noheader,nounits'],
      ),
    )
    .addOption(
      suggestingOption('-n <view>', 'network ports: link (up or down) or ports (internal or external)', PORT_VIEWS),
    )
    .option('-P <ports>', 'ports of -n, comma-separated (default with link: all internal ports)')
    .option('-i, --device <pci addr>', 'show only this card')
    .option('-l, --loop [seconds]', `repeat after this number of seconds (${LOOP_SECONDS_DEFAULT}), until interrupted`)
    .addOption(new Option('--json', 'print JSON: all known values'))
    .option('--fw-versions', 'the firmware of the cards')
    .addOption(new Option('-r, --reset [card]').hideHelp())
    .addOption(new Option('-x, --xml [format]').hideHelp())
    .version(packageVersion(), '-v, --version', 'the version of this package')
    .allowExcessArguments()
    .action(run);
  smi
    .command('topo')
    .description('show the links between cards; with -c and -N the nearest processors and memory of each card')
    .option('-c, --cpu', 'nearest processors of each card')
    .option('-N, --numa', 'NUMA node of each card')
    .action(async ({ cpu = false, numa = false }: TopologyOptions, topo: Command) => {
      readArguments(topo, () => checkAlone(smi.opts<Options>()));
      const print: Printer = (cards) => (cpu || numa ? affinityTable(cards, { cpu, numa }, '/sys') : linkMatrix(cards));
      await show(print, undefined, undefined);
    });
  return smi;
}

interface TopologyOptions {
  readonly cpu?: boolean;
  readonly numa?: boolean;
}

/** `topo` shows all cards, once. @throws UcxError ERR_INVALID_PARAM for options of other views */
function checkAlone(options: Options): void {
  const [given] = Object.keys(options);
  if (given !== undefined) throw invalidParam('topo', 'accepts only -c and -N, which follow the word topo', given);
}

async function run(options: Options, command: Command): Promise<void> {
  const [unknown] = command.args;
  if (unknown !== undefined) {
    command.error(`unknown command '${unknown}': use topo for the topology, gaudi-ucx top for a live view`);
  }
  const { print, seconds } = readArguments(command, () => ({
    print: printerOf(options),
    seconds: secondsOf(options.loop),
  }));
  await show(print, options.device, seconds);
}

/** Reads the options. @throws UcxError ERR_INVALID_PARAM */
function printerOf(options: Options): Printer {
  const { listAips, query, display, queryAip, format, n, P, json, fwVersions } = options;
  if (options.reset !== undefined) {
    throw unsupported(
      '-r: smi does not reset cards; for a card of a node server use gaudi-ucx node fault CARD hard-reset',
    );
  }
  if (options.xml !== undefined) throw unsupported('-x: smi does not print XML; use --json for all values');
  const isDetailed = query === true || display !== undefined;
  const asked = [listAips, isDetailed, queryAip !== undefined, n !== undefined, json, fwVersions].filter(
    (each) => each,
  );
  if (asked.length > 1) {
    throw invalidParam('-L, -q, -Q, -n, --json, --fw-versions', 'must not be combined', asked.length);
  }
  if (format !== undefined && queryAip === undefined) throw invalidParam('-f', 'must be used with -Q', format);
  if (fwVersions === true) return (cards) => firmwareLines(cards).join('\n');
  if (json === true) return (cards) => JSON.stringify(cards, undefined, 2);
  if (P !== undefined && n === undefined) throw invalidParam('-P', 'must be used with -n', P);
  if (n !== undefined) {
    const [view, chosen] = [readPortView(n), P === undefined ? undefined : readPorts(P)];
    return (cards) => portLines(cards, view, chosen).join('\n');
  }
  if (listAips === true) return (cards) => listLines(cards).join('\n');
  if (queryAip !== undefined) {
    const [names, form] = [readQueries(queryAip), readFormat(format ?? 'csv')];
    return (cards) => queryLines(cards, names, form, timeText()).join('\n');
  }
  if (isDetailed) {
    const name = display === true ? '' : display?.toUpperCase();
    if (name !== undefined && !SECTION_NAMES.includes(name)) {
      const given = display === true ? undefined : display;
      throw invalidParam('-d', `must be one of ${SECTION_NAMES.join(', ')}`, given);
    }
    return (cards) => detailLines(cards, name === undefined ? SECTION_NAMES : [name], timeText()).join('\n');
  }
  return (cards, { driverVersion, emulated }) =>
    smiTable(cards, { version: packageVersion(), driverVersion, emulated });
}

function unsupported(message: string): UcxError {
  return new UcxError({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED, message });
}

function secondsOf(loop: string | true | undefined): number | undefined {
  if (loop === undefined) return undefined;
  const text = loop === true ? LOOP_SECONDS_DEFAULT : loop;
  const value = Number(text);
  if (/^\d+(\.\d+)?$/.test(text) && value >= 0.1 && value <= LOOP_SECONDS_MAX) return value;
  throw invalidParam('-l', `must be a number of seconds from 0.1 to ${LOOP_SECONDS_MAX}`, text);
}

/** Prints once, or repeatedly until a signal. */
async function show(print: Printer, device: string | undefined, seconds: number | undefined): Promise<void> {
  const program = startProgram();
  const node = openShownNode(program);
  const end = new AbortController();
  const stop = (): void => end.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, stop);
  // The reader has closed the pipe, as head does.
  process.stdout.on('error', stop);
  try {
    // On standard error, because programs parse standard output.
    const notice = emulationNotice(program, node);
    if (notice !== undefined) process.stderr.write(`${notice}\n`);
    do {
      const cards = readSmiCards(node, cardsOf(node, program));
      if (node.lostReason !== undefined) throw lostNode(node);
      process.stdout.write(`${print(chosenCards(cards, node, device), node)}\n`);
    } while (seconds !== undefined && (await pause(program.clock, seconds * NS_PER_S, end.signal)));
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, stop);
    process.stdout.off('error', stop);
    node.close();
  }
}

function chosenCards(cards: SmiCard[], node: DriverNode, device: string | undefined): SmiCard[] {
  if (cards.length === 0) throw noCards(node);
  if (device === undefined) return cards;
  const chosen = cards.filter(
    ({ busId }) => busId === device.toLowerCase() || busId === `0000:${device.toLowerCase()}`,
  );
  if (chosen.length === 0) {
    throw invalidParam('-i', `must be one of ${cards.map(({ busId }) => busId).join(', ')}`, device);
  }
  return chosen;
}

/** The time as date(1) prints it, without the comma of the HTTP form, because it is a CSV field. */
function timeText(): string {
  const [day, date, month, year, time] = new Date(wallClockMs()).toUTCString().replace(',', '').split(' ');
  return `${day} ${month} ${date} ${time} UTC ${year}`;
}
