/**
 * The endpoint of gaudi_cpy: turns put and get into DMA transfers of one card. Which transport should do it is not decided here, but what
 * a card cannot do is refused here.
 */

import type { DeviceDma, DmaRequest, HostMapping } from '../../../hlthunk/index.ts';
import { invalidParam } from '../../../ucs/error.ts';
import { Status } from '../../../ucs/status.ts';
import type { Completion, IovEntry, UctEndpoint } from '../../api/iface.ts';
import type { MdMemory, RemoteKey } from '../../api/memory.ts';
import { isInside } from '../../base/range.ts';
import { RmaOnlyEndpoint } from '../../base/rma-endpoint.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';
import { Direction, IOV_MAX, SHORT_BYTES_MAX } from './copy-limits.ts';
import { type GaudiKey, GaudiMemory, HostMemory } from './gaudi-memory.ts';

/** What an endpoint needs of its interface. */
export interface TransferTracker {
  readonly card: GaudiCard;
  /** Position of the card among the open ones: the slot of its mappings in host memory. */
  readonly position: number;
  /**
   * Takes over a transfer that the card has accepted.
   * @param completion called when it ends
   * @returns INPROGRESS, or the failure of a card that has already failed
   */
  track(request: DmaRequest, direction: Direction, completion: Completion): Status;
  /**
   * See UctEndpoint.flush.
   * @param shortPuts of the endpoint that flushes: their failure is part of the result, once
   */
  flush(completion: Completion | undefined, shortPuts: Completion): Status;
}

/** Counts the short puts of an endpoint: their callers have long gone on, so nobody is called, and a failure waits for the flush. */
class ShortPuts implements Completion {
  count = 0;
  failure: Status = Status.OK;

  onComplete(): void {}
}

/** The endpoint. */
export class CopyEndpoint extends RmaOnlyEndpoint implements UctEndpoint {
  readonly #shortPuts: ShortPuts = new ShortPuts();
  readonly #iface: TransferTracker;
  readonly #dma: DeviceDma;

