/** The completions of one interface: work requests that have ended, and messages that have arrived, which are delivered in order. */

import { joinWords } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import { Wc, WcOpcode, WcStatus, wcStatusText } from '../../../verbs/abi.ts';
import type { AmHandler } from '../../api/iface.ts';
import { connectionStatusOfWc, statusOfWc } from '../base/queues.ts';
import type { IbShared } from '../shared.ts';
import { type IbConnection, MessageKind } from './connection.ts';
import type { ConnectionTable } from './connection-table.ts';
import { ReceiveQueue } from './receiver.ts';

/** The completions. */
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

  /** Requests the event of the next completion; true if there is something to do before. */
  requestNotify(): boolean {
    const { sends, receives } = this.shared;
    sends.cq.requestNotify();
    receives.cq.requestNotify();
    // Completions that arrived before the request raise no event.
    const ready = sends.fill() + receives.fill();
    return ready > 0 || (this.handler !== undefined && this.#receiver.length > 0);
  }

  /** Delivers nothing more. */
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
