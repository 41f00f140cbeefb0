/**
 * The endpoints that the teams of one worker have made to other workers, one of which a team uses for each rank; and the costs of a team's connections, as the
 * engine estimates them for one peer on this node and one on another.
 */

import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { MemoryHandle } from '../../api/contract/memory.ts';
import type { Worker } from '../../api/contract/worker.ts';
import {
  type CostModel,
  DEFAULT_BETWEEN,
  DEFAULT_WITHIN,
  HOST_COSTS,
  type LinkCost,
  STEP_NS,
} from '../choice/problem.ts';

/** Called when an endpoint has failed or its peer has closed it. @param address worker address of the peer */
export type LinkListener = (endpoint: Endpoint, address: Uint8Array) => void;

/** The endpoints of one worker. They are kept for later teams until they end or the worker closes: the peer may use the other half, for a team or otherwise. */
export class Links {
  static readonly #links: WeakMap<Worker, Links> = new WeakMap();

  readonly #worker: Worker;
  /** Keyed by worker address. */
  readonly #endpoints: Map<string, Set<Endpoint>> = new Map();
  readonly #listeners: Set<LinkListener> = new Set();
  #toItself: Endpoint | undefined;

  private constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** The endpoints of a worker. */
  static of(worker: Worker): Links {
    let links = Links.#links.get(worker);
    if (links === undefined) {
      links = new Links(worker);
      Links.#links.set(worker, links);
    }
    return links;
  }

  /** The endpoints to the worker with an address. */
  to(address: Uint8Array): readonly Endpoint[] {
    return [...(this.#endpoints.get(keyOf(address)) ?? [])];
  }

  /** Makes another endpoint to a worker. @throws UcxError of Worker.endpoint */
  add(address: Uint8Array): Endpoint {
    const key = keyOf(address);
    const endpoint = this.#worker.endpoint(address, { onError: (ended) => this.#onEnded(ended, address) });
    const known = this.#endpoints.get(key);
    if (known === undefined) this.#endpoints.set(key, new Set([endpoint]));
    else known.add(endpoint);
    return endpoint;
  }

  /** An endpoint of the worker to itself, for copies by a card. */
  toItself(): Endpoint {
    this.#toItself ??= this.#worker.endpoint(this.#worker.address());
    return this.#toItself;
  }

  /** Calls a function for every endpoint that ends from now on, until {@link unlisten}. */
  listen(listener: LinkListener): void {
    this.#listeners.add(listener);
  }

  unlisten(listener: LinkListener): void {
    this.#listeners.delete(listener);
  }

  /** Closes an endpoint whose peer does not respond, unless other teams exist. */
  giveUp(endpoint: Endpoint): void {
    if (this.#listeners.size > 1) return;
    for (const known of this.#endpoints.values()) known.delete(endpoint);
    void endpoint.close({ force: true });
  }

  #onEnded(endpoint: Endpoint, address: Uint8Array): void {
    const key = keyOf(address);
    const known = this.#endpoints.get(key);
    known?.delete(endpoint);
    if (known?.size === 0) this.#endpoints.delete(key);
    for (const listener of [...this.#listeners]) listener(endpoint, address);
    void endpoint.close({ force: true });
  }
}

function keyOf(address: Uint8Array): string {
  return Buffer.from(address).toString('latin1');
}

/** Two sizes, from whose estimates latency and bandwidth follow. */
const SHORT = 8;
const LONG = 2 ** 20;
/** How many numbers of a cost model each rank sends. */
export const COST_NUMBERS = 4;

/** The cost of a connection. @param otherwise the default, used if the engine does not estimate */
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

export function costNumbers(within: LinkCost | undefined, between: LinkCost | undefined): Float64Array {
  const [near, far] = [within ?? { latencyNs: 0, nsPerByte: 0 }, between ?? { latencyNs: 0, nsPerByte: 0 }];
  return Float64Array.of(near.latencyNs, near.nsPerByte, far.latencyNs, far.nsPerByte);
}

/** The cost model from the numbers of all ranks: the highest of each. Equal on all ranks. */
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

/** The cost model until the ranks have exchanged theirs. */
export const DEFAULT_COSTS: CostModel = { within: DEFAULT_WITHIN, between: DEFAULT_BETWEEN, ...HOST_COSTS };