  constructor(iface: TransferTracker) {
    super();
    this.#iface = iface;
    this.#dma = iface.card.device.dma;
  }

  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion?: Completion,
  ): Status {
    const { memory } = rkey as GaudiKey;
    const refused = this.#checkShort(memory, remoteOffset, source, sourceOffset, byteLength);
    if (refused !== Status.OK) return refused;
    const request = this.#dma.putShort(source, sourceOffset, (memory as GaudiMemory).block, remoteOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    const tracked = this.#iface.track(request, Direction.HOST_TO_DEVICE, completion ?? this.#shortPuts);
    if (tracked !== Status.INPROGRESS || completion !== undefined) return tracked;
    this.#shortPuts.count += 1;
    return Status.OK;
  }

  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
  ): Status {
    const { memory } = rkey as GaudiKey;
    const refused = this.#checkShort(memory, remoteOffset, target, targetOffset, byteLength);
    if (refused !== Status.OK) return refused;
    const request = this.#dma.getShort(target, targetOffset, (memory as GaudiMemory).block, remoteOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#iface.track(request, Direction.DEVICE_TO_HOST, completion);
  }

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    return this.#zcopy(iov, remoteOffset, rkey, completion, true);
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    return this.#zcopy(iov, remoteOffset, rkey, completion, false);
  }

  flush(completion: Completion | undefined): Status {
    return this.#iface.flush(completion, this.#shortPuts);
  }

  /** Transfers of one direction keep their order, those of different directions do not: the fence waits for what is started. */
  fence(): Status {
    return this.#iface.flush(undefined, this.#shortPuts);
  }

  close(): void {}

  /** One transfer per entry; all of them or none is started. `completion` counts the whole list as one operation. */
  #zcopy(
    iov: readonly IovEntry[],
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
    isPut: boolean,
  ): Status {
    const remote = (rkey as GaudiKey).memory;
    const checked = this.#checkIov(iov, remoteOffset, remote);
    if (checked !== Status.OK) return checked;
    if (this.#dma.room < iov.length) return Status.NO_RESOURCE;
    let at = remoteOffset;
    let started = 0;
    for (let i = 0; i < iov.length; i++) {
      const entry = iov[i]!;
      if (entry.byteLength === 0) continue;
      const status = isPut
        ? this.#start(entry.memory, entry.offset, remote, at, entry.byteLength, completion)
        : this.#start(remote, at, entry.memory, entry.offset, entry.byteLength, completion);
      if (status !== Status.INPROGRESS) return this.#startFailed(status, started, completion);
      at += entry.byteLength;
      started += 1;
    }
    if (started === 0) return Status.OK;
    completion.count += started - 1;
    return Status.INPROGRESS;
  }

  /** A card that failed in the middle of a list: what was started ends by itself and carries the failure. */
  #startFailed(status: Status, started: number, completion: Completion): Status {
    if (started === 0) return status;
    completion.count += started - 1;
    completion.failure = status;
    return Status.INPROGRESS;
  }

  /** Starts one transfer. Both sides are checked. */
  #start(
    source: MdMemory,
    sourceOffset: number,
    destination: MdMemory,
    destinationOffset: number,
    byteLength: number,
    completion: Completion,
  ): Status {
    const fromDevice = source instanceof GaudiMemory;
    const toDevice = destination instanceof GaudiMemory;
    let request: DmaRequest | undefined;
    let direction: Direction;
    if (fromDevice && toDevice) {
      direction = Direction.DEVICE_TO_DEVICE;
      request = this.#dma.dmaDeviceToDeviceAsync(
        source.block,
        sourceOffset,
        destination.block,
        destinationOffset,
        byteLength,
      );
    } else if (toDevice) {
      direction = Direction.HOST_TO_DEVICE;
      const host = source as HostMemory;
      const mapping = this.#mappingOf(host);
      const from = host.pagesOffset + sourceOffset;
      request = this.#dma.dmaHostToDeviceAsync(mapping, from, destination.block, destinationOffset, byteLength);
    } else {
      direction = Direction.DEVICE_TO_HOST;
      const host = destination as HostMemory;
      const mapping = this.#mappingOf(host);
      const to = host.pagesOffset + destinationOffset;
      request = this.#dma.dmaDeviceToHostAsync((source as GaudiMemory).block, sourceOffset, mapping, to, byteLength);
    }
    return request === undefined ? Status.NO_RESOURCE : this.#iface.track(request, direction, completion);
  }

  #mappingOf(host: HostMemory): HostMapping {
    return host.pages.mappingIn(this.#iface.position, this.#iface.card.device);
  }

  /** Short operations reach memory of this card; OK or the refusal. */
  #checkShort(
    memory: MdMemory,
    remoteOffset: number,
    local: Uint8Array,
    localOffset: number,
    byteLength: number,
  ): Status {
    if (!(memory instanceof GaudiMemory)) return Status.UNSUPPORTED;
    if (memory.sysDevice !== this.#iface.card.index) return Status.UNREACHABLE;
    if (!(byteLength > 0 && byteLength <= SHORT_BYTES_MAX) || !isInside(localOffset, byteLength, local.byteLength)) {
      return Status.INVALID_PARAM;
    }
    return memory.live && isInside(remoteOffset, byteLength, memory.byteLength) ? Status.OK : Status.INVALID_ADDR;
  }

  /** Checks a list before anything moves; OK or the refusal. */
  #checkIov(iov: readonly IovEntry[], remoteOffset: number, remote: MdMemory): Status {
    if (iov.length > IOV_MAX) throw invalidParam('iov', `must have at most ${IOV_MAX} entries`, iov.length);
    let total = 0;
    for (let i = 0; i < iov.length; i++) {
      const entry = iov[i]!;
      const refused = this.#checkSide(entry.memory, entry.offset, entry.byteLength);
      if (refused !== Status.OK) return refused;
      // A card moves nothing between host and host.
      if (entry.memory instanceof HostMemory && remote instanceof HostMemory) return Status.UNSUPPORTED;
      total += entry.byteLength;
    }
    return this.#checkSide(remote, remoteOffset, total);
  }

  /** Checks that a range lies inside live memory that this card reaches. */
  #checkSide(memory: MdMemory, offset: number, byteLength: number): Status {
    if (memory instanceof GaudiMemory) {
      if (memory.sysDevice !== this.#iface.card.index) return Status.UNREACHABLE;
    } else if (!(memory instanceof HostMemory) || !memory.attached) return Status.INVALID_PARAM;
    if (!memory.live) return Status.INVALID_ADDR;
    if (!isInside(offset, byteLength, memory.byteLength)) return Status.INVALID_ADDR;
    // What can throw, throws here: before the first transfer of a list is started.
    if (memory instanceof HostMemory) this.#mappingOf(memory);
    return Status.OK;
  }
}
