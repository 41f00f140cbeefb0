/** The transport gaudi_ipc on one card: its capabilities for memory of other processes and cards, and its reachability. */

import { type Device, type DriverNode, getNicPorts, linksBetween } from '../../../hlthunk/index.ts';
import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import { busIdOf } from '../../../ucs/sys/topology.ts';
import { invalidParam, type UcxError } from '../../../ucs/type/error.ts';
import type { Status } from '../../../ucs/type/status.ts';
import {
  type AmHandler,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  NO_ACTIVE_MESSAGES,
  type RemotePath,
  type UctEndpoint,
  ZCOPY_TRACKING_NS,
} from '../../api/iface.ts';
import type { RemoteKey } from '../../api/memory.ts';
import { checkAmHandler } from '../../base/checks.ts';
import type { ClosableIface } from '../../base/iface.ts';
import { unreachable } from '../../base/iface.ts';
import type { GaudiCard } from '../base/card/gaudi-cards.ts';
import { DmaTransfers } from '../base/dma-transfers.ts';
import { cardRma, submitLimitation } from '../base/memory/card-rma.ts';
import type { Channel, Channels } from './base/channels.ts';
import type { GaudiIpcConfig } from './base/config.ts';
import { GAUDI_IPC_NAME } from './base/ipc-names.ts';
import type { Imports } from './import/imports.ts';
import { IpcKey } from './import/ipc-key.ts';
import { IPC_ADDRESS_BYTES, ipcAddress, processOf, unreachableReasonOf } from './ipc-address.ts';
import { IpcEndpoint, type IpcEndpointHost } from './ipc-endpoint.ts';

const GAUDI: number = memoryTypeBit(MemoryType.GAUDI);

/** Dependencies of an interface. */
export interface IpcIfaceOptions {
  readonly node: DriverNode;
  readonly card: GaudiCard;
  /** Position of the card among the open ones. */
  readonly position: number;
  readonly resource: IfaceResource;
  readonly config: GaudiIpcConfig;
  readonly imports: Imports;
  /** The traffic between the cards of the memory domain and others, of all its interfaces. */
  readonly channels: Channels;
  /** Answers requests of peers for memory of this process. */
  readonly serve: () => void;
}

/** The interface. */
export class IpcIface implements ClosableIface, IpcEndpointHost {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly transfers: DmaTransfers;
  readonly imports: Imports;
  readonly #node: DriverNode;
  readonly #card: GaudiCard;
  readonly #serve: () => void;
  readonly #channels: Channels;
  #error: UcxError | undefined = undefined;
  #joined: Promise<void> | undefined = undefined;
  #failuresSeen = 0;
  #closed = false;

  constructor(options: IpcIfaceOptions) {
    this.address = ipcAddress(options.node);
    this.attributes = attributesOf(options);
    this.transfers = new DmaTransfers(options.card, options.position);
    this.imports = options.imports;
    this.#channels = options.channels;
    this.#node = options.node;
    this.#card = options.card;
    this.#serve = options.serve;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Includes requests to owners that the memory domain waits for. */
  get outstanding(): number {
    return this.transfers.outstanding + this.imports.pending;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    return unreachableReasonOf(this.address, address);
  }

  connect(address: Uint8Array): UctEndpoint {
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw unreachable(GAUDI_IPC_NAME, `the peer ${reason}`);
    return new IpcEndpoint(processOf(address), this);
  }

  /** The links to the card with the memory: if some are down, the bandwidth is lower. */
  remotePath(rkey: RemoteKey): RemotePath | undefined {
    if (!(rkey instanceof IpcKey)) throw invalidParam('rkey', `must be of memory domain ${GAUDI_IPC_NAME}`, rkey);
    const { device } = this.#card;
    const busId = busIdOf(rkey.place.busNumber);
    const ports = busId === device.busId ? undefined : getNicPorts(device, device.info, this.#node);
    const links = ports && linksBetween(ports, busId);
    if (links === undefined || links.total === 0) return undefined;
    const { up, total } = links;
    return { bandwidthShare: up / total, note: `${up} of ${total} links up` };
  }

  /** A card sends no active messages. */
  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
  }

  progress(): number {
    const ended = this.transfers.progress();
    if (this.transfers.failures !== this.#failuresSeen) {
      // An owner that ends removes its memory during transfers: the next operation must detect that.
      this.#failuresSeen = this.transfers.failures;
      this.imports.poll();
    }
    if (this.imports.cache.leaving > 0) this.imports.cache.sweep();
    this.#serve();
    return ended + this.imports.progress();
  }

  errorOf(status: Status): UcxError | undefined {
    return this.#error?.status === status ? this.#error : this.transfers.errorOf(status);
  }

  stats(): StatsNode {
    return this.transfers.counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    const { dma } = this.transfers;
    if (this.imports.pending === 0) return dma.wait(timeoutNs);
    if (dma.outstanding > 0) this.#joinTransfers(dma.wait(timeoutNs));
    return this.imports.sleep(timeoutNs);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // The queues belong to the card, which other interfaces use too. Transfers in flight complete without this interface.
    this.transfers.progress();
  }

  /** Ends the sleep for remote memory when transfers end; registered once for each sleep of the card. */
  #joinTransfers(sleep: Promise<void>): void {
    if (sleep === this.#joined) return;
    this.#joined = sleep;
    const end = (): void => this.imports.onEvent();
    sleep.then(end, end);
  }

  channelOf(key: IpcKey): Channel {
    return this.#channels.between(this.attributes.resource.device, key.place.busNumber);
  }

  explain(error: UcxError | undefined): void {
    this.#error = error;
  }
}

/** The reason why the card cannot access memory of others; undefined if it can. Queries the driver. */
function limitationOf(device: Device): string | undefined {
  const limitation = submitLimitation(device);
  if (limitation !== undefined || device.canImportDmabuf) return limitation;
  return 'the driver cannot import dma-bufs: MEMORY REG_DMABUF_FD is in the vendor’s driver only';
}

function attributesOf({ resource, config, card }: IpcIfaceOptions): IfaceAttributes {
  const rma = cardRma(limitationOf(card.device));
  const always = IfaceFlag.CONNECT_TO_IFACE | IfaceFlag.ERRHANDLE_REMOTE_MEM | IfaceFlag.EVENT | IfaceFlag.EP_CHECK;
  return {
    ...rma,
    resource,
    flags: rma.flags | always,
    am: NO_ACTIVE_MESSAGES,
    localMemoryTypes: GAUDI | memoryTypeBit(MemoryType.HOST),
    remoteMemoryTypes: GAUDI,
    requiredMemoryTypes: GAUDI,
    reachesOtherDevices: true,
    performance: {
      latencyNs: config.LATENCY,
      overheadNs: config.OVERHEAD,
      zcopyOverheadNs: ZCOPY_TRACKING_NS,
      hostToDevice: config.BW,
      deviceToHost: config.BW,
      deviceToDevice: config.BW,
      hostToHost: 0,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes: IPC_ADDRESS_BYTES,
    endpointAddressBytes: 0,
    errorHandling: ['remote access', 'peer failure', 'ep_check'],
  };
}
