/**
 * Interface between the loops and the operations of a test: sends one message, receives one message, without promises. loops.ts decides when to send and how
 * long to wait.
 */

import { invalidParam, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** Sequence numbers of messages: one byte, the last one of the data of a put. */
export const SEQUENCE_MASK = 0xff;
/** Sequence number before the first message; the first message has another one. */
export const SEQUENCE_NONE = 0xff;

/** The traffic of one side of a test. */
export abstract class Traffic {
  /** Messages that were sent and have not ended. */
  outstanding = 0;
  /** Messages that have arrived, of those that are counted. */
  received = 0;
  /** First error of an operation that had not ended in its call. */
  error: UcxError | undefined = undefined;

  /** Makes progress. */
  abstract progress(): number;

  /**
   * Starts message `sequence`. @returns OK when it has ended, INPROGRESS when it counts as outstanding, NO_RESOURCE to be tried again after
   * progress, or a failure
   */
  abstract send(sequence: number): Status;

  /** Asks for the next message; for traffic that has to. @returns like {@link send} */
  expect(): Status {
    return Status.OK;
  }

  /** True when message `sequence` is here, which is the message number `index` of the run. */
  abstract hasArrived(sequence: number, index: number): boolean;

  /** Acknowledges that everything has arrived, with one message; does nothing if the sender can see it itself. */
  acknowledge(): Status {
    return Status.OK;
  }

  /** Asks for the message of {@link acknowledge}. False where there is none. */
  expectAcknowledgement(): boolean {
    return false;
  }

  /** Why an operation has ended with this status in its call, as far as it is known. */
  abstract causeOf(status: Status): unknown;

  /** Prepares for a run. Neither side may have operations in flight. */
  reset(): void {
    this.received = 0;
  }

  /** In a verified test, when a run is over: checks what the last message sent from here has left. @throws UcxError ERR_PERFTEST_DATA */
  checkSent(): void {}

  /** In a verified test, when a run is over: checks what so many messages have left here. @throws UcxError ERR_PERFTEST_DATA */
  checkReceived(_iterations: number): void {}

  /** Begins to wait until everything has reached the other side; true when it has. Call it again after progress. */
  abstract flush(): boolean;

  /** Transport and device of the messages, such as `posix/memory`. */
  abstract get carrier(): string;

  /** Sleeps until there may be progress to make; for traffic that has events. @throws AbortError when the signal fires */
  sleep(_signal: AbortSignal): Promise<void> {
    throw invalidParam('-E', 'must be poll for traffic without events', 'sleep');
  }

  /** Releases its resources. */
  abstract close(): void;
}
