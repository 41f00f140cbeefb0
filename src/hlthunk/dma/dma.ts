/**
 * The asynchronous DMA calls of a card: checks access to memory, selects the queue for the direction, and holds the memory until the transfer ends. Callers
 * register host memory.
 *
 * hl-thunk does not have such calls: they are built from LIN_DMA packets, command submissions and waits. Transfers allocate nothing. A failed check throws and
 * submits nothing; `undefined` is NO_RESOURCE: try again after {@link DeviceDma.progress}.
 */

import type { DriverFile } from '../../driver/port.ts';
import { type AsicProfile, engineIdOf, Gaudi2QueueBase, GaudiQueueBase, type PacketAsic } from '../../uapi/index.ts';
import { type Clock, systemClock } from '../../ucs/sys/clock.ts';
import { Sleeper } from '../../ucs/sys/sleeper.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { isStatus, Status } from '../../ucs/type/status.ts';
import type { CardFile } from '../base/card-file.ts';
import { checkInteger, GaudiErrorCode, gaudiError, invalidArgument, outsideArgument } from '../base/gaudi-error.ts';
import { type CommandBuffer, requestCommandBuffer } from '../cs/command-buffer.ts';
import type { HwIpInfo } from '../info/device-info.ts';
import type { DeviceEvents, DeviceFault } from '../info/events.ts';
import { DmaMemory, foreignName } from '../memory/dma-memory.ts';
import type { DmabufImports } from '../memory/dmabuf.ts';
import type { HostMapping, HostMemory } from '../memory/host-memory.ts';
import { DmaChannels, type DmaDirection } from './channels.ts';
import type { DmaQueueDevice } from './command-ring.ts';
import { CommandRoute } from './command-route.ts';
import { dmaError, doubtsData, suspectsOf } from './faults.ts';
import { DMA_REQUESTS_MAX, DMA_SHORT_BYTES_MAX, DmaQueue } from './queue.ts';
import { type DmaCounts, DmaRequest } from './request.ts';
import type { DmaRoute } from './route.ts';

/** Maximum number of batches in flight of one queue. */
const SLOTS = 32;
/** Number of submissions that DMA leaves free for commandSubmission, out of the driver's limit. */
const SUBMISSIONS_RESERVED = 8;
/** Pause of a wait while the driver rejects submissions and nothing is in flight: no event then reports when the driver accepts them again. */
const RETRY_NS = 1e6;

/** Options of the DMA of a device; tests use small values. */
export interface DeviceDmaOptions {
  /** Maximum number of batches in flight of each queue, a power of two up to 1024. Default 32. */
  readonly slots?: number | undefined;
  /** Largest transfer of one packet in bytes. Default and maximum: just below 4 GiB. */
  readonly packetBytesMax?: number | undefined;
  /** Number of submissions that DMA leaves free for commandSubmission, out of the driver's limit of 64 on gaudi2. Default 8. */
  readonly submissionsReserved?: number | undefined;
  /** Clock for {@link DeviceDma.wait}. Default: the system clock. */
  readonly clock?: Clock | undefined;
}

/** Collaborators of the DMA of a device. */
export interface DeviceDmaParts {
  readonly card: CardFile;
  /** Properties that the driver reports, and the constants of the generation. */
  readonly info: HwIpInfo & { readonly profile: AsicProfile };
  readonly hostMemory: HostMemory;
  readonly events: DeviceEvents;
  readonly imports: DmabufImports;
  readonly options: DeviceDmaOptions;
}

/** The DMA of one open card. */
export class DeviceDma implements DmaQueueDevice {
  /** Name of the card for messages. */
  readonly name: string;
  /** Source of time. */
  readonly clock: Clock;
  /** The open file of the card. */
  readonly file: DriverFile;
  /** Constants of the ASIC for packets. */
  readonly asic: PacketAsic;
  readonly createKernelBuffer: ((byteLength: number) => CommandBuffer) | undefined;
  readonly #card: CardFile;
  readonly #hostMemory: HostMemory;
  readonly #events: DeviceEvents;
  readonly #imports: DmabufImports;
  readonly #profile: AsicProfile;
  readonly #options: DeviceDmaOptions;
  /** The channels that this process may use; undefined if the card takes command submissions. */
  readonly #channels: DmaChannels | undefined;
  readonly #submissionsMax: number;
  readonly #sleep: Sleeper;
  #submissions = 0;
  isCorked = false;
  #closed = false;
  #hostToDevice: DmaQueue | undefined = undefined;
  #deviceToHost: DmaQueue | undefined = undefined;
  #deviceToDevice: DmaQueue | undefined = undefined;
  /** Every open queue. */
  readonly #queues: DmaQueue[] = [];

