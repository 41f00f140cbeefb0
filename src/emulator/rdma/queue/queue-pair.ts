/** A queue pair of an emulated RDMA device: its state machine, and datagrams. */

import { Errno, SyscallError } from '../../../sys/index.ts';
import {
  GRH_BYTES,
  GRH_DESTINATION_GID,
  GRH_SOURCE_GID,
  mtuBytes,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
} from '../../../verbs/abi.ts';
import type { QpAttributes, QpInit, QueuePair, VerbsBlock } from '../../../verbs/port.ts';
import { flushed } from './completion-queue.ts';
import { type Packet, PacketFlag, PacketKind } from './packet.ts';
import { Requester } from './requester.ts';
import { Responder } from './responder.ts';
import { SendQueue, type SendWqe } from './send-queue.ts';
import { QpShared, type RdmaShared } from './shared.ts';

/** Permitted next states of each state; RESET and ERR can be entered from every state. */
const NEXT_STATES: Readonly<Record<QpState, readonly QpState[]>> = {
  [QpState.RESET]: [QpState.INIT],
  [QpState.INIT]: [QpState.INIT, QpState.RTR],
  [QpState.RTR]: [QpState.RTS],
  [QpState.RTS]: [QpState.RTS],
  [QpState.SQD]: [],
  [QpState.SQE]: [],
  [QpState.ERR]: [],
};

const RC_RTR: readonly (keyof QpAttributes)[] = [
  'pathMtu',
  'destQpNum',
  'rqPsn',
  'maxDestRdAtomic',
  'minRnrTimer',
  'path',
];
const RC_RTS: readonly (keyof QpAttributes)[] = ['sqPsn', 'timeout', 'retryCount', 'rnrRetry', 'maxRdAtomic'];

/** The queue pair. */
export class EmulatedQp extends QpShared implements QueuePair {
  readonly maxInlineBytes: number;
  /** Called when it is destroyed. */
  onClose: () => void = () => {};
  readonly #hasOwnReceives: boolean;
  readonly #queue: SendQueue;
  readonly #requester: Requester;
  readonly #responder: Responder;
  #qkey = 0;

  constructor(device: RdmaShared, pd: object, qpNum: number, init: QpInit) {
    super(device, pd, qpNum, init);
    const { srq, maxSendWr, maxSendSge, maxInlineBytes } = init;
    this.#hasOwnReceives = srq === undefined;
    this.maxInlineBytes = maxInlineBytes;
    this.#queue = new SendQueue(maxSendWr, maxSendSge, maxInlineBytes);
    this.#requester = new Requester(this, this.#queue);
    this.#responder = new Responder(this);
  }

  modify(attributes: QpAttributes): void {
    const { state } = attributes;
    if (this.closed) throw invalid('the queue pair is destroyed');
    if (state === QpState.RESET) this.#reset();
    else if (state === QpState.ERR) this.fail();
    else {
      if (!NEXT_STATES[this.state].includes(state)) throw invalid(`state ${state} does not follow state ${this.state}`);
      this.#check(attributes);
      this.#apply(attributes);
    }
  }

  postSend(block: VerbsBlock, offset: number): number {
    if (this.closed || (this.state !== QpState.RTS && this.state !== QpState.ERR)) return Errno.EINVAL;
    const errno = this.#queue.post(block, offset, (wqe) => this.#objection(wqe));
    if (this.state === QpState.ERR) this.#requester.flush();
    else this.pump();
    return errno;
  }

