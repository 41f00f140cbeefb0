/**
 * The responder of an emulated RC queue pair: executes requests once, in the order of their sequence numbers, and replies. If a request is repeated
 * because its reply was lost, the reply is sent again, for atomic operations from a record of their results.
 */

import { AccessFlag, AsyncEventType, WcFlag, WcOpcode, WcStatus } from '../../../verbs/abi.ts';
import type { Region } from '../memory/dma-memory.ts';
import { type Packet, PacketFlag, PacketKind, psnAfter, psnDistance, Syndrome } from './packet.ts';
import type { ReceiveWqe } from './receive-queue.ts';
import type { QpShared } from './shared.ts';

/** A read whose responses are being sent. */
interface ReadJob {
  readonly address: number;
  readonly rkey: number;
  readonly byteLength: number;
  readonly psn: number;
  readonly packets: number;
  /** Whether it was requested again. */
  readonly isRepeated: boolean;
  sent: number;
}

/** Result of an atomic operation. */
interface AtomicResult {
  readonly psn: number;
  readonly low: number;
  readonly high: number;
}

/** The responder. */
export class Responder {
  readonly #qp: QpShared;
  #expectedPsn = 0;
  /** True while a reported gap in the sequence numbers is open: it is reported once. */
  #isGapReported = false;
  /** Position in the send or write that is being received. */
  #received = 0;
  /** The receive of a send of several packets, from its first to its last: other queue pairs of a shared queue take later ones meanwhile. */
  #receiving: ReceiveWqe | undefined;
  readonly #reads: ReadJob[] = [];
  /** An acknowledgement that waits for the responses of earlier reads. */
  #delayedAck: number | undefined;
  readonly #atomics: AtomicResult[] = [];
  #isPumping = false;

  constructor(qp: QpShared) {
    this.#qp = qp;
  }

  /** Starts with a sequence number: the transition to RTR. */
  start(psn: number): void {
    this.reset();
    this.#expectedPsn = psn;
  }

  /** @returns the receive of a send whose end has not arrived */
  reset(): ReceiveWqe | undefined {
    const begun = this.#receiving;
    this.#receiving = undefined;
    if (begun !== undefined) this.#qp.receives.release(begun);
    this.#reads.length = 0;
    this.#atomics.length = 0;
    this.#delayedAck = undefined;
    this.#isGapReported = false;
    this.#received = 0;
    return begun;
  }

