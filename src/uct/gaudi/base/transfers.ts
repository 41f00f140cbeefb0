/**
 * The transfers of one interface on one card: starts them, and counts them by direction, which determines the end of a flush. The queues belong to the card and
 * are shared with other interfaces. Also the base class of endpoints whose transfers use the DMA engines of one card: order and completion.
 */

import type { DeviceDma, DmaMemory, DmaRequest, HostMapping } from '../../../hlthunk/index.ts';
import { ObjectPool } from '../../../ucs/datastruct/object-pool.ts';
import { Ring } from '../../../ucs/datastruct/ring.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { completeOne, isCompletion, isInBytes, isInside } from '../../base/checks.ts';
import { TransferCounters } from '../../base/counters.ts';
import { RmaOnlyEndpoint } from '../../base/iface.ts';
import type { GaudiCard } from './cards.ts';
import { DIRECTIONS, Direction, IOV_MAX, SHORT_BYTES_MAX } from './config.ts';
import type { Landing } from './landings.ts';
import { type CardMemory, GaudiMemory, mayDetach, RegisteredMemory, SourceCheck } from './memory.ts';

const NO_MEMORY = undefined as never;

/** Maximum number of waiting flushes; beyond it NO_RESOURCE. */
const FLUSHES_MAX = 256;

/** A flush that waits until every queue has completed the transfers that were started before it. */
class PendingFlush {
  readonly targets: Int32Array = new Int32Array(DIRECTIONS);
  completion: Completion | undefined = undefined;
  /** The short puts of the flushing endpoint, whose failure is the result of the flush. */
  shortPuts: Completion | undefined = undefined;
}

/** Counts the short puts of an endpoint. Their calls have returned and they have no completion, so the next flush reports their failure. */
class ShortPuts implements Completion {
  count = 0;
  failure: Status = Status.OK;

  onComplete(): void {}
}

/** The remote side of the list that is being started: a single record, because lists are started one after the other. */
class RemoteSide {
  isPut = false;
  /** The memory in the address space of the card. */
  memory: DmaMemory = NO_MEMORY;
  offset = 0;
  /** The memory, if it is host memory. */
  host: RegisteredMemory | undefined = undefined;

  set(memory: DmaMemory, offset: number, host: RegisteredMemory | undefined, isPut: boolean): void {
    this.isPut = isPut;
    this.memory = memory;
    this.offset = offset;
    this.host = host;
  }
}

/** The copy that is being started. */
class CardCopy {
  source: DmaMemory = NO_MEMORY;
  sourceOffset = 0;
  destination: DmaMemory = NO_MEMORY;
  destinationOffset = 0;
  byteLength = 0;
  direction: Direction = Direction.HOST_TO_DEVICE;

  set(source: DmaMemory, sourceOffset: number, destination: DmaMemory, destinationOffset: number): void {
    this.source = source;
    this.sourceOffset = sourceOffset;
    this.destination = destination;
    this.destinationOffset = destinationOffset;
  }

  /** Redirects the copy to a landing, because the card must not write to the destination. */
  landIn({ mapping }: Landing): void {
    this.destination = mapping;
    this.destinationOffset = 0;
  }
}

export class DmaTransfers {
  readonly card: GaudiCard;
  /** Position of the card among the open ones: index of its mappings in host memory. */
  readonly position: number;
  readonly dma: DeviceDma;
  /** Maximum number of entries of a list, because all of them are started together. */
  readonly iovMax: number;
  /** Operations of the endpoints of the interface. */
  readonly counters: TransferCounters = new TransferCounters();
  /** The remote side of the next {@link list}. */
  readonly remote: RemoteSide = new RemoteSide();
  readonly #copy: CardCopy = new CardCopy();
  /** Number of failed transfers. */
  failures = 0;
  /** Number of started and ended transfers for each direction, modulo 2^32. */
  readonly #started: Int32Array = new Int32Array(DIRECTIONS);
  readonly #ended: Int32Array = new Int32Array(DIRECTIONS);
  readonly #transfersMax: number;
  readonly #flushPool: ObjectPool<PendingFlush> = new ObjectPool(FLUSHES_MAX, () => new PendingFlush());
  readonly #flushes: Ring<PendingFlush> = new Ring(FLUSHES_MAX);
  /** Unused checks; at most as many as transfers were in flight at one time. */
  readonly #checks: SourceCheck[] = [];
  /** Landings of the current list, by entry; empty if the card may write to all targets. */
  readonly #landings: (Landing | undefined)[] = [];
  /** One callback for each direction, so that transfers allocate none. */
  readonly #onEnd: readonly ((request: DmaRequest) => void)[];

