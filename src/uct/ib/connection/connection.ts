/**
 * One reliable connection: a queue pair with the work requests that were posted to it. The connecting interface sends through it; the other one answers
 * with credits. connector.ts establishes it, and endpoints decide what is sent.
 */

import { allocateScratch, Errno, isSyscallError, type ScratchBlock } from '../../../sys/index.ts';
import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  AccessFlag,
  QpState,
  QpType,
  RNR_TIMER_US,
  SendFlag,
  SendWr,
  Sge,
  TIMEOUT_UNIT_NS,
  WrOpcode,
} from '../../../verbs/abi.ts';
import type { QpInit, QueuePair, SharedReceiveQueue } from '../../../verbs/port.ts';
import { setRdma, setSgList, writeSendWr, writeSge } from '../../../verbs/work-request.ts';
import type { Completion } from '../../api/iface.ts';
import type { IbConfig, RcConfig } from '../base/config.ts';
import type { IbPort } from '../base/device.ts';
import type { SlotMemory } from '../base/queues.ts';
import { pathTo } from './datagrams.ts';
import type { ConnectMessage } from './layout.ts';
import { TxEntry } from './work-request.ts';

/** Maximum number of entries of a list; the header of a message may be before them. */
export const IB_IOV_MAX = 4;
const SGE_MAX: number = IB_IOV_MAX + 1;
/** Requests that the connections of an interface keep free together for control messages; at most a quarter of the length of its completion queue. */
const CONTROL_ROOM = 64;
const LIST_AT: number = SendWr.WORDS;
const INLINE_AT: number = LIST_AT + SGE_MAX * Sge.WORDS;
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

/** The interface. */
export interface ConnectionOwner {
  readonly port: IbPort;
  readonly ib: IbConfig;
  readonly rc: RcConfig;
  readonly srq: SharedReceiveQueue;
  readonly clock: Clock;
  readonly tx: SlotMemory;
  readonly inlineBytes: number;
  readonly sendCq: Parameters<IbPort['device']['pd']['createQp']>[0]['sendCq'];
  readonly receiveCq: ConnectionOwner['sendCq'];
  /** Work requests that all connections together can have in flight: the completion queue must never overrun. */
  readonly sendDepth: number;
  /** Work requests that they can still post. */
  sendRoom: number;
  /** Ends an operation. */
  complete(completion: Completion, status: Status): void;
  /** A connection has failed, once, with the reason. */
  onFailed(connection: IbConnection, status: Status): void;
  /** An entry has ended; the caller releases its resources. */
  onEnded(connection: IbConnection, entry: TxEntry, status: Status): void;
}

/** The connection. */
export class IbConnection {
  /** Identity of the interface of the peer. */
  readonly peer: string;
  readonly id: Uint8Array;
  readonly qp: QueuePair;
  readonly psn: number;
  /** Whether this end has connected. */
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
  readonly #owner: ConnectionOwner;
  readonly #length: number;
  readonly #moderation: number;
  /** Made when they are needed first. */
  readonly #entries: (TxEntry | undefined)[];
  readonly #block: ScratchBlock;
  readonly #slotWords: number;
  /** Room of the owner that is kept for control messages. */
  readonly #reserved: number;
  #head = 0;
  #tail = 0;
  #unsignaled = 0;
  /** First word of the requests that are held back, and of the last of them; -1 for none. */
  #corkedFirst = -1;
  #corkedLast = -1;
  #isCorked = false;
  #cancellation: Timer | undefined;

