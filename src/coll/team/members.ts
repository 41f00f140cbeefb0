/** The endpoints from this rank to all others, and which of them are lost. Shared by a team and its sub-teams. */

import type { Endpoint } from '../../ucp/api/endpoint.ts';
import type { Worker } from '../../ucp/api/worker.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Status } from '../../ucs/type/status.ts';

/** Time in which peers take the last messages of a team that has failed. */
const CLOSE_MESSAGE_NS = 500e6;

/** Why a member is lost. */
export interface Loss {
  readonly status: Status;
  /** True if it has announced that it leaves. */
  readonly isClosed: boolean;
}

/** The other ranks of a team that was made by an exchange. */
export class Members {
  readonly #worker: Worker;
  readonly #endpoints: (Endpoint | undefined)[] = [];
  readonly #losses: (Loss | undefined)[] = [];
  readonly #listeners: Set<(member: number, loss: Loss) => void> = new Set();
  #toItself: Endpoint | undefined;
  #users = 1;
  #isFailed = false;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /**
   * Connects to all members; {@link close} also after a failure.
   * @param addresses worker address of each
   * @param rank this one
   * @throws UcxError of Worker.endpoint
   */
  connect(addresses: readonly Uint8Array[], rank: number): void {
    for (const [member, address] of addresses.entries()) {
      const onError = (endpoint: Endpoint): void => this.#onLost(member, endpoint);
      this.#endpoints.push(member === rank ? undefined : this.#worker.endpoint(address, { onError }));
    }
  }

  /** The endpoint to another member. */
  endpoint(member: number): Endpoint {
    return this.#endpoints[member]!;
  }

  /** Why a member is lost; undefined for one that is not. */
  loss(member: number): Loss | undefined {
    const endpoint = this.#endpoints[member];
    // Requests of a connection end before its endpoint reports that it has failed.
    if (this.#losses[member] === undefined && endpoint !== undefined && !endpoint.closed && endpoint.status < 0) {
      this.#losses[member] = lossOf(endpoint);
    }
    return this.#losses[member];
  }

  /** An endpoint of the worker to itself, for copies that a card makes. */
  toItself(): Endpoint {
    this.#toItself ??= this.#worker.endpoint(this.#worker.address());
    return this.#toItself;
  }

  /** Calls a function for every member that is lost from now on, until {@link unlisten}. */
  listen(listener: (member: number, loss: Loss) => void): void {
    this.#listeners.add(listener);
  }

  unlisten(listener: (member: number, loss: Loss) => void): void {
    this.#listeners.delete(listener);
  }

  /** Adds one more team that uses them. */
  share(): Members {
    this.#users += 1;
    return this;
  }

  /** Removes a team; the last one closes the endpoints. @param isForced waits only a short time for peers, which are told why the team has failed */
  async close(isForced: boolean, clock: Clock): Promise<void> {
    this.#isFailed ||= isForced;
    this.#users -= 1;
    if (this.#users > 0) return;
    const all = [...this.#endpoints, this.#toItself].filter((endpoint) => endpoint !== undefined);
    const timer = clock.setTimer(CLOSE_MESSAGE_NS, () => {
      if (this.#isFailed) for (const endpoint of all) void endpoint.close({ force: true });
    });
    await Promise.all(all.map((endpoint) => endpoint.close()));
    timer.cancel();
  }

  #onLost(member: number, endpoint: Endpoint): void {
    const loss = lossOf(endpoint);
    this.#losses[member] = loss;
    for (const listener of [...this.#listeners]) listener(member, loss);
  }
}

function lossOf({ status, closedByPeer }: Endpoint): Loss {
  return { status, isClosed: closedByPeer === true };
}