  postReceive(block: VerbsBlock, offset: number): number {
    if (this.closed || !this.#hasOwnReceives || this.state === QpState.RESET) return Errno.EINVAL;
    const errno = this.receives.post(block, offset);
    if (this.state === QpState.ERR) this.#flushReceives();
    return errno;
  }

  /** Sends pending packets as far as limits and the wire permit. For RC, responses come before requests. */
  pump(): void {
    if (this.type === QpType.UD) this.#sendDatagrams();
    else {
      this.#responder.pump();
      this.#requester.pump();
    }
  }

  /** Handles a packet from the wire. */
  receive(packet: Packet, sourceGid: Uint8Array): void {
    if (this.state !== QpState.RTR && this.state !== QpState.RTS) return;
    if (this.type === QpType.UD) {
      if (packet.kind === PacketKind.DATAGRAM) this.#receiveDatagram(packet, sourceGid);
      return;
    }
    // A connection has one peer: packets from others are ignored.
    if (packet.sourceQpNum !== this.destQpNum || Buffer.compare(sourceGid, this.destGid) !== 0) return;
    if (packet.kind === PacketKind.ACK) this.#requester.onAck(packet);
    else if (packet.kind === PacketKind.READ_RESPONSE || packet.kind === PacketKind.ATOMIC_ACK) {
      this.#requester.onResponse(packet);
    } else if (packet.kind !== PacketKind.DATAGRAM) this.#responder.onRequest(packet);
  }

  fail(): void {
    if (this.state === QpState.ERR || this.state === QpState.RESET) return;
    this.state = QpState.ERR;
    const begun = this.#responder.reset();
    if (begun !== undefined) this.receiveCq.push(flushed(begun.idLow, begun.idHigh, this.qpNum));
    this.#requester.flush();
    if (this.#hasOwnReceives) this.#flushReceives();
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.#reset();
    this.sendCq.forget(this.qpNum);
    if (this.receiveCq !== this.sendCq) this.receiveCq.forget(this.qpNum);
    this.onClose();
  }

  #reset(): void {
    this.#requester.reset();
    this.#responder.reset();
    this.state = QpState.RESET;
  }

  #check(attributes: QpAttributes): void {
    const { state, port, pkeyIndex, path } = attributes;
    if (state === QpState.INIT && (port !== 1 || pkeyIndex !== 0)) throw invalid('port must be 1 and pkeyIndex 0');
    if (this.type === QpType.UD) return;
    const needed = state === QpState.RTR ? RC_RTR : this.state === QpState.RTR ? RC_RTS : [];
    for (const name of needed) if (attributes[name] === undefined) throw invalid(`${name} is missing`);
    if (state === QpState.RTR && path?.gid === undefined) throw invalid('the path needs a GID on Ethernet');
  }

