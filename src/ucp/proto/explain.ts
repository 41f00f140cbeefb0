/**
 * Explains a plan: every candidate, the range of sizes it was chosen for, and why the others were not. Text and data, no decisions.
 */

import { memoryTypeName } from '../../ucs/memory-type.ts';
import type { IfaceResource } from '../../uct/api/iface.ts';
import { type Candidate, costNs, OPERATION_NAMES, type Operation, type Plan, PROTOCOL_NAMES } from './selection.ts';

/** A range of sizes and what moves them. */
export interface ChosenProtocol {
  readonly bytesMin: number;
  /** Inclusive; Infinity for no end. */
  readonly bytesMax: number;
  /** Such as `put/short`. */
  readonly protocol: string;
  /** Such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Estimated time at the smallest size of the range, in nanoseconds: by the cost model, not measured. */
  readonly estimatedNs: number;
}

/** A transport or protocol that is not used. */
export interface RejectedProtocol {
  readonly transport: string;
  /** Undefined when the transport as a whole is out. */
  readonly protocol: string | undefined;
  readonly reason: string;
}

/** The explanation of one operation between two kinds of memory. */
export interface Explanation {
  readonly operation: string;
  readonly local: string;
  readonly remote: string;
  readonly chosen: readonly ChosenProtocol[];
  readonly rejected: readonly RejectedProtocol[];
  /** The table as UCX prints it with UCX_PROTO_INFO=y, and the rejections below it. */
  toString(): string;
}

/** What there is to explain. */
export interface ExplainInput {
  readonly operation: Operation;
  readonly localType: number;
  readonly remoteType: number;
  readonly plan: Plan;
  /** The resource of each lane. */
  readonly resources: readonly IfaceResource[];
  /** What the context has not opened. */
  readonly unavailable: readonly { readonly name: string; readonly reason: string }[];
}

/** Explains a plan. */
export function explainPlan(input: ExplainInput): Explanation {
  const { operation, plan, resources } = input;
  const operationName = OPERATION_NAMES[operation];
  const laneName = (lane: number): string => `${resources[lane]!.transport}/${resources[lane]!.device}`;
  const chosen = chosenOf(plan, operationName, laneName);
  const used = new Set(plan.steps.map(({ candidate }) => candidate));
  const outbid = plan.candidates.filter((candidate) => !used.has(candidate));
  const rejected: RejectedProtocol[] = [
    ...outbid.map((candidate) => ({
      transport: laneName(candidate.lane),
      protocol: `${operationName}/${PROTOCOL_NAMES[candidate.protocol]}`,
      reason: 'costs more at every size',
    })),
    ...plan.rejected.map(({ lane, protocol, reason }) => ({
      transport: laneName(lane),
      protocol: protocol === undefined ? undefined : `${operationName}/${PROTOCOL_NAMES[protocol]}`,
      reason,
    })),
    ...input.unavailable.map(({ name, reason }) => ({ transport: name, protocol: undefined, reason })),
  ];
  const local = memoryTypeName(input.localType);
  const remote = memoryTypeName(input.remoteType);
  const explanation = { operation: operationName, local, remote, chosen, rejected };
  return { ...explanation, toString: () => tableOf(explanation) };
}

function chosenOf(plan: Plan, operation: string, laneName: (lane: number) => string): ChosenProtocol[] {
  let bytesMin = 1;
  return plan.steps.map(({ candidate, bytesMax }) => {
    const row = rowOf(candidate, Math.max(bytesMin, candidate.bytesMin), bytesMax, operation, laneName);
    bytesMin = bytesMax + 1;
    return row;
  });
}

function rowOf(
  candidate: Candidate,
  bytesMin: number,
  bytesMax: number,
  operation: string,
  laneName: (lane: number) => string,
): ChosenProtocol {
  return {
    bytesMin,
    bytesMax: bytesMax === Number.MAX_SAFE_INTEGER ? Number.POSITIVE_INFINITY : bytesMax,
    protocol: `${operation}/${PROTOCOL_NAMES[candidate.protocol]}`,
    transport: laneName(candidate.lane),
    estimatedNs: Math.round(costNs(candidate, bytesMin)),
  };
}

function tableOf(explanation: Omit<Explanation, 'toString'>): string {
  const title = `${explanation.operation}: local ${explanation.local} memory, remote ${explanation.remote} memory`;
  const rows = explanation.chosen.map(({ bytesMin, bytesMax, protocol, transport, estimatedNs }) => [
    `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`,
    protocol,
    transport,
    `(?) ${estimatedNs} ns`,
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
  if (rows.length === 0) lines.push(`| ${'no transport can do it'.padEnd(width)} |`);
  lines.push(line);
  for (const { transport, protocol, reason } of explanation.rejected) {
    lines.push(`not used: ${transport}${protocol === undefined ? '' : ` ${protocol}`}: ${reason}`);
  }
  return lines.join('\n');
}
