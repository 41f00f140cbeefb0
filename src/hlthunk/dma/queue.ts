/**
 * Asynchronous DMA on one hardware queue: requests become packets, packets become batches (one command submission each), and a word in host memory contains the
 * number of the last complete batch. The layer above checks allocations and access rights.
 *
 * A batch is submitted at once while the queue has a free slot, so a single request does not wait; otherwise requests are queued and submitted together in the
 * next batch. Requests of one queue complete in order.
 */

import { Errno } from '../../sys/index.ts';
import { Ring } from '../../ucs/datastruct/ring.ts';
import { copyBytes } from '../../ucs/memory/bytes.ts';
import { Status } from '../../ucs/type/status.ts';
import { type DmaQueueDevice, SLOT_DATA_BYTES } from './command-ring.ts';
import { DmaActivity, type DmaCounts, type DmaRequest, DmaRequestPool } from './request.ts';
import type { DmaRoute } from './route.ts';
import { Batches, isLoss, isTransient, TransientErrors } from './submission.ts';

/** Maximum number of requests of one queue, queued or in flight; beyond it `NO_RESOURCE`. */
export const DMA_REQUESTS_MAX = 4096;
/** Largest transfer of one packet: below 2^32, and page-aligned so that splits stay aligned. */
export const DMA_PACKET_BYTES_MAX = 0xffff_f000;
/** Maximum size of a short put or get in bytes. */
export const DMA_SHORT_BYTES_MAX: number = SLOT_DATA_BYTES;
/** Polls of an unchanged completion word between two polls of the driver, which detect errors and time-outs. */
const POLLS_PER_CHECK = 64;

/** Options of a queue. */
export interface DmaQueueOptions {
  readonly device: DmaQueueDevice;
  /** The route to the engine; the queue takes ownership. */
  readonly route: DmaRoute;
  /** Largest transfer of one packet; tests use small values. Default {@link DMA_PACKET_BYTES_MAX}. */
  readonly packetBytesMax?: number;
  /** Number of the batch before the first; tests start shortly before numbers wrap. Default 0. */
  readonly batchesBefore?: number;
}

/** A DMA queue. */
export class DmaQueue {
  readonly device: DmaQueueDevice;
  readonly #route: DmaRoute;
  readonly #packetBytesMax: number;
  readonly #pool: DmaRequestPool;
  /** Requests whose packets are not all submitted, and requests in flight; both in order. */
  readonly #waiting: Ring<DmaRequest>;
  readonly #flying: Ring<DmaRequest>;
  readonly #batches: Batches;
  #polls = 0;
  /** Whether a fault has stopped the engine. */
  #isStopped = false;
  readonly #transientErrors: TransientErrors = new TransientErrors();
  readonly #activity: DmaActivity;
  /** The failure that ended this queue, or OK: every later request fails with it. */
  failure: Status = Status.OK;
  /** The errno with which the driver failed the queue or rejected its last submission; 0 for none. */
  failureErrno = 0;

  constructor(options: DmaQueueOptions) {
    this.device = options.device;
    this.#route = options.route;
    this.#route.listen((result) => this.#waitEnded(result));
    this.#batches = new Batches(options.route.slots, options.batchesBefore);
    this.#packetBytesMax = options.packetBytesMax ?? DMA_PACKET_BYTES_MAX;
    this.#pool = new DmaRequestPool(options.device, DMA_REQUESTS_MAX);
    this.#waiting = new Ring(DMA_REQUESTS_MAX);
    this.#flying = new Ring(DMA_REQUESTS_MAX);
    const { number: queueIndex, slots } = options.route;
    this.#activity = new DmaActivity({ device: options.device, queueIndex, slots });
  }

  /** The engine of the queue, with its id in fault records. */
  get engineId(): number {
    return this.#route.engineId;
  }

  /** Number of requests that have not ended. */
  get outstanding(): number {
    return this.#waiting.length + this.#flying.length;
  }

  /** Number of requests that can still be queued; ended requests count until they are freed. */
  get room(): number {
    return DMA_REQUESTS_MAX - this.#pool.inUse;
  }

  get counts(): DmaCounts {
    return this.#activity.read(this.#batches.inFlight);
  }

