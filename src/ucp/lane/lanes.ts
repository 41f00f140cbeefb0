/**
 * The lanes of a connection: the local interfaces that reach the worker of an address, and the lane for messages. Both sides choose by the same
 * attributes, so they choose the same transports. A lane is one transport on one device, connected; its distance from the transferred memory is a
 * parameter of estimates. Also opens the interfaces of a new worker; those that receive no messages of peers are polled only while operations may be in
 * flight.
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

/** Activity of lanes that progress always polls. */
const ALWAYS_POLLED: Activity = { busy: false };

/** Interface flags that a message lane needs. */
const MESSAGES: number = IfaceFlag.AM_SHORT | IfaceFlag.AM_BCOPY;
/** Why a network interface is left out. */
const NOT_NEEDED = 'is not needed: the peer is on this host, where other transports carry messages';

/** An interface and its memory domain. */
export interface OpenIface {
  readonly iface: Iface;
  readonly md: OpenMd;
}

export interface ConnectedLanes {
  readonly lanes: readonly Lane[];
  /** The message lane; undefined if no lane can carry messages. */
  readonly am: Lane | undefined;
  /** Interfaces that do not reach the peer, such as `posix/memory`, and resources that the context does not use. */
  readonly unreachable: readonly Rejection[];
  /** True if the peer is on this host. */
  readonly isIntraNode: boolean;
}

/**
 * Connects every interface that reaches the worker with these addresses.
 * @param unused resources that the context does not use, for explanations
 * @throws UcxError ERR_UNREACHABLE with a reason for each interface if none does
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
    lanes.push({ iface, md, endpoint, activity: isListening(iface) ? ALWAYS_POLLED : activity });
    isIntraNode ||= !isNetwork(iface) || iface.sharesNode?.(found.address) === true;
  };
  let am: Lane | undefined;
  try {
    for (const open of ifaces) if (!isNetwork(open.iface)) connect(open);
    am = openMessageLane(lanes, unreachable);
    // Peers on the same node need no network.
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

/** Chooses the message lane, and drops lanes that lack resources for messages. */
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

/** Identities of the interfaces of a worker with these addresses, which are the sources of its messages. */
export function identitiesOf(ifaces: readonly OpenIface[], entries: readonly AddressEntry[]): readonly string[] {
  const identities = new Set<string>();
  for (const { transport, address } of entries) {
    const own = ifaces.find(({ iface }) => iface.attributes.resource.transport === transport);
    const identity = own?.iface.identityOf?.(address);
    if (identity !== undefined) identities.add(identity);
  }
  return [...identities];
}

/** True if an interface receives messages of peers: progress always polls it. Loopback receives messages of this worker only. */
export function isListening({ attributes: { flags, resource } }: Iface): boolean {
  return (flags & IfaceFlag.AM_SHORT) !== 0 && resource.deviceType !== DeviceType.SELF;
}

/** The peer's interface that this interface reaches, or the reason why there is none. */
function reachableEntry(iface: Iface, entries: readonly AddressEntry[]): AddressEntry | string {
  const { transport, device } = iface.attributes.resource;
  const peers = entries.filter((entry) => entry.transport === transport);
  // Try the device with the same name first: it may be the same device.
  peers.sort((left, right) => Number(right.device === device) - Number(left.device === device));
  let reason = 'the peer has no transport of this name';
  for (const entry of peers) {
    const refused = iface.unreachableReason(entry.address);
    if (refused === undefined) return entry;
    reason = refused;
  }
  return reason;
}

/** The lane with the lowest latency that supports messages; the name decides between equal ones. */
function messageLane(lanes: readonly Lane[]): Lane | undefined {
  const able = lanes.filter(({ iface }) => (iface.attributes.flags & MESSAGES) === MESSAGES);
  return able.sort((left, right) => {
    const [one, other] = [left.iface.attributes, right.iface.attributes];
    const byPriority = other.priority - one.priority;
    const byLatency = one.performance.latencyNs - other.performance.latencyNs;
    return byPriority || byLatency || nameOf(one).localeCompare(nameOf(other));
  })[0];
}

/** The fields of a worker that its address needs. */
interface AddressedWorker {
  readonly workerId: Uint8Array;
  readonly isManual: boolean;
  readonly ifaces: readonly Iface[];
}

/** Packs the address of a worker with its interfaces, and with its name if configured. */
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

/** True in `busy` if operations may be in flight on the quiet interfaces of a worker: otherwise, progress need not poll them. */
export interface Activity {
  busy: boolean;
}

export interface Lane {
  readonly iface: Iface;
  readonly endpoint: UctEndpoint;
  readonly md: OpenMd;
  /** Activity of the worker, set when an operation starts. */
  readonly activity: Activity;
}

/**
 * The path between a device that has memory, by its index in this context, and the device of a transport (ucs_topo_get_distance); undefined if either
 * location is unknown.
 */
export type DistanceOf = (sysDevice: number, resource: IfaceResource) => Distance | undefined;

/**
 * The path from a lane to device memory; undefined if it is negligible. Only for networks: the attributes of other transports already describe the path to
 * the memory that they reach.
 * @param near the device from or to which the bytes move, also through host memory; undefined for none
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

/** The path and the device at its other end. */
export interface LaneDistance extends Distance {
  readonly to: number;
}

/** Errors of a directory that has become full, read-only or inaccessible since the context was created, and of the limit of locked memory (`ulimit -l`). */
const NO_SPACE: readonly string[] = ['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'ENOENT', 'ENOMEM'].map(
  (name) => `ERR_SYSCALL_${name}`,
);

/** Memory domains whose warning was logged: each worker of a context would repeat it. */
const warned = new WeakSet<OpenMd>();

/**
 * Opens an interface for every resource. An interface without space for its files or buffers is left out with a warning, unless it is the only one.
 * @throws the error of opening an interface; then none is left open
 */
export function openIfaces(mds: readonly OpenMd[], log: Log): readonly OpenIface[] {
  const open: OpenIface[] = [];
  let firstError: unknown;
  try {
    for (const md of mds) {
      for (const resource of md.resources) {
        try {
          open.push({ md, iface: md.md.openIface(resource) });
        } catch (error) {
          if (!isUcxError(error) || !NO_SPACE.includes(error.code)) throw error;
          firstError ??= error;
          const what = `${resource.transport} is not used by a worker, because it cannot be opened: ${error.message}`;
          if (warned.has(md)) log.debug(what);
          else log.warn(what);
          warned.add(md);
        }
      }
    }
    if (open.length === 0) throw firstError;
    return open;
  } catch (error) {
    for (const { iface } of open) iface.close();
    throw error;
  }
}

/** The interfaces of a worker that receive no messages of peers. */
export class QuietIfaces {
  /** Set when an operation starts on one of the interfaces. */
  readonly activity: Activity = { busy: false };
  readonly #ifaces: readonly Iface[];

  /** @param ifaces all interfaces of the worker */
  constructor(ifaces: readonly Iface[]) {
    this.#ifaces = ifaces.filter((iface) => !isListening(iface));
  }

  /** Polls the interfaces with operations in flight. @param isPeriodic polls the other interfaces too, because they may serve peers */
  progress(isPeriodic: boolean): number {
    let count = 0;
    // Reset first: an operation that ends on one interface may start another on an interface that was already polled.
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
