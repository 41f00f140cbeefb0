/** The buffers in the shared receive queue of an interface, and the messages that have arrived in it and are not delivered. */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { RecvWr, Sge } from '../../../verbs/abi.ts';
import type { SharedReceiveQueue } from '../../../verbs/port.ts';
import { writeRecvWr, writeSge } from '../../../verbs/work-request.ts';
import type { AmFrame } from '../../api/iface.ts';
import type { SlotMemory } from '../base/queues.ts';
import type { IbShared } from '../shared.ts';
import type { IbConnection } from './connection.ts';

/** Receive buffers that are posted again together. */
const POST_BATCH = 16;
const WR_WORDS: number = RecvWr.WORDS + Sge.WORDS;

class ReceivedFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  readonly offset: number;
  byteLength = 0;
  source = '';

  constructor({ bytes, words }: SlotMemory, offset: number) {
    this.bytes = bytes;
    this.words = words;
    this.offset = offset;
  }
}

/** The queue. */
export class ReceiveQueue {
  readonly #srq: SharedReceiveQueue;
  readonly #buffers: SlotMemory;
  readonly #frames: readonly ReceivedFrame[];
  readonly #ids: Uint8Array;
  readonly #connections: (IbConnection | undefined)[];
  /** Slots of the messages, in their order. */
  readonly #order: Int32Array;
  #head = 0;
  #count = 0;
  readonly #block: ScratchBlock;
  /** Work requests in the block that are not posted. */
  #unposted = 0;

  constructor({ srq, rx }: IbShared) {
    const { count: length, slotBytes } = rx;
    this.#srq = srq;
    this.#buffers = rx;
    this.#frames = Array.from({ length }, (_, slot) => new ReceivedFrame(rx, slot * slotBytes));
    this.#ids = new Uint8Array(length);
    this.#connections = new Array<IbConnection | undefined>(length).fill(undefined);
    this.#order = new Int32Array(length);
    this.#block = allocateScratch(POST_BATCH * WR_WORDS * 4);
    for (let slot = 0; slot < length; slot++) this.recycle(slot);
    this.#post();
  }

  /** Number of messages that are not delivered. */
  get length(): number {
    return this.#count;
  }

  /** A message has arrived in a slot. */
  add(slot: number, id: number, byteLength: number, connection: IbConnection): void {
    const frame = this.#frames[slot]!;
    frame.byteLength = byteLength;
    frame.source = connection.peer;
    this.#ids[slot] = id;
    this.#connections[slot] = connection;
    this.#order[(this.#head + this.#count) % this.#order.length] = slot;
    this.#count += 1;
  }

  /** Delivers the oldest message; its buffer is posted again. Returns its connection. */
  deliver(handler: (id: number, frame: AmFrame) => void, onReceived: (byteLength: number) => void): IbConnection {
    const slot = this.#order[this.#head]!;
    // Before the handler runs, which may call progress.
    this.#head = this.#head + 1 === this.#order.length ? 0 : this.#head + 1;
    this.#count -= 1;
    const connection = this.#connections[slot]!;
    this.#connections[slot] = undefined;
    const frame = this.#frames[slot]!;
    onReceived(frame.byteLength);
    handler(this.#ids[slot]!, frame);
    this.recycle(slot);
    return connection;
  }

  /** Posts a slot again, sooner or later. */
  recycle(slot: number): void {
    const { words, address } = this.#block;
    const at = this.#unposted * WR_WORDS;
    writeRecvWr(words, at, slot, address + (at + RecvWr.WORDS) * 4);
    writeSge(words, at + RecvWr.WORDS, this.#buffers.addressOf(slot), this.#buffers.slotBytes, this.#buffers.lkey);
    if (this.#unposted > 0) {
      const previous = at - WR_WORDS;
      const next = address + at * 4;
      words[previous + RecvWr.NEXT] = next;
      words[previous + RecvWr.NEXT + 1] = highOf(next);
    }
    this.#unposted += 1;
    if (this.#unposted === POST_BATCH) this.#post();
  }

  close(): void {
    this.#block.free();
  }

  #post(): void {
    if (this.#unposted === 0) return;
    this.#unposted = 0;
    this.#srq.postReceive(this.#block, 0);
  }
}