  #apply(attributes: QpAttributes): void {
    const { state, path, pathMtu, rqPsn, sqPsn } = attributes;
    this.accessFlags = attributes.accessFlags ?? this.accessFlags;
    this.#qkey = attributes.qkey ?? this.#qkey;
    this.destQpNum = attributes.destQpNum ?? this.destQpNum;
    this.maxRdAtomic = attributes.maxRdAtomic ?? this.maxRdAtomic;
    this.maxDestRdAtomic = attributes.maxDestRdAtomic ?? this.maxDestRdAtomic;
    this.timeout = attributes.timeout ?? this.timeout;
    this.retryCount = attributes.retryCount ?? this.retryCount;
    this.rnrRetry = attributes.rnrRetry ?? this.rnrRetry;
    this.minRnrTimer = attributes.minRnrTimer ?? this.minRnrTimer;
    if (pathMtu !== undefined) this.mtu = mtuBytes(pathMtu);
    if (path?.gid !== undefined) this.destGid = path.gid.slice();
    if (rqPsn !== undefined) this.#responder.start(rqPsn);
    const starts = state === QpState.RTS && this.state !== QpState.RTS;
    this.state = state;
    if (starts && sqPsn !== undefined) this.#requester.start(sqPsn);
  }

  /** The errno for an unsupported work request; 0 for a supported one. */
  #objection({ opcode, byteLength, addressHandle }: SendWqe): number {
    if (this.type === QpType.RC) return opcode <= WrOpcode.ATOMIC_FETCH_AND_ADD ? 0 : Errno.EINVAL;
    const isSend = opcode === WrOpcode.SEND || opcode === WrOpcode.SEND_WITH_IMM;
    const isGood = isSend && byteLength <= this.mtu && this.device.destinationOf(addressHandle) !== undefined;
    return isGood ? 0 : Errno.EINVAL;
  }

  #flushReceives(): void {
    while (this.receives.length > 0) {
      const { idLow, idHigh } = this.receives.take();
      this.receiveCq.push(flushed(idLow, idHigh, this.qpNum));
    }
  }

  #sendDatagrams(): void {
    const queue = this.#queue;
    const { device, qpNum } = this;
    while (this.canRequest && queue.head < queue.tail) {
      const wqe = queue.at(queue.head);
      const destination = device.destinationOf(wqe.addressHandle);
      const { packet } = device;
      packet.begin(PacketKind.DATAGRAM, wqe.remoteQpNum, qpNum, 0);
      packet.flags = wqe.opcode === WrOpcode.SEND_WITH_IMM ? PacketFlag.IMMEDIATE : 0;
      packet.immediate = wqe.immediate;
      packet.qkey = wqe.qkey;
      packet.payloadBytes = wqe.byteLength;
      let isGathered = true;
      if ((wqe.flags & SendFlag.INLINE) !== 0) queue.copyInline(wqe, 0, packet.payload.u8, wqe.byteLength);
      else isGathered = wqe.sges.gather(device.regions, this.pd, 0, packet.payload.address, wqe.byteLength);
      queue.head += 1;
      queue.next = queue.head;
      const { idLow, idHigh, byteLength } = wqe;
      const entry = { idLow, idHigh, opcode: WcOpcode.SEND, byteLength, qpNum, sourceQp: 0, flags: 0, immediate: 0 };
      if (!isGathered) {
        this.sendCq.push({ ...entry, status: WcStatus.LOC_PROT_ERR });
        this.fail();
        return;
      }
      if (destination !== undefined) device.send(destination);
      if ((wqe.flags & SendFlag.SIGNALED) !== 0) this.sendCq.push({ ...entry, status: WcStatus.SUCCESS });
    }
  }

  /** Receives a datagram; it is lost if its Q_Key differs, or if the next posted receive is too short. */
  #receiveDatagram(packet: Packet, sourceGid: Uint8Array): void {
    const { payload, payloadBytes, sourceQpNum, immediate, flags } = packet;
    const wqe = this.receives.first;
    if (wqe === undefined || packet.qkey !== this.#qkey) return;
    if (GRH_BYTES + payloadBytes > wqe.sges.byteLength) return;
    const { regions } = this.device;
    // The payload is copied first, because the header is then built in its buffer.
    let isStored = wqe.sges.scatter(regions, this.receivePd, GRH_BYTES, payload.address, payloadBytes);
    payload.u8.fill(0, 0, GRH_BYTES);
    payload.u8.set(sourceGid, GRH_SOURCE_GID);
    payload.u8.set(this.device.gid, GRH_DESTINATION_GID);
    isStored &&= wqe.sges.scatter(regions, this.receivePd, 0, payload.address, GRH_BYTES);
    this.receives.take();
    const hasImmediate = (flags & PacketFlag.IMMEDIATE) !== 0;
    this.received(wqe, {
      status: isStored ? WcStatus.SUCCESS : WcStatus.LOC_PROT_ERR,
      opcode: WcOpcode.RECV,
      byteLength: GRH_BYTES + payloadBytes,
      sourceQp: sourceQpNum,
      flags: WcFlag.GRH | (hasImmediate ? WcFlag.WITH_IMM : 0),
      immediate: hasImmediate ? immediate : 0,
    });
  }
}

function invalid(what: string): SyscallError {
  return new SyscallError('ibv_modify_qp', Errno.EINVAL, `${what} (emulated)`);
}