  constructor(parts: DeviceDmaParts) {
    const { card, info, options } = parts;
    const { profile } = info;
    this.name = card.name;
    this.clock = options.clock ?? systemClock;
    this.file = card.file;
    this.asic = profile.name === 'gaudi' ? 'gaudi' : 'gaudi2';
    this.#card = card;
    this.#hostMemory = parts.hostMemory;
    this.#events = parts.events;
    this.#events.listen((fault) => this.#faulted(fault));
    this.#imports = parts.imports;
    this.#profile = profile;
    this.#options = options;
    this.#sleep = new Sleeper(this.clock, { ref: true });
    const { submits, userCbOnly } = profile.capabilities;
    this.#channels = submits ? undefined : new DmaChannels(card, info);
    this.createKernelBuffer = userCbOnly ? undefined : (byteLength) => requestCommandBuffer({ card }, byteLength);
    const left = profile.maxPendingCs - (options.submissionsReserved ?? SUBMISSIONS_RESERVED);
    // Channels take as many batches as their slots.
    this.#submissionsMax = submits ? Math.max(1, left) : Number.MAX_SAFE_INTEGER;
  }

  /** The reason why the card cannot execute transfers; undefined if it can. */
  get limitation(): string | undefined {
    return this.#channels?.limitation;
  }

