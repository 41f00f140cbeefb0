/**
 * The lanes of a connection: the local interfaces that reach the worker of an address, and the lane for messages. Both ends choose by the same
 * attributes, so they choose the same transports. A lane is one transport on one device, connected; its distance from the transferred memory is a
 * parameter of estimates. Also the interfaces of a new worker; those without messages of peers are polled only while operations may be in flight.
 */

import type { Log } from '../../ucs/debug/log.ts';
import type { Distance } from '../../ucs/sys/topology.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  DeviceType,
  type Iface,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  type UctEndpoint,
} from '../../uct/api/iface.ts';
import type { Rejection } from '../resources/resource-filter.ts';
import type { OpenMd } from '../resources/resources.ts';
import { type AddressEntry, packWorkerAddress } from './worker-address.ts';

/** Activity of lanes that progress polls anyway. */
const UNSEEN: Activity = { busy: false };

/** What a lane needs to carry messages. */
const MESSAGES: number = IfaceFlag.AM_SHORT | IfaceFlag.AM_BCOPY;
/** Why a network is left out. */
const NOT_NEEDED = 'is not needed: the peer is on this node, where other transports carry messages';

/** An interface with the memory domain it belongs to. */
export interface OpenIface {
  readonly iface: Iface;
  readonly md: OpenMd;
}

/** The lanes of a connection. */
export interface ConnectedLanes {
  readonly lanes: readonly Lane[];
  /** The lane that carries messages; undefined when none can. */
  readonly am: Lane | undefined;
  /** Interfaces that do not reach the peer, such as `posix/memory`, and resources that the context does not use at all. */
  readonly unreachable: readonly Rejection[];
  /** The peer is on this node. */
  readonly isIntraNode: boolean;
}

/**
 * Connects every interface that reaches the worker with these addresses.
 * @param unused resources that the context does not use, for explanations
 * @throws UcxError ERR_UNREACHABLE with the reason of every interface when none does
 */
export function connectLanes(
  ifaces: readonly OpenIface[],
  entries: readonly AddressEntry[],
  activity: Activity,
  unused: readonly Rejection[],
): ConnectedLanes {
  const lanes: Lane[] = [];
  const unreachable = [...unused];
  let isIntraNode = false;
  const connect = ({ iface, md }: OpenIface): void => {
    const found = reachableEntry(iface, entries);
    if (typeof found === 'string') {
      unreachable.push({ name: nameOf(iface.attributes), reason: found });
      return;
    }
    const endpoint = iface.connect(found.address);
    lanes.push({ iface, md, endpoint, activity: isListening(iface) ? UNSEEN : activity });
    isIntraNode ||= !isNetwork(iface) || iface.sharesNode?.(found.address) === true;
  };
  let am: Lane | undefined;
  try {
    for (const open of ifaces) if (!isNetwork(open.iface)) connect(open);
    am = openMessageLane(lanes, unreachable);
    // Within a node networks are not needed.
    for (const open of ifaces.filter(({ iface }) => isNetwork(iface))) {
      if (am === undefined) connect(open);
      else unreachable.push({ name: nameOf(open.iface.attributes), reason: NOT_NEEDED });
    }
    am ??= openMessageLane(lanes, unreachable);
  } catch (error) {
    for (const { endpoint } of lanes) endpoint.close();
    throw error;
  }
  if (lanes.length === 0) throw noLane(unreachable);
  return { lanes, am, unreachable, isIntraNode };
}

/** Chooses the lane that carries messages, and drops those that lack the resources for them. */
function openMessageLane(lanes: Lane[], unreachable: Rejection[]): Lane | undefined {
  for (;;) {
    const lane = messageLane(lanes);
    const reason = lane?.endpoint.openMessages?.();
    if (lane === undefined || reason === undefined) return lane;
    unreachable.push({ name: nameOf(lane.iface.attributes), reason });
    lane.endpoint.close();
    lanes.splice(lanes.indexOf(lane), 1);
  }
}

function isNetwork({ attributes }: Iface): boolean {
  return attributes.resource.deviceType === DeviceType.NET;
}

/** The identities of the interfaces of a worker with these addresses: the sources of its messages. */
export function identitiesOf(ifaces: readonly OpenIface[], entries: readonly AddressEntry[]): readonly string[] {
  const identities = new Set<string>();
  for (const { transport, address } of entries) {
    const own = ifaces.find(({ iface }) => iface.attributes.resource.transport === transport);
    const identity = own?.iface.identityOf?.(address);
    if (identity !== undefined) identities.add(identity);
  }
  return [...identities];
}

/** Whether an interface receives messages of peers: progress polls it always. Loopback receives only messages of this worker. */
export function isListening({ attributes: { flags, resource } }: Iface): boolean {
  return (flags & IfaceFlag.AM_SHORT) !== 0 && resource.deviceType !== DeviceType.SELF;
}

/** The interface of the peer that this one reaches, or why it reaches none. */
function reachableEntry(iface: Iface, entries: readonly AddressEntry[]): AddressEntry | string {
  const { transport, device } = iface.attributes.resource;
  const peers = entries.filter((entry) => entry.transport === transport);
  // The device with the same name first: it may be the same device.
  peers.sort((left, right) => Number(right.device === device) - Number(left.device === device));
  let reason = 'the peer does not have it';
  for (const entry of peers) {
    const refused = iface.unreachableReason(entry.address);
    if (refused === undefined) return entry;
    reason = refused;
  }
  return reason;
}

