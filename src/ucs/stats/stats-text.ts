/** Formats a tree of counters as text and as datagrams. Writes nothing. */

import { type Counters, type StatsNode, sumByClass } from './stats-node.ts';

/** Level of detail: see UCX_STATS_FORMAT. */
export type StatsFormat = 'full' | 'agg' | 'summary';

/** Host, process and time at the beginning of every report. */
export interface StatsHeading {
  readonly host: string;
  readonly pid: number;
  readonly time: Date;
}

/** Longest datagram: the payload of a UDP packet over IPv4. */
const DATAGRAM_BYTES_MAX = 65_507;
const INDENT = '  ';

/** A report, ending in a newline. */
export function statsText(root: StatsNode, format: StatsFormat, { host, pid, time }: StatsHeading): string {
  const lines = [`# ${host}:${pid} ${time.toISOString()}`];
  if (format === 'full') addFull(lines, root, 0);
  else for (const sum of sumByClass(root)) addSum(lines, sum, format);
  return `${lines.join('\n')}\n`;
}

/**
 * A report as JSON, in as few datagrams as possible: `{ host, pid, time, path, counters }` each with a node and, if they fit, its `children`. `path`
 * names the nodes above it.
 */
export function statsDatagrams(root: StatsNode, { host, pid, time }: StatsHeading): Buffer[] {
  const datagrams: Buffer[] = [];
  const add = (node: StatsNode, path: readonly string[]): void => {
    const heading = { host, pid, time: time.toISOString(), path };
    const whole = Buffer.from(JSON.stringify({ ...heading, ...node }));
    if (whole.byteLength <= DATAGRAM_BYTES_MAX) {
      datagrams.push(whole);
      return;
    }
    datagrams.push(Buffer.from(JSON.stringify({ ...heading, ...node, children: [] })));
    for (const child of node.children) add(child, [...path, titleOf(node)]);
  };
  add(root, []);
  return datagrams;
}

function addFull(lines: string[], node: StatsNode, depth: number): void {
  lines.push(`${INDENT.repeat(depth)}${titleOf(node)}:`);
  for (const [name, value] of Object.entries(node.counters)) lines.push(`${INDENT.repeat(depth + 1)}${name}: ${value}`);
  for (const child of node.children) addFull(lines, child, depth + 1);
}

function addSum(lines: string[], { className, counters }: StatsNode, format: StatsFormat): void {
  if (format === 'agg') {
    lines.push(`${className}:`);
    for (const [name, value] of Object.entries(counters)) lines.push(`${INDENT}${name}: ${value}`);
    return;
  }
  const told = nonZero(counters);
  if (told.length > 0) lines.push(`${className}: {${told.map(([name, value]) => `${name}:${value}`).join(' ')}}`);
}

function nonZero(counters: Counters): [string, number][] {
  return Object.entries(counters).filter(([, value]) => value !== 0);
}

function titleOf({ className, name }: StatsNode): string {
  return name === '' ? className : `${className} ${name}`;
}
