/** The memory of one message in a ring, for packers and handlers: one object for each ring, moved from message to message. */

import type { AmFrame } from '../../../api/iface.ts';

/** A frame. */
export class RingFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  offset = 0;
  byteLength = 0;
  readonly source: string;

  constructor(bytes: Uint8Array, words: Int32Array, source: string) {
    this.bytes = bytes;
    this.words = words;
    this.source = source;
  }
}
