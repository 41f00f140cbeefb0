/**
 * One reliable connection: a queue pair with its posted work requests. The connecting interface sends through it; the other one replies with credits.
 */

import { isSyscallError } from '../../../sys/index.ts';
import { copyBytes } from '../../../ucs/memory/bytes.ts';
import type { Timer } from '../../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { joinBig } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import { AccessFlag, QpState, RNR_TIMER_US, SendFlag, SendWr, TIMEOUT_UNIT_NS, WrOpcode } from '../../../verbs/abi.ts';
import type { QueuePair } from '../../../verbs/port.ts';
import { setRdma } from '../../../verbs/work-request.ts';
import type { AtomicCall, Completion } from '../../api/iface.ts';
import type { IbKey } from '../base/key.ts';
import { qpInitOf } from '../base/queues.ts';
import type { IbShared } from '../shared.ts';
import { pathTo } from './datagrams.ts';
import type { ConnectMessage } from './layout.ts';
import { isNative, SendQueue, type TxEntry } from './work-request.ts';

/** Requests that the connections of an interface keep free together for control messages; at most a quarter of the length of its completion queue. */
const CONTROL_ROOM = 64;
/** A connection that only sends credits needs a short queue. */
const PASSIVE_QUEUE_LENGTH = 32;
/** Time in which a peer that answers takes what was posted. */
const CANCEL_NS = 50e6;
const TIMEOUT_CODE_MAX = 31;

/** Kinds of messages in the immediate data: bits 8 to 15, with the id of an active message below and a number above. */
export const MessageKind = { AM: 0, CREDIT: 1, CLOSE: 2 } as const;
export type MessageKind = (typeof MessageKind)[keyof typeof MessageKind];

/** The immediate data of a message. */
export function immediateOf(kind: MessageKind, id: number, count: number): number {
  return ((count << 16) | (kind << 8) | id) >>> 0;
}

/** An atomic operation that the device has executed as compare and swap, and that must be repeated because the word has changed meanwhile. */
export interface AtomicRetry {
  readonly connection: IbConnection;
  readonly call: AtomicCall;
  readonly remoteOffset: number;
  readonly key: IbKey;
  readonly completion: Completion;
  /** Value of the word that the last attempt has found. */
  readonly assumed: bigint;
}

/** Where the connections of one interface report what progress has to do for them. */
export class ConnectionReports {
  readonly retries: AtomicRetry[] = [];
  /** Called when a connection has failed, once. */
  readonly onFailed: (connection: IbConnection, status: Status) => void;

  constructor(onFailed: (connection: IbConnection, status: Status) => void) {
    this.onFailed = onFailed;
  }
}

/** What a connection is for. */
export interface ConnectionName {
  /** Identity of the interface of the peer. */
  readonly peer: string;
  readonly id: Uint8Array;
  /** Whether this end has connected. */
  readonly isActive: boolean;
}

/** The connection. */
export class IbConnection implements ConnectionName {
  readonly peer: string;
  readonly id: Uint8Array;
  readonly qp: QueuePair;
  readonly psn: number;
  readonly isActive: boolean;
  /** OK unless it has failed. */
  failure: Status = Status.OK;
  isUp = false;
  /** The user has closed it; it ends once everything posted has ended. */
  isClosing = false;
  isDestroyed = false;
  /** Messages that may be sent. */
  credits: number;
  /** Messages that were delivered since the last credit. */
  delivered = 0;
  /** The answer to a repeated request to connect. */
  answer: ConnectMessage | undefined = undefined;
  /** Work requests. They are posted with {@link begin} and {@link post}. */
  readonly sends: SendQueue;
  readonly #shared: IbShared;
  readonly #reports: ConnectionReports;
  readonly #moderation: number;
  /** Slots of all connections together that are kept for control messages. */
  readonly #reserved: number;
  #unsignaled = 0;
  #cancellation: Timer | undefined;

