/** The costs of a team's connections, by the estimates of the engine for one peer on this node and one on another. */

import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { MemoryHandle } from '../../api/contract/memory.ts';
import { type CostModel, DEFAULT_BETWEEN, DEFAULT_WITHIN, HOST_COSTS, type LinkCost, STEP_NS } from '../choice/cost.ts';

/** Sizes whose estimates give latency and bandwidth. */
const SHORT = 8;
const LONG = 2 ** 20;
/** Numbers of a cost model that ranks exchange. */
export const COST_NUMBERS = 4;

/** The cost of a connection; the default where the engine does not estimate. */
export function linkCost(endpoint: Endpoint, local: MemoryHandle, key: Uint8Array, otherwise: LinkCost): LinkCost {
  const rkey = endpoint.unpackRkey(key);
  try {
    const message = endpoint.explain('am', local, rkey).at(SHORT).winner?.estimatedNs;
    const put = endpoint.explain('put', local, rkey).at(LONG).winner?.estimatedNs;
    if (message === undefined || put === undefined || !(message > 0) || !(put > 0)) return otherwise;
    return { latencyNs: message + STEP_NS, nsPerByte: put / LONG };
  } finally {
    rkey.release();
  }
}

/** The numbers that a rank sends to the others. */
export function costNumbers(within: LinkCost | undefined, between: LinkCost | undefined): Float64Array {
  const [near, far] = [within ?? { latencyNs: 0, nsPerByte: 0 }, between ?? { latencyNs: 0, nsPerByte: 0 }];
  return Float64Array.of(near.latencyNs, near.nsPerByte, far.latencyNs, far.nsPerByte);
}

/** The model that all ranks make of the same numbers: the worst of each. */
export function costsOf(numbers: Float64Array): CostModel {
  const worst = (index: number): number => {
    let most = 0;
    for (let at = index; at < numbers.length; at += COST_NUMBERS) most = Math.max(most, numbers[at]!);
    return most;
  };
  const linkOf = (index: number, otherwise: LinkCost): LinkCost =>
    worst(index) === 0 ? otherwise : { latencyNs: worst(index), nsPerByte: worst(index + 1) };
  return { within: linkOf(0, DEFAULT_WITHIN), between: linkOf(2, DEFAULT_BETWEEN), ...HOST_COSTS };
}

/** The model before the ranks have exchanged theirs. */
export const DEFAULT_COSTS: CostModel = { within: DEFAULT_WITHIN, between: DEFAULT_BETWEEN, ...HOST_COSTS };
