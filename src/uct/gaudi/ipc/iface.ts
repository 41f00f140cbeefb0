/**
 * The transport gaudi_ipc on one card: its capabilities for memory of other processes and cards, and its reachability. The address of an interface has the
 * machine, driver node and process, by which a peer determines whether it can reach the memory, or why not.
 */

import { createHash } from 'node:crypto';
import { type Device, type DriverNode, getNicPorts, linksBetween } from '../../../hlthunk/index.ts';
import {
  bootId,
  hasEnded,
  isOwn,
  ownIdentity,
  type ProcessIdentity,
  packIdentity,
  pathIdentity,
  unpackIdentity,
} from '../../../sys/index.ts';
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
import { type ClosableIface, unreachable } from '../../base/iface.ts';
import { SEGMENT_FOLDER } from '../../base/key/segment-name.ts';
import type { GaudiCard } from '../base/cards.ts';
import { cardRma, submitLimitation } from '../base/memory.ts';
import { DmaTransfers } from '../base/transfers.ts';
import { GAUDI_IPC_NAME, type GaudiIpcConfig } from './config.ts';
import { IpcEndpoint, IpcShared } from './endpoint.ts';
import type { Imports } from './imports.ts';
import { type Channels, IpcKey } from './key.ts';
import type { Registrations } from './registrations.ts';

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
  /** Traffic between the cards of the memory domain and other cards, over all its interfaces. */
  readonly channels: Channels;
  /** Registered memory of this process, which peers request. */
  readonly registrations: Registrations;
}

export class IpcIface implements ClosableIface {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly transfers: DmaTransfers;
  readonly imports: Imports;
  readonly #node: DriverNode;
  readonly #card: GaudiCard;
  readonly #registrations: Registrations;
  readonly #shared: IpcShared;
  #joined: Promise<void> | undefined = undefined;
  #failuresSeen = 0;
  #closed = false;

  constructor(options: IpcIfaceOptions) {
    this.address = ipcAddress(options.node);
    this.attributes = attributesOf(options);
    this.transfers = new DmaTransfers(options.card, options.position);
    this.imports = options.imports;
    this.#shared = new IpcShared(this.transfers, this.imports, options.channels, options.resource.device);
    this.#node = options.node;
    this.#card = options.card;
    this.#registrations = options.registrations;
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
    return new IpcEndpoint(processOf(address), this.#shared);
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

  /** Ignored: cards do not send active messages. */
  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
  }

  progress(): number {
    const ended = this.transfers.progress();
    if (this.transfers.failures !== this.#failuresSeen) {
      // If an owner ends, its memory becomes invalid during transfers: the next operation must detect that.
      this.#failuresSeen = this.transfers.failures;
      this.imports.poll();
    }
    if (this.imports.cache.leaving > 0) this.imports.cache.sweep();
    this.#registrations.progress();
    return ended + this.imports.progress();
  }

  errorOf(status: Status): UcxError | undefined {
    const { error } = this.#shared;
    return error?.status === status ? error : this.transfers.errorOf(status);
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
    // The card owns the queues, which other interfaces use too. Transfers in flight complete without this interface.
    this.transfers.progress();
  }

  /** Ends the sleep for remote memory when transfers end; registered once for each sleep of the card. */
  #joinTransfers(sleep: Promise<void>): void {
    if (sleep === this.#joined) return;
    this.#joined = sleep;
    const end = (): void => this.imports.onEvent();
    sleep.then(end, end);
  }
}

/** The reason why the card cannot access memory of other processes; undefined if it can. Queries the driver. */
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

/** Bytes of an address: version, digests of the machine and of the node, the folder of shared files, the process. */
const IPC_ADDRESS_BYTES = 48;

const VERSION = 1;
const DIGEST_BYTES = 8;
const AT_VERSION = 0;
const AT_MACHINE = 8;
const AT_NODE = 16;
const AT_FOLDER = 24;
const AT_PROCESS = 32;

/** The address of interfaces of this process on a node. */
function ipcAddress(node: DriverNode): Uint8Array {
  const address = new Uint8Array(IPC_ADDRESS_BYTES);
  const view = new DataView(address.buffer);
  view.setUint32(AT_VERSION, VERSION, true);
  address.set(bootId().subarray(0, DIGEST_BYTES), AT_MACHINE);
  address.set(nodeDigest(node), AT_NODE);
  view.setBigUint64(AT_FOLDER, pathIdentity(SEGMENT_FOLDER) ?? 0n, true);
  packIdentity(ownIdentity(), address, AT_PROCESS);
  return address;
}

/** The process in an address that {@link unreachableReasonOf} has accepted. */
function processOf(address: Uint8Array): ProcessIdentity {
  return unpackIdentity(address, AT_PROCESS);
}

/** The reason why `own` cannot reach the interfaces at `address`; undefined if it can. Never throws. */
function unreachableReasonOf(own: Uint8Array, address: Uint8Array): string | undefined {
  if (
    !(address instanceof Uint8Array) ||
    address.byteLength !== IPC_ADDRESS_BYTES ||
    !same(own, address, AT_VERSION, 4)
  ) {
    return 'has an address of another version of gaudi_ipc';
  }
  if (!same(own, address, AT_MACHINE, DIGEST_BYTES)) return 'is on another machine';
  if (!same(own, address, AT_NODE, DIGEST_BYTES)) {
    return 'has cards of another emulated node: start gaudi-ucx node up, and both programs with UCX_GAUDI_DRIVER=emulator:<socket>';
  }
  const identity = processOf(address);
  if (isOwn(identity)) return undefined;
  const { pidNamespace } = ownIdentity();
  if (identity.pidNamespace !== pidNamespace) {
    return `is in pid namespace ${identity.pidNamespace}, not ${pidNamespace}: start both containers with the same pid namespace`;
  }
  if (!same(own, address, AT_FOLDER, 8)) {
    return `has another ${SEGMENT_FOLDER}: start both containers with the same ipc namespace`;
  }
  return hasEnded(identity) ? `is process ${identity.pid}, which has ended` : undefined;
}

function nodeDigest(node: DriverNode): Uint8Array {
  const identity = `${node.kind}:${node.identity ?? `none of process ${process.pid}`}`;
  return createHash('sha256').update(identity).digest().subarray(0, DIGEST_BYTES);
}

function same(left: Uint8Array, right: Uint8Array, at: number, byteLength: number): boolean {
  for (let i = at; i < at + byteLength; i++) if (left[i] !== right[i]) return false;
  return true;
}