  /** Handles a request. */
  onRequest(packet: Packet): void {
    const distance = psnDistance(this.#expectedPsn, packet.psn);
    if (distance > 0) {
      if (this.#isGapReported) return;
      this.#isGapReported = true;
      this.#answer(this.#expectedPsn, Syndrome.PSN_SEQUENCE);
      return;
    }
    if (distance < 0) {
      this.#repeat(packet);
      return;
    }
    this.#isGapReported = false;
    switch (packet.kind) {
      case PacketKind.SEND:
        this.#onSend(packet);
        return;
      case PacketKind.WRITE:
        this.#onWrite(packet);
        return;
      case PacketKind.READ_REQUEST:
        this.#onRead(packet);
        return;
      default:
        this.#onAtomic(packet);
    }
  }

  /** Sends responses to reads as long as the wire accepts packets. */
  pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const { device, destGid } = this.#qp;
    while (this.#reads.length > 0 && device.canSend(destGid)) {
      const job = this.#reads[0]!;
      // Before its last response is sent: the requester may send its next read inside that call.
      if (job.sent === job.packets - 1) this.#reads.shift();
      if (!this.#sendResponse(job)) {
        this.#reads.length = 0;
        this.#refuse(job.psn, Syndrome.REMOTE_ACCESS);
        break;
      }
    }
    this.#isPumping = false;
    if (this.#reads.length > 0 || this.#delayedAck === undefined) return;
    const psn = this.#delayedAck;
    this.#delayedAck = undefined;
    this.#answer(psn, Syndrome.ACK);
  }

  #onSend(packet: Packet): void {
    const { psn, flags, payload, payloadBytes, immediate } = packet;
    const { receives, device, receivePd } = this.#qp;
    const isFirst = (flags & PacketFlag.FIRST) !== 0;
    const isLast = (flags & PacketFlag.LAST) !== 0;
    if (isFirst === (this.#receiving !== undefined)) {
      this.#refuse(psn, Syndrome.INVALID_REQUEST);
      return;
    }
    if (isFirst) {
      if (receives.length === 0) {
        this.#answer(psn, Syndrome.RNR);
        return;
      }
      this.#received = 0;
      this.#receiving = receives.detach();
    }
    const wqe = this.#receiving!;
    const offset = this.#received;
    const fits = offset + payloadBytes <= wqe.sges.byteLength;
    if (
      !fits ||
      (payloadBytes > 0 && !wqe.sges.scatter(device.regions, receivePd, offset, payload.address, payloadBytes))
    ) {
      this.#endReceive(wqe, fits ? WcStatus.LOC_PROT_ERR : WcStatus.LOC_LEN_ERR, 0, 0, 0);
      this.#refuse(psn, fits ? Syndrome.REMOTE_OPERATION : Syndrome.INVALID_REQUEST);
      return;
    }
    this.#received += payloadBytes;
    if (isLast) {
      const value = (flags & PacketFlag.IMMEDIATE) === 0 ? undefined : immediate;
      this.#endReceive(wqe, WcStatus.SUCCESS, WcOpcode.RECV, this.#received, value);
    }
    this.#accept(psn, flags);
  }

  #onWrite(packet: Packet): void {
    const { psn, flags, payload, payloadBytes, rkey, remoteAddress, dmaLength, immediate } = packet;
    const { receives } = this.#qp;
    if ((flags & PacketFlag.FIRST) !== 0) this.#received = 0;
    const offset = this.#received;
    if (dmaLength > 0) {
      const region = this.#regionOf(rkey, remoteAddress, dmaLength, AccessFlag.REMOTE_WRITE);
      const isInside = offset + payloadBytes <= dmaLength;
      if (region === undefined || !isInside) {
        this.#refuse(psn, Syndrome.REMOTE_ACCESS);
        return;
      }
      const at = remoteAddress - region.iova + offset;
      if (!region.memory.write(at, payload.address, payloadBytes)) {
        this.#refuse(psn, Syndrome.REMOTE_OPERATION);
        return;
      }
    }
    if ((flags & PacketFlag.IMMEDIATE) !== 0) {
      const wqe = receives.first;
      if (wqe === undefined) {
        this.#answer(psn, Syndrome.RNR);
        return;
      }
      receives.take();
      this.#complete(wqe, WcStatus.SUCCESS, WcOpcode.RECV_RDMA_WITH_IMM, dmaLength, immediate);
    }
    this.#received += payloadBytes;
    this.#accept(psn, flags);
  }

  #onRead(packet: Packet): void {
    const { psn, rkey, remoteAddress, dmaLength } = packet;
    // The requester does not count those that it has requested again.
    if (this.#reads.filter(({ isRepeated }) => !isRepeated).length >= this.#qp.maxDestRdAtomic) {
      this.#refuse(psn, Syndrome.INVALID_REQUEST);
      return;
    }
    if (dmaLength > 0 && this.#regionOf(rkey, remoteAddress, dmaLength, AccessFlag.REMOTE_READ) === undefined) {
      this.#refuse(psn, Syndrome.REMOTE_ACCESS);
      return;
    }
    this.#answerRead(packet, false);
  }

  #onAtomic(packet: Packet): void {
    const { psn, rkey, remoteAddress, kind } = packet;
    if (remoteAddress % 8 !== 0) {
      this.#refuse(psn, Syndrome.INVALID_REQUEST);
      return;
    }
    const region = this.#regionOf(rkey, remoteAddress, 8, AccessFlag.REMOTE_ATOMIC);
    if (region === undefined) {
      this.#refuse(psn, Syndrome.REMOTE_ACCESS);
      return;
    }
    const { payload } = packet;
    const at = remoteAddress - region.iova;
    if (!region.memory.read(at, payload.address, 8)) {
      this.#refuse(psn, Syndrome.REMOTE_OPERATION);
      return;
    }
    const [low, high] = [payload.words[0]!, payload.words[1]!];
    if (kind === PacketKind.FETCH_ADD) {
      const sum = low + packet.compareLow;
      payload.words[0] = sum;
      payload.words[1] = high + packet.compareHigh + (sum >= 2 ** 32 ? 1 : 0);
    } else if (low === packet.compareLow && high === packet.compareHigh) {
      payload.words[0] = packet.swapLow;
      payload.words[1] = packet.swapHigh;
    }
    if (!region.memory.write(at, payload.address, 8)) {
      this.#refuse(psn, Syndrome.REMOTE_OPERATION);
      return;
    }
    this.#expectedPsn = psnAfter(psn, 1);
    const result = { psn, low, high };
    this.#atomics.push(result);
    if (this.#atomics.length > Math.max(1, this.#qp.maxDestRdAtomic)) this.#atomics.shift();
    this.#answerAtomic(result);
  }

