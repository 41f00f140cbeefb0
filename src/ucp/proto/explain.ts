/**
 * Explains choices, as data: all candidates of a plan, the range of sizes for which each was chosen, and why the others were not; for one size the costs
 * of all candidates; for messages and atomic operations their lane and protocol, which follow the rules of am/, tag/, stream/ and amo/ instead of a plan.
 */

import {
  type ChosenProtocol,
  type ExplainedChoice,
  explanationText,
  type RejectedProtocol,
  type SizeExplanation,
  type SizeLoser,
  type SizeWinner,
} from '../../api/contract/explanation.ts';
import { AM_BYTES } from '../../api/layout/am.ts';
import { STREAM_BYTES } from '../../api/layout/stream.ts';
import { TAG_BYTES } from '../../api/layout/tag.ts';
import type { Operation } from '../../api/operation/call.ts';
import { memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { checkPositive } from '../../ucs/type/check-options.ts';
import { type IfaceAttributes, IfaceFlag, type IfaceResource } from '../../uct/api/iface.ts';
import { type Candidate, MESSAGE_OVERHEAD_NS, OPERATION_NAMES, type Plan, PROTOCOL_NAMES } from './selection.ts';

/** The plan to explain, and its inputs. */
export interface ExplainInput {
  readonly operation: Operation;
  readonly localType: number;
  readonly remoteType: number;
  readonly plan: Plan;
  /** The resource of each lane. */
  readonly resources: readonly IfaceResource[];
  /** Resources that the context did not open, with the reasons. */
  readonly unavailable: readonly { readonly name: string; readonly reason: string }[];
}

/** The names of an explanation. */
interface ExplanationTitle {
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

/** The explanation of a choice. */
export function explanationOf(title: ExplanationTitle, choice: Choice): ExplainedChoice {
  const used = new Set(choice.steps.map(({ candidate }) => candidate));
  const outbid = choice.candidates.filter((candidate) => !used.has(candidate));
  const rejected: RejectedProtocol[] = [
    ...outbid.map(({ transport, protocol }) => ({ transport, protocol, reason: 'costs more at every size' })),
    ...choice.rejected,
  ];
  const { operation, local, remote } = title;
  const fields = { operation, local, remote, chosen: chosenOf(choice.steps), rejected };
  return { ...fields, at: (bytes) => explainSize(choice, bytes), toString: () => explanationText(fields) };
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

/** A protocol on a transport for a range of sizes, with the names shown to users. */
export interface ExplainedCandidate {
  /** Such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Such as `put/short`. */
  readonly protocol: string;
  readonly bytesMin: number;
  /** Inclusive; Infinity for no end. */
  readonly bytesMax: number;
  /** Cost in nanoseconds: `fixedNs + bytes * perByteNs`. */
  readonly fixedNs: number;
  readonly perByteNs: number;
  /** A factor of the estimate besides the attributes of the transport. */
  readonly note?: string | undefined;
}

/** The chosen candidate for sizes up to a maximum. */
interface ExplainedStep {
  /** Inclusive. */
  readonly bytesMax: number;
  readonly candidate: ExplainedCandidate;
}

/** The candidates, the chosen steps, and the rejected candidates. */
export interface Choice {
  readonly candidates: readonly ExplainedCandidate[];
  /** By increasing size. */
  readonly steps: readonly ExplainedStep[];
  readonly rejected: readonly RejectedProtocol[];
}

const NS_PER_S = 1e9;

/** Explains the choice for `bytes`. @throws UcxError ERR_INVALID_PARAM unless it is a positive integer */
export function explainSize({ candidates, steps, rejected }: Choice, bytes: number): SizeExplanation {
  checkPositive('bytes', bytes);
  const step = steps.find(({ bytesMax }) => bytes <= bytesMax);
  const best = step !== undefined && bytes >= step.candidate.bytesMin ? step.candidate : undefined;
  const losers: SizeLoser[] = candidates
    .filter((candidate) => candidate !== best)
    .map((candidate) => loserOf(candidate, best, bytes))
    .sort((left, right) => (left.estimatedNs ?? Infinity) - (right.estimatedNs ?? Infinity));
  return { bytes, winner: best === undefined ? undefined : winnerOf(best, bytes), losers: [...losers, ...rejected] };
}

/** Estimated time in nanoseconds. */
function estimateNs({ fixedNs, perByteNs }: ExplainedCandidate, bytes: number): number {
  return Math.round(fixedNs + bytes * perByteNs);
}

function winnerOf(candidate: ExplainedCandidate, bytes: number): SizeWinner {
  const { transport, protocol, note } = candidate;
  const estimatedNs = estimateNs(candidate, bytes);
  const bandwidth = (bytes * NS_PER_S) / Math.max(1, estimatedNs);
  return { transport, protocol, estimatedNs, bandwidth, ...(note === undefined ? {} : { note }) };
}

function loserOf(candidate: ExplainedCandidate, best: ExplainedCandidate | undefined, bytes: number): SizeLoser {
  const { transport, protocol, bytesMin, bytesMax, note } = candidate;
  if (bytes < bytesMin) return { transport, protocol, reason: `supports at least ${bytesMin} bytes` };
  if (bytes > bytesMax) return { transport, protocol, reason: `supports at most ${bytesMax} bytes` };
  const estimatedNs = estimateNs(candidate, bytes);
  const bestNs = best === undefined ? estimatedNs : estimateNs(best, bytes);
  const ratio = estimatedNs / Math.max(1, bestNs);
  const more = ratio >= 1.05 ? `${ratio.toFixed(1)} times` : `${Math.max(0, estimatedNs - bestNs)} ns more`;
  const reason = estimatedNs <= bestNs ? 'costs the same as an earlier candidate' : `costs ${more}`;
  const hint = note === undefined ? '' : ` (${note})`;
  return { transport, protocol, reason: reason + hint, estimatedNs };
}

/** Operations that send messages. */
export type MessageOperation = 'am' | 'tag' | 'stream';
const HEADER_BYTES: Record<MessageOperation, number> = { am: AM_BYTES, tag: TAG_BYTES, stream: STREAM_BYTES };

/** Messages of a rendezvous besides the data: the offer and the acknowledgement. */
const RENDEZVOUS_MESSAGES = 2;
const WORDS = [4, 8] as const;

/** A lane of a connection. */
export interface ExplainedLane {
  readonly attributes: IfaceAttributes;
  /** True if the remote key has a part for the memory domain of this lane. */
  readonly hasRemoteKey: boolean;
}

/** The inputs of the choice for messages. */
export interface MessageChoice {
  readonly title: ExplanationTitle;
  readonly lanes: readonly ExplainedLane[];
  /** Index of the message lane; undefined for none. */
  readonly messageLane: number | undefined;
  /** UCX_RNDV_THRESH; Infinity for auto. */
  readonly rendezvousThreshold: number;
  /** UCX_BCOPY_THRESH; Infinity for auto. */
  readonly bcopyThreshold: number;
  /** True for host memory: other memory goes by rendezvous. */
  readonly isHost: boolean;
  /** The candidate that moves the data of a rendezvous, with its cost and the last part of its name (`get`, `put`); undefined if messages move it. */
  readonly data: ExplainedCandidate | undefined;
  readonly unavailable: readonly RejectedProtocol[];
}

/** Explains how messages are sent. */
export function explainMessages(operation: MessageOperation, choice: MessageChoice): ExplainedChoice {
  const { lanes, messageLane, title, unavailable } = choice;
  const lane = messageLane === undefined ? undefined : lanes[messageLane];
  const rejected = [
    ...lanes
      .filter((other) => other !== lane && nameOf(other) !== choice.data?.transport)
      .map((other) => outOfMessages(other, lane)),
    ...unavailable,
  ];
  if (lane === undefined) return explanationOf(title, { candidates: [], steps: [], rejected });
  const candidates = operation === 'stream' ? streamed(lane, choice) : eagerAndRendezvous(operation, lane, choice);
  const steps = candidates.map((candidate) => ({ bytesMax: candidate.bytesMax, candidate }));
  return explanationOf(title, { candidates, steps, rejected });
}

/** Explains how atomic operations on words of 4 and 8 bytes are executed. */
export function explainAtomics(
  choice: Omit<MessageChoice, 'rendezvousThreshold' | 'bcopyThreshold' | 'isHost' | 'data'>,
): ExplainedChoice {
  const { lanes, messageLane, title, unavailable } = choice;
  const able = (word: number): ExplainedLane | undefined => {
    const flag = word === 4 ? IfaceFlag.ATOMIC32 : IfaceFlag.ATOMIC64;
    const found = lanes.filter(({ attributes, hasRemoteKey }) => (attributes.flags & flag) !== 0 && hasRemoteKey);
    return found.sort((left, right) => latencyOf(left) - latencyOf(right))[0];
  };
  const rejected: RejectedProtocol[] = [];
  const used = WORDS.map(able);
  for (const lane of lanes) {
    if (used.includes(lane)) continue;
    const { flags } = lane.attributes;
    const reason =
      (flags & (IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64)) === 0 ? 'does not support atomic operations' : undefined;
    const other = lane.hasRemoteKey ? 'has a higher latency' : 'the remote key has no part for its memory domain';
    rejected.push({ transport: nameOf(lane), protocol: undefined, reason: reason ?? other });
  }
  const messages = messageLane === undefined ? undefined : lanes[messageLane];
  const candidates = WORDS.flatMap((word, index) => {
    const bounds = { bytesMin: word, bytesMax: word };
    const direct = used[index];
    if (direct !== undefined)
      return [{ ...costOf(direct, 1), ...bounds, transport: nameOf(direct), protocol: 'amo/offload' }];
    if (messages === undefined) return [];
    const fixedNs = 2 * latencyOf(messages) + MESSAGE_OVERHEAD_NS;
    return [{ ...bounds, fixedNs, perByteNs: 0, transport: nameOf(messages), protocol: 'amo/am' }];
  });
  const steps = candidates.map((candidate) => ({ bytesMax: candidate.bytesMax, candidate }));
  return explanationOf(title, { candidates, steps, rejected: [...rejected, ...unavailable] });
}

function eagerAndRendezvous(operation: 'am' | 'tag', lane: ExplainedLane, choice: MessageChoice): ExplainedCandidate[] {
  const { rendezvousThreshold, isHost, data } = choice;
  const { am } = lane.attributes;
  const fits = Math.max(0, Math.min(am.bcopyBytesMax - HEADER_BYTES[operation], rendezvousThreshold - 1));
  const candidates = eager(operation, lane, choice, isHost ? fits : 0);
  const bytesMin = (candidates.at(-1)?.bytesMax ?? 0) + 1;
  const messagesNs = RENDEZVOUS_MESSAGES * (latencyOf(lane) + MESSAGE_OVERHEAD_NS);
  const path = data === undefined ? 'data in messages' : `offer over ${nameOf(lane)}`;
  const hint = data?.note === undefined ? '' : `, ${data.note}`;
  candidates.push({
    transport: data?.transport ?? nameOf(lane),
    protocol: `${operation}/rndv/${data?.protocol ?? 'am'}`,
    bytesMin,
    bytesMax: Number.POSITIVE_INFINITY,
    fixedNs: messagesNs + (data?.fixedNs ?? 0),
    perByteNs: data?.perByteNs ?? costOf(lane, 2).perByteNs,
    note: `${path}${hint}`,
  });
  return candidates;
}

/** The candidates of a stream, which has no rendezvous: long sends are split into messages. */
function streamed(lane: ExplainedLane, choice: MessageChoice): ExplainedCandidate[] {
  const bytesMax = Math.max(0, lane.attributes.am.bcopyBytesMax - HEADER_BYTES.stream);
  const note = `in messages of ${bytesMax} bytes`;
  return eager('stream', lane, choice, Number.POSITIVE_INFINITY).map((candidate) =>
    candidate.bytesMax > bytesMax ? { ...candidate, note } : candidate,
  );
}

/** The candidates of messages of at most `bytesMax` bytes that are sent eagerly. Only host memory is sent by short. */
function eager(
  operation: MessageOperation,
  lane: ExplainedLane,
  { bcopyThreshold, isHost }: MessageChoice,
  bytesMax: number,
): ExplainedCandidate[] {
  const header = HEADER_BYTES[operation];
  // UCX_BCOPY_THRESH counts the payload of a tagged or active message, without the header.
  const shortFrame = Math.min(lane.attributes.am.shortBytesMax, bcopyThreshold + TAG_BYTES - 1);
  const short = isHost ? Math.min(bytesMax, Math.max(0, shortFrame - header)) : 0;
  const transport = nameOf(lane);
  return [
    { ...costOf(lane, 1), transport, protocol: `${operation}/eager/short`, bytesMin: 1, bytesMax: short },
    { ...costOf(lane, 2), transport, protocol: `${operation}/eager/bcopy`, bytesMin: short + 1, bytesMax },
  ].filter((candidate) => candidate.bytesMin <= candidate.bytesMax);
}

function outOfMessages(lane: ExplainedLane, chosen: ExplainedLane | undefined): RejectedProtocol {
  const flags = IfaceFlag.AM_SHORT | IfaceFlag.AM_BCOPY;
  const able = (lane.attributes.flags & flags) === flags;
  const slower = `latency ${latencyOf(lane)} ns, compared to ${chosen === undefined ? 0 : latencyOf(chosen)} ns of the chosen lane`;
  return { transport: nameOf(lane), protocol: undefined, reason: able ? slower : 'does not support messages' };
}

function costOf(lane: ExplainedLane, copies: number): { readonly fixedNs: number; readonly perByteNs: number } {
  const { overheadNs, hostToHost } = lane.attributes.performance;
  const perByteNs = hostToHost === 0 ? 0 : (copies * NS_PER_S) / hostToHost;
  return { fixedNs: latencyOf(lane) + overheadNs, perByteNs };
}

function latencyOf({ attributes }: ExplainedLane): number {
  return attributes.performance.latencyNs;
}

function nameOf({ attributes: { resource } }: ExplainedLane): string {
  return `${resource.transport}/${resource.device}`;
}
