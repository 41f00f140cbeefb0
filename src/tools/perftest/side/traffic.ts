/**
 * Interface between the loops and the operations of a test: sends one message, receives one message, without promises. Contents of the messages of a
 * verified test: bytes computed from the sequence number, in the parts of a message.
 */

import type { Clock } from '../../../ucs/sys/clock.ts';
import { invalidParam, UcxError } from '../../../ucs/type/error.ts';
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

/** Memory that holds messages. */
export interface ContentMemory {
  write(offset: number, bytes: Uint8Array): void;
  read(offset: number, target: Uint8Array): void;
}

/** A part of a message in memory. */
export interface Part {
  readonly offset: number;
  readonly byteLength: number;
}

/** Time in which the rest of a put must be there after its last byte. */
const REST_NS_MAX = 1e9;
/** Bytes from sequence number to sequence number: every message begins elsewhere in the pattern. */
const STEP = 1;

/** The content of messages in one piece of memory. */
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

  /** The first byte of the message in memory, of those in `range`, that is not that of message `sequence`; -1 where all are. */
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

  /** @throws UcxError ERR_PERFTEST_DATA when another message is in memory */
  check(sequence: number): void {
    const difference = this.firstDifference(sequence);
    if (difference >= 0) throw dataError(`byte ${difference} of message ${sequence} is not the one that was sent`);
  }

  /**
   * Checks a put of a ping-pong, whose last byte is the sequence number and may be there before the others.
   * @throws UcxError ERR_PERFTEST_DATA when the others do not come
   */
  checkPut(sequence: number, clock: Clock, traffic: { progress(): number }): void {
    const deadline = clock.nowNs() + REST_NS_MAX;
    for (;;) {
      const difference = this.firstDifference(sequence, { to: this.#length - 1 });
      if (difference < 0) return;
      traffic.progress();
      if (clock.nowNs() > deadline) {
        throw dataError(`byte ${difference} of put ${sequence} is not the one that was put`);
      }
    }
  }
}

/** Makes the error for data that differs from the sent data. */
export function dataError(message: string): UcxError {
  return new UcxError({ code: 'ERR_PERFTEST_DATA', status: Status.IO_ERROR, message });
}

/** Neighbours differ, and so do bytes a power of two apart. */
function patternByte(index: number): number {
  return (Math.imul(index + 1, 0x9e3779b1) >>> 21) & 0xff;
}
