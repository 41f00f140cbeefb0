/** Formats the output of `gaudi-ucx explain`: one row for consecutive sizes with the same choice, followed by the reasons against the alternatives. */

import type { Engine, SizeExplanation, SizeLoser } from '../../api/contract/explanation.ts';
import { formatBytes, formatTime, MEGABYTE } from '../base/text-table.ts';

/** Maximum length of a line. */
export const REPORT_COLUMNS = 100;
const INDENT = '    ';

/** Data of a report. */
export interface ExplainReport {
  readonly operation: string;
  readonly local: string;
  readonly remote: string;
  /** Whether the remote memory belongs to another process. */
  readonly otherProcess: boolean;
  readonly emulated: boolean;
  /** Engine that runs the operation, and the reason for it. */
  readonly engine: Engine;
  readonly sizes: readonly SizeExplanation[];
}

/** The text. */
export function explainText(report: ExplainReport): string {
  const { operation, local, remote, otherProcess, emulated, engine, sizes } = report;
  const owner = otherProcess ? ' of another process' : '';
  const cards = emulated ? ', cards emulated' : '';
  const lines = [
    `${operation}: local ${local} memory, remote ${remote} memory${owner}${cards}`,
    clipped(`engine ${engine.name} ${engine.version} (${engine.reason})`),
  ];
  const hasEstimates = sizes.some(({ winner }) => winner?.estimatedNs !== undefined);
  if (hasEstimates) lines.push('estimates are those of the cost model, not measurements');
  for (const group of groupsOf(sizes)) lines.push('', winnerLine(group), ...loserLines(group).map(clipped));
  return lines.join('\n');
}

/** Neighbouring sizes with the same winner: the first and the last one. */
interface Group {
  readonly first: SizeExplanation;
  last: SizeExplanation;
}

function groupsOf(sizes: readonly SizeExplanation[]): Group[] {
  const groups: Group[] = [];
  for (const size of sizes) {
    const group = groups.at(-1);
    if (group !== undefined && protocolOf(group.first) === protocolOf(size)) group.last = size;
    else groups.push({ first: size, last: size });
  }
  return groups;
}

function protocolOf({ winner }: SizeExplanation): string {
  return winner === undefined ? '' : `${winner.protocol} ${winner.transport} ${winner.note ?? ''}`;
}

/** `4.0 KiB .. 1.0 GiB  put/zcopy  gaudi_cpy/gaudi1  2.5 us .. 43 ms  1562 .. 23840 MB/s`. */
function winnerLine({ first, last }: Group): string {
  const ends = first === last ? [first] : [first, last];
  const sizes = ends.map(({ bytes }) => formatBytes(bytes)).join(' .. ');
  const { winner } = first;
  if (winner === undefined) return `${sizes}  no transport supports it`;
  const line = `${sizes}  ${winner.protocol}  ${winner.transport}${estimatesOf(ends)}`;
  const note = winner.note === undefined ? '' : `\n${INDENT}${winner.note}`;
  return line + note;
}

/** Empty for an engine without a cost model. */
function estimatesOf(ends: readonly SizeExplanation[]): string {
  const winners = ends.flatMap(({ winner }) => (winner === undefined ? [] : [winner]));
  if (winners.some(({ estimatedNs }) => estimatedNs === undefined)) return '';
  const times = winners.map(({ estimatedNs = 0 }) => formatTime(estimatedNs)).join(' .. ');
  const rates = winners.map(({ bandwidth = 0 }) => (bandwidth / MEGABYTE).toFixed(1)).join(' .. ');
  return `  ${times}  ${rates} MB/s`;
}

/**
 * One line for each alternative; two if its reason changes with the size. Devices of one transport with the same reason share a line.
 */
function loserLines({ first, last }: Group): string[] {
  const atEnd = new Map(last.losers.map((loser) => [nameOf(loser), loser]));
  const devices = new Map<string, string[]>();
  const add = ({ transport, protocol }: SizeLoser, reason: string): void => {
    const [name = '', device] = transport.split('/');
    const key = `${protocol === undefined ? '' : `${protocol} `}${name}\n${reason}`;
    devices.set(key, [...(devices.get(key) ?? []), ...(device === undefined ? [] : [device])]);
  };
  for (const loser of first.losers) {
    const other = atEnd.get(nameOf(loser));
    atEnd.delete(nameOf(loser));
    const changes = other !== undefined && other.reason !== loser.reason;
    add(loser, changes ? `${loser.reason} .. ${other.reason}` : loser.reason);
  }
  for (const loser of atEnd.values()) add(loser, loser.reason);
  return [...devices].map(([key, names]) => {
    const [name, reason] = key.split('\n');
    return `${INDENT}not ${name}${names.length === 0 ? '' : `/${names.join(',')}`}: ${reason}`;
  });
}

function nameOf({ transport, protocol }: SizeLoser): string {
  return `${protocol ?? ''} ${transport}`;
}

/** Wraps a line to the width of the report. */
function clipped(line: string): string {
  if (line.length <= REPORT_COLUMNS) return line;
  const cut = line.lastIndexOf(' ', REPORT_COLUMNS);
  const at = cut > INDENT.length * 2 ? cut : REPORT_COLUMNS;
  return `${line.slice(0, at)}\n${clipped(`${INDENT}${INDENT}${line.slice(at).trimStart()}`)}`;
}
