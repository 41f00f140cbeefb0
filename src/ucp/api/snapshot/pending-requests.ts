/** Summarizes the pending requests of a worker: groups, and the oldest ones. Bounded, however many there are. It does not know what requests are. */

import {
  type RequestGroup,
  type RequestSnapshot,
  type RequestsSnapshot,
  SNAPSHOT_REQUESTS_MAX,
  type WaitReason,
} from '../snapshot.ts';

/** Groups that a snapshot lists; the requests of further ones are in one group for each reason. */
const GROUPS_MAX = 64;
const OTHERS = 'others';

/** A request as it is counted. */
export interface PendingRequest<R> {
  readonly request: R;
  readonly protocol: string;
  readonly reason: WaitReason;
  readonly byteLength: number;
  readonly ageMs: number;
}

/** Collects the requests of one worker. */
export class PendingRequests<R> {
  readonly #describe: (pending: PendingRequest<R>) => RequestSnapshot;
  readonly #groups: Map<string, { -readonly [K in keyof RequestGroup]: RequestGroup[K] }> = new Map();
  #oldest: PendingRequest<R>[] = [];
  #pending = 0;
  #ended = 0;

  /** @param describe is called for the listed requests only */
  constructor(describe: (pending: PendingRequest<R>) => RequestSnapshot) {
    this.#describe = describe;
  }

  /** Counts a request that has ended and was not freed. */
  addEnded(): void {
    this.#ended += 1;
  }

  /** Adds a pending request. */
  add(pending: PendingRequest<R>): void {
    this.#pending += 1;
    this.#count(pending);
    this.#oldest.push(pending);
    if (this.#oldest.length >= 2 * SNAPSHOT_REQUESTS_MAX) this.#trim();
  }

  /** The summary. @param max requests that may be in use at once */
  summary(max: number): RequestsSnapshot {
    this.#trim();
    return {
      pending: this.#pending,
      ended: this.#ended,
      max,
      groups: [...this.#groups.values()].sort((left, right) => right.count - left.count),
      oldest: this.#oldest.map((pending) => this.#describe(pending)),
    };
  }

  #count({ protocol, reason, byteLength, ageMs }: PendingRequest<R>): void {
    const key = `${protocol} ${reason}`;
    let group = this.#groups.get(key);
    if (group === undefined) {
      const isFull = this.#groups.size >= GROUPS_MAX;
      const others = `${OTHERS} ${reason}`;
      group = (isFull ? this.#groups.get(others) : undefined) ?? {
        protocol: isFull ? OTHERS : protocol,
        reason,
        count: 0,
        byteLength: 0,
        oldestMs: 0,
      };
      this.#groups.set(isFull ? others : key, group);
    }
    group.count += 1;
    group.byteLength += byteLength;
    group.oldestMs = Math.max(group.oldestMs, ageMs);
  }

  /** Keeps the oldest. */
  #trim(): void {
    this.#oldest.sort((left, right) => right.ageMs - left.ageMs);
    this.#oldest.length = Math.min(this.#oldest.length, SNAPSHOT_REQUESTS_MAX);
  }
}
