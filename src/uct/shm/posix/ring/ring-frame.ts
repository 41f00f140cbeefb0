/** The memory of one message in a ring, for packers and handlers: one object for each ring, moved from message to message. */

import type { AmFrame } from '../../../api/iface.ts';

/** A frame. */
export class RingFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  offset = 0;
  byteLength = 0;
  readonly source: string;
  /** The element or segment with the beginning of the message. */
  slot = 0;
  /** Whether the sender was rejected. */
  isRejected = false;
  /** The last part of a message in each slot, and its first byte. */
  readonly #parts: (Uint8Array | undefined)[] = [];
  readonly #starts: number[] = [];

  constructor(bytes: Uint8Array, words: Int32Array, source: string) {
    this.bytes = bytes;
    this.words = words;
    this.source = source;
  }

  reject(): void {
    this.isRejected = true;
  }

  part(start: number, byteLength: number): Uint8Array {
    const { slot } = this;
    const kept = this.#parts[slot];
    if (kept !== undefined && kept.length === byteLength && this.#starts[slot] === start) return kept;
    const made = this.bytes.subarray(start, start + byteLength);
    this.#parts[slot] = made;
    this.#starts[slot] = start;
    return made;
  }
}