  /** @param transfersMax maximum number of transfers of the interface in flight */
  constructor(card: GaudiCard, position: number, transfersMax: number = Number.POSITIVE_INFINITY) {
    this.card = card;
    this.position = position;
    this.#transfersMax = transfersMax;
    this.iovMax = Math.min(IOV_MAX, transfersMax);
    this.dma = card.device.dma;
    this.#onEnd = [0, 1, 2].map((direction) => (request: DmaRequest) => this.#end(request, direction));
  }

  /** Number of transfers of the card and flushes of the interface that have not ended. */
  get outstanding(): number {
    return this.dma.outstanding + this.#flushes.length;
  }

  /** Completes finished transfers. Returns how many transfers of the card ended. */
  progress(): number {
    const ended = this.dma.progress();
    if (this.#flushes.length > 0) this.#endFlushes();
    return ended;
  }

  /** See Iface.errorOf: the failure of the card; undefined if it has reported none. */
  errorOf(status: Status): UcxError | undefined {
    const { events } = this.card.device;
    const hasFailed = events.lastFault !== undefined || this.dma.hasFailed || this.dma.file.lostReason !== undefined;
    return hasFailed ? this.dma.errorOf(status) : undefined;
  }

  /**
   * Starts a short put. The caller has checked both ranges.
   * @param shortPuts counter of the endpoint, used if there is no completion
   * @returns OK without a completion, otherwise INPROGRESS; NO_RESOURCE; or the failure of the card
   */
  putShort(
    source: Uint8Array,
    sourceOffset: number,
    target: DmaMemory,
    targetOffset: number,
    byteLength: number,
    completion: Completion | undefined,
    shortPuts: ShortPuts,
  ): Status {
    if (completion !== undefined && !isCompletion(completion)) return Status.INVALID_PARAM;
    if (!this.#isWithinLimit(1)) return Status.NO_RESOURCE;
    const request = this.dma.putShort(source, sourceOffset, target, targetOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    const tracked = this.#track(request, Direction.HOST_TO_DEVICE, completion ?? shortPuts);
    if (tracked !== Status.INPROGRESS || completion !== undefined) return tracked;
    shortPuts.count += 1;
    return Status.OK;
  }

  /** Starts a short get. The caller has checked both ranges. Returns like {@link putShort} with a completion. */
  getShort(
    target: Uint8Array,
    targetOffset: number,
    source: DmaMemory,
    sourceOffset: number,
    byteLength: number,
    completion: Completion,
  ): Status {
    if (!isCompletion(completion)) return Status.INVALID_PARAM;
    if (!this.#isWithinLimit(1)) return Status.NO_RESOURCE;
    const request = this.dma.getShort(target, targetOffset, source, sourceOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#track(request, Direction.DEVICE_TO_HOST, completion);
  }

  /**
   * Starts one transfer for each entry of a list, between the entry and {@link remote}: all of them or none. The caller has checked the ranges. `completion`
   * counts the list as one operation.
   * @returns INPROGRESS, NO_RESOURCE, OK for a list without bytes, or the failure of the card
   */
  list(iov: readonly IovEntry[], completion: Completion): Status {
    if (!isCompletion(completion)) return Status.INVALID_PARAM;
    if (this.dma.room < iov.length || !this.#isWithinLimit(iov.length)) return Status.NO_RESOURCE;
    if (!this.#takeLandings(iov)) return Status.NO_RESOURCE;
    const check = this.#checkOf(iov, completion);
    let status: Status = Status.NO_RESOURCE;
    try {
      status = this.#startList(iov, check ?? completion);
    } finally {
      if (check !== undefined && status !== Status.INPROGRESS) {
        check.reset();
        this.#checks.push(check);
      }
    }
    return status;
  }

  /** Starts a list that {@link list} has checked. */
  #startList(iov: readonly IovEntry[], completion: Completion): Status {
    const { position, card, remote } = this;
    const copy = this.#copy;
    const { isPut } = remote;
    let at = remote.offset;
    let started = 0;
    for (let i = 0; i < iov.length; i++) {
      const entry = iov[i]!;
      if (entry.byteLength === 0) continue;
      const local = entry.memory as CardMemory;
      const here = local.dmaIn(position, card.device);
      const from = local.dmaOffset + entry.offset;
      if (isPut) copy.set(here, from, remote.memory, at);
      else copy.set(remote.memory, at, here, from);
      copy.byteLength = entry.byteLength;
      copy.direction = directionOf(isPut, local instanceof GaudiMemory, remote.host === undefined);
      const landing = i < this.#landings.length ? this.#landings[i] : undefined;
      if (landing !== undefined) copy.landIn(landing);
      let status: Status;
      try {
        status = this.#start(copy, completion, landing);
      } catch (error) {
        // Only the first transfer can fail here: the queue of its direction could not be opened.
        this.#giveLandings(i);
        if (started === 0 || !isUcxError(error)) throw error;
        return startFailed(error.status, started, completion);
      }
      if (status !== Status.INPROGRESS) {
        this.#giveLandings(i);
        return startFailed(status, started, completion);
      }
      at += entry.byteLength;
      started += 1;
    }
    if (started === 0) return Status.OK;
    completion.count += started - 1;
    return Status.INPROGRESS;
  }

  /**
   * Checks that a range is inside live memory that this card can access, and maps host memory, so that later steps cannot throw.
   * @returns OK, or the reason
   */
  checkSide(memory: MdMemory, offset: number, byteLength: number): Status {
    if (memory instanceof GaudiMemory) {
      if (memory.sysDevice !== this.card.index) return Status.UNREACHABLE;
    } else if (!(memory instanceof RegisteredMemory) || !memory.attached) return Status.INVALID_PARAM;
    if (!memory.live) return Status.INVALID_ADDR;
    if (!isInside(offset, byteLength, memory.byteLength)) return Status.INVALID_ADDR;
    if (memory instanceof RegisteredMemory) memory.dmaIn(this.position, this.card.device);
    return Status.OK;
  }

  /**
   * See UctEndpoint.flush.
   * @param shortPuts counter of the flushing endpoint, whose failure is reported once, as the result of a flush
   */
  flush(completion: Completion | undefined, shortPuts: ShortPuts): Status {
    if (this.dma.outstanding > 0) this.progress();
    if (this.#idle) return takeFailure(shortPuts);
    if (completion === undefined) return Status.INPROGRESS;
    if (!isCompletion(completion)) return Status.INVALID_PARAM;
    const flush = this.#flushPool.get();
    if (flush === undefined) return Status.NO_RESOURCE;
    flush.targets.set(this.#started);
    flush.completion = completion;
    flush.shortPuts = shortPuts;
    this.#flushes.push(flush);
    return Status.INPROGRESS;
  }

  /** Whether the limit of the interface allows this number of further transfers. */
  #isWithinLimit(transfers: number): boolean {
    let inFlight = 0;
    for (let i = 0; i < DIRECTIONS; i++) inFlight += (this.#started[i]! - this.#ended[i]!) | 0;
    return inFlight + transfers <= this.#transfersMax;
  }

  get #idle(): boolean {
    for (let i = 0; i < DIRECTIONS; i++) if (this.#started[i] !== this.#ended[i]) return false;
    return true;
  }

  #start(copy: CardCopy, completion: Completion, landing: Landing | undefined): Status {
    const { dma } = this;
    const { source, sourceOffset, destination, destinationOffset, byteLength, direction } = copy;
    let request: DmaRequest | undefined;
    if (direction === Direction.DEVICE_TO_DEVICE) {
      request = dma.dmaDeviceToDeviceAsync(source, sourceOffset, destination, destinationOffset, byteLength);
    } else if (direction === Direction.HOST_TO_DEVICE) {
      const mapping = source as HostMapping;
      request = dma.dmaHostToDeviceAsync(mapping, sourceOffset, destination, destinationOffset, byteLength);
    } else {
      const mapping = destination as HostMapping;
      request = dma.dmaDeviceToHostAsync(source, sourceOffset, mapping, destinationOffset, byteLength);
    }
    return request === undefined ? Status.NO_RESOURCE : this.#track(request, direction, completion, landing);
  }

  /** Tracks a transfer that the card has accepted: INPROGRESS, or the failure of the card. */
  #track(request: DmaRequest, direction: Direction, completion: Completion, landing?: Landing): Status {
    if (request.status !== Status.INPROGRESS) {
      const failure = request.status;
      this.dma.dmaRequestFree(request);
      return failure;
    }
    this.#started[direction] = this.#started[direction]! + 1;
    this.card.inFlight += 1;
    if (landing === undefined) {
      request.context = completion;
      request.onComplete = this.#onEnd[direction];
    } else {
      landing.completion = completion;
      request.context = landing;
      request.onComplete = this.#onLanded;
    }
    return Status.INPROGRESS;
  }

  /** Takes a landing for every entry that the card must not write directly, in {@link #landings}; false, without any landing taken, if one is unavailable. */
  #takeLandings(iov: readonly IovEntry[]): boolean {
    const { isPut, host, offset: remoteOffset } = this.remote;
    while (this.#landings.length > 0) this.#landings.pop();
    if (isPut && host === undefined) return true;
    let at = isPut && host !== undefined ? remoteOffset - host.dmaOffset : 0;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      const target = isPut ? host : memory instanceof RegisteredMemory ? memory : undefined;
      if (target === undefined || target.staysPut || byteLength === 0) {
        this.#landings.push(undefined);
        continue;
      }
      const landing = this.#takeLanding(target, isPut ? at : offset, byteLength);
      at += byteLength;
      this.#landings.push(landing);
      if (landing === undefined) {
        this.#giveLandings(0);
        return false;
      }
    }
    return true;
  }

  /** The completion of a list that reads memory which can be detached; undefined for others. */
  #checkOf(iov: readonly IovEntry[], completion: Completion): SourceCheck | undefined {
    const { isPut, host } = this.remote;
    if (!isPut && host === undefined) return undefined;
    const source = isPut ? undefined : host;
    if (!mayDetach(iov, source)) return undefined;
    const check = this.#checks.pop() ?? new SourceCheck((ended) => this.#checks.push(ended));
    check.begin(iov, source, completion);
    return check;
  }

  #takeLanding(target: RegisteredMemory, offset: number, byteLength: number): Landing | undefined {
    const { device, landings } = this.card;
    try {
      return landings.take(target, target.dmaIn(this.position, device), offset, byteLength);
    } catch (error) {
      this.#giveLandings(0);
      throw error;
    }
  }

  /** Returns the landings from `first` on, whose transfers were not started. */
  #giveLandings(first: number): void {
    for (let i = first; i < this.#landings.length; i++) {
      const landing = this.#landings[i];
      if (landing !== undefined) this.card.landings.give(landing);
    }
  }

  readonly #onLanded = (request: DmaRequest): void => {
    const landing = request.context as Landing;
    const completion = landing.completion!;
    this.#ended[Direction.DEVICE_TO_HOST]! += 1;
    this.card.inFlight -= 1;
    const status = request.status === Status.OK ? landing.deliver() : request.status;
    this.dma.dmaRequestFree(request);
    this.card.landings.give(landing);
    if (status !== Status.OK) this.failures += 1;
    completeOne(completion, status);
  };

  #end(request: DmaRequest, direction: number): void {
    const { status } = request;
    const completion = request.context as Completion;
    this.#ended[direction] = this.#ended[direction]! + 1;
    this.card.inFlight -= 1;
    this.dma.dmaRequestFree(request);
    if (status !== Status.OK) this.failures += 1;
    completeOne(completion, status);
  }

