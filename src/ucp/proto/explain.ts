/**
 * Explains a plan: every candidate, the range of sizes it was chosen for, and why the others were not. Text and data, no decisions.
 */

import type { ChosenProtocol, ExplainedChoice, RejectedProtocol } from '../../api/contract/explanation.ts';
import { explanationText } from '../../api/contract/explanation.ts';
import { memoryTypeName } from '../../ucs/memory/memory-type.ts';
import type { IfaceResource } from '../../uct/api/iface.ts';
import { type Choice, type ExplainedCandidate, type ExplainedStep, estimateNs, explainSize } from './explain-size.ts';
import { type Candidate, OPERATION_NAMES, type Operation, type Plan, PROTOCOL_NAMES } from './selection.ts';

/** The plan to explain, and its inputs. */
export interface ExplainInput {
  readonly operation: Operation;
  readonly localType: number;
  readonly remoteType: number;
  readonly plan: Plan;
  /** The resource of each lane. */
  readonly resources: readonly IfaceResource[];
  /** Resources that the context has not opened, and why. */
  readonly unavailable: readonly { readonly name: string; readonly reason: string }[];
}

/** The names of an explanation. */
export interface ExplanationTitle {
  readonly operation: string;
  readonly local: string;
  readonly remote: string;
}

/** Explains a plan. */
export function explainPlan(input: ExplainInput): ExplainedChoice {
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
export function explanationOf(title: ExplanationTitle, choice: Choice): ExplainedChoice {
  const used = new Set(choice.steps.map(({ candidate }) => candidate));
  const outbid = choice.candidates.filter((candidate) => !used.has(candidate));
  const rejected: RejectedProtocol[] = [
    ...outbid.map(({ transport, protocol }) => ({ transport, protocol, reason: 'costs more at every size' })),
    ...choice.rejected,
  ];
  const { operation, local, remote } = title;
  const told = { operation, local, remote, chosen: chosenOf(choice.steps), rejected };
  return { ...told, at: (bytes) => explainSize(choice, bytes), toString: () => explanationText(told) };
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
