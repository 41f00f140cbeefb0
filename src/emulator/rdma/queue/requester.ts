/**
 * The requester of an emulated RC queue pair: sends the packets of work requests in order, and completes them by acknowledgements and responses. Lost
 * packets are resent (go-back-N) after a time-out or a NAK, until the retries are exhausted.
 */

import type { Timer } from '../../../ucs/sys/clock.ts';
import { RNR_TIMER_US, SendFlag, TIMEOUT_UNIT_NS, WcOpcode, WcStatus, WrOpcode } from '../../../verbs/abi.ts';
import { failed, flushed } from './completion-queue.ts';
import { type Packet, PacketFlag, PacketKind, psnAfter, psnDistance, Syndrome } from './packet.ts';
import type { SendQueue, SendWqe } from './send-queue.ts';
import type { QpShared } from './shared.ts';

/** Packets in flight per queue pair. */
const WINDOW = 64;
/** Maximum number of sequence numbers in flight, those of responses to reads included: far fewer than the 24 bits can distinguish. */
const IN_FLIGHT_MAX: number = 2 ** 21;
/** A long message requests an acknowledgement once in this number of packets. */
const ACK_EVERY = 16;
/** Value of rnrRetry for an unlimited number of retries. */
const RNR_FOREVER = 7;
const WC_OPCODE: readonly number[] = [
  WcOpcode.RDMA_WRITE,
  WcOpcode.RDMA_WRITE,
  WcOpcode.SEND,
  WcOpcode.SEND,
  WcOpcode.RDMA_READ,
  WcOpcode.COMP_SWAP,
  WcOpcode.FETCH_ADD,
];

/** The requester. */
export class Requester {
  readonly #qp: QpShared;
  readonly #queue: SendQueue;
  /** Next sequence number of a request that starts, and the oldest that is not acknowledged. */
  #nextPsn = 0;
  #ackedPsn = 0;
  #retriesLeft = 0;
  #rnrRetriesLeft = 0;
  /** The receiver was not ready: nothing is sent until the timer ends. */
  #isWaiting = false;
  #isPumping = false;
  #timer: Pick<Timer, 'cancel'> | undefined;
  /** Time of the last acknowledgement, or of the first packet after everything was acknowledged. */
  #progressNs = 0;

  constructor(qp: QpShared, queue: SendQueue) {
    this.#qp = qp;
    this.#queue = queue;
  }

  /** Starts with a sequence number: the transition to RTS. */
  start(psn: number): void {
    this.#nextPsn = psn;
    this.#ackedPsn = psn;
    this.#retriesLeft = this.#qp.retryCount;
    this.#rnrRetriesLeft = this.#qp.rnrRetry;
  }

