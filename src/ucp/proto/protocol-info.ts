/**
 * UCX_PROTO_INFO: prints which protocols a worker chooses, or which it has used. It chooses nothing; the tables are laid out in
 * proto/protocol-table.ts.
 */

import type { ExplainedChoice } from '../../api/contract/explanation.ts';
import { matchesItem } from '../../ucs/config/list.ts';
import type { ConfigType } from '../../ucs/config/value.ts';
import { boolType } from '../../ucs/config/value.ts';
import type { OperationEnd } from '../../ucs/debug/diagnostics.ts';
import { type Log, LogLevel } from '../../ucs/debug/log.ts';
import {
  choiceTable,
  choiceTitle,
  describeOperation,
  describeProtocol,
  protocolTable,
  sizeRange,
  type TableRow,
} from './protocol-table.ts';

/** The printed tables: none, all, those of used protocols, those whose title matches, or all if debug messages are logged. */
export type ProtocolInfoMode = 'no' | 'yes' | 'used' | 'auto' | { readonly glob: string };

/** The values of UCX_PROTO_INFO. */
export const protocolInfoType: ConfigType<ProtocolInfoMode> = {
  syntax: 'y, n, auto, used, or a glob for the titles of tables',
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

/** Prints for one worker. */
export class ProtocolInfo {
  readonly #log: Log;
  readonly #glob: string | undefined;
  /** Undefined if tables are printed as they are made. */
  readonly #uses: Map<string, Use> | undefined;
  /** Sets of lanes seen so far, by their names: as in UCX, tables name the number of the endpoint configuration. */
  readonly #configs: string[] = [];
  readonly #printed: Set<string> = new Set();

  private constructor(log: Log, glob: string | undefined, countsUses: boolean) {
    this.#log = log;
    this.#glob = glob;
    this.#uses = countsUses ? new Map() : undefined;
  }

  /** The printer for a mode; undefined if it prints nothing. */
  static create(mode: ProtocolInfoMode, log: Log): ProtocolInfo | undefined {
    if (mode === 'no' || (mode === 'auto' && log.level < LogLevel.DEBUG)) return undefined;
    return new ProtocolInfo(log, typeof mode === 'object' ? mode.glob : undefined, mode === 'used');
  }

  /** Whether ended operations have to be reported to {@link used}. */
  get countsUses(): boolean {
    return this.#uses !== undefined;
  }

  /** Prints a choice for a connection with these lanes, unless it was printed for the same lanes before. */
  chosen(lanes: readonly string[], makeExplanation: () => ExplainedChoice): void {
    if (this.#uses !== undefined) return;
    const key = lanes.join(',');
    if (!this.#configs.includes(key)) this.#configs.push(key);
    const choice = makeExplanation();
    const title = choiceTitle(choice);
    if (this.#glob !== undefined && !matchesItem(this.#glob, title)) return;
    this.#print(choiceTable(`ucp_worker ep_cfg[${this.#configs.indexOf(key)}]`, choice));
  }

  /** Counts an operation that has ended. */
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
