/** The data of a connection: its ids, lanes and message limits, and properties of the peer. */

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

/** Settings that all connections of a worker share. */
export interface LaneSettings {
  readonly context: { readonly thresholds: Thresholds; readonly distanceOf: DistanceOf };
  readonly observation: Observation;
}

export class PeerLanes {
  /** Local id of the connection, which messages of the peer name. */
  readonly id: number;
  readonly lanes: readonly Lane[];
  /** Distance between lanes and device memory of this context. */
  readonly distanceOf: DistanceOf;
  /** True if there are several network lanes, between which transfers may be divided. */
  readonly hasRails: boolean;
  /** Protocol printer (UCX_PROTO_INFO); undefined when disabled. */
  readonly protocolInfo: ProtocolInfo | undefined;
  /** Trace of messages (UCX_LOG_LEVEL=data); undefined when disabled. */
  readonly trace: MessageTrace | undefined;
  /** Interfaces that are not lanes, with the reasons. */
  readonly unreachable: readonly Rejection[];
  /** The message lane's endpoint; undefined if no lane carries messages. */
  readonly am: UctEndpoint | undefined;
  readonly amLane: Lane | undefined;
  /** Maximum length of messages on that lane. */
  readonly amShortMax: number;
  readonly amBcopyMax: number;
  /** Rendezvous threshold in bytes; Infinity if only the frame size limits eager messages. */
  readonly rendezvousThreshold: number;
  /** See UCX_ZCOPY_THRESH; undefined to choose by cost. */
  readonly zcopyThreshold: number | undefined;
  /** See UCX_PROTO_EMULATION_ENABLE. */
  readonly isEmulating: boolean;
  /** Id of the connection at the peer; NO_ENDPOINT until it is established. */
  remoteId: number = NO_ENDPOINT;
  /** Identities of the interfaces of the peer, which are the sources of its messages. */
  sources: readonly string[] = [];
  /** Id of the peer's worker, one character for each byte: for snapshots and warnings. */
  peerWorkerId = '';
  /** Name of the peer's worker, if its address has one (UCX_ADDRESS_DEBUG_INFO). */
  peerName: string | undefined = undefined;
  /** True if the peer's worker is progressed only by its program (from its address). */
  isPeerManual = false;
  /** The entry of {@link sources} that the last message matched. */
  #source: string | undefined = undefined;
  /** True for the connection of a worker to itself: both halves are this object. */
  isLoopback = false;
  /** Socket addresses of client and listener; undefined for a connection by worker address. */
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

  /** True if a message with this source comes from the peer. The connection id in a message is not sufficient, because it can be guessed. */
  isFrom(source: string): boolean {
    if (source === this.#source) return true;
    if (!this.sources.includes(source)) return false;
    this.#source = source;
    return true;
  }

  /** True if the process of the peer is currently stopped by a signal. */
  get isPeerStopped(): boolean {
    return this.lanes.some(({ endpoint }) => endpoint.isPeerStopped?.() === true);
  }

  /**
   * The message lane.
   * @throws UcxError ERR_UNREACHABLE with a reason for each transport that could carry messages
   */
  messageLane(): Lane {
    if (this.amLane !== undefined) return this.amLane;
    const reasons =
      this.unreachable.map(({ name, reason }) => `${name}: ${reason}`).join('; ') ||
      'no transport supports active messages';
    throw new UcxError({
      code: 'ERR_UNREACHABLE',
      status: Status.UNREACHABLE,
      message: `no transport carries messages to this peer (${reasons})`,
      details: { reasons },
    });
  }
}

/** The report of a connection change to observers. */
export function changeOf({ lanes }: PeerLanes, status: Status): EndpointChange {
  return { transports: lanes.map(({ iface }) => nameOf(iface.attributes)), status };
}