  /** @throws SyscallError */
  constructor(shared: IbShared, reports: ConnectionReports, { peer, id, isActive }: ConnectionName) {
    this.#shared = shared;
    this.#reports = reports;
    this.#reserved = Math.min(CONTROL_ROOM, shared.sendDepth >> 2);
    this.peer = peer;
    this.id = id;
    this.psn = randomPsn();
    this.isActive = isActive;
    const { port, rc, inlineBytes, sendCq, receiveCq, srq } = shared;
    const { device } = port;
    const maxSendWr = Math.min(isActive ? rc.TX_QUEUE_LEN : PASSIVE_QUEUE_LENGTH, device.attributes.maxQpWr);
    this.#moderation = Math.min(rc.TX_CQ_MODERATION, maxSendWr >> 2);
    this.credits = rc.FC_WND_SIZE;
    this.qp = device.pd.createQp(qpInitOf(device, { sendCq, receiveCq, srq, maxSendWr }, inlineBytes));
    this.sends = new SendQueue(this.qp, maxSendWr, inlineBytes);
    const accessFlags = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC;
    try {
      this.qp.modify({ state: QpState.INIT, port: port.number, pkeyIndex: port.pkeyIndex, accessFlags });
    } catch (error) {
      this.destroy();
      throw error;
    }
  }

  /** Whether anything that was posted has not ended. */
  get isBusy(): boolean {
    return this.sends.isBusy;
  }

  /** Number of work requests that can be posted, at most 0 if there is none. Some of the slots that connections share are kept for control messages. */
  get freeSlots(): number {
    return Math.min(this.sends.free, this.#shared.sendSlots - this.#reserved);
  }

  /** Connects the queue pair to that of the peer. @throws SyscallError */
  establish({ mtu, qpNum, psn, maxReads, gid, lid }: ConnectMessage): void {
    const { port, ib, rc } = this.#shared;
    const { attributes } = port.device;
    this.qp.modify({
      state: QpState.RTR,
      pathMtu: Math.min(mtu, port.attributes.activeMtu, ib.PATH_MTU),
      destQpNum: qpNum,
      rqPsn: psn,
      maxDestRdAtomic: Math.min(rc.MAX_RD_ATOMIC, attributes.maxQpRdAtom),
      minRnrTimer: rnrCode(rc.RNR_TIMEOUT),
      path: pathTo(port, ib, { gid, lid }),
    });
    this.qp.modify({
      state: QpState.RTS,
      sqPsn: this.psn,
      timeout: timeoutCode(rc.TIMEOUT),
      retryCount: rc.RETRY_COUNT,
      rnrRetry: rc.RNR_RETRY_COUNT,
      maxRdAtomic: Math.max(1, Math.min(rc.MAX_RD_ATOMIC, attributes.maxQpInitRdAtom, maxReads)),
    });
    this.isUp = true;
  }

  /**
   * Starts a work request. Only with {@link freeSlots}.
   * @param isSignaled whether its end is reported by a completion of its own
   * @returns its first word
   */
  begin(opcode: number, isSignaled: boolean, flags = 0): number {
    const { entry } = this.sends;
    this.#unsignaled += 1;
    // If slots are scarce, every end is reported, so that they become free again.
    const { sendSlots, sendDepth } = this.#shared;
    entry.isSignaled = isSignaled || this.#unsignaled >= this.#moderation || sendSlots * 2 <= sendDepth;
    if (entry.isSignaled) this.#unsignaled = 0;
    return this.sends.begin(opcode, flags | (entry.isSignaled ? SendFlag.SIGNALED : 0));
  }

  /** Posts the work request that starts at word `at`, or holds it back. If that fails, it ends with the connection. */
  post(at: number): void {
    this.#shared.sendSlots -= 1;
    if (!this.sends.post(at)) this.fail(Status.IO_ERROR);
  }

  uncork(): void {
    if (!this.isDestroyed && !this.sends.uncork()) this.fail(Status.IO_ERROR);
  }

  /** The work requests up to a position have ended, the last of them with this status. */
  retire(position: number, status: Status): void {
    const { sends } = this;
    for (let entry = sends.take(position); entry !== undefined; entry = sends.take(position)) {
      this.#end(entry, sends.hasTaken(position) ? status : Status.OK);
    }
  }

  /** See UctEndpoint.flush: only while something is in flight. */
  flush(completion: Completion | undefined): Status {
    let { last } = this.sends;
    if (!last.isSignaled) {
      if (this.freeSlots <= 0) return completion === undefined ? Status.INPROGRESS : Status.NO_RESOURCE;
      last = this.sends.entry;
      this.probe();
    }
    if (completion !== undefined) {
      last.flushes ??= [];
      last.flushes.push(completion);
    }
    return Status.INPROGRESS;
  }

  /** Posts a write of nothing: its end shows that everything before it has arrived, or that the peer does not answer. Only with {@link freeSlots}. */
  probe(): void {
    const at = this.begin(WrOpcode.RDMA_WRITE, true);
    setRdma(this.sends.words, at, 0, 0);
    this.sends.setList(at, 0);
    this.post(at);
  }

  /** Sends a message without payload; false if there is no room. */
  sendControl(kind: MessageKind, count: number): boolean {
    const { sends } = this;
    const slots = Math.min(sends.free, this.#shared.sendSlots);
    if (slots === 0 || !this.isUp || this.failure !== Status.OK) return false;
    const at = this.begin(WrOpcode.SEND_WITH_IMM, true, SendFlag.SOLICITED);
    sends.words[at + SendWr.IMM_DATA] = immediateOf(kind, 0, count);
    sends.setList(at, 0);
    this.post(at);
    return true;
  }

  /** Marks it as failed, once, and stops the queue pair: everything posted is flushed. */
  fail(status: Status): void {
    if (this.#stop(status)) this.#reports.onFailed(this, status);
  }

  /**
   * Ends everything posted with CANCELED, if it has not ended within a time in which a peer that answers has taken it: work requests cannot be withdrawn, only
   * flushed with the queue pair, which sends nothing more. The endpoint is being closed.
   */
  cancel(): void {
    this.#cancellation ??= this.#shared.clock.setTimer(CANCEL_NS, () => {
      if (this.isBusy) this.#stop(Status.CANCELED);
    });
  }

  #stop(status: Status): boolean {
    if (this.failure !== Status.OK || this.isDestroyed) return false;
    this.failure = status;
    this.uncork();
    try {
      this.qp.modify({ state: QpState.ERR });
    } catch (error) {
      // A device that has failed moves nothing more, and says so.
      if (!isSyscallError(error)) throw error;
    }
    return true;
  }

