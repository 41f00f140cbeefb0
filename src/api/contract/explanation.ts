/**
 * The result of explain(), for every engine: the protocol for each size, the other candidates and why they were rejected, and its text. Also the description
 * of the engine that runs the operations of a context.
 */

/** A rejected transport or protocol. */
export interface RejectedProtocol {
  /** Transport and device, such as `posix/memory`. */
  readonly transport: string;
  /** Undefined if the transport as a whole is rejected. */
  readonly protocol: string | undefined;
  /** Reason of the rejection. */
  readonly reason: string;
}

/** The chosen protocol. */
export interface SizeWinner {
  /** Transport and device, such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Protocol, such as `put/zcopy`. */
  readonly protocol: string;
  /** From the cost model, not measured; undefined if the engine has no model. */
  readonly estimatedNs: number | undefined;
  /** Bytes per second, by the same model. */
  readonly bandwidth: number | undefined;
  /** A factor of the estimate in addition to the attributes of the transport. */
  readonly note?: string | undefined;
}

/** A candidate that was not chosen. */
export interface SizeLoser extends RejectedProtocol {
  /** Estimated time; undefined if it does not support the size. */
  readonly estimatedNs?: number | undefined;
}

/** The explanation for one size. */
export interface SizeExplanation {
  /** Size of the operation in bytes. */
  readonly bytes: number;
  /** Undefined if no candidate supports the size. */
  readonly winner: SizeWinner | undefined;
  /** Candidates that were not chosen, with the reason. */
  readonly losers: readonly SizeLoser[];
}

/** A range of sizes and its protocol. */
export interface ChosenProtocol {
  /** First size of the range in bytes, inclusive. */
  readonly bytesMin: number;
  /** Last size of the range in bytes, inclusive; Infinity for no limit. */
  readonly bytesMax: number;
  /** Such as `put/short`. */
  readonly protocol: string;
  /** Such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Estimated time at the smallest size of the range, in nanoseconds: from the cost model, not measured; undefined if the engine has no model. */
  readonly estimatedNs: number | undefined;
  /** A factor of the estimate in addition to the attributes of the transport, such as `2 of 3 links up`. */
  readonly note?: string | undefined;
}

/** The explanation of one operation between two kinds of memory. */
export interface Explanation extends ExplainedChoice {
  /** The engine that runs the operation, and why it was selected. */
  readonly engine: Engine;
}

/** An explanation without the engine. */
export interface ExplainedChoice {
  readonly operation: string;
  readonly local: string;
  readonly remote: string;
  readonly chosen: readonly ChosenProtocol[];
  readonly rejected: readonly RejectedProtocol[];
  /** The choice for a number of bytes, 1 or more, with an estimate or a reason for every candidate. @throws UcxError ERR_INVALID_PARAM */
  at(bytes: number): SizeExplanation;
  /** The table as UCX prints it with UCX_PROTO_INFO=y, the rejections below it, and the engine. */
  toString(): string;
}

/** Adds the engine to an explanation. */
export function explainedBy(engine: Engine, choice: ExplainedChoice): Explanation {
  const line = `engine: ${engine.name} ${engine.version} (${engine.reason})`;
  return { ...choice, engine, toString: () => `${choice.toString()}\n${line}` };
}

/** The table and the rejections. */
export function explanationText(
  explanation: Pick<ExplainedChoice, 'operation' | 'local' | 'remote' | 'chosen' | 'rejected'>,
): string {
  const title = `${explanation.operation}: local ${explanation.local} memory, remote ${explanation.remote} memory`;
  const rows = explanation.chosen.map(({ bytesMin, bytesMax, protocol, transport, estimatedNs, note }) => [
    `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`,
    protocol,
    transport,
    [estimatedNs === undefined ? '' : `about ${estimatedNs} ns (estimate)`, note ?? '']
      .filter((part) => part !== '')
      .join(', '),
  ]);
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]!.length), 8));
  const width = Math.max(
    title.length,
    widths.reduce((sum, part) => sum + part + 3, -3),
  );
  const line = `+-${'-'.repeat(width)}-+`;
  const lines = [line, `| ${title.padEnd(width)} |`, line];
  for (const row of rows) {
    const text = row.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ');
    lines.push(`| ${text.padEnd(width)} |`);
  }
  if (rows.length === 0) lines.push(`| ${'no transport supports it'.padEnd(width)} |`);
  lines.push(line);
  for (const { transport, protocol, reason } of explanation.rejected) {
    lines.push(`not used: ${transport}${protocol === undefined ? '' : ` ${protocol}`}: ${reason}`);
  }
  return lines.join('\n');
}

/** Names of the engines. */
export type EngineName = 'native' | 'libucx';

/** An engine of a context. */
export interface Engine {
  /** Name of the engine. */
  readonly name: EngineName;
  /** Version of the engine, such as `1.13.1` for libucp. */
  readonly version: string;
  /** Why this engine was selected. */
  readonly reason: string;
}
