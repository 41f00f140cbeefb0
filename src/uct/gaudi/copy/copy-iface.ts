/**
 * The transport gaudi_cpy on one card: what it can do, and the accounting by which flush knows what is done.
 */

import type { DmaRequest } from '../../../hlthunk/index.ts';
import type { UcxError } from '../../../ucs/error.ts';
import { MemoryType, memoryTypeBit } from '../../../ucs/memory-type.ts';
import { ObjectPool } from '../../../ucs/object-pool.ts';
import { Ring } from '../../../ucs/ring.ts';
import { Status } from '../../../ucs/status.ts';
import {
  type Completion,
  type Iface,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  NO_ACTIVE_MESSAGES,
  type RmaLimits,
  type UctEndpoint,
} from '../../api/iface.ts';
import { completeOne } from '../../base/completion.ts';
import { sameAddress, UNIQUE_ADDRESS_BYTES, unreachable } from '../../base/iface-address.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';
import type { GaudiCopyConfig } from './config.ts';
import { CopyEndpoint, type TransferTracker } from './copy-endpoint.ts';
import { DIRECTIONS, type Direction, IOV_MAX, SHORT_BYTES_MAX } from './copy-limits.ts';

/** Flushes that may wait at the same time; beyond it NO_RESOURCE. */
const FLUSHES_MAX = 256;

const LIMITS: RmaLimits = {
  shortBytesMax: SHORT_BYTES_MAX,
  zcopyBytesMin: 1,
  zcopyBytesMax: Number.MAX_SAFE_INTEGER,
  iovMax: IOV_MAX,
};

/** A flush that waits until every queue has ended what was started before it. */
class PendingFlush {
  readonly targets: Int32Array = new Int32Array(DIRECTIONS);
  completion: Completion | undefined = undefined;
  /** The short puts of the endpoint that flushes: their failure is its result. */
  shortPuts: Completion | undefined = undefined;
}

/** What an interface is made of. */
export interface CopyIfaceOptions {
  readonly card: GaudiCard;
  /** Position of the card among the open ones: the slot of its mappings in host memory. */
  readonly position: number;
  readonly resource: IfaceResource;
  /** Common to all interfaces on this card that its memory domain opens. */
  readonly address: Uint8Array;
  readonly config: GaudiCopyConfig;
}

/** The interface. */
export class CopyIface implements Iface, TransferTracker {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly card: GaudiCard;
  readonly position: number;
  /** Transfers started and ended per direction, modulo 2^32. */
  readonly #started: Int32Array = new Int32Array(DIRECTIONS);
  readonly #ended: Int32Array = new Int32Array(DIRECTIONS);
  readonly #flushPool: ObjectPool<PendingFlush> = new ObjectPool(FLUSHES_MAX, () => new PendingFlush());
  readonly #flushes: Ring<PendingFlush> = new Ring(FLUSHES_MAX);
  /** One callback per direction, made once: a transfer allocates none. */
  readonly #onEnd: readonly ((request: DmaRequest) => void)[];
  #closed = false;

  constructor(options: CopyIfaceOptions) {
    this.card = options.card;
    this.position = options.position;
    this.address = options.address;
    this.attributes = attributesOf(options);
    this.#onEnd = [0, 1, 2].map((direction) => (request: DmaRequest) => this.#end(request, direction));
  }

  get outstanding(): number {
    return this.card.device.dma.outstanding + this.#flushes.length;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    return sameAddress(address, this.address) ? undefined : 'reaches memory of its own context only';
  }

  connect(address: Uint8Array): UctEndpoint {
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw unreachable(this.attributes.resource.transport, reason);
    return new CopyEndpoint(this);
  }

  /** No messages come from a card. */
  setAmHandler(): void {}

  progress(): number {
    const ended = this.card.device.dma.progress();
    if (this.#flushes.length > 0) this.#endFlushes();
    return ended;
  }

  errorOf(status: Status): UcxError | undefined {
    const { dma, events } = this.card.device;
    return events.lastFault === undefined && dma.failure === Status.OK ? undefined : dma.errorOf(status);
  }

  async wait(timeoutNs: number): Promise<void> {
    await this.card.device.dma.wait(timeoutNs);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // The queues belong to the card, which other interfaces use too: transfers on their way end by themselves.
    this.progress();
  }

  track(request: DmaRequest, direction: Direction, completion: Completion): Status {
    if (request.status !== Status.INPROGRESS) {
      const failure = request.status;
      this.card.device.dma.dmaRequestFree(request);
      return failure;
    }
    this.#started[direction] = this.#started[direction]! + 1;
    request.context = completion;
    request.onComplete = this.#onEnd[direction];
    return Status.INPROGRESS;
  }

  flush(completion: Completion | undefined, shortPuts: Completion): Status {
    if (this.card.device.dma.outstanding > 0) this.progress();
    if (this.#idle) return takeFailure(shortPuts);
    if (completion === undefined) return Status.INPROGRESS;
    const flush = this.#flushPool.get();
    if (flush === undefined) return Status.NO_RESOURCE;
    flush.targets.set(this.#started);
    flush.completion = completion;
    flush.shortPuts = shortPuts;
    this.#flushes.push(flush);
    return Status.INPROGRESS;
  }

  get #idle(): boolean {
    for (let i = 0; i < DIRECTIONS; i++) if (this.#started[i] !== this.#ended[i]) return false;
    return true;
  }

  #end(request: DmaRequest, direction: number): void {
    const { status } = request;
    const completion = request.context as Completion;
    this.#ended[direction] = this.#ended[direction]! + 1;
    this.card.device.dma.dmaRequestFree(request);
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

/** The failure of the short puts of an endpoint, reported once. */
function takeFailure(shortPuts: Completion): Status {
  const { failure } = shortPuts;
  shortPuts.failure = Status.OK;
  return failure;
}

function attributesOf({ resource, config }: CopyIfaceOptions): IfaceAttributes {
  const types = memoryTypeBit(MemoryType.HOST) | memoryTypeBit(MemoryType.GAUDI);
  const bandwidth = (direction: 'h2d' | 'd2h' | 'd2d'): number => config.BW[direction] ?? config.BW.default ?? 1;
  return {
    resource,
    flags:
      IfaceFlag.PUT_SHORT |
      IfaceFlag.PUT_ZCOPY |
      IfaceFlag.GET_SHORT |
      IfaceFlag.GET_ZCOPY |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM |
      IfaceFlag.EVENT,
    put: LIMITS,
    get: LIMITS,
    am: NO_ACTIVE_MESSAGES,
    localMemoryTypes: types,
    remoteMemoryTypes: types,
    requiredMemoryTypes: memoryTypeBit(MemoryType.GAUDI),
    reachesOtherDevices: false,
    performance: {
      latencyNs: config.LATENCY,
      overheadNs: config.OVERHEAD,
      hostToDevice: bandwidth('h2d'),
      deviceToHost: bandwidth('d2h'),
      deviceToDevice: bandwidth('d2d'),
      hostToHost: 0,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes: UNIQUE_ADDRESS_BYTES + 1,
    endpointAddressBytes: 0,
    errorHandling: ['remote access'],
  };
}
