/**
 * The watchdog of a team: sends checks for operations that make no progress to the ranks that they wait for, because those may run different operations, and
 * fails the team at its time-out.
 */

import type { Timer } from '../../ucs/sys/clock.ts';
import { closedError } from '../../ucs/type/error.ts';
import { timedOut } from './layout/errors.ts';
import { describeSignature, Kind } from './layout/header.ts';
import type { Operation } from './run/operation.ts';
import type { TeamState } from './team-state.ts';

/** Time without a message after which a check (CHECK_RECEIVE, CHECK_SEND) is sent to the ranks that an operation waits for; it doubles after each check. */
const CHECK_NS = 20e6;
const CHECK_NS_MAX = 1e9;

export class Watch {
  readonly #state: TeamState;
  readonly #operations: ReadonlyMap<number, Operation>;
  readonly #marks: Map<Operation, number> = new Map();
  #checkNs = CHECK_NS;
  #timer: Timer | undefined;

  /** @param operations those in progress */
  constructor(state: TeamState, operations: ReadonlyMap<number, Operation>) {
    this.#state = state;
    this.#operations = operations;
  }

  /** Starts watching, while operations are in progress. */
  arm(): void {
    if (this.#timer !== undefined || this.#operations.size === 0) return;
    const { timeoutNs, clock } = this.#state.parts;
    const delayNs = timeoutNs > 0 ? Math.min(this.#checkNs, timeoutNs / 4) : this.#checkNs;
    this.#timer = clock.setTimer(delayNs, () => {
      this.#timer = undefined;
      this.#check();
      this.arm();
    });
  }

  /** Stops until {@link arm}. */
  disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#checkNs = CHECK_NS;
  }

  /** Called when an operation has ended. */
  ended(operation: Operation): void {
    this.#marks.delete(operation);
    if (this.#operations.size === 0) this.disarm();
  }

  #check(): void {
    const { worker, timeoutNs, clock } = this.#state.parts;
    if (worker.closed) {
      this.#state.adopt(closedError('worker of the team'));
      for (const operation of [...this.#operations.values()]) operation.abandon();
      return;
    }
    const stuck = [...this.#operations.values()].filter((one) => this.#marks.get(one) === one.marks && !one.hasFailed);
    this.#checkNs = stuck.length === 0 ? CHECK_NS : Math.min(this.#checkNs * 2, CHECK_NS_MAX);
    for (const operation of this.#operations.values()) this.#marks.set(operation, operation.marks);
    for (const operation of stuck) {
      if (timeoutNs > 0 && clock.nowNs() - operation.startedNs >= timeoutNs) {
        const { signature } = operation;
        this.#state.fail(timedOut(describeSignature(signature), operation.awaited(), timeoutNs / 1e6));
        return;
      }
      this.#describe(operation);
    }
  }

  /** Sends checks for an operation to the ranks that it waits for. */
  #describe(operation: Operation): void {
    const { sequence, signature } = operation;
    for (const { run, round, peer, isSend, place } of operation.awaitedParts()) {
      const { slice } = run;
      const { byteLength } = place;
      const kind = isSend ? Kind.CHECK_SEND : Kind.CHECK_RECEIVE;
      this.#state.send(peer, { ...this.#state.header(kind, sequence, signature), slice, round, byteLength });
    }
  }
}
