/** Starts nbx operations, again after back-pressure, and counts them until they end. It does not know their purpose. */

import type { Request, RequestParams } from '../../../api/contract/request.ts';
import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** Starts an operation. */
export type StartNbx = (params: RequestParams) => Status | Request;
/** Called once when it has ended. */
export type EndNbx = (status: Status, error: unknown) => void;

interface Blocked {
  readonly owner: IssueOwner;
  readonly start: StartNbx;
  readonly end: EndNbx;
}

/** An operation that issues others. */
export interface IssueOwner {
  /** Requests that have not ended. */
  readonly requests: Set<Request>;
  /** True if nothing more is started for it: waiting operations end with CANCELED. */
  readonly hasFailed: boolean;
}

/** Time after which blocked operations are started again if nothing else has ended. */
const RETRY_NS = 100_000;

/** The operations of one worker. */
export class Issuer {
  readonly #clock: Clock;
  readonly #blocked: Blocked[] = [];
  #timer: Timer | undefined;
  #isRestarting = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts an operation; `end` is called inside this call if it ends at once. */
  issue(owner: IssueOwner, start: StartNbx, end: EndNbx): void {
    if (this.#blocked.length > 0) this.#wait({ owner, start, end });
    else if (!this.#start(owner, start, end)) this.#wait({ owner, start, end });
  }

  /** Starts the operations that were refused, in order. */
  restart(): void {
    if (this.#isRestarting || this.#blocked.length === 0) return;
    this.#isRestarting = true;
    while (this.#blocked.length > 0) {
      const { owner, start, end } = this.#blocked[0]!;
      if (owner.hasFailed) {
        this.#blocked.shift();
        end(Status.CANCELED, undefined);
      } else if (this.#start(owner, start, end)) this.#blocked.shift();
      else break;
    }
    this.#isRestarting = false;
    if (this.#blocked.length > 0) this.#arm();
  }

  #wait(blocked: Blocked): void {
    this.#blocked.push(blocked);
    this.#arm();
  }

  #arm(): void {
    this.#timer ??= this.#clock.setTimer(RETRY_NS, () => {
      this.#timer = undefined;
      this.restart();
    });
  }

  /** @returns false for back-pressure */
  #start(owner: IssueOwner, start: StartNbx, end: EndNbx): boolean {
    let started: Status | Request;
    try {
      started = start({
        callback: (request, status) => {
          const { error } = request;
          owner.requests.delete(request);
          request.free();
          end(status, error);
          this.restart();
        },
      });
    } catch (error) {
      end(isUcxError(error) ? error.status : Status.IO_ERROR, error);
      return true;
    }
    if (started === Status.NO_RESOURCE) return false;
    if (typeof started === 'number') end(started, undefined);
    else owner.requests.add(started);
    return true;
  }
}
