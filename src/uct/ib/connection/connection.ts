/**
 * One reliable connection: a queue pair and its posted work requests. The interface that connected sends messages through it; the other one returns credits.
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

/** Work requests that the connections of an interface together reserve for control messages; at most a quarter of the length of its completion queue. */
const CONTROL_ROOM = 64;
/** A connection that only sends credits needs a short queue. */
const PASSIVE_QUEUE_LENGTH = 32;
/** Time limit for a responsive peer to consume posted work requests. */
const CANCEL_NS = 50e6;
const TIMEOUT_CODE_MAX = 31;

/** Kinds of messages in the immediate data: bits 8 to 15, with the id of an active message below and a number above. */
export const MessageKind = { AM: 0, CREDIT: 1, CLOSE: 2 } as const;
export type MessageKind = (typeof MessageKind)[keyof typeof MessageKind];

/** The immediate data of a message. */
export function immediateOf(kind: MessageKind, id: number, count: number): number {
  return ((count << 16) | (kind << 8) | id) >>> 0;
}

/** An atomic operation that the device executes as compare and swap, and that must be repeated because the word has changed meanwhile. */
export interface AtomicRetry {
  readonly connection: IbConnection;
  readonly call: AtomicCall;
  readonly remoteOffset: number;
  readonly key: IbKey;
  readonly completion: Completion;
  /** Value of the word that the last attempt has read. */
  readonly assumed: bigint;
}

/** Where the connections of one interface report work for progress. */
export class ConnectionReports {
  readonly retries: AtomicRetry[] = [];
  /** Called once when a connection has failed. */
  readonly onFailed: (connection: IbConnection, status: Status) => void;

  constructor(onFailed: (connection: IbConnection, status: Status) => void) {
    this.onFailed = onFailed;
  }
}

/** Properties of a new connection. */
export interface ConnectionName {
  /** Identity of the interface of the peer. */
  readonly peer: string;
  readonly id: Uint8Array;
  /** True if this end has connected. */
  readonly isActive: boolean;
}

export class IbConnection implements ConnectionName {
  readonly peer: string;
  readonly id: Uint8Array;
  readonly qp: QueuePair;
  readonly psn: number;
  readonly isActive: boolean;
  /** OK unless it has failed. */
  failure: Status = Status.OK;
  isUp = false;
  /** The user has closed it; it is destroyed when all posted work requests have ended. */
  isClosing = false;
  isDestroyed = false;
  /** Messages that may be sent now. */
  credits: number;
  /** Messages that were delivered since credits were last returned. */
  delivered = 0;
  /** The reply for a repeated connection request. */
  answer: ConnectMessage | undefined = undefined;
  /** Work requests. They are posted with {@link begin} and {@link post}. */
  readonly sends: SendQueue;
  readonly #shared: IbShared;
  readonly #reports: ConnectionReports;
  readonly #moderation: number;
  /** Shared slots that are reserved for control messages. */
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

  /** Whether a posted work request has not ended. */
  get isBusy(): boolean {
    return this.sends.isBusy;
  }

  /** Number of work requests that can be posted now, 0 or less if none can. Some of the slots that connections share are reserved for control messages. */
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
   * Starts a work request. Requires {@link freeSlots}.
   * @param isSignaled whether the device reports its end by a completion
   * @returns its first word
   */
  begin(opcode: number, isSignaled: boolean, flags = 0): number {
    const { entry } = this.sends;
    this.#unsignaled += 1;
    // If slots are scarce, every request is signaled, so that they become free again.
    const { sendSlots, sendDepth } = this.#shared;
    entry.isSignaled = isSignaled || this.#unsignaled >= this.#moderation || sendSlots * 2 <= sendDepth;
    if (entry.isSignaled) this.#unsignaled = 0;
    return this.sends.begin(opcode, flags | (entry.isSignaled ? SendFlag.SIGNALED : 0));
  }

  /** Posts the work request that starts at word `at`, or holds it back. If that fails, the request fails with the connection. */
  post(at: number): void {
    this.#shared.sendSlots -= 1;
    if (!this.sends.post(at)) this.fail(Status.IO_ERROR);
  }

  uncork(): void {
    if (!this.isDestroyed && !this.sends.uncork()) this.fail(Status.IO_ERROR);
  }

  /** Ends the work requests up to a position, the last of them with this status. */
  retire(position: number, status: Status): void {
    const { sends } = this;
    for (let entry = sends.take(position); entry !== undefined; entry = sends.take(position)) {
      this.#end(entry, sends.hasTaken(position) ? status : Status.OK);
    }
  }

  /** See UctEndpoint.flush. Call it only while a work request is in flight. */
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

  /** Posts a zero-length RDMA write as a keepalive: its completion shows whether the peer responds. Requires {@link freeSlots}. */
  probe(): void {
    const at = this.begin(WrOpcode.RDMA_WRITE, true);
    setRdma(this.sends.words, at, 0, 0);
    this.sends.setList(at, 0);
    this.post(at);
  }

  /** Sends a message without payload; false if no work request can be posted now. */
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

  /** Marks the connection as failed, once, and moves the queue pair to the error state, which flushes all posted work requests. */
  fail(status: Status): void {
    if (this.#stop(status)) this.#reports.onFailed(this, status);
  }

  /**
   * Ends all posted work requests with CANCELED, if they have not ended within {@link CANCEL_NS}: work requests cannot be withdrawn, only flushed with the
   * queue pair, which then cannot send any more. The endpoint is being closed.
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
      // A failed device does not process anything any more, and reports an error.
      if (!isSyscallError(error)) throw error;
    }
    return true;
  }

  /** Destroys the queue pair; cancels pending operations, and those that endpoints of a closed interface start. */
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

  /** Ends a work request: releases the resources that it used, and ends its operation and the flushes that wait for it. */
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

/** The code of a time-out: 4.096 us * 2^code. */
function timeoutCode(ns: number): number {
  return Math.min(TIMEOUT_CODE_MAX, Math.max(1, Math.ceil(Math.log2(ns / TIMEOUT_UNIT_NS))));
}

function rnrCode(ns: number): number {
  // Code 0 would be the longest time.
  const code = RNR_TIMER_US.findIndex((us, index) => index > 0 && us * 1000 >= ns);
  return code < 0 ? RNR_TIMER_US.length - 1 : code;
}

function randomPsn(): number {
  return Buffer.from(systemRandomBytes(3)).readUIntLE(0, 3);
}