  /** Sends packets as far as the window, the limits of reads and the wire permit. */
  pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const queue = this.#queue;
    while (this.#qp.canRequest && !this.#isWaiting && queue.next < queue.tail) {
      const position = queue.next;
      const wqe = queue.at(position);
      // Already sent completely, before an earlier request was repeated.
      if (wqe.hasStarted && wqe.sent === this.#packetsToSend(wqe)) {
        queue.next += 1;
        continue;
      }
      if (!this.#maySend(wqe)) break;
      if (!this.#send(wqe)) {
        this.#failAt(wqe, WcStatus.LOC_PROT_ERR);
        break;
      }
      // A reply may have arrived inside the call, and have advanced or reset the position.
      if (queue.next === position && wqe.sent === this.#packetsToSend(wqe)) queue.next += 1;
    }
    this.#isPumping = false;
    if (this.#inFlight > 0 || this.#isBlocked) this.#watch();
  }

  /** Handles an acknowledgement, positive or negative. */
  onAck({ psn, syndrome, rnrTimer }: Packet): void {
    if (!this.#isInFlight(psn)) return;
    if (syndrome === Syndrome.ACK) {
      this.#acknowledge(psnAfter(psn, 1));
    } else {
      this.#acknowledge(psn);
      if (!this.#qp.canRequest || this.#queue.head === this.#queue.tail) return;
      if (syndrome === Syndrome.RNR) this.#notReady(rnrTimer);
      else if (syndrome === Syndrome.PSN_SEQUENCE) this.#goBack();
      else this.#failAt(this.#queue.at(this.#queue.head), statusOf(syndrome));
    }
    this.pump();
  }

  /** Handles a response with data: of a read or an atomic operation. */
  onResponse(packet: Packet): void {
    const { psn, payloadBytes, payload, swapLow, swapHigh } = packet;
    if (!this.#isInFlight(psn)) return;
    const wqe = this.#entryOf(psn);
    if (wqe === undefined || !wqe.hasResponse) return;
    const isRead = packet.kind === PacketKind.READ_RESPONSE;
    const index = psnDistance(wqe.psn, psn);
    if (isRead !== wqe.isRead || index !== wqe.received) return;
    const { device, pd, mtu } = this.#qp;
    let isStored: boolean;
    if (isRead) {
      const offset = index * mtu;
      const isFull = payloadBytes === Math.min(mtu, wqe.byteLength - offset);
      if (!isFull) {
        this.#failAt(wqe, WcStatus.BAD_RESP_ERR);
        return;
      }
      isStored = wqe.sges.scatter(device.regions, pd, offset, payload.address, payloadBytes);
    } else {
      payload.words[0] = swapLow;
      payload.words[1] = swapHigh;
      isStored = wqe.sges.scatter(device.regions, pd, 0, payload.address, 8);
    }
    if (!isStored) {
      this.#failAt(wqe, WcStatus.LOC_PROT_ERR);
      return;
    }
    wqe.received += 1;
    this.#acknowledge(psnAfter(psn, 1));
    this.pump();
  }

  /** Flushes everything posted: the queue pair is in error. */
  flush(): void {
    const queue = this.#queue;
    while (queue.head < queue.tail) {
      const { idLow, idHigh } = queue.at(queue.head);
      queue.head += 1;
      this.#qp.sendCq.push(flushed(idLow, idHigh, this.#qp.qpNum));
    }
    queue.next = queue.head;
    this.#stopTimer();
  }

  /** Forgets everything: the queue pair is reset or destroyed. */
  reset(): void {
    const queue = this.#queue;
    queue.head = queue.tail;
    queue.next = queue.tail;
    this.#isWaiting = false;
    this.#stopTimer();
  }

  /** Whether requests wait because the wire accepts no packet; then the acknowledgement time-out also limits this wait. */
  get #isBlocked(): boolean {
    const { canRequest, device, destGid } = this.#qp;
    return canRequest && !this.#isWaiting && this.#queue.next < this.#queue.tail && !device.canSend(destGid);
  }

  get #inFlight(): number {
    return psnDistance(this.#ackedPsn, this.#nextPsn);
  }

  /** Whether a sequence number was sent and is not acknowledged. */
  #isInFlight(psn: number): boolean {
    const distance = psnDistance(this.#ackedPsn, psn);
    return distance >= 0 && distance < this.#inFlight && this.#qp.canRequest;
  }

  #maySend(wqe: SendWqe): boolean {
    const { device, destGid, maxRdAtomic } = this.#qp;
    if (!device.canSend(destGid)) return false;
    if (wqe.hasStarted && wqe.sent > 0) return psnDistance(this.#ackedPsn, psnAfter(wqe.psn, wqe.sent)) < WINDOW;
    if (this.#inFlight >= IN_FLIGHT_MAX) return false;
    const responses = this.#openResponses();
    if ((wqe.flags & SendFlag.FENCE) !== 0 && responses > 0) return false;
    if (wqe.hasResponse) return responses < maxRdAtomic;
    const psn = wqe.hasStarted ? wqe.psn : this.#nextPsn;
    return responses > 0 || psnDistance(this.#ackedPsn, psn) < WINDOW;
  }

  /** Number of reads and atomic operations that were sent and have no response yet. */
  #openResponses(): number {
    let count = 0;
    for (let position = this.#queue.head; position < this.#queue.next; position++) {
      const wqe = this.#queue.at(position);
      if (wqe.hasResponse && !wqe.isAnswered) count += 1;
    }
    return count;
  }

  /** Number of packets that a request sends: one for a read or an atomic operation. A repeated read requests only the data that has not arrived. */
  #packetsToSend(wqe: SendWqe): number {
    return wqe.hasResponse ? 1 : wqe.packets;
  }

  /** Sends the next packet of a request; false if its memory is not accessible. */
  #send(wqe: SendWqe): boolean {
    const { device, destGid, destQpNum, qpNum, mtu } = this.#qp;
    if (!wqe.hasStarted) {
      wqe.hasStarted = true;
      wqe.psn = this.#nextPsn;
      wqe.packets = wqe.isAtomic ? 1 : Math.max(1, Math.ceil(wqe.byteLength / mtu));
      if (this.#inFlight === 0) this.#progressNs = device.clock.nowNs();
    }
    const index = wqe.isRead ? wqe.received : wqe.sent;
    const psn = psnAfter(wqe.psn, index);
    const { packet } = device;
    packet.begin(kindOf(wqe), destQpNum, qpNum, psn);
    packet.remoteAddress = wqe.remoteAddress;
    packet.rkey = wqe.rkey;
    packet.dmaLength = wqe.byteLength;
    if (wqe.isRead) {
      packet.remoteAddress += index * mtu;
      packet.dmaLength -= index * mtu;
      packet.flags = PacketFlag.FIRST | PacketFlag.LAST;
    } else if (wqe.isAtomic) {
      packet.compareLow = wqe.compareLow;
      packet.compareHigh = wqe.compareHigh;
      packet.swapLow = wqe.swapLow;
      packet.swapHigh = wqe.swapHigh;
      packet.flags = PacketFlag.FIRST | PacketFlag.LAST;
    } else if (!this.#fill(wqe, index)) return false;
    wqe.sent += 1;
    const lastPsn = psnAfter(wqe.psn, wqe.isRead ? wqe.packets : index + 1);
    if (psnDistance(this.#nextPsn, lastPsn) > 0) this.#nextPsn = lastPsn;
    device.send(destGid);
    return true;
  }

  /** Payload and flags of a send or write. */
  #fill(wqe: SendWqe, index: number): boolean {
    const { device, pd, mtu } = this.#qp;
    const { packet } = device;
    const offset = index * mtu;
    const bytes = Math.min(mtu, wqe.byteLength - offset);
    const isLast = index === wqe.packets - 1;
    packet.flags =
      (index === 0 ? PacketFlag.FIRST : 0) |
      (isLast ? PacketFlag.LAST : 0) |
      (isLast || index % ACK_EVERY === ACK_EVERY - 1 ? PacketFlag.ACK_REQUEST : 0);
    if (isLast && (wqe.opcode === WrOpcode.SEND_WITH_IMM || wqe.opcode === WrOpcode.RDMA_WRITE_WITH_IMM)) {
      packet.flags |= PacketFlag.IMMEDIATE;
      packet.immediate = wqe.immediate;
    }
    packet.payloadBytes = bytes;
    if (bytes === 0) return true;
    if ((wqe.flags & SendFlag.INLINE) === 0) {
      return wqe.sges.gather(device.regions, pd, offset, packet.payload.address, bytes);
    }
    this.#queue.copyInline(wqe, offset, packet.payload.u8, bytes);
    return true;
  }

  /** The entry in flight that a sequence number belongs to. */
  #entryOf(psn: number): SendWqe | undefined {
    const queue = this.#queue;
    for (let position = queue.head; position < queue.tail; position++) {
      const wqe = queue.at(position);
      if (!wqe.hasStarted) return undefined;
      const index = psnDistance(wqe.psn, psn);
      if (index >= 0 && index < wqe.packets) return wqe;
    }
    return undefined;
  }

  /** Called when everything before `psn` has arrived: completes the requests that end before it. */
  #acknowledge(psn: number): void {
    const queue = this.#queue;
    let upTo = psn;
    while (queue.head < queue.tail) {
      const wqe = queue.at(queue.head);
      if (!wqe.hasStarted) break;
      const end = psnAfter(wqe.psn, wqe.packets);
      if (psnDistance(end, upTo) < 0) {
        // Its response may have arrived before that of an earlier request; no other packet acknowledges it.
        if (!wqe.hasResponse || !wqe.isAnswered) break;
        upTo = end;
      }
      if (wqe.hasResponse && !wqe.isAnswered) {
        // Its response was lost, as a later acknowledgement shows.
        this.#progressTo(psnAfter(wqe.psn, wqe.isRead ? wqe.received : 0));
        this.#goBack();
        return;
      }
      queue.head += 1;
      if (queue.next < queue.head) queue.next = queue.head;
      this.#succeed(wqe);
    }
    this.#progressTo(upTo);
  }

  #progressTo(psn: number): void {
    if (psnDistance(this.#ackedPsn, psn) <= 0) return;
    this.#ackedPsn = psn;
    this.#progressNs = this.#qp.device.clock.nowNs();
    this.#retriesLeft = this.#qp.retryCount;
    this.#rnrRetriesLeft = this.#qp.rnrRetry;
    if (this.#inFlight === 0) this.#stopTimer();
  }

  #succeed(wqe: SendWqe): void {
    if ((wqe.flags & SendFlag.SIGNALED) === 0) return;
    const { idLow, idHigh, opcode, byteLength } = wqe;
    const { qpNum } = this.#qp;
    const entry = { idLow, idHigh, status: WcStatus.SUCCESS, opcode: WC_OPCODE[opcode]!, byteLength, qpNum };
    if (!this.#qp.sendCq.push({ ...entry, sourceQp: 0, flags: 0, immediate: 0 })) this.#qp.fail();
  }

  /** Resends everything that is not acknowledged. */
  #goBack(): void {
    const queue = this.#queue;
    queue.next = queue.head;
    for (let position = queue.head; position < queue.tail; position++) {
      const wqe = queue.at(position);
      if (!wqe.hasStarted) break;
      const arrived = wqe.hasResponse ? 0 : Math.max(0, psnDistance(wqe.psn, this.#ackedPsn));
      // A response that has arrived before the one that was lost needs no second request.
      wqe.sent = wqe.hasResponse && wqe.isAnswered ? 1 : arrived;
    }
  }

  #notReady(code: number): void {
    if (this.#qp.rnrRetry !== RNR_FOREVER) {
      if (this.#rnrRetriesLeft === 0) {
        this.#failAt(this.#queue.at(this.#queue.head), WcStatus.RNR_RETRY_EXC_ERR);
        return;
      }
      this.#rnrRetriesLeft -= 1;
    }
    this.#goBack();
    this.#stopTimer();
    this.#isWaiting = true;
    this.#timer = this.#qp.device.timers.set(RNR_TIMER_US[code]! * 1000, () => {
      this.#timer = undefined;
      this.#isWaiting = false;
      this.#progressNs = this.#qp.device.clock.nowNs();
      this.pump();
    });
  }

  /** Starts the time-out of the packets in flight. */
  #watch(): void {
    const { timeout, device } = this.#qp;
    if (this.#timer !== undefined || timeout === 0) return;
    const limitNs = TIMEOUT_UNIT_NS * 2 ** timeout;
    if (this.#inFlight === 0) this.#progressNs = device.clock.nowNs();
    const leftNs = Math.max(0, this.#progressNs + limitNs - device.clock.nowNs());
    this.#timer = device.timers.set(leftNs, () => {
      this.#timer = undefined;
      if (!this.#qp.canRequest || (this.#inFlight === 0 && !this.#isBlocked)) return;
      if (device.clock.nowNs() - this.#progressNs < limitNs) this.#watch();
      else this.#timedOut();
    });
  }

  #timedOut(): void {
    if (this.#retriesLeft === 0) {
      this.#failAt(this.#queue.at(this.#queue.head), WcStatus.RETRY_EXC_ERR);
      return;
    }
    this.#retriesLeft -= 1;
    this.#progressNs = this.#qp.device.clock.nowNs();
    this.#goBack();
    this.pump();
    this.#watch();
  }

  /** Ends a request with an error; requests before and after it are flushed. */
  #failAt(wqe: SendWqe, status: WcStatus): void {
    const queue = this.#queue;
    while (queue.head < queue.tail) {
      const each = queue.at(queue.head);
      queue.head += 1;
      const { idLow, idHigh } = each;
      const { qpNum } = this.#qp;
      this.#qp.sendCq.push(each === wqe ? failed(idLow, idHigh, qpNum, status) : flushed(idLow, idHigh, qpNum));
      if (each === wqe) break;
    }
    this.#qp.fail();
  }

  #stopTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#isWaiting = false;
  }
}

function kindOf({ opcode }: SendWqe): PacketKind {
  switch (opcode) {
    case WrOpcode.RDMA_READ:
      return PacketKind.READ_REQUEST;
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      return PacketKind.COMPARE_SWAP;
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      return PacketKind.FETCH_ADD;
    case WrOpcode.SEND:
    case WrOpcode.SEND_WITH_IMM:
      return PacketKind.SEND;
    default:
      return PacketKind.WRITE;
  }
}

function statusOf(syndrome: Syndrome): WcStatus {
  if (syndrome === Syndrome.REMOTE_ACCESS) return WcStatus.REM_ACCESS_ERR;
  return syndrome === Syndrome.REMOTE_OPERATION ? WcStatus.REM_OP_ERR : WcStatus.REM_INV_REQ_ERR;
}
