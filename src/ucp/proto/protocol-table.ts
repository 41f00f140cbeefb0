/** Protocol tables as UCX prints them (UCX_PROTO_INFO): boxes of text, nothing else. */

import type { ExplainedChoice } from '../../api/contract/explanation.ts';

/** Descriptions of protocols in the words of UCX, by their name, or by their name without the operation. */
const DESCRIPTIONS: Readonly<Record<string, string>> = {
  short: 'short',
  zcopy: 'zero-copy',
  am: 'software emulation',
  'eager/short': 'eager short',
  'eager/bcopy': 'eager copy-in copy-out',
  'eager_sync/short': 'eager short, synchronous',
  'eager_sync/bcopy': 'eager copy-in copy-out, synchronous',
  'rndv/get': 'rendezvous zero-copy read from remote',
  'rndv/put': 'rendezvous zero-copy write to remote',
  'rndv/put-pipeline': 'rendezvous pipelined write to remote',
  'rndv/am': 'rendezvous by active messages',
  offload: 'hardware',
};

/** Operations in the words of UCX. */
const OPERATIONS: Readonly<Record<string, string>> = {
  put: 'remote memory write by ucp_put*',
  get: 'remote memory read by ucp_get*',
  am: 'active message by ucp_am_send*',
  tag: 'tagged message by ucp_tag_send*',
  stream: 'stream by ucp_stream_send*',
  atomic: 'atomic operation by ucp_atomic_op*',
  rndv: 'rendezvous data fetch',
};

/** The cells of a row; the first one is aligned to the right, as the sizes in tables of UCX. */
export type TableRow = readonly [string, ...string[]];

/** The name of an operation in a table. */
export function describeOperation(operation: string): string {
  return OPERATIONS[operation] ?? operation;
}

/** The name of a protocol such as `put/zcopy` in a table; a name that UCX does not have is returned unchanged. */
export function describeProtocol(protocol: string): string {
  const slash = protocol.indexOf('/');
  return DESCRIPTIONS[protocol] ?? DESCRIPTIONS[protocol.slice(slash + 1)] ?? protocol;
}

/** A range of sizes as UCX writes it: `17298..inf`. */
export function sizeRange(bytesMin: number, bytesMax: number): string {
  return `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`;
}

/**
 * The lines of a table.
 * @param heading name of the object that the table describes, above the first column
 * @param title subject of the table, above the other columns
 * @param rows all with the same number of cells, at least two
 */
export function protocolTable(heading: string, title: string, rows: readonly TableRow[]): string[] {
  const columns = rows[0]?.length ?? 2;
  const widths = Array.from({ length: columns }, (_, column) => Math.max(0, ...rows.map((row) => row[column]!.length)));
  widths[0] = Math.max(widths[0]!, heading.length);
  const others = widths.slice(1).reduce((sum, width) => sum + width, 3 * (columns - 2));
  widths[columns - 1]! += Math.max(0, title.length - others);
  const rest = Math.max(others, title.length);
  const edge = `+-${'-'.repeat(widths[0]!)}-+-${'-'.repeat(rest)}-+`;
  const rule = `+${widths.map((width) => '-'.repeat(width + 2)).join('+')}+`;
  const lines = rows.map(
    (row) =>
      `| ${row.map((cell, column) => (column === 0 ? cell.padStart(widths[0]!) : cell.padEnd(widths[column]!))).join(' | ')} |`,
  );
  return [edge, `| ${heading.padEnd(widths[0]!)} | ${title.padEnd(rest)} |`, rule, ...lines, rule];
}

/** The title of the table of a choice: `tagged message by ucp_tag_send* from host memory`. */
export function choiceTitle({
  operation,
  local,
  remote,
}: Pick<ExplainedChoice, 'operation' | 'local' | 'remote'>): string {
  return `${describeOperation(operation)} ${memoriesOf(operation, local, remote)}`;
}

/** The lines of the table of a choice: ranges of sizes, protocols, lanes. */
export function choiceTable(
  heading: string,
  choice: Pick<ExplainedChoice, 'operation' | 'local' | 'remote' | 'chosen'>,
): string[] {
  const rows = choice.chosen.map(({ bytesMin, bytesMax, protocol, transport, note }): TableRow => {
    const config = note === undefined ? transport : `${transport}, ${note}`;
    return [sizeRange(bytesMin, bytesMax), describeProtocol(protocol), config];
  });
  return protocolTable(heading, choiceTitle(choice), rows.length > 0 ? rows : [['', 'no transport can do it', '']]);
}

function memoriesOf(operation: string, local: string, remote: string): string {
  if (operation === 'get') return `into ${local} memory from ${remote}`;
  return operation === 'put' ? `from ${local} memory to ${remote}` : `from ${local} memory`;
}
