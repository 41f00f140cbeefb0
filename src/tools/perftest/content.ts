/** What the messages of a verified test hold: bytes that follow from the sequence number, in the parts of a message. It moves nothing itself. */

import { UcxError } from '../../ucs/error.ts';
import { Status } from '../../ucs/status.ts';
import { SEQUENCE_MASK } from './traffic.ts';

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

/** Bytes from sequence number to sequence number: every message begins elsewhere in the pattern. */
const STEP = 1;

/** The content of messages in one piece of memory. */
export class Content {
  readonly #memory: ContentMemory;
  readonly #parts: readonly Part[];
  /** Long enough for the message with the highest sequence number. */
  readonly #pattern: Uint8Array;
  readonly #found: Uint8Array;

  constructor(memory: ContentMemory, parts: readonly Part[]) {
    this.#memory = memory;
    this.#parts = parts;
    const length = parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.#pattern = new Uint8Array(length + SEQUENCE_MASK * STEP + 1);
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

  /**
   * The first byte of the message in memory that is not that of message `sequence`; -1 where all are.
   * @param length bytes that count
   */
  firstDifference(sequence: number, length: number = Number.POSITIVE_INFINITY): number {
    let at = 0;
    for (const { offset, byteLength } of this.#parts) {
      const found = this.#found.subarray(0, byteLength);
      this.#memory.read(offset, found);
      const expected = this.#pattern.subarray(sequence * STEP + at, sequence * STEP + at + byteLength);
      for (let i = 0; i < byteLength && at + i < length; i++) if (found[i] !== expected[i]) return at + i;
      at += byteLength;
    }
    return -1;
  }

  /** @throws UcxError ERR_PERFTEST_DATA when another message is in memory */
  check(sequence: number): void {
    const difference = this.firstDifference(sequence);
    if (difference >= 0) throw dataError(`byte ${difference} of message ${sequence} is not the one that was sent`);
  }
}

/** The error of data that is not what was sent. */
export function dataError(message: string): UcxError {
  return new UcxError({ code: 'ERR_PERFTEST_DATA', status: Status.IO_ERROR, message });
}

/** Neighbours differ, and so do bytes a power of two apart. */
function patternByte(index: number): number {
  return (Math.imul(index + 1, 0x9e3779b1) >>> 21) & 0xff;
}
