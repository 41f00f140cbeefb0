/** The completions of one interface: work requests that have ended, and messages that have arrived, which are delivered in order. */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { highOf, joinWords } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import { RecvWr, Sge, Wc, WcOpcode, WcStatus, wcStatusText } from '../../../verbs/abi.ts';
import type { SharedReceiveQueue } from '../../../verbs/port.ts';
import { writeRecvWr, writeSge } from '../../../verbs/work-request.ts';
import type { AmFrame, AmHandler } from '../../api/iface.ts';
import { connectionStatusOfWc, type SlotMemory, statusOfWc } from '../base/queues.ts';
import type { IbShared } from '../shared.ts';
import { type IbConnection, MessageKind } from './connection.ts';
import type { ConnectionTable } from './connection-table.ts';

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

/** The buffers in the shared receive queue, and the received messages that are not delivered yet. */
class ReceiveQueue {
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

  /** Adds a message that has arrived in a slot. */
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

  /** Posts a slot again, at once or with the next batch. */
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

/** Processes the completion queues of an interface. */
export class Completions {
  /** Handler of the messages; undefined while there is none. */
  handler: AmHandler | undefined = undefined;
  readonly shared: IbShared;
  readonly #table: ConnectionTable;
  readonly #receiver: ReceiveQueue;
  readonly #onClose: (connection: IbConnection) => void;
  readonly #onReceived = (byteLength: number): void => this.shared.counters.received(byteLength);
  #closed = false;

  /** @param onClose called when the peer has closed a connection */
  constructor(table: ConnectionTable, onClose: (connection: IbConnection) => void) {
    this.shared = table.shared;
    this.#table = table;
    this.#receiver = new ReceiveQueue(table.shared);
    this.#onClose = onClose;
  }

  /** Ends the operations of completed work requests; returns how many. */
  progressSends(): number {
    const shared = this.shared;
    const reader = shared.sends;
    const { words } = reader;
    let count = 0;
    for (let left = reader.fill(); left > 0; left--) {
      const at = reader.next();
      const connection = this.#table.find(words[at + Wc.QP_NUM]!);
      if (connection === undefined || connection.isDestroyed) continue;
      const status = words[at + Wc.STATUS]!;
      const position = joinWords(words[at + Wc.WR_ID]!, words[at + Wc.WR_ID + 1]!);
      const before = shared.outstanding;
      connection.retire(position, statusOfWc(status));
      count += before - shared.outstanding;
      if (status !== WcStatus.SUCCESS && connection.failure === Status.OK) {
        shared.log.debug(`the connection to ${connection.peer}: ${wcStatusText(status)}`);
        connection.fail(connectionStatusOfWc(status));
      }
    }
    return count;
  }

  /** Reads completions of received messages, without delivering the messages. */
  receive(): void {
    if (this.#closed) return;
    const reader = this.shared.receives;
    const { words } = reader;
    for (let left = reader.fill(); left > 0; left--) {
      const at = reader.next();
      const slot = words[at + Wc.WR_ID]!;
      const connection = this.#table.find(words[at + Wc.QP_NUM]!);
      const isGood = words[at + Wc.STATUS] === WcStatus.SUCCESS && words[at + Wc.OPCODE] === WcOpcode.RECV;
      if (connection === undefined || !isGood) {
        this.#receiver.recycle(slot);
        continue;
      }
      const immediate = words[at + Wc.IMM_DATA]!;
      const kind = (immediate >>> 8) & 0xff;
      if (kind === MessageKind.AM) this.#receiver.add(slot, immediate & 31, words[at + Wc.BYTE_LEN]!, connection);
      else {
        this.#receiver.recycle(slot);
        this.#onControl(connection, kind, immediate >>> 16);
      }
    }
  }

  /** Delivers the messages that were received; returns how many. */
  deliver(): number {
    const { handler } = this;
    if (handler === undefined) return 0;
    const count = this.#receiver.length;
    for (let i = 0; i < count && this.#receiver.length > 0 && !this.#closed; i++) {
      const connection = this.#receiver.deliver(handler, this.#onReceived);
      connection.delivered += 1;
      if (connection.delivered >= this.shared.rc.FC_WND_SIZE >> 1) this.#table.returnCredits(connection);
    }
    return count;
  }

  /** Requests the event of the next completion; true if there are completions to process before a sleep. */
  requestNotify(): boolean {
    const { sends, receives } = this.shared;
    sends.cq.requestNotify();
    receives.cq.requestNotify();
    // Completions that arrived before the request raise no event.
    const ready = sends.fill() + receives.fill();
    return ready > 0 || (this.handler !== undefined && this.#receiver.length > 0);
  }

  /** Stops delivering messages. */
  stop(): void {
    this.#closed = true;
  }

  /** Frees the work requests of the receive queue. */
  close(): void {
    this.#receiver.close();
  }

  #onControl(connection: IbConnection, kind: number, count: number): void {
    if (kind === MessageKind.CREDIT) {
      // A peer may grant at most the window.
      connection.credits = Math.min(this.shared.rc.FC_WND_SIZE, connection.credits + count);
      this.shared.sleeper.wake();
    } else if (kind === MessageKind.CLOSE) this.#onClose(connection);
  }
}
