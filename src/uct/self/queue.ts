/** Active messages from a worker to itself: queued in a bounded ring until progress delivers them, so that no handler runs inside a send. */

import { copyBytes } from '../../ucs/memory/bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame, AmHandler, AmPacker } from '../api/iface.ts';
import { isInside } from '../base/checks.ts';
import type { TransferCounters } from '../base/counters.ts';

/** Slots for messages: one for the message that is being delivered, the others for queued ones. If all are used, sending returns NO_RESOURCE. */
const MESSAGES_MAX = 64;

class LoopbackFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  readonly offset: number;
  byteLength = 0;
  readonly source: string;

  constructor(buffer: ArrayBuffer, offset: number, source: string) {
    this.source = source;
    this.bytes = new Uint8Array(buffer);
    this.words = new Int32Array(buffer);
    this.offset = offset;
  }
}

/** The queued messages of one interface. */
export class LoopbackQueue {
  handler: AmHandler | undefined = undefined;
  readonly #frameBytes: number;
  readonly #frames: LoopbackFrame[] = [];
  readonly #ids: Uint8Array = new Uint8Array(MESSAGES_MAX);
  #head = 0;
  #tail = 0;
  readonly #onMessage: () => void;
  readonly #counters: TransferCounters;
  readonly #source: string;

  /**
   * @param frameBytes longest message, a multiple of 8
   * @param source identity of the interface
   * @param onMessage called after each message
   */
  constructor(frameBytes: number, counters: TransferCounters, source: string, onMessage: () => void) {
    this.#source = source;
    this.#frameBytes = frameBytes;
    this.#counters = counters;
    this.#onMessage = onMessage;
  }

  /** Number of queued messages. */
  get length(): number {
    return (this.#tail - this.#head) | 0;
  }

  /** Adds a message of header and payload; NO_RESOURCE at the limit. */
  push(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    const frame = this.#next();
    if (frame === undefined) return Status.NO_RESOURCE;
    const { words, bytes, offset } = frame;
    for (let i = 0; i < headerWords; i++) words[(offset >> 2) + i] = header[i]!;
    const at = offset + headerWords * 4;
    if (payload !== undefined) copyBytes(bytes, at, payload, payloadOffset, payloadLength);
    frame.byteLength = headerWords * 4 + payloadLength;
    this.#publish(id);
    return Status.OK;
  }

  /** Adds a message that the packer writes; returns its bytes, or NO_RESOURCE at the limit. */
  pack(id: number, packer: AmPacker): number {
    const frame = this.#next();
    if (frame === undefined) return Status.NO_RESOURCE;
    frame.byteLength = this.#frameBytes;
    const byteLength = packer.pack(frame);
    if (!isInside(0, byteLength, this.#frameBytes)) return Status.INVALID_PARAM;
    frame.byteLength = byteLength;
    this.#publish(id);
    return byteLength;
  }

  /** Delivers the messages that are queued at the time of the call; returns how many. Without a handler they stay queued. */
  deliver(): number {
    const { handler } = this;
    if (handler === undefined) return 0;
    const count = this.length;
    for (let i = 0; i < count && this.length > 0; i++) {
      const slot = this.#head % MESSAGES_MAX;
      // Advanced before the handler runs, so that no message is delivered twice, even if a handler calls progress. The slot is reused much later.
      this.#head += 1;
      const frame = this.#frames[slot]!;
      this.#counters.received(frame.byteLength);
      handler(this.#ids[slot]!, frame);
    }
    return count;
  }

  #next(): LoopbackFrame | undefined {
    if (this.#tail - this.#head >= MESSAGES_MAX - 1) return undefined;
    const slot = this.#tail % MESSAGES_MAX;
    this.#frames[slot] ??= new LoopbackFrame(new ArrayBuffer(this.#frameBytes), 0, this.#source);
    return this.#frames[slot];
  }

  #publish(id: number): void {
    this.#ids[this.#tail % MESSAGES_MAX] = id;
    this.#tail += 1;
    this.#onMessage();
  }
}