  /** @throws SyscallError */
  constructor(owner: ConnectionOwner, peer: string, id: Uint8Array, isActive: boolean) {
    this.#owner = owner;
    this.#reserved = Math.min(CONTROL_ROOM, owner.sendDepth >> 2);
    this.peer = peer;
    this.id = id;
    this.psn = randomPsn();
    this.isActive = isActive;
    const { port, rc, inlineBytes } = owner;
    const { device } = port;
    const wanted = isActive ? rc.TX_QUEUE_LEN : PASSIVE_QUEUE_LENGTH;
    this.#length = Math.min(wanted, device.attributes.maxQpWr);
    this.#moderation = Math.min(rc.TX_CQ_MODERATION, this.#length >> 2);
    this.credits = rc.FC_WND_SIZE;
    this.qp = device.pd.createQp(qpInitOf(owner, this.#length, inlineBytes));
    this.#slotWords = INLINE_AT + inlineBytes / 4;
    this.#block = allocateScratch(this.#length * this.#slotWords * 4);
    this.#entries = new Array<TxEntry | undefined>(this.#length).fill(undefined);
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
    return this.#tail !== this.#head;
  }

  /** Room for work requests, at most 0 if there is none. Some of the room that connections share is kept for control messages. */
  get room(): number {
    return Math.min(this.#ownRoom, this.#owner.sendRoom - this.#reserved);
  }

  /** Room for control messages. */
  get #controlRoom(): number {
    return Math.min(this.#ownRoom, this.#owner.sendRoom);
  }

  get #ownRoom(): number {
    return this.#length - (this.#tail - this.#head);
  }

  get words(): Uint32Array {
    return this.#block.words;
  }

  /** Connects the queue pair to that of the peer. @throws SyscallError */
  establish({ mtu, qpNum, psn, maxReads, gid, lid }: ConnectMessage): void {
    const { port, ib, rc } = this.#owner;
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

  /** The entry of the next work request: {@link begin} has started it. */
  get entry(): TxEntry {
    const index = this.#tail % this.#length;
    this.#entries[index] ??= new TxEntry();
    return this.#entries[index];
  }

  /**
   * Starts a work request. Only with {@link room}.
   * @param isSignaled whether its end is reported by a completion of its own
   * @returns its first word
   */
  begin(opcode: number, isSignaled: boolean, flags = 0): number {
    const at = (this.#tail % this.#length) * this.#slotWords;
    const { entry } = this;
    this.#unsignaled += 1;
    // If room is scarce, every end is reported, so that room becomes free again.
    const { sendRoom, sendDepth } = this.#owner;
    entry.isSignaled = isSignaled || this.#unsignaled >= this.#moderation || sendRoom * 2 <= sendDepth;
    if (entry.isSignaled) this.#unsignaled = 0;
    writeSendWr(this.#block.words, at, this.#tail, opcode, flags | (entry.isSignaled ? SendFlag.SIGNALED : 0));
    return at;
  }

  /** Sets entry `index` of the list of the work request that starts at word `at`. */
  setSge(at: number, index: number, address: number, byteLength: number, lkey: number): void {
    writeSge(this.#block.words, at + LIST_AT + index * Sge.WORDS, address, byteLength, lkey);
  }

  /** Sets the length of that list. */
  setList(at: number, count: number): void {
    setSgList(this.#block.words, at, this.#block.address + (at + LIST_AT) * 4, count);
  }

  /** The place of `byteLength` inline bytes of that work request, which becomes inline: an offset in {@link bytes}. */
  inline(at: number, byteLength: number): number {
    const offset = (at + INLINE_AT) * 4;
    this.#block.words[at + SendWr.SEND_FLAGS]! |= SendFlag.INLINE;
    this.setSge(at, 0, this.#block.address + offset, byteLength, 0);
    this.setList(at, byteLength === 0 ? 0 : 1);
    return offset;
  }

  get bytes(): Uint8Array {
    return this.#block.u8;
  }

  /** Posts the work request that starts at word `at`, or holds it back. If that fails, it ends with the connection. */
  post(at: number): void {
    this.#tail += 1;
    this.#owner.sendRoom -= 1;
    if (this.#isCorked) {
      const address = this.#block.address + at * 4;
      if (this.#corkedFirst < 0) this.#corkedFirst = at;
      else {
        this.#block.words[this.#corkedLast + SendWr.NEXT] = address;
        this.#block.words[this.#corkedLast + SendWr.NEXT + 1] = highOf(address);
      }
      this.#corkedLast = at;
      return;
    }
    this.#postChain(at);
  }

  cork(): void {
    this.#isCorked = true;
  }

  uncork(): void {
    this.#isCorked = false;
    const first = this.#corkedFirst;
    this.#corkedFirst = -1;
    if (first >= 0 && !this.isDestroyed) this.#postChain(first);
  }

  /** The work requests up to a position have ended, the last of them with this status. */
  retire(position: number, status: Status): number {
    let count = 0;
    while (this.#head <= position && this.#head < this.#tail) {
      const isLast = this.#head === position;
      const entry = this.#entries[this.#head % this.#length]!;
      this.#head += 1;
      count += this.#end(entry, isLast ? status : Status.OK);
    }
    return count;
  }

  /** Ends everything that was posted with a status: the queue pair is destroyed. */
  abandon(status: Status): void {
    while (this.#head < this.#tail) {
      const entry = this.#entries[this.#head % this.#length]!;
      this.#head += 1;
      this.#end(entry, status);
    }
  }

  /** See UctEndpoint.flush: only while something is in flight. */
  flush(completion: Completion | undefined): Status {
    let last = this.#entries[(this.#tail - 1) % this.#length]!;
    if (!last.isSignaled) {
      if (this.room <= 0) return completion === undefined ? Status.INPROGRESS : Status.NO_RESOURCE;
      last = this.entry;
      this.probe();
    }
    if (completion !== undefined) {
      last.flushes ??= [];
      last.flushes.push(completion);
    }
    return Status.INPROGRESS;
  }

  /** Posts a write of nothing: its end shows that everything before it has arrived, or that the peer does not answer. Only with {@link room}. */
  probe(): void {
    const at = this.begin(WrOpcode.RDMA_WRITE, true);
    setRdma(this.words, at, 0, 0);
    this.setList(at, 0);
    this.post(at);
  }

  /** Sends a message without payload; false if there is no room. */
  sendControl(kind: MessageKind, count: number): boolean {
    if (this.#controlRoom === 0 || !this.isUp || this.failure !== Status.OK) return false;
    const at = this.begin(WrOpcode.SEND_WITH_IMM, true, SendFlag.SOLICITED);
    this.words[at + SendWr.IMM_DATA] = immediateOf(kind, 0, count);
    this.setList(at, 0);
    this.post(at);
    return true;
  }

  /** Marks it as failed, once, and stops the queue pair: everything posted is flushed. */
  fail(status: Status): void {
    if (this.#stop(status)) this.#owner.onFailed(this, status);
  }

  /**
   * Ends everything posted with CANCELED, if it has not ended within a time in which a peer that answers has taken it: work requests cannot be withdrawn, only
   * flushed with the queue pair, which sends nothing more. The endpoint is being closed.
   */
  cancel(): void {
    this.#cancellation ??= this.#owner.clock.setTimer(CANCEL_NS, () => {
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
    this.abandon(this.failure);
    this.#block.free();
  }

  #postChain(at: number): void {
    if (this.qp.postSend(this.#block, at * 4) !== 0) this.fail(Status.IO_ERROR);
  }

  #end(entry: TxEntry, status: Status): number {
    this.#owner.sendRoom += 1;
    const { flushes } = entry;
    const final =
      this.failure !== Status.OK && status !== Status.OK && status !== Status.INVALID_ADDR ? this.failure : status;
    this.#owner.onEnded(this, entry, final);
    if (flushes === undefined) return 1;
    for (const flush of flushes) this.#owner.complete(flush, final);
    return 1 + flushes.length;
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

/** The parameters of queue pairs. */
type QpOwner = Pick<ConnectionOwner, 'port' | 'rc' | 'sendCq' | 'receiveCq' | 'srq'>;

function qpInitOf({ port, sendCq, receiveCq, srq }: QpOwner, maxSendWr: number, maxInlineBytes: number): QpInit {
  const maxSendSge = Math.min(SGE_MAX, port.device.attributes.maxSge);
  return {
    type: QpType.RC,
    sendCq,
    receiveCq,
    srq,
    maxSendWr,
    maxReceiveWr: 0,
    maxSendSge,
    maxReceiveSge: 0,
    maxInlineBytes,
  };
}

/**
 * Inline data of the queue pairs of an interface: UCX_RC_TX_MIN_INLINE, or less on a device that refuses it. Verbs has no query for that, so a queue pair is made.
 * @throws SyscallError
 */
export function inlineBytesOf(owner: QpOwner): number {
  const { port, rc } = owner;
  const { attributes, pd } = port.device;
  const length = Math.min(rc.TX_QUEUE_LEN, attributes.maxQpWr);
  for (let bytes = rc.TX_MIN_INLINE; ; bytes = (bytes >> 1) & ~7) {
    try {
      pd.createQp(qpInitOf(owner, length, bytes)).close();
      return bytes;
    } catch (error) {
      if (bytes === 0 || !isSyscallError(error, Errno.EINVAL)) throw error;
    }
  }
}

function randomPsn(): number {
  return Buffer.from(systemRandomBytes(3)).readUIntLE(0, 3);
}
