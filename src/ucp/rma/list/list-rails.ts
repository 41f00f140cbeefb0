/** Divides the blocks of a list between the devices of a network: a long block like a put, shorter ones in turns. Pure. */

import type { ListBlock } from '../../../api/list/list.ts';
import type { PeerConnection } from '../../base/peer-connection.ts';
import { type Rail, type RailLimits, railsOf } from '../../lane/rails.ts';
import type { LocalMemory } from '../../mem/memory-handle.ts';
import type { RemoteKey } from '../../mem/remote-key.ts';
import type { Operation, Plan } from '../../proto/selection.ts';
import { planFor } from '../plan.ts';

/** Blocks with one plan. */
interface Group {
  byteLength: number;
  /** The shares of the devices in all of these bytes; undefined where one lane carries them. */
  rails: readonly Rail[] | undefined;
  /** Bytes that each of them has. */
  readonly given: number[];
}

/** The rails of one list. */
export class ListRails {
  readonly #connection: PeerConnection;
  readonly #operation: Operation;
  readonly #limits: RailLimits;
  readonly #groups: Map<Plan, Group> = new Map();

  constructor(connection: PeerConnection, operation: Operation, blocks: readonly ListBlock[], limits: RailLimits) {
    this.#connection = connection;
    this.#operation = operation;
    this.#limits = limits;
    if (!connection.hasRails || limits.railsMax < 2) return;
    for (const block of blocks) {
      const plan = this.#planOf(block);
      const group = this.#groups.get(plan);
      if (group === undefined) this.#groups.set(plan, { byteLength: block.byteLength, rails: undefined, given: [] });
      else group.byteLength += block.byteLength;
    }
    for (const [plan, group] of this.#groups) {
      group.rails = railsOf(plan, connection.lanes, group.byteLength, limits);
    }
  }

  /** The parts of a block and the candidate of each; undefined if the best candidate carries the whole block. */
  partsOf(block: ListBlock): readonly Rail[] | undefined {
    if (this.#groups.size === 0) return undefined;
    const plan = this.#planOf(block);
    const group = this.#groups.get(plan);
    if (group?.rails === undefined) return undefined;
    const { rails, given } = group;
    const { byteLength } = block;
    const parts = railsOf(plan, this.#connection.lanes, byteLength, this.#limits);
    if (parts !== undefined) return parts;
    let next: number | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const [i, { candidate, byteLength: share }] of rails.entries()) {
      const load = ((given[i] ?? 0) + byteLength) / share;
      if (byteLength < candidate.bytesMin || byteLength > candidate.bytesMax || load >= least) continue;
      least = load;
      next = i;
    }
    if (next === undefined) return undefined;
    given[next] = (given[next] ?? 0) + byteLength;
    return [{ candidate: rails[next]!.candidate, offset: 0, byteLength }];
  }

  #planOf({ local, rkey }: ListBlock): Plan {
    return planFor(this.#operation, local as LocalMemory, rkey as RemoteKey, this.#connection);
  }
}
