/**
 * Explains a plan: every candidate, the range of sizes it was chosen for, and why the others were not. Text and data, no decisions.
 */

import { memoryTypeName } from '../../ucs/memory-type.ts';
import type { IfaceResource } from '../../uct/api/iface.ts';
import type { ChosenProtocol, Explanation, RejectedProtocol } from '../api/explanation.ts';
import { type Choice, type ExplainedCandidate, type ExplainedStep, estimateNs, explainSize } from './explain-size.ts';
import { type Candidate, OPERATION_NAMES, type Operation, type Plan, PROTOCOL_NAMES } from './selection.ts';

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

/** The names of an explanation. */
export interface ExplanationTitle {
  readonly operation: string;
  readonly local: string;
  readonly remote: string;
}

/** Explains a plan. */
export function explainPlan(input: ExplainInput): Explanation {
  const { plan, resources } = input;
  const operation = OPERATION_NAMES[input.operation];
  const laneName = (lane: number): string => `${resources[lane]!.transport}/${resources[lane]!.device}`;
  const explained = new Map<Candidate, ExplainedCandidate>();
  for (const candidate of plan.candidates) {
    const { protocol, lane, bytesMax, ...rest } = candidate;
    explained.set(candidate, {
      ...rest,
      bytesMax: endOf(bytesMax),
      transport: laneName(lane),
      protocol: `${operation}/${PROTOCOL_NAMES[protocol]}`,
    });
  }
  const choice: Choice = {
    candidates: [...explained.values()],
    steps: plan.steps.map(({ bytesMax, candidate }) => {
      return { bytesMax: endOf(bytesMax), candidate: explained.get(candidate)! };
    }),
    rejected: [
      ...plan.rejected.map(({ lane, protocol, reason }) => ({
        transport: laneName(lane),
        protocol: protocol === undefined ? undefined : `${operation}/${PROTOCOL_NAMES[protocol]}`,
        reason,
      })),
      ...input.unavailable.map(({ name, reason }) => ({ transport: name, protocol: undefined, reason })),
    ],
  };
  const [local, remote] = [memoryTypeName(input.localType), memoryTypeName(input.remoteType)];
  return explanationOf({ operation, local, remote }, choice);
}

/** The explanation of a choice that is made. */
export function explanationOf(title: ExplanationTitle, choice: Choice): Explanation {
  const used = new Set(choice.steps.map(({ candidate }) => candidate));
  const outbid = choice.candidates.filter((candidate) => !used.has(candidate));
  const rejected: RejectedProtocol[] = [
    ...outbid.map(({ transport, protocol }) => ({ transport, protocol, reason: 'costs more at every size' })),
    ...choice.rejected,
  ];
  const { operation, local, remote } = title;
  const told = { operation, local, remote, chosen: chosenOf(choice.steps), rejected };
  return { ...told, at: (bytes) => explainSize(choice, bytes), toString: () => tableOf(told) };
}

function endOf(bytes: number): number {
  return bytes === Number.MAX_SAFE_INTEGER ? Number.POSITIVE_INFINITY : bytes;
}

function chosenOf(steps: readonly ExplainedStep[]): ChosenProtocol[] {
  let next = 1;
  return steps.map(({ candidate, bytesMax }) => {
    const { protocol, transport, note } = candidate;
    const bytesMin = Math.max(next, candidate.bytesMin);
    next = bytesMax + 1;
    const estimatedNs = estimateNs(candidate, bytesMin);
    return { bytesMin, bytesMax, protocol, transport, estimatedNs, ...(note === undefined ? {} : { note }) };
  });
}

function tableOf(explanation: Omit<Explanation, 'toString' | 'at'>): string {
  const title = `${explanation.operation}: local ${explanation.local} memory, remote ${explanation.remote} memory`;
  const rows = explanation.chosen.map(({ bytesMin, bytesMax, protocol, transport, estimatedNs, note }) => [
    `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`,
    protocol,
    transport,
    `(?) ${estimatedNs} ns${note === undefined ? '' : `, ${note}`}`,
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
