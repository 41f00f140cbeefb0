/** The transport gaudi_cpy on one card: its capabilities and its reachability. */

import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import type { Rcache } from '../../../ucs/rcache/rcache.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import type { UcxError } from '../../../ucs/type/error.ts';
import type { Status } from '../../../ucs/type/status.ts';
import {
  type AmHandler,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  NO_ACTIVE_MESSAGES,
  type UctEndpoint,
  ZCOPY_TRACKING_NS,
} from '../../api/iface.ts';
import { checkAmHandler } from '../../base/checks.ts';
import { type ClosableIface, sameAddress, UNIQUE_ADDRESS_BYTES, unreachable } from '../../base/iface.ts';
import type { GaudiCard } from '../base/cards.ts';
import type { GaudiCopyConfig } from '../base/config.ts';
import { cardRma, type HostPages, submitLimitation } from '../base/memory.ts';
import { DmaTransfers } from '../base/transfers.ts';
import { CopyEndpoint } from './endpoint.ts';

/** Dependencies of an interface. */
export interface CopyIfaceOptions {
  readonly card: GaudiCard;
  /** Position of the card among the open ones: index of its mappings in host memory. */
  readonly position: number;
  readonly resource: IfaceResource;
  /** Address shared by all interfaces on this card that its memory domain opens. */
  readonly address: Uint8Array;
  readonly config: GaudiCopyConfig;
  /** The registrations of host memory in the cards. */
  readonly rcache: Rcache<HostPages>;
}

export class CopyIface implements ClosableIface {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly #transfers: DmaTransfers;
  readonly #rcache: Rcache<HostPages>;
  #closed = false;

  constructor(options: CopyIfaceOptions) {
    this.address = options.address;
    this.#rcache = options.rcache;
    this.#transfers = new DmaTransfers(options.card, options.position, options.config.MAX_EVENTS);
    this.attributes = attributesOf(options, this.#transfers.iovMax);
  }

  get closed(): boolean {
    return this.#closed;
  }

  get outstanding(): number {
    return this.#transfers.outstanding;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    return sameAddress(address, this.address) ? undefined : 'reaches only memory of the same context';
  }

  connect(address: Uint8Array): UctEndpoint {
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw unreachable(this.attributes.resource.transport, reason);
    return new CopyEndpoint(this.#transfers);
  }

  /** Ignored: cards do not send active messages. */
  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
  }

  progress(): number {
    if (this.#rcache.unmapsPending > 0) this.#rcache.progress();
    return this.#transfers.progress();
  }

  errorOf(status: Status): UcxError | undefined {
    return this.#transfers.errorOf(status);
  }

  stats(): StatsNode {
    return this.#transfers.counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    return this.#transfers.dma.wait(timeoutNs);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // The card owns the queues, which other interfaces use too. Transfers in flight complete without this interface.
    this.progress();
  }
}

function attributesOf({ resource, config, card }: CopyIfaceOptions, iovMax: number): IfaceAttributes {
  const types = memoryTypeBit(MemoryType.HOST) | memoryTypeBit(MemoryType.GAUDI);
  const bandwidth = (direction: 'h2d' | 'd2h' | 'd2d'): number => config.BW[direction] ?? config.BW.default ?? 1;
  const rma = cardRma(submitLimitation(card.device), iovMax);
  return {
    ...rma,
    resource,
    flags: rma.flags | IfaceFlag.CONNECT_TO_IFACE | IfaceFlag.ERRHANDLE_REMOTE_MEM | IfaceFlag.EVENT,
    am: NO_ACTIVE_MESSAGES,
    localMemoryTypes: types,
    remoteMemoryTypes: types,
    requiredMemoryTypes: memoryTypeBit(MemoryType.GAUDI),
    reachesOtherDevices: false,
    performance: {
      latencyNs: config.LATENCY,
      overheadNs: config.OVERHEAD,
      zcopyOverheadNs: ZCOPY_TRACKING_NS,
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
