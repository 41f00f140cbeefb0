/** The cost model of algorithms: time by latency, bandwidth and reduction, from the attributes of the connections. It measures nothing. */

import type { Shape } from './problem.ts';

/** Estimated cost of a message. */
export interface LinkCost {
  readonly latencyNs: number;
  readonly nsPerByte: number;
}

/** Costs that all ranks of a team agree on: the worst that any of them estimates. */
export interface CostModel {
  /** Between ranks of one node. */
  readonly within: LinkCost;
  /** Between nodes. */
  readonly between: LinkCost;
  readonly reduceNsPerByte: number;
  readonly copyNsPerByte: number;
}

/** Reduction and copies in host memory: measured once on the machine of BENCHMARKS.md; they matter by their ratio to the links only. */
export const HOST_COSTS = { reduceNsPerByte: 0.3, copyNsPerByte: 0.1 } as const;
/** Default if the engine has no estimates. */
export const DEFAULT_WITHIN: LinkCost = { latencyNs: 1000, nsPerByte: 0.1 };
/** Default if the engine has no estimates. */
export const DEFAULT_BETWEEN: LinkCost = { latencyNs: 10_000, nsPerByte: 0.5 };

/** Cost of a step of an operation besides the transport, in nanoseconds: messages, requests and rounds of this library. */
export const STEP_NS = 2500;

/** Fraction of the latency that each further message costs if several are in flight. */
const OVERLAPPED = 0.5;

/** The cost of the slowest link of a team. */
export function slowest({ nodeSizes }: Shape, { within, between }: CostModel): LinkCost {
  return nodeSizes.length > 1 ? between : within;
}

/** Rounds of a binomial or doubling algorithm. */
export function roundsOf(size: number): number {
  return Math.ceil(Math.log2(size));
}

/** Time of messages one after the other. */
export function sequential({ latencyNs, nsPerByte }: LinkCost, messages: number, bytes: number): number {
  return messages * latencyNs + bytes * nsPerByte;
}

/** Time of messages that are in flight together. */
export function atOnce({ latencyNs, nsPerByte }: LinkCost, messages: number, bytes: number): number {
  return latencyNs * (1 + OVERLAPPED * messages) + bytes * nsPerByte;
}

/** Factor for algorithms whose flows share the connection of a node: the most ranks of a node. */
export function sharing({ nodeSizes }: Shape): number {
  return nodeSizes.length > 1 ? Math.max(...nodeSizes) : 1;
}