  /** Replies again to a request that was executed before. */
  #repeat(packet: Packet): void {
    const { kind, psn } = packet;
    if (kind === PacketKind.READ_REQUEST) {
      // It may overlap a read whose responses are being sent: the requester ignores the late responses of that read.
      if (this.#reads.length < this.#qp.maxDestRdAtomic * 2) this.#answerRead(packet, true);
    } else if (kind === PacketKind.COMPARE_SWAP || kind === PacketKind.FETCH_ADD) {
      const result = this.#atomics.find((each) => each.psn === psn);
      if (result !== undefined) this.#answerAtomic(result);
    } else this.#acknowledge(psnAfter(this.#expectedPsn, -1));
  }

  /** Responds to a read after the reads before it. */
  #answerRead({ psn, rkey, remoteAddress, dmaLength }: Packet, isRepeated: boolean): void {
    const packets = Math.max(1, Math.ceil(dmaLength / this.#qp.mtu));
    if (!isRepeated) this.#expectedPsn = psnAfter(psn, packets);
    this.#reads.push({ address: remoteAddress, rkey, byteLength: dmaLength, psn, packets, isRepeated, sent: 0 });
    this.pump();
  }

  /** Called when a packet was executed: expects the next one, and acknowledges if requested. */
  #accept(psn: number, flags: number): void {
    this.#expectedPsn = psnAfter(psn, 1);
    if ((flags & PacketFlag.ACK_REQUEST) !== 0) this.#acknowledge(psn);
  }

  /** Acknowledges everything up to `psn`, after the responses of earlier reads. */
  #acknowledge(psn: number): void {
    if (this.#reads.length > 0) this.#delayedAck = psn;
    else this.#answer(psn, Syndrome.ACK);
  }

  /** Sends a NAK for a request: the connection ends. */
  #refuse(psn: number, syndrome: Syndrome): void {
    this.#answer(psn, syndrome);
    const { device, qpNum } = this.#qp;
    const isAccess = syndrome === Syndrome.REMOTE_ACCESS;
    device.raise(isAccess ? AsyncEventType.QP_ACCESS_ERR : AsyncEventType.QP_REQ_ERR, qpNum);
    this.#qp.fail();
  }

  #answer(psn: number, syndrome: Syndrome): void {
    const { device, destGid, destQpNum, qpNum, minRnrTimer } = this.#qp;
    const { packet } = device;
    packet.begin(PacketKind.ACK, destQpNum, qpNum, psn);
    packet.syndrome = syndrome;
    packet.rnrTimer = minRnrTimer;
    device.send(destGid);
  }

  #answerAtomic({ psn, low, high }: AtomicResult): void {
    const { device, destGid, destQpNum, qpNum } = this.#qp;
    const { packet } = device;
    packet.begin(PacketKind.ATOMIC_ACK, destQpNum, qpNum, psn);
    packet.swapLow = low;
    packet.swapHigh = high;
    device.send(destGid);
  }

  /** Sends the next packet of a read; false if its memory is not accessible any more. */
  #sendResponse(job: ReadJob): boolean {
    const { device, destGid, destQpNum, qpNum, mtu } = this.#qp;
    const { packet } = device;
    const offset = job.sent * mtu;
    const bytes = Math.min(mtu, job.byteLength - offset);
    if (bytes > 0) {
      const region = this.#regionOf(job.rkey, job.address, job.byteLength, AccessFlag.REMOTE_READ);
      const at = region === undefined ? 0 : job.address - region.iova + offset;
      if (region?.memory.read(at, packet.payload.address, bytes) !== true) return false;
    }
    packet.begin(PacketKind.READ_RESPONSE, destQpNum, qpNum, psnAfter(job.psn, job.sent));
    packet.payloadBytes = bytes;
    job.sent += 1;
    device.send(destGid);
    return true;
  }

  #regionOf(rkey: number, address: number, byteLength: number, access: number): Region | undefined {
    const { device, pd, accessFlags } = this.#qp;
    return (accessFlags & access) === access ? device.regions.find(pd, rkey, address, byteLength, access) : undefined;
  }

  /** Completes the receive of a send. */
  #endReceive(wqe: ReceiveWqe, ...result: [WcStatus, number, number, number | undefined]): void {
    this.#receiving = undefined;
    this.#complete(wqe, ...result);
    this.#qp.receives.release(wqe);
  }

  #complete(
    wqe: { readonly idLow: number; readonly idHigh: number },
    status: WcStatus,
    opcode: number,
    byteLength: number,
    immediate: number | undefined,
  ): void {
    const flags = immediate === undefined ? 0 : WcFlag.WITH_IMM;
    const sourceQp = this.#qp.destQpNum;
    this.#qp.received(wqe, { status, opcode, byteLength, sourceQp, flags, immediate: immediate ?? 0 });
  }
}