  /** Number of transfers that have not ended. */
  get outstanding(): number {
    let outstanding = 0;
    for (let i = 0; i < this.#queues.length; i++) outstanding += this.#queues[i]!.outstanding;
    return outstanding;
  }

  /** Number of transfers that every queue can still accept. */
  get room(): number {
    let room = DMA_REQUESTS_MAX;
    for (let i = 0; i < this.#queues.length; i++) room = Math.min(room, this.#queues[i]!.room);
    return room;
  }

  /** Counters of the queues by direction; undefined for a direction that was never used. Cold. */
  get counts(): {
    readonly hostToDevice: DmaCounts | undefined;
    readonly deviceToHost: DmaCounts | undefined;
    readonly deviceToDevice: DmaCounts | undefined;
  } {
    return {
      hostToDevice: this.#hostToDevice?.counts,
      deviceToHost: this.#deviceToHost?.counts,
      deviceToDevice: this.#deviceToDevice?.counts,
    };
  }

  /** True if every transfer has ended. */
  get flushed(): boolean {
    return this.outstanding === 0;
  }

  /** The failure that ended a queue permanently, such as a reset of the card; OK while all queues work. */
  get failure(): Status {
    for (const queue of this.#queues) if (queue.failure !== Status.OK) return queue.failure;
    return Status.OK;
  }

  /** True if a queue has failed or the driver has rejected its last submission; {@link errorOf} returns the reason. */
  get hasFailed(): boolean {
    return this.#queues.some(({ failure, failureErrno }) => failure !== Status.OK || failureErrno !== 0);
  }

  /** Command submissions in flight, and their maximum. */
  get submissions(): { readonly inFlight: number; readonly max: number } {
    return { inFlight: this.#submissions, max: this.#submissionsMax };
  }

  /**
   * Copies host memory to device memory.
   * @param byteLength 1 to 2^53 - 1; a transfer longer than a packet is split
   * @returns the request, or undefined for NO_RESOURCE
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a range outside its memory, freed or foreign memory; opening the queue at the
   * first call can fail like hostMemoryMap
   */
  dmaHostToDeviceAsync(
    mapping: HostMapping,
    mappingOffset: number,
    block: DmaMemory,
    blockOffset: number,
    byteLength: number,
  ): DmaRequest | undefined {
    this.#check('mapping', mapping, mappingOffset, byteLength);
    this.#check('block', block, blockOffset, byteLength);
    this.#hostToDevice ??= this.#open('hostToDevice');
    const request = this.#hostToDevice.take(byteLength);
    if (request === undefined) return undefined;
    request.from(mapping, mappingOffset);
    request.to(block, blockOffset);
    return started(this.#hostToDevice, request, mapping, block);
  }

  /** Copies device memory to host memory. Like {@link dmaHostToDeviceAsync}. */
  dmaDeviceToHostAsync(
    block: DmaMemory,
    blockOffset: number,
    mapping: HostMapping,
    mappingOffset: number,
    byteLength: number,
  ): DmaRequest | undefined {
    this.#check('block', block, blockOffset, byteLength);
    this.#check('mapping', mapping, mappingOffset, byteLength);
    this.#deviceToHost ??= this.#open('deviceToHost');
    const request = this.#deviceToHost.take(byteLength);
    if (request === undefined) return undefined;
    request.from(block, blockOffset);
    request.to(mapping, mappingOffset);
    return started(this.#deviceToHost, request, block, mapping);
  }

  /** Copies within the card, or between it and imported memory. Like {@link dmaHostToDeviceAsync}; the ranges must not overlap. */
  dmaDeviceToDeviceAsync(
    source: DmaMemory,
    sourceOffset: number,
    destination: DmaMemory,
    destinationOffset: number,
    byteLength: number,
  ): DmaRequest | undefined {
    this.#check('source', source, sourceOffset, byteLength);
    this.#check('destination', destination, destinationOffset, byteLength);
    this.#deviceToDevice ??= this.#open('deviceToDevice');
    const request = this.#deviceToDevice.take(byteLength);
    if (request === undefined) return undefined;
    request.from(source, sourceOffset);
    request.to(destination, destinationOffset);
    return started(this.#deviceToDevice, request, source, destination);
  }

  /**
   * Copies up to 1024 bytes of JavaScript memory to device memory. The bytes are copied during the call, and may be overwritten afterwards.
   * @returns the request, or undefined for NO_RESOURCE: a slot must be free
   */
  putShort(
    bytes: Uint8Array,
    offset: number,
    block: DmaMemory,
    blockOffset: number,
    byteLength: number,
  ): DmaRequest | undefined {
    checkBytes(bytes, offset, byteLength);
    this.#check('block', block, blockOffset, byteLength);
    this.#hostToDevice ??= this.#open('hostToDevice');
    const request = this.#hostToDevice.takePut(bytes, offset, byteLength);
    if (request === undefined) return undefined;
    request.to(block, blockOffset);
    return started(this.#hostToDevice, request, block, undefined);
  }

  /** Copies up to 1024 bytes of device memory to JavaScript memory; they are valid once the request has ended with OK. */
  getShort(
    bytes: Uint8Array,
    offset: number,
    block: DmaMemory,
    blockOffset: number,
    byteLength: number,
  ): DmaRequest | undefined {
    checkBytes(bytes, offset, byteLength);
    this.#check('block', block, blockOffset, byteLength);
    this.#deviceToHost ??= this.#open('deviceToHost');
    const request = this.#deviceToHost.takeGet(bytes, offset, byteLength);
    if (request === undefined) return undefined;
    request.from(block, blockOffset);
    return started(this.#deviceToHost, request, block, undefined);
  }

  /** Makes progress on transfers in flight, then returns the status of a request: INPROGRESS, OK or a failure. */
  dmaPoll(request: DmaRequest): Status {
    this.#checkRequest(request);
    if (!request.live) throw invalidArgument('request', 'has been freed', request.batch);
    if (request.status === Status.INPROGRESS) this.progress();
    return request.status;
  }

  /**
   * Releases an ended request; afterwards it belongs to another transfer.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY before its end; ERR_GAUDI_INVALID_PARAMS the second time
   */
  dmaRequestFree(request: DmaRequest): void {
    this.#checkRequest(request);
    if (!request.live) throw invalidArgument('request', 'must not be freed twice', request.batch);
    if (request.status === Status.INPROGRESS) {
      throw gaudiError(
        GaudiErrorCode.DEVICE_BUSY,
        `a dma request of ${this.#card.name} has not ended: free it after its status has left INPROGRESS`,
      );
    }
    request.owner.free(request);
  }

  /**
   * The error for a failed request, with the last fault of the card: ERR_GAUDI_TIMEOUT, ERR_GAUDI_CHANNEL_FAILED for a canceled one, otherwise
   * ERR_GAUDI_DMA_FAILED. Contains the reason for the failure of the queue, if known. Cold.
   */
  errorOf(status: Status): UcxError {
    if (!isStatus(status)) throw invalidArgument('status', 'must be a value of Status', status);
    const failed = this.#queues.find(({ failureErrno }) => failureErrno !== 0);
    const fault = this.#events.lastFault?.events.join(', ');
    const isLost = failed !== undefined && failed.failure !== Status.OK;
    return dmaError(this.#card, { status, errno: failed?.failureErrno ?? 0, isLost, fault });
  }

  /** Holds back new transfers until {@link uncork}, so that as few submissions as possible carry them. */
  cork(): void {
    this.isCorked = true;
  }

  /** Submits the transfers that were held back. */
  uncork(): void {
    this.isCorked = false;
    for (let i = 0; i < this.#queues.length; i++) this.#queues[i]!.submitWaiting();
  }

  /**
   * Completes finished transfers and submits waiting ones. Callbacks of requests run inside.
   * @returns number of requests that ended
   */
  progress(): number {
    let ended = 0;
    for (let i = 0; i < this.#queues.length; i++) ended += this.#queues[i]!.progress();
    if (ended > 0) this.#sleep.wake();
    return ended;
  }

  /**
   * Sleeps until one of the queues has made progress or `timeoutNs` has passed; then call {@link progress}. May return early, and returns at once if every
   * transfer has ended. Includes transfers that start meanwhile. Callers share one sleep, one promise, one timer and one driver call for each queue, so
   * abandoning a wait and waiting again costs nothing.
   */
  wait(timeoutNs: number): Promise<void> {
    if (typeof timeoutNs !== 'number' || !(timeoutNs >= 0 && timeoutNs <= Number.MAX_SAFE_INTEGER)) {
      return Promise.reject(invalidArgument('timeoutNs', 'must be from 0 to 2^53 - 1', timeoutNs));
    }
    if (this.outstanding === 0) return Promise.resolve();
    const isBusy = this.#queues.some((queue) => queue.busy);
    const sleepNs = isBusy ? timeoutNs : Math.min(timeoutNs, RETRY_NS);
    const awake = this.#sleep.sleep(sleepNs);
    for (const queue of this.#queues) queue.watch(sleepNs);
    return awake;
  }

  /** Ends every request with `status`, before the file is closed. */
  abort(status: Status): void {
    this.#closed = true;
    // Before the first callback, which may unmap memory: no channel may access it any more.
    for (const queue of this.#queues) queue.disconnect();
    for (const queue of this.#queues) queue.abort(status);
    this.#sleep.wake();
  }

  /** Releases the memory of the queues. Call it after the file was closed: until then the card may still write to the memory. */
  close(): void {
    for (const queue of this.#queues) queue.close();
    this.#queues.length = 0;
  }

  // Services for the queues.

  takeSubmission(): boolean {
    if (this.#submissions >= this.#submissionsMax) return false;
    // A fault reported before this point does not belong to later submissions. Reading the events is a system call, and can be omitted until the first fault,
    // because the record of that fault identifies its origin. Only commands submitted outside the DMA queues can have faulted before it.
    if (this.#events.lastFault !== undefined || this.#card.submitsCommands) this.#events.poll();
    this.#submissions += 1;
    return true;
  }

  /** Counts a submission as ended against the limit of the card. */
  returnSubmission(): void {
    this.#submissions -= 1;
  }

  checkFaults(): void {
    this.#events.poll();
  }

  get timedOutSeq(): number {
    return this.#events.timedOutSeq;
  }

  get sleepNs(): number {
    return this.#sleep.leftNs;
  }

  wake(): void {
    this.#sleep.wake();
  }

  mapHost(address: number, byteLength: number): HostMapping {
    return this.#hostMemory.map(address, byteLength);
  }

  /** Marks the transfers that the fault may have corrupted, before other listeners are notified. */
  #faulted(fault: DeviceFault): void {
    if (this.#card.lostReason !== undefined) for (const queue of this.#queues) queue.lose();
    if (!doubtsData(fault)) return;
    // Only drivers of cards with channels fill in the engine of a page fault.
    const isNamed = this.#channels !== undefined;
    const flights = this.#queues.map((queue) => ({ engineId: queue.engineId, isNamed, requests: queue.inFlight() }));
    const isForeign = (address: bigint, byteLength: number): boolean => this.#imports.touches(address, byteLength);
    for (const request of suspectsOf(fault, flights, isForeign)) request.outcome = Status.IO_ERROR;
    if (fault.engineErr !== undefined) for (const queue of this.#queues) queue.stoppedBy([fault.engineErr.engineId]);
  }

  #open(direction: DmaDirection): DmaQueue {
    this.#card.checkOpen();
    this.#card.checkUsable();
    const { packetBytesMax } = this.#options;
    const queue = new DmaQueue({
      device: this,
      route: this.#openRoute(direction),
      ...(packetBytesMax === undefined ? {} : { packetBytesMax }),
    });
    this.#queues.push(queue);
    return queue;
  }

  #openRoute(direction: DmaDirection): DmaRoute {
    const slots = this.#options.slots ?? SLOTS;
    if (this.#channels !== undefined) return this.#channels.open(this, direction, slots);
    const queueIndex = DMA_QUEUES[this.asic][direction];
    const engineId = engineIdOf(this.#profile.name, this.#profile.queues[queueIndex]!);
    return new CommandRoute(this, { queueIndex, engineId, slots });
  }

  /** Throws unless `request` is a request of this card. */
  #checkRequest(request: DmaRequest): void {
    if (DmaRequest.isGenuine(request) && request.owner.device === this) return;
    throw invalidArgument('request', `must be of ${this.#card.name}`, request);
  }

  /**
   * Checks the range of a transfer.
   * @param name of the argument in errors: block, mapping, source, destination
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS unless it is inside live memory of this card
   */
  #check(name: string, memory: DmaMemory, offset: number, byteLength: number): void {
    const card = this.#card;
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
      throw invalidArgument('byteLength', 'must be a positive integer below 2^53', byteLength);
    }
    if (!DmaMemory.isGenuine(memory) || memory.card !== card) {
      throw invalidArgument(name, `must be memory of ${card.name}`, foreignName(memory));
    }
    if (!memory.live) throw invalidArgument(name, 'has been released', memory);
    // Tested first, because making the argument name costs time in every transfer.
    if (!Number.isSafeInteger(offset) || offset < 0) checkInteger(`${name}Offset`, offset);
    if (byteLength > memory.byteLength - offset) {
      throw outsideArgument(`${name} memory`, `${name}Offset`, { offset, byteLength, size: memory.byteLength });
    }
    if (this.#closed) throw invalidArgument(name, 'has been released', memory);
  }
}

/** Starts a transfer, which holds its memory. */
function started(queue: DmaQueue, request: DmaRequest, first: DmaMemory, second: DmaMemory | undefined): DmaRequest {
  queue.start(request);
  // A transfer cannot complete before the next progress. If the request has already ended, it has failed and holds no memory.
  request.hold(first, second);
  return request;
}

function checkBytes(bytes: Uint8Array, offset: number, byteLength: number): void {
  if (!(bytes instanceof Uint8Array)) throw invalidArgument('bytes', 'must be a Uint8Array', bytes);
  if (!Number.isInteger(byteLength) || byteLength <= 0 || byteLength > DMA_SHORT_BYTES_MAX) {
    throw invalidArgument('byteLength', `must be an integer from 1 to ${DMA_SHORT_BYTES_MAX}`, byteLength);
  }
  checkInteger('offset', offset);
  if (byteLength > bytes.byteLength - offset) {
    throw outsideArgument('bytes', 'offset', { offset, byteLength, size: bytes.byteLength });
  }
}

/** The hardware queues for DMA. */
const DMA_QUEUES: Readonly<Record<PacketAsic, Readonly<Record<DmaDirection, number>>>> = {
  // The driver does not track the completion of the HBM channels of gaudi, whose queues are internal: stream 1 of the PCI channel is used instead.
  gaudi: {
    hostToDevice: GaudiQueueBase.DMA_0,
    deviceToHost: GaudiQueueBase.DMA_1,
    deviceToDevice: GaudiQueueBase.DMA_0 + 1,
  },
  gaudi2: {
    hostToDevice: Gaudi2QueueBase.PDMA_0,
    deviceToHost: Gaudi2QueueBase.PDMA_1,
    deviceToDevice: Gaudi2QueueBase.DCORE0_EDMA_0,
  },
};