  /** Destroys the queue pair; pending operations are canceled, and so are those that endpoints of a closed interface start. */
  destroy(): void {
    if (this.isDestroyed) return;
    this.isDestroyed = true;
    this.#cancellation?.cancel();
    this.qp.close();
    if (this.failure === Status.OK) this.failure = Status.CANCELED;
    const { sends } = this;
    for (let entry = sends.take(Infinity); entry !== undefined; entry = sends.take(Infinity)) {
      this.#end(entry, this.failure);
    }
    sends.close();
  }

  /** A work request has ended: releases what it has used, and ends its operation and the flushes that wait for it. */
  #end(entry: TxEntry, status: Status): void {
    const shared = this.#shared;
    shared.sendSlots += 1;
    const { flushes } = entry;
    const isOwn = status === Status.OK || status === Status.INVALID_ADDR;
    const final = this.failure !== Status.OK && !isOwn ? this.failure : status;
    this.#endOperation(entry, final);
    if (flushes !== undefined) for (const flush of flushes) shared.complete(flush, final);
  }

  #endOperation(entry: TxEntry, status: Status): void {
    const { tx } = this.#shared;
    const { slot, completion, target, targetOffset, targetBytes, call, key, remoteOffset, assumed } = entry;
    const isAttached = entry.release();
    entry.clear();
    let final = status === Status.OK && !isAttached ? Status.INVALID_ADDR : status;
    if (slot >= 0) {
      const at = slot * tx.slotBytes;
      if (final === Status.OK && target !== undefined) {
        if (target.byteLength < targetOffset + targetBytes) final = Status.INVALID_ADDR;
        else copyBytes(target, targetOffset, tx.bytes, at, targetBytes);
      }
      if (final === Status.OK && call !== undefined && completion !== undefined && key !== undefined) {
        const word = joinBig(tx.words[at >> 2]!, tx.words[(at >> 2) + 1]!);
        tx.give(slot);
        call.result64 = word;
        if (isNative(call.operation) || word === assumed) this.#shared.complete(completion, Status.OK);
        else this.#reports.retries.push({ connection: this, call, remoteOffset, key, completion, assumed: word });
        return;
      }
      tx.give(slot);
    }
    if (completion !== undefined) this.#shared.complete(completion, final);
  }
}

/** The code of a time: 4.096 us * 2^code. */
function timeoutCode(ns: number): number {
  return Math.min(TIMEOUT_CODE_MAX, Math.max(1, Math.ceil(Math.log2(ns / TIMEOUT_UNIT_NS))));
}

function rnrCode(ns: number): number {
  // Code 0 is the longest time.
  const code = RNR_TIMER_US.findIndex((us, index) => index > 0 && us * 1000 >= ns);
  return code < 0 ? RNR_TIMER_US.length - 1 : code;
}

function randomPsn(): number {
  return Buffer.from(systemRandomBytes(3)).readUIntLE(0, 3);
}
