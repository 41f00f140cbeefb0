/** The departed ranks of a team: those whose connection has ended, and those that have left the team. */

import type { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { rankFailed } from './layout/errors.ts';
import type { Loss, Members } from './members.ts';

/** The departed ranks of one team. */
export class Departures {
  readonly #members: Pick<Members, 'loss'>;
  readonly #memberOf: readonly number[];
  /** Ranks that have left this team; {@link Members} knows whose connection has ended. */
  readonly #left: Map<number, Loss> = new Map();
  /** Those of them that have left it because it had failed. */
  readonly #withdrawn: Set<number> = new Set();

  /** @param memberOf the member of each rank */
  constructor(members: Pick<Members, 'loss'>, memberOf: readonly number[]) {
    this.#members = members;
    this.#memberOf = memberOf;
  }

  /** Why a rank has departed; undefined if it has not. */
  loss(rank: number): Loss | undefined {
    return this.#left.get(rank) ?? this.#members.loss(this.#memberOf[rank]!);
  }

  /** Ranks that are lost, or have left a team that had not failed: all others leave it because of its failure. */
  get lostRanks(): number[] {
    return [...this.#memberOf.keys()].filter((rank) => this.loss(rank) !== undefined && !this.#withdrawn.has(rank));
  }

  /** The rank that departed first: ranks leave a team after it has lost one. */
  get first(): number | undefined {
    const { lostRanks } = this;
    return lostRanks.find((rank) => this.loss(rank)?.isClosed === false) ?? lostRanks[0];
  }

  /** The error for a departed rank. */
  errorOf(rank: number, loss: Loss | undefined = this.loss(rank)): UcxError {
    const why = loss?.isClosed === true ? 'has closed the team' : 'is lost';
    return rankFailed(rank, loss?.status ?? Status.CONNECTION_RESET, why);
  }

  /**
   * A rank has left.
   * @param hasFailed whether it says that the team had failed
   * @param failure of the team as this rank knows it: it may name the rank that leaves
   * @returns why it has departed; undefined if that was known
   */
  left(rank: number, hasFailed: boolean, failure: UcxError | undefined): Loss | undefined {
    if (this.#left.has(rank)) return undefined;
    const loss = { status: Status.CONNECTION_RESET, isClosed: true };
    this.#left.set(rank, loss);
    if (hasFailed || (failure !== undefined && failure.details['rank'] !== rank)) this.#withdrawn.add(rank);
    return loss;
  }
}
