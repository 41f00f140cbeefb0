/** UCX_PROTO_INFO: prints the protocols that a worker chooses, or has used, as text tables, like UCX. */

import type { ExplainedChoice } from '../../api/contract/explanation.ts';
import { matchesItem } from '../../ucs/config/list.ts';
import { boolType, type ConfigType } from '../../ucs/config/value.ts';
import type { OperationEnd } from '../../ucs/debug/diagnostics.ts';
import { type Log, LogLevel } from '../../ucs/debug/log.ts';

/** Which tables are printed: none, all, those of used protocols, those whose title matches, or all if debug messages are logged. */
export type ProtocolInfoMode = 'no' | 'yes' | 'used' | 'auto' | { readonly glob: string };

/** The values of UCX_PROTO_INFO. */
export const protocolInfoType: ConfigType<ProtocolInfoMode> = {
  syntax: 'y, n, auto, used, or a glob pattern for table titles',
  parse(text) {
    const word = text.trim();
    const known = boolType.parse(word);
    if (known !== undefined) return known ? 'yes' : 'no';
    if (word === 'used' || word === 'auto') return word;
    return word === '' ? undefined : { glob: word };
  },
  print: (value) => (typeof value === 'string' ? value.replace(/^(y|n)(es|o)$/, '$1') : value.glob),
};

/** The use of one protocol over one transport. */
interface Use {
  readonly protocol: string;
  readonly transport: string;
  count: number;
  bytesMin: number;
  bytesMax: number;
}

/** The printer of one worker. */
export class ProtocolInfo {
  readonly #log: Log;
  readonly #glob: string | undefined;
  /** Counts of uses; undefined if tables are printed as choices are made. */
  readonly #uses: Map<string, Use> | undefined;
  /** Sets of lanes, by their names, in the order of appearance: as in UCX, tables name the number of the endpoint configuration. */
  readonly #configs: string[] = [];
  readonly #printed: Set<string> = new Set();

  private constructor(log: Log, glob: string | undefined, countsUses: boolean) {
    this.#log = log;
    this.#glob = glob;
    this.#uses = countsUses ? new Map() : undefined;
  }

  /** Creates the printer for a mode; undefined if it prints nothing. */
  static create(mode: ProtocolInfoMode, log: Log): ProtocolInfo | undefined {
    if (mode === 'no' || (mode === 'auto' && log.level < LogLevel.DEBUG)) return undefined;
    return new ProtocolInfo(log, typeof mode === 'object' ? mode.glob : undefined, mode === 'used');
  }

  /** True if ended operations must be reported to {@link used}. */
  get countsUses(): boolean {
    return this.#uses !== undefined;
  }

  /** Prints a choice for a connection with these lanes, unless it was already printed for the same lanes. */
  chosen(lanes: readonly string[], makeExplanation: () => ExplainedChoice): void {
    if (this.#uses !== undefined) return;
    const key = lanes.join(',');
    if (!this.#configs.includes(key)) this.#configs.push(key);
    const choice = makeExplanation();
    const title = choiceTitle(choice);
    if (this.#glob !== undefined && !matchesItem(this.#glob, title)) return;
    this.#print(choiceTable(`ucp_worker ep_cfg[${this.#configs.indexOf(key)}]`, choice));
  }

  /** Counts an ended operation. */
  used({ protocol, transport, device, byteLength }: OperationEnd): void {
    if (this.#uses === undefined || transport === undefined) return;
    const name = `${transport}/${device}`;
    const key = `${protocol} ${name}`;
    let use = this.#uses.get(key);
    if (use === undefined) {
      use = { protocol, transport: name, count: 0, bytesMin: byteLength, bytesMax: byteLength };
      this.#uses.set(key, use);
    }
    use.count += 1;
    use.bytesMin = Math.min(use.bytesMin, byteLength);
    use.bytesMax = Math.max(use.bytesMax, byteLength);
  }

  /** Called when the worker closes: prints the used protocols, a table for each operation. */
  close(): void {
    if (this.#uses === undefined) return;
    const uses = [...this.#uses.values()];
    const operations = new Set(uses.map(({ protocol }) => protocol.split('/', 1)[0]!));
    for (const operation of operations) {
      const rows = uses
        .filter(({ protocol }) => protocol.startsWith(`${operation}/`))
        .sort((left, right) => left.bytesMin - right.bytesMin)
        .map(({ protocol, transport, count, bytesMin, bytesMax }): TableRow => {
          return [String(count), sizeRange(bytesMin, bytesMax), describeProtocol(protocol), transport];
        });
      this.#print(protocolTable('ucp_worker', describeOperation(operation), rows));
    }
    this.#uses.clear();
  }

  #print(lines: readonly string[]): void {
    const text = lines.join('\n');
    if (this.#printed.has(text)) return;
    this.#printed.add(text);
    for (const line of lines) this.#log.print(line);
  }
}

/** Descriptions of protocols, in the wording of UCX; keyed by name, or by name without the operation. */
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

/** Descriptions of operations, in the wording of UCX. */
const OPERATIONS: Readonly<Record<string, string>> = {
  put: 'remote memory write by ucp_put*',
  get: 'remote memory read by ucp_get*',
  am: 'active message by ucp_am_send*',
  tag: 'tagged message by ucp_tag_send*',
  stream: 'stream by ucp_stream_send*',
  atomic: 'atomic operation by ucp_atomic_op*',
  rndv: 'rendezvous data fetch',
};

/** The cells of a row; the first cell is right-aligned, like the sizes in tables of UCX. */
export type TableRow = readonly [string, ...string[]];

/** The description of an operation. */
export function describeOperation(operation: string): string {
  return OPERATIONS[operation] ?? operation;
}

/** The description of a protocol such as `put/zcopy`; a name that UCX does not have is returned unchanged. */
export function describeProtocol(protocol: string): string {
  const slash = protocol.indexOf('/');
  return DESCRIPTIONS[protocol] ?? DESCRIPTIONS[protocol.slice(slash + 1)] ?? protocol;
}

/** A range of sizes as UCX writes it: `17298..inf`. */
export function sizeRange(bytesMin: number, bytesMax: number): string {
  return `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`;
}

/**
 * Formats a table.
 * @param heading name of the described object, above the first column
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

/** The title of a choice's table: `tagged message by ucp_tag_send* from host memory`. */
function choiceTitle({ operation, local, remote }: Pick<ExplainedChoice, 'operation' | 'local' | 'remote'>): string {
  return `${describeOperation(operation)} ${memoriesOf(operation, local, remote)}`;
}

/** Formats the table of a choice: ranges of sizes, protocols, lanes. */
export function choiceTable(
  heading: string,
  choice: Pick<ExplainedChoice, 'operation' | 'local' | 'remote' | 'chosen'>,
): string[] {
  const rows = choice.chosen.map(({ bytesMin, bytesMax, protocol, transport, note }): TableRow => {
    const config = note === undefined ? transport : `${transport}, ${note}`;
    return [sizeRange(bytesMin, bytesMax), describeProtocol(protocol), config];
  });
  return protocolTable(
    heading,
    choiceTitle(choice),
    rows.length > 0 ? rows : [['', 'not supported by any transport', '']],
  );
}

function memoriesOf(operation: string, local: string, remote: string): string {
  if (operation === 'get') return `into ${local} memory from ${remote}`;
  return operation === 'put' ? `from ${local} memory to ${remote}` : `from ${local} memory`;
}
