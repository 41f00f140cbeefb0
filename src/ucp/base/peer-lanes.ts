/** The data of a connection: its numbers, its lanes, the limits of its messages, and the properties of the peer. */

import type { SocketAddresses } from '../../api/contract/listener.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import type { MessageTrace } from '../../api/layout/message.ts';
import { TAG_BYTES } from '../../api/layout/tag.ts';
import type { EndpointChange } from '../../ucs/debug/diagnostics.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceType, type UctEndpoint } from '../../uct/api/iface.ts';
import { type ConnectedLanes, type DistanceOf, type Lane, nameOf } from '../lane/lanes.ts';
import type { Thresholds } from '../lane/rails.ts';
import type { ProtocolInfo } from '../proto/protocol-info.ts';
import type { Rejection } from '../resources/resource-filter.ts';
import type { Observation } from './observation.ts';

/** What the connections of one worker have in common. */
export interface LaneSettings {
  readonly context: { readonly thresholds: Thresholds; readonly distanceOf: DistanceOf };
  readonly observation: Observation;
}

/** The data of one connection. */
export class PeerLanes {
  /** Number of the connection here: messages of the peer name it. */
  readonly id: number;
  readonly lanes: readonly Lane[];
  /** Distance of lanes from device memory of this context. */
  readonly distanceOf: DistanceOf;
  /** Whether several lanes are network lanes: transfers may be divided between them. */
  readonly hasRails: boolean;
  /** Protocol printer (UCX_PROTO_INFO); undefined when disabled. */
  readonly protocolInfo: ProtocolInfo | undefined;
  /** Trace of messages (UCX_LOG_LEVEL=data); undefined when disabled. */
  readonly trace: MessageTrace | undefined;
  /** The interfaces that are not lanes, and why. */
  readonly unreachable: readonly Rejection[];
  /** Endpoint of the lane of the messages; undefined if no lane carries any. */
  readonly am: UctEndpoint | undefined;
  readonly amLane: Lane | undefined;
  /** Longest messages of that lane. */
  readonly amShortMax: number;
  readonly amBcopyMax: number;
  /** Bytes from which messages to this peer go by rendezvous; Infinity where only the length of a frame decides. */
  readonly rendezvousThreshold: number;
  /** See UCX_ZCOPY_THRESH; undefined where the estimates decide. */
  readonly zcopyThreshold: number | undefined;
  /** See UCX_PROTO_EMULATION_ENABLE. */
  readonly isEmulating: boolean;
  /** Number of the connection at the peer; NO_ENDPOINT until it is established. */
  remoteId: number = NO_ENDPOINT;
  /** Identities of the interfaces of the peer, which are the sources of its messages. */
  sources: readonly string[] = [];
  /** Id of the worker that it leads to, a character for each byte: for snapshots and warnings. */
  peerWorkerId = '';
  /** Its name, if its address has one (UCX_ADDRESS_DEBUG_INFO). */
  peerName: string | undefined = undefined;
  /** Whether only the program of that worker makes its progress, as its address says. */
  isPeerManual = false;
  /** The entry of {@link sources} that the last message came from. */
  #source: string | undefined = undefined;
  /** True for a connection of a worker to itself: both its ends are this one. */
  isLoopback = false;
  /** The socket addresses by which client and listener made the connection; undefined for a connection by worker address. */
  socketAddresses: SocketAddresses | undefined = undefined;

  constructor({ context, observation }: LaneSettings, id: number, connected: ConnectedLanes) {
    const { lanes, am, unreachable, isIntraNode } = connected;
    this.id = id;
    this.lanes = lanes;
    this.distanceOf = context.distanceOf;
    this.hasRails = lanes.filter(({ iface }) => iface.attributes.resource.deviceType === DeviceType.NET).length > 1;
    this.protocolInfo = observation.info;
    this.trace = observation.trace;
    this.unreachable = unreachable;
    this.amLane = am;
    this.am = am?.endpoint;
    const { bcopy, zcopy, isEmulating, rendezvousIntra, rendezvousInter } = context.thresholds;
    this.amShortMax = Math.min(am?.iface.attributes.am.shortBytesMax ?? 0, bcopy + TAG_BYTES - 1);
    this.amBcopyMax = am?.iface.attributes.am.bcopyBytesMax ?? 0;
    this.rendezvousThreshold = isIntraNode ? rendezvousIntra : rendezvousInter;
    this.zcopyThreshold = zcopy;
    this.isEmulating = isEmulating;
  }

  /** Whether a message with this source comes from the peer: the number of a connection alone proves nothing, because it can be guessed. */
  isFrom(source: string): boolean {
    if (source === this.#source) return true;
    if (!this.sources.includes(source)) return false;
    this.#source = source;
    return true;
  }

  /** Whether the process of the peer is stopped by a signal now. */
  get isPeerStopped(): boolean {
    return this.lanes.some(({ endpoint }) => endpoint.isPeerStopped?.() === true);
  }

  /**
   * The lane of the messages.
   * @throws UcxError ERR_UNREACHABLE with the reason of every transport that could
   */
  messageLane(): Lane {
    if (this.amLane !== undefined) return this.amLane;
    const reasons =
      this.unreachable.map(({ name, reason }) => `${name}: ${reason}`).join('; ') || 'no transport has messages';
    throw new UcxError({
      code: 'ERR_UNREACHABLE',
      status: Status.UNREACHABLE,
      message: `no transport carries messages to this peer (${reasons})`,
      details: { reasons },
    });
  }
}

/** The report about a connection to observers. */
export function changeOf({ lanes }: PeerLanes, status: Status): EndpointChange {
  return { transports: lanes.map(({ iface }) => nameOf(iface.attributes)), status };
}