/** The lane with the lowest latency among those with messages; the name decides between equals. */
function messageLane(lanes: readonly Lane[]): Lane | undefined {
  const able = lanes.filter(({ iface }) => (iface.attributes.flags & MESSAGES) === MESSAGES);
  return able.sort((left, right) => {
    const [one, other] = [left.iface.attributes, right.iface.attributes];
    const byPriority = other.priority - one.priority;
    const byLatency = one.performance.latencyNs - other.performance.latencyNs;
    return byPriority || byLatency || nameOf(one).localeCompare(nameOf(other));
  })[0];
}

/** A worker, for its address. */
interface AddressedWorker {
  readonly workerId: Uint8Array;
  readonly isManual: boolean;
  readonly ifaces: readonly Iface[];
}

/** The address of a worker with its interfaces, and with its name if it has to tell that. */
export function addressOfWorker(
  { workerId: id, isManual, ifaces }: AddressedWorker,
  name: string | undefined,
): Uint8Array {
  const entries = ifaces.map(({ address, attributes: { resource } }) => ({ ...resource, address }));
  return packWorkerAddress({ id, isManual, entries, name });
}

/** Name of an interface, such as `gaudi_cpy/gaudi0`. */
export function nameOf({ resource }: IfaceAttributes): string {
  return `${resource.transport}/${resource.device}`;
}

function noLane(unreachable: readonly Rejection[]): UcxError {
  const reasons = unreachable.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no transport reaches the worker of this address (${reasons})`,
    details: { reasons },
  });
}

/** Whether transports of a worker may have operations in flight: progress need not poll those that have none. */
export interface Activity {
  busy: boolean;
}

export interface Lane {
  readonly iface: Iface;
  readonly endpoint: UctEndpoint;
  readonly md: OpenMd;
  /** Of the worker; starting an operation sets it. */
  readonly activity: Activity;
}

/**
 * The path between a device that has memory, by its index in this context, and the device of a transport (ucs_topo_get_distance); undefined if the
 * location of either is unknown.
 */
export type DistanceOf = (sysDevice: number, resource: IfaceResource) => Distance | undefined;

/**
 * The path from a lane to device memory; undefined if it is negligible. Networks only: the attributes of other transports already describe the path to
 * the memory that they reach.
 * @param near the device that the bytes come from or go to, also where they pass through host memory; undefined for none
 */
export function laneDistance(
  distanceOf: DistanceOf,
  { iface: { attributes } }: Pick<Lane, 'iface'>,
  near: number | undefined,
): LaneDistance | undefined {
  const { resource } = attributes;
  if (near === undefined || resource.deviceType !== DeviceType.NET) return undefined;
  const distance = distanceOf(near, resource);
  return distance === undefined || distance.kind === 'unknown' ? undefined : { ...distance, to: near };
}

/** The path, and the device at its other end. */
export interface LaneDistance extends Distance {
  readonly to: number;
}

/** Errors of a directory that has become full, read-only or inaccessible since the context was made, and of a limit of locked memory (`ulimit -l`). */
const NO_PLACE: readonly string[] = ['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'ENOENT', 'ENOMEM'].map(
  (name) => `ERR_SYSCALL_${name}`,
);

/** Domains of which it was told: each worker of a context would repeat it. */
const told = new WeakSet<OpenMd>();

/**
 * Opens an interface for every resource. One that finds no place for its files or buffers is left out with a warning, as long as there are others.
 * @throws the error of opening an interface; no interface is left open
 */
export function openIfaces(mds: readonly OpenMd[], log: Log): readonly OpenIface[] {
  const open: OpenIface[] = [];
  let refusal: unknown;
  try {
    for (const md of mds) {
      for (const resource of md.resources) {
        try {
          open.push({ md, iface: md.md.openIface(resource) });
        } catch (error) {
          if (!isUcxError(error) || !NO_PLACE.includes(error.code)) throw error;
          refusal ??= error;
          const what = `${resource.transport} is not used by a worker: ${error.message}`;
          if (told.has(md)) log.debug(what);
          else log.warn(what);
          told.add(md);
        }
      }
    }
    if (open.length === 0) throw refusal;
    return open;
  } catch (error) {
    for (const { iface } of open) iface.close();
    throw error;
  }
}

/** The interfaces. */
export class QuietIfaces {
  /** Set when an operation starts on one of them. */
  readonly activity: Activity = { busy: false };
  readonly #ifaces: readonly Iface[];

  /** @param ifaces all of the worker */
  constructor(ifaces: readonly Iface[]) {
    this.#ifaces = ifaces.filter((iface) => !isListening(iface));
  }

  /** Polls those with operations in flight. @param isPeriodic polls the others too: they may serve peers */
  progress(isPeriodic: boolean): number {
    let count = 0;
    // Reset first: an operation that ends on one interface may start another on an interface that was polled before.
    this.activity.busy = false;
    for (let i = 0; i < this.#ifaces.length; i++) {
      const iface = this.#ifaces[i]!;
      if (iface.outstanding === 0 && !isPeriodic) continue;
      count += iface.progress();
      if (iface.outstanding > 0) this.activity.busy = true;
    }
    return count;
  }
}
