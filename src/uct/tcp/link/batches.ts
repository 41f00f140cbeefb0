/** The links of an interface with a batch of frames that waits to be sent together. It does not decide which frames wait: the transmitter does. */

import { atExit } from '../../../ucs/sys/process-events.ts';

/** A link with a batch. */
export interface Batching {
  /** Sends the batch. */
  endBatch(): void;
}

/** The links, in the order in which their batches have begun. */
export class Batches {
  readonly #begun: Batching[] = [];
  #isScheduled = false;
  /** At process.exit() in the running job, sends frames that were reported as sent. */
  readonly #stopAtExit: () => void = atExit(() => this.end());
  readonly #endScheduled: () => void = () => {
    this.#isScheduled = false;
    this.end();
  };

  /** A batch has begun. It ends in the next progress, and at the latest when the running job of the event loop ends: the program may not make progress soon. */
  add(link: Batching): void {
    this.#begun.push(link);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(this.#endScheduled);
  }

  close(): void {
    this.#stopAtExit();
  }

  /** Ends the batches that have begun; those that begin meanwhile are for the next call. */
  end(): void {
    for (let left = this.#begun.length; left > 0; left--) this.#begun.shift()?.endBatch();
  }
}