  #endFlushes(): void {
    for (let flush = this.#flushes.peek(); flush !== undefined; flush = this.#flushes.peek()) {
      if (!this.#reached(flush)) return;
      this.#flushes.shift();
      const completion = flush.completion!;
      const failure = takeFailure(flush.shortPuts!);
      flush.completion = undefined;
      flush.shortPuts = undefined;
      this.#flushPool.put(flush);
      completeOne(completion, failure);
    }
  }

  #reached(flush: PendingFlush): boolean {
    for (let i = 0; i < DIRECTIONS; i++) if (((this.#ended[i]! - flush.targets[i]!) | 0) < 0) return false;
    return true;
  }
}

function directionOf(isPut: boolean, isLocalDevice: boolean, isRemoteDevice: boolean): Direction {
  if (isLocalDevice && isRemoteDevice) return Direction.DEVICE_TO_DEVICE;
  return isPut === isLocalDevice ? Direction.DEVICE_TO_HOST : Direction.HOST_TO_DEVICE;
}

/** Handles a failure of the card in the middle of a list: the transfers that were started end with the failure. */
function startFailed(status: Status, started: number, completion: Completion): Status {
  if (started === 0) return status;
  completion.count += started - 1;
  completion.failure = status;
  return Status.INPROGRESS;
}

/** The failure of the short puts of an endpoint, reported once. */
function takeFailure(shortPuts: ShortPuts): Status {
  const { failure } = shortPuts;
  shortPuts.failure = Status.OK;
  return failure;
}

/** Whether the local side of a short operation is a valid range of bytes within the limit. */
export function canShort(local: Uint8Array, localOffset: number, byteLength: number): boolean {
  return byteLength > 0 && byteLength <= SHORT_BYTES_MAX && isInBytes(localOffset, byteLength, local);
}

/** Base class of endpoints over one card. @typeParam K its remote keys */
export abstract class DmaEndpoint<K> extends RmaOnlyEndpoint {
  protected readonly transfers: DmaTransfers;
  protected readonly shortPuts: ShortPuts = new ShortPuts();

  constructor(transfers: DmaTransfers) {
    super();
    this.transfers = transfers;
  }

  /** Starts a put or a get of a list. */
  protected abstract zcopy(
    iov: readonly IovEntry[],
    remoteOffset: number,
    rkey: K,
    completion: Completion,
    isPut: boolean,
  ): Status;

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: K, completion: Completion): Status {
    return this.zcopy(iov, remoteOffset, rkey, completion, true);
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: K, completion: Completion): Status {
    return this.zcopy(iov, remoteOffset, rkey, completion, false);
  }

  cork(): void {
    this.transfers.dma.cork();
  }

  uncork(): void {
    this.transfers.dma.uncork();
  }

  flush(completion: Completion | undefined): Status {
    return this.transfers.counters.flush(this.transfers.flush(completion, this.shortPuts));
  }

  /** Transfers of one direction keep their order, those of different directions do not: the fence waits for all started transfers. */
  fence(): Status {
    return this.transfers.counters.fence(this.transfers.flush(undefined, this.shortPuts));
  }

  close(): void {}
}
