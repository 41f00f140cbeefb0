/** The choices of a seed before a schedule starts: the machines, their transports and the faults of the network. Data only. */

import type { Random } from '../../src/ucs/sys/random.ts';
import type { LaneOptions } from './lane.ts';
import type { NetworkOptions } from './network.ts';

/** All choices. */
export interface Variation {
  readonly hosts: number;
  /** All lanes of a host except the loopback transport of the package. */
  readonly lanes: readonly LaneOptions[];
  /** Whether the loopback transport of the package is used. */
  readonly hasSelf: boolean;
  readonly hasCard: boolean;
  readonly network: NetworkOptions;
  readonly keepaliveNs: number;
  readonly rendezvousThreshold: number | 'auto';
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  /** UCX_UNEXP_MAX_BYTES. */
  readonly unexpectedBytesMax: number;
  /** Workers drive themselves, and sleep; otherwise the schedule calls their progress. */
  readonly isServed: boolean;
  /** Actions before everything is brought to an end. */
  readonly steps: number;
  /** Whether hosts may be killed and separated for good, and be separated for a while. */
  readonly mayLose: boolean;
  readonly mayPause: boolean;
  /** Longest message. */
  readonly bytesMax: number;
  /** Whether there are lists and notifications. */
  readonly hasLists: boolean;
  /** Whether cells are written twice in a row, as a whole and in parts, and more memory is unmapped under puts. */
  readonly isRewritten: boolean;
}

const NONE = { amShortMax: 0, amBcopyMax: 0, rmaShortMax: 0, zcopyMin: 0, zcopyMax: 0, hasGet: false } as const;
const ALL = Number.MAX_SAFE_INTEGER;

/**
 * Makes the choices.
 * @param other separate randomness for choices that were added later
 * @param added decided by the seed alone, so that schedules without it stay as they were
 */
export function chooseVariation(
  random: Random,
  other: Random,
  added: Pick<Variation, 'hasLists' | 'isRewritten'>,
): Variation {
  const pick = <T>(...choices: readonly T[]): T => choices[random.below(choices.length)]!;
  const isOneOf = (count: number): boolean => random.below(count) === 0;
  const hasCard = isOneOf(6);
  const loopback = pick('self', 'self', 'simulated', 'network');
  const reach = loopback === 'network' ? 'everybody' : 'others';
  const main: LaneOptions = { ...networkLane(random), reach, hasAtomics: reach === 'others' && isOneOf(3) };
  const lanes = [main, ...moreLanes(random, main)];
  if (loopback === 'simulated') lanes.push(loopLane(random));
  if (hasCard) lanes.push(cardLane(random));
  const windowBytes = Math.max(loopback === 'self' ? 8192 : 0, main.amBcopyMax);
  return {
    hosts: pick(2, 2, 3, 4),
    lanes,
    hasSelf: loopback === 'self',
    hasCard,
    network: {
      delayNs: pick(1000, 5000, 20_000),
      jitterNs: pick(1, 2000, 50_000),
      detectionNsMax: pick(1000, 100_000, 2_000_000),
    },
    keepaliveNs: pick(500_000, 1_000_000, 3_000_000),
    rendezvousThreshold: pick<number | 'auto'>('auto', 'auto', 16, 200),
    fragmentBytes: pick(512, 1024, 4096),
    fragmentCount: pick(2, 2, 3, 8),
    unexpectedBytesMax: [0, 2048, 2048, 16_384, 256 * 2 ** 20, 256 * 2 ** 20][other.below(6)]!,
    isServed: isOneOf(5),
    steps: 30 + random.below(60),
    mayLose: isOneOf(3),
    mayPause: isOneOf(3),
    bytesMax: isOneOf(4) ? windowBytes * 3 + 100 : windowBytes + 200,
    ...added,
  };
}

function networkLane(random: Random): LaneOptions {
  const pick = <T>(...choices: readonly T[]): T => choices[random.below(choices.length)]!;
  const amBcopyMax = pick(512, 1024, 4096);
  const rma = pick('none', 'short', 'zcopy', 'both', 'both', 'both');
  return {
    md: 'wire',
    transport: 'wire',
    device: 'net0',
    kind: 'network',
    reach: 'others',
    amShortMax: pick(64, 128, amBcopyMax),
    amBcopyMax,
    rmaShortMax: rma === 'short' || rma === 'both' ? pick(16, 256) : 0,
    zcopyMin: pick(0, 0, 100),
    zcopyMax: rma === 'zcopy' || rma === 'both' ? pick(1000, ALL, ALL) : 0,
    hasGet: pick(true, true, false),
    hasAtomics: false,
    isOrdered: pick(true, false),
    isOffloaded: pick(true, false),
    flushesMessages: pick(true, false),
    window: pick(1, 2, 4, 64),
    refusals: pick(0, 0, 16, 100),
    latencyNs: 1000,
  };
}

/** A second lane: another device of the same transport, or one without messages. */
function moreLanes(random: Random, main: LaneOptions): LaneOptions[] {
  const choice = random.below(4);
  if (choice === 0) {
    return [{ ...networkLane(random), device: 'net1', reach: main.reach, latencyNs: 900 + random.below(300) }];
  }
  if (choice > 1) return [];
  const lane = networkLane(random);
  const isUseless = lane.rmaShortMax + lane.zcopyMax === 0;
  return [
    {
      ...lane,
      md: 'bare',
      transport: 'bare',
      device: 'net2',
      amShortMax: 0,
      amBcopyMax: 0,
      zcopyMax: isUseless ? ALL : lane.zcopyMax,
      // Arrivals on a lane without messages are not polled.
      isOffloaded: true,
      latencyNs: 500 + random.below(1000),
    },
  ];
}

function loopLane(random: Random): LaneOptions {
  const lane = networkLane(random);
  return {
    ...lane,
    md: 'loop',
    transport: 'loop',
    device: 'loop',
    kind: 'loopback',
    reach: 'itself',
    isOffloaded: true,
  };
}

function cardLane(random: Random): LaneOptions {
  const lane = networkLane(random);
  return {
    ...lane,
    ...NONE,
    md: 'card',
    transport: 'card',
    device: 'card0',
    kind: 'card',
    reach: 'itself',
    rmaShortMax: 64,
    zcopyMax: ALL,
    hasGet: true,
    isOffloaded: true,
  };
}