  /**
   * Takes a request for a transfer between two device addresses. Set its source and destination, then start it.
   * @param byteLength 1 to 2^53 - 1
   * @returns the request, or undefined if no more can be queued (NO_RESOURCE)
   */
  take(byteLength: number): DmaRequest | undefined {
    const request = this.#pool.get();
    request?.begin(byteLength);
    return request;
  }

  /**
   * Like {@link take}, for a short transfer whose source is JavaScript memory: copies the bytes now, into the data area of a slot.
   * @param byteLength 1 to {@link DMA_SHORT_BYTES_MAX}
   * @returns the request, or undefined if no slot is free (NO_RESOURCE)
   */
  takePut(source: Uint8Array, sourceOffset: number, byteLength: number): DmaRequest | undefined {
    const request = this.#takeShort(byteLength);
    if (request === undefined) return undefined;
    const data = request.dataOffset;
    copyBytes(this.#route.data, data, source, sourceOffset, byteLength);
    request.setSource(this.#route.dataLow(data), this.#route.dataHigh(data));
    return request;
  }

  /** Like {@link takePut}, for a short transfer to JavaScript memory: the bytes are in `target` when the request has ended. */
  takeGet(target: Uint8Array, targetOffset: number, byteLength: number): DmaRequest | undefined {
    const request = this.#takeShort(byteLength);
    if (request === undefined) return undefined;
    const data = request.dataOffset;
    request.setDestination(this.#route.dataLow(data), this.#route.dataHigh(data));
    request.target = target;
    request.targetOffset = targetOffset;
    return request;
  }

  /** Starts the request that was taken last. The caller keeps both sides mapped until it has ended. */
  start(request: DmaRequest): void {
    if (this.failure !== Status.OK) {
      request.status = this.failure;
      return;
    }
    this.#activity.started(request);
    // Cannot fail: the pool has as many requests as the ring has entries.
    this.#waiting.push(request);
    if (!this.device.isCorked) this.submitWaiting();
  }

  /** True while the card has batches of this queue. */
  get busy(): boolean {
    return this.#batches.inFlight !== 0;
  }

  /** The driver's number of the oldest batch in flight; valid only while {@link busy}. Cold. */
  get oldestSeq(): number {
    return this.#route.seqOf(this.#batches.oldestSlot);
  }

  /** Transfers that a fault reported now may have corrupted: some of their packets were submitted, and they were incomplete when faults were last read. */
  inFlight(): DmaRequest[] {
    const requests: DmaRequest[] = [];
    for (let i = 0; i < this.#flying.length; i++) requests.push(this.#flying.at(i)!);
    const next = this.#waiting.at(0);
    if (next !== undefined && next.issued > 0) requests.push(next);
    return requests.filter(
      ({ batch, issued, byteLength }) => issued < byteLength || ((batch - this.#batches.completed) | 0) > 0,
    );
  }

  /** Releases an ended request. */
  free(request: DmaRequest): void {
    this.#pool.free(request);
  }

  /**
   * Reads the completion word, completes finished requests and submits waiting ones.
   * @returns number of requests that ended
   */
  progress(): number {
    if (this.#flying.length === 0 && this.#waiting.length === 0) return 0;
    const completed = this.#route.completed;
    const batches = this.#batches;
    if (completed === batches.retired)
      return this.busy || this.failure === Status.OK ? this.#fruitless() : this.#endWaiting();
    this.#polls = 0;
    this.device.checkFaults();
    batches.completed = completed;
    let ended = 0;
    // One batch at a time: a callback may start a transfer, which may reuse only slots whose data has been copied out.
    while (((completed - batches.retired) | 0) > 0) {
      this.#activity.retired(batches.oldestSlot, this.oldestSeq);
      batches.retire();
      this.device.returnSubmission();
      ended += this.#endUpTo(batches.retired);
    }
    if (this.#waiting.length > 0) this.submitWaiting();
    return ended;
  }

  /**
   * Wakes the device when the oldest batch in flight is complete, at the latest after `timeoutNs`; then call {@link progress}. Has no effect if nothing is in
   * flight, or while an earlier watch is in progress, because that one wakes the device too.
   */
  watch(timeoutNs: number): void {
    if (this.busy) this.#route.watch(this.#batches.oldestSlot, timeoutNs);
  }

  /**
   * Fails later requests, because the driver resets the card. Requests in flight end with a failure when the card has executed them or the driver has aborted
   * them; until then the card may access their memory.
   */
  lose(): void {
    if (this.failure !== Status.OK) return;
    this.failure = Status.IO_ERROR;
    this.#route.lose();
    for (let i = 0; i < this.#flying.length; i++) this.#flying.at(i)!.outcome = Status.IO_ERROR;
  }

  /** Ends every request with `status`, when the device is closed. */
  abort(status: Status): void {
    this.failure = status;
    while (this.busy) {
      this.#batches.retire();
      this.device.returnSubmission();
    }
    this.#endAll(this.#flying, status);
    this.#endAll(this.#waiting, status);
  }

  /** Releases what the driver counts as use of the card, before its file is closed. No further batches; requests in flight must then be aborted. */
  disconnect(): void {
    this.#route.disconnect();
  }

  /** Releases command buffers and mappings. The card must be idle or closed. */
  close(): void {
    this.#route.close();
  }

  /** If one of these engines, which have stopped, is that of the queue, the next progress ends the requests in flight: no batch will complete. */
  stoppedBy(engineIds: readonly number[]): void {
    if (!this.busy || !this.#route.isStoppedBy(engineIds)) return;
    this.#isStopped = true;
    this.device.wake();
  }

  /** Takes a request for a short transfer, with the data area of the next slot. It needs the slot for itself, so earlier requests must not be waiting. */
  #takeShort(byteLength: number): DmaRequest | undefined {
    if (this.#waiting.length > 0 || !this.#batches.isSlotFree) return undefined;
    const request = this.take(byteLength);
    if (request !== undefined) request.dataOffset = this.#route.dataOffset(this.#batches.nextSlot);
    return request;
  }

  /** Submits batches of waiting requests while there are slots. */
  submitWaiting(): void {
    while (this.#waiting.length > 0 && this.#batches.isSlotFree && this.device.takeSubmission()) {
      // Submitting reads the faults first.
      if (this.failure === Status.OK && this.#submitBatch()) continue;
      this.device.returnSubmission();
      return;
    }
  }

  /** Fails the waiting requests of a lost queue. */
  #endWaiting(): number {
    const ended = this.#waiting.length;
    this.#endAll(this.#waiting, this.failure);
    return ended;
  }

  /** Writes one batch into the next slot and submits it; false if the driver is out of resources or has failed the queue. */
  #submitBatch(): boolean {
    const batches = this.#batches;
    const slot = batches.nextSlot;
    const batch = batches.next;
    const transfersMax = this.#route.begin(batches, this.#waiting.length);
    if (transfersMax === 0) return false;
    let complete = 0;
    let partial = 0;
    for (let transfers = 0; transfers < transfersMax && complete < this.#waiting.length; transfers++) {
      const request = this.#waiting.at(complete)!;
      const from = request.issued + partial;
      const bytes = Math.min(this.#packetBytesMax, request.byteLength - from);
      this.#route.add(request, from, bytes);
      partial += bytes;
      if (request.issued + partial !== request.byteLength) continue;
      complete += 1;
      partial = 0;
    }
    const result = this.#route.submit(slot, batch);
    if (result !== 0) {
      const requests = partial > 0 ? complete + 1 : complete;
      if (isTransient(result)) this.#transientErrors.add(result, requests, this.busy);
      else if (isLoss(result) || this.device.file.lostReason !== undefined) this.#fail(result);
      else this.#rejectBatch(requests, result);
      return false;
    }
    this.#transientErrors.clear();
    this.failureErrno = 0;
    batches.submitted = batch;
    this.#activity.submitted(slot);
    this.#launch(complete, partial, batch);
    // Sleepers must be woken for this batch too: earlier ones, here or in other queues, may take longer.
    const { sleepNs } = this.device;
    if (sleepNs > 0) this.watch(sleepNs);
    return true;
  }

  /** Moves requests whose last packet is in the batch to the requests in flight. */
  #launch(complete: number, partial: number, batch: number): void {
    for (let i = 0; i < complete; i++) {
      const request = this.#waiting.shift()!;
      request.issued = request.byteLength;
      request.batch = batch;
      this.#flying.push(request);
    }
    if (partial > 0) this.#waiting.at(0)!.issued += partial;
  }

  /** Completes the requests in flight whose batches are complete. */
  #endUpTo(completed: number): number {
    let ended = 0;
    for (let head = this.#flying.at(0); head !== undefined; head = this.#flying.at(0)) {
      if (((completed - head.batch) | 0) < 0) break;
      this.#flying.shift();
      this.#end(head, head.outcome);
      ended += 1;
    }
    return ended;
  }

  #end(request: DmaRequest, status: Status): void {
    request.status = request.target !== undefined && status === Status.OK ? deliver(this.#route.data, request) : status;
    this.#activity.ended(request);
    request.releaseMemory();
    if (request.onComplete !== undefined) request.notify(request.onComplete);
  }

  #endAll(requests: Ring<DmaRequest>, status: Status): void {
    for (let head = requests.shift(); head !== undefined; head = requests.shift()) this.#end(head, status);
  }

  /** Counts an unsuccessful poll; sometimes polls the driver, to detect time-outs and resets. */
  #fruitless(): number {
    if (this.#isStopped) return this.#failAll(-Errno.EIO);
    if (this.#waiting.length > 0 && this.#batches.isSlotFree) this.submitWaiting();
    this.#polls += 1;
    if (this.#transientErrors.isExhausted) return this.#giveUpBatch();
    if (this.#polls % POLLS_PER_CHECK !== 0 || !this.busy) return 0;
    const result = this.#route.poll(this.#batches.oldestSlot);
    return result >= 0 || isTransient(result) ? 0 : this.#failAll(result);
  }

  /** Fails the queue; returns the number of requests that ended. */
  #failAll(result: number): number {
    const ended = this.outstanding;
    this.#fail(result);
    return ended;
  }

  #waitEnded(result: number): void {
    // A queue whose batches have ended meanwhile keeps its reason.
    if (result < 0 && !isTransient(result) && this.busy) this.#fail(result);
    this.device.wake();
  }

  /** Fails the requests of a batch that was rejected too often; the queue continues. */
  #giveUpBatch(): number {
    const { status, requests } = this.#transientErrors;
    const given: DmaRequest[] = [];
    for (let i = 0; i < requests; i++) given.push(this.#waiting.shift()!);
    this.#transientErrors.clear();
    // A callback may start transfers, whose submission must not include the failed requests.
    for (const request of given) this.#end(request, status);
    return given.length;
  }

  /**
   * Fails the requests of a batch that the driver has rejected; the queue continues, because the driver accepted no part of the batch. The requests end after
   * the batches in flight, which may contain packets of the first request.
   */
  #rejectBatch(requests: number, result: number): void {
    this.failureErrno = -result;
    this.#transientErrors.clear();
    for (let i = 0; i < requests; i++) this.#waiting.at(i)!.outcome = Status.IO_ERROR;
    this.#launch(requests, 0, this.#batches.submitted);
    if (!this.busy) this.#endUpTo(this.#batches.submitted);
  }

  /** Fails the queue permanently: after a time-out, a reset, or the loss of the device. */
  #fail(result: number): void {
    this.failureErrno = -result;
    this.device.checkFaults();
    if (result === -Errno.ETIMEDOUT || this.#hasInFlight(this.device.timedOutSeq)) this.abort(Status.TIMED_OUT);
    else this.abort(Status.IO_ERROR);
  }

  /** Whether a batch in flight has the driver's submission number `seq`. */
  #hasInFlight(seq: number): boolean {
    for (let i = 0; i < this.#batches.inFlight; i++) {
      if (this.#route.seqOf(this.#batches.slotInFlight(i)) === seq) return true;
    }
    return false;
  }
}

/** Copies the bytes of a short get out of the data area; INVALID_ADDR if the target was detached or shortened in flight. */
export function deliver(data: Uint8Array, { target, targetOffset, dataOffset, byteLength }: DmaRequest): Status {
  if (target === undefined || target.byteLength < targetOffset + byteLength) return Status.INVALID_ADDR;
  copyBytes(target, targetOffset, data, dataOffset, byteLength);
  return Status.OK;
}
