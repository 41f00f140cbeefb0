/**
 * Interface between the loops and the operations of a test: sends and receives one message at a time, without promises. Also the contents of messages in a
 * verified test: bytes computed from the sequence number, in the elements of a message.
 */

import type { Clock } from '../../../ucs/sys/clock.ts';
import { invalidParam, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';

/** Sequence numbers of messages: one byte, the last one of the data of a put. */
export const SEQUENCE_MASK = 0xff;
/** Value before the first message, which has another sequence number. */
export const SEQUENCE_NONE = 0xff;

/** The traffic of one side of a test. */
export abstract class Traffic {
  /** Number of messages that were sent and have not ended. */
  outstanding = 0;
  /** Number of messages that have arrived, of those that are counted. */
  received = 0;
  /** First error of an operation that did not end in its call. */
  error: UcxError | undefined = undefined;

  /** Makes progress. */
  abstract progress(): number;

  /**
   * Starts message `sequence`. @returns OK when it has ended, INPROGRESS when it counts as outstanding, NO_RESOURCE if it must be retried after progress, or
   * a failure
   */
  abstract send(sequence: number): Status;

  /** Posts the receive of the next message, if the traffic needs it. @returns like {@link send} */
  expect(): Status {
    return Status.OK;
  }

  /** True when message `sequence`, the message number `index` of the run, has arrived. */
  abstract hasArrived(sequence: number, index: number): boolean;

  /** Acknowledges all messages by one message; does nothing if the sender sees their arrival in memory. */
  acknowledge(): Status {
    return Status.OK;
  }

  /** Posts the receive of the acknowledgement. False if there is none. */
  expectAcknowledgement(): boolean {
    return false;
  }

  /** Why an operation has ended with this status in its call, if known. */
  abstract causeOf(status: Status): unknown;

  /** Prepares for a run. Neither side may have operations in flight. */
  reset(): void {
    this.received = 0;
  }

  /** In a verified test, after a run: checks the result of the last message sent from here. @throws UcxError ERR_PERFTEST_DATA */
  checkSent(): void {}

  /** In a verified test, after a run: checks the result of this number of messages here. @throws UcxError ERR_PERFTEST_DATA */
  checkReceived(_iterations: number): void {}

  /** Starts or continues a flush; true when everything has reached the other side. Call it again after progress. */
  abstract flush(): boolean;

  /** Transport and device of the messages, such as `posix/memory`. */
  abstract get carrier(): string;

  /** Sleeps until there may be progress to make, for traffic with events. @throws AbortError when the signal fires */
  sleep(_signal: AbortSignal): Promise<void> {
    throw invalidParam('-E', 'must be poll: this traffic has no events', 'sleep');
  }

  /** Releases its resources. */
  abstract close(): void;
}

/** Memory that holds messages. */
export interface ContentMemory {
  write(offset: number, bytes: Uint8Array): void;
  read(offset: number, target: Uint8Array): void;
}

/** An element of a message in memory. */
export interface Part {
  readonly offset: number;
  readonly byteLength: number;
}

/** Time limit for the other bytes of a put to arrive after its last byte. */
const REST_NS_MAX = 1e9;
/** Shift of the pattern between sequence numbers: every message begins at another byte. */
const STEP = 1;

/** The content of messages in a range of memory. */
export class Content {
  readonly #memory: ContentMemory;
  readonly #parts: readonly Part[];
  /** Long enough for the message with the highest sequence number. */
  readonly #pattern: Uint8Array;
  readonly #found: Uint8Array;
  readonly #length: number;

  constructor(memory: ContentMemory, parts: readonly Part[]) {
    this.#memory = memory;
    this.#parts = parts;
    this.#length = parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.#pattern = new Uint8Array(this.#length + SEQUENCE_MASK * STEP + 1);
    for (let i = 0; i < this.#pattern.length; i++) this.#pattern[i] = patternByte(i);
    this.#found = new Uint8Array(Math.max(0, ...parts.map(({ byteLength }) => byteLength)));
  }

  /** Writes the content of a message. */
  fill(sequence: number): void {
    let at = sequence * STEP;
    for (const { offset, byteLength } of this.#parts) {
      this.#memory.write(offset, this.#pattern.subarray(at, at + byteLength));
      at += byteLength;
    }
  }

  /** The first byte in `range` that differs from message `sequence`; -1 if none differs. */
  firstDifference(sequence: number, range: { readonly from?: number; readonly to?: number } = {}): number {
    const { from = 0, to = Number.POSITIVE_INFINITY } = range;
    let at = 0;
    for (const { offset, byteLength } of this.#parts) {
      const found = this.#found.subarray(0, byteLength);
      this.#memory.read(offset, found);
      for (let i = Math.max(0, from - at); i < byteLength && at + i < to; i++) {
        if (found[i] !== this.#pattern[sequence * STEP + at + i]) return at + i;
      }
      at += byteLength;
    }
    return -1;
  }

  /** @throws UcxError ERR_PERFTEST_DATA if the memory contains another message */
  check(sequence: number): void {
    const difference = this.firstDifference(sequence);
    if (difference >= 0) throw dataError(`byte ${difference} of message ${sequence} differs from the sent one`);
  }

  /**
   * Checks a put of a ping-pong, whose last byte is the sequence number and may arrive before the others.
   * @throws UcxError ERR_PERFTEST_DATA if the others do not arrive
   */
  checkPut(sequence: number, clock: Clock, traffic: { progress(): number }): void {
    const deadline = clock.nowNs() + REST_NS_MAX;
    for (;;) {
      const difference = this.firstDifference(sequence, { to: this.#length - 1 });
      if (difference < 0) return;
      traffic.progress();
      if (clock.nowNs() > deadline) {
        throw dataError(`byte ${difference} of put ${sequence} differs from the sent one`);
      }
    }
  }
}

/** Makes the error for data that differs from the sent data. */
export function dataError(message: string): UcxError {
  return new UcxError({ code: 'ERR_PERFTEST_DATA', status: Status.IO_ERROR, message });
}

/** Neighbouring bytes differ, as do bytes at a distance of a power of two. */
function patternByte(index: number): number {
  return (Math.imul(index + 1, 0x9e3779b1) >>> 21) & 0xff;
}
