/**
 * Explains operations other than put and get: active messages, tagged messages, streams, atomic operations. Their lane and protocol follow rules,
 * not a plan; the rules are those of am/, tag/, stream/ and amo/. Pure: data in, data out.
 */

import type { ExplainedChoice, RejectedProtocol } from '../../api/contract/explanation.ts';
import { AM_BYTES } from '../../api/layout/am.ts';
import { STREAM_BYTES } from '../../api/layout/stream.ts';
import { TAG_BYTES } from '../../api/layout/tag.ts';
import { type IfaceAttributes, IfaceFlag } from '../../uct/api/iface.ts';
import { type ExplanationTitle, explanationOf } from './explain.ts';
import type { ExplainedCandidate } from './explain-size.ts';
import { MESSAGE_OVERHEAD_NS } from './selection.ts';

/** Operations that send messages, and the header bytes of each message. */
export type MessageOperation = 'am' | 'tag' | 'stream';
const HEADER_BYTES: Record<MessageOperation, number> = { am: AM_BYTES, tag: TAG_BYTES, stream: STREAM_BYTES };

/** Messages of a rendezvous: the offer and the acknowledgement. */
const RENDEZVOUS_MESSAGES = 2;
const NS_PER_S = 1e9;
const WORDS = [4, 8] as const;

/** A lane of a connection. */
export interface ExplainedLane {
  readonly attributes: IfaceAttributes;
  /** The remote key has a part for the memory domain of this lane. */
  readonly hasRemoteKey: boolean;
}

/** The inputs of the choice for messages. */
export interface MessageChoice {
  readonly title: ExplanationTitle;
  readonly lanes: readonly ExplainedLane[];
  /** Index of the lane that carries messages; undefined when none does. */
  readonly messageLane: number | undefined;
  /** UCX_RNDV_THRESH; Infinity for auto. */
  readonly rendezvousThreshold: number;
  /** UCX_BCOPY_THRESH; Infinity for auto. */
  readonly bcopyThreshold: number;
  /** Whether the local memory is host memory: other memory goes by rendezvous. */
  readonly isHost: boolean;
  /** The candidate that moves the bytes of a rendezvous: its own cost, and the last part of its name (`get`, `put`); undefined for messages. */
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
    const reason = (flags & (IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64)) === 0 ? 'has no atomic operations' : undefined;
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
  const path = data === undefined ? 'bytes by messages' : `offer over ${nameOf(lane)}`;
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

/** Streams have no rendezvous: long ones are cut into messages. */
function streamed(lane: ExplainedLane, choice: MessageChoice): ExplainedCandidate[] {
  const bytesMax = Math.max(0, lane.attributes.am.bcopyBytesMax - HEADER_BYTES.stream);
  const note = `in messages of ${bytesMax} bytes`;
  return eager('stream', lane, choice, Number.POSITIVE_INFINITY).map((candidate) =>
    candidate.bytesMax > bytesMax ? { ...candidate, note } : candidate,
  );
}

/** Messages of at most `bytesMax` bytes that are sent at once. Only host memory goes by short. */
function eager(
  operation: MessageOperation,
  lane: ExplainedLane,
  { bcopyThreshold, isHost }: MessageChoice,
  bytesMax: number,
): ExplainedCandidate[] {
  const header = HEADER_BYTES[operation];
  // UCX_BCOPY_THRESH counts the bytes of a tagged or active message.
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
  const slower = `latency ${latencyOf(lane)} ns, that of the chosen one ${chosen === undefined ? 0 : latencyOf(chosen)} ns`;
  return { transport: nameOf(lane), protocol: undefined, reason: able ? slower : 'carries no messages' };
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
