/**
 * The state of a context at one moment: workers, endpoints, pending requests, unexpected messages, memory, caches, counters. Plain data for JSON, and the
 * common model of `gaudi-ucx inspect`, the dump at a signal, and metrics.
 */

import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { ChannelTraffic } from '../../uct/api/memory.ts';
import type { DeviceMemoryMap } from '../../uct/api/memory-domain.ts';
import type { Engine } from './explanation.ts';

/** Limit of endpoints per worker; those with the most pending requests first. */
export const SNAPSHOT_ENDPOINTS_MAX = 256;
/** Limit of requests per worker; the oldest first. */
export const SNAPSHOT_REQUESTS_MAX = 64;
/** Limit of unexpected messages per worker; in the order of their arrival. */
export const SNAPSHOT_MESSAGES_MAX = 32;

/** A transport, memory domain or device of the host that a context does not use. */
export interface UnavailableResource {
  /** Component, transport or device. */
  readonly name: string;
  /** Why it is unusable. */
  readonly reason: string;
}

/** Why a request is pending. */
export type WaitReason =
  /** The connection to the peer is not established. */
  | 'connection'
  /** The credits of the peer for unexpected messages are used up. */
  | 'credit'
  /** Operations are queued before it, or a transport has no resources. */
  | 'resources'
  /** A message or bytes of a stream have not arrived. */
  | 'message'
  /** The peer's worker has not replied. */
  | 'peer'
  /** A transport executes it. */
  | 'transport'
  /** Earlier operations have not ended. */
  | 'operations';

/** A pending request. */
export interface RequestSnapshot {
  /** Protocol, such as `tag/rndv`, `put/zcopy` or `tag/recv`. */
  readonly protocol: string;
  /** Bytes of the operation; for a receive, the length of its memory. */
  readonly byteLength: number;
  /** Bytes moved so far, as far as this end knows. */
  readonly doneBytes: number;
  /** Upper bound of its age in milliseconds: the time since the last clock reading before its start, which is much earlier if there was no progress. */
  readonly ageMs: number;
  /** Id of its endpoint; undefined for a receive from any peer and for operations on a worker. */
  readonly endpoint: number | undefined;
  /** Such as `gaudi_cpy/gaudi0`; undefined unless a single transport executes it. */
  readonly transport: string | undefined;
  /** Why it is pending. */
  readonly reason: WaitReason;
  /** The wait reason with details, for humans. */
  readonly waitsFor: string;
}

/** Pending requests with the same protocol and the same wait reason. */
export interface RequestGroup {
  /** As in {@link RequestSnapshot}. */
  readonly protocol: string;
  /** As in {@link RequestSnapshot}. */
  readonly reason: WaitReason;
  /** Number of requests. */
  readonly count: number;
  /** Sum of their bytes. */
  readonly byteLength: number;
  /** As {@link RequestSnapshot.ageMs}, of the oldest. */
  readonly oldestMs: number;
}

/** The pending requests of a worker. */
export interface RequestsSnapshot {
  /** Requests that have not ended. */
  readonly pending: number;
  /** Requests that have ended and were not freed by the program. */
  readonly ended: number;
  /** Maximum number of requests in use (UCX_REQUESTS_MAX). */
  readonly max: number;
  /** All pending requests in groups. */
  readonly groups: readonly RequestGroup[];
  /** The oldest of them, at most {@link SNAPSHOT_REQUESTS_MAX}. */
  readonly oldest: readonly RequestSnapshot[];
}

/** A lane of an endpoint. */
export interface LaneSnapshot {
  /** Transport and device, such as `posix/memory`. */
  readonly transport: string;
  /** Whether it is the lane for messages; undefined if the engine does not know it. */
  readonly carriesMessages: boolean | undefined;
}

/** An endpoint. */
export interface EndpointSnapshot {
  /** Number that identifies it within its worker. */
  readonly id: number;
  /** The peer: {@link WorkerSnapshot.id}, or `host:port`; undefined if the engine does not know it. */
  readonly peer: string | undefined;
  /** `connecting`, `connected`, `loopback`, `not known` to the engine, or the failure, such as `CONNECTION_RESET`. */
  readonly state: string;
  /** Whether the program has an endpoint for it; false for a connection that only the peer has requested. */
  readonly isClaimed: boolean;
  /** Its lanes. */
  readonly lanes: readonly LaneSnapshot[];
  /** Requests that wait for resources; undefined if the engine does not know it. */
  readonly queued: number | undefined;
  /** Requests that wait for a reply of the peer; undefined if the engine does not know it. */
  readonly awaitingPeer: number | undefined;
  /** Credits for unsolicited messages, in bytes; undefined if the engine does not know it. */
  readonly creditBytes: number | undefined;
  /** Transports that are unusable for this peer, and why. */
  readonly notUsed: readonly UnavailableResource[];
}

/** A message that arrived before its receive. */
export interface MessageSnapshot {
  /** Tag, as 0x and hexadecimal digits. */
  readonly tag: string;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** Messages and bytes that have arrived at a worker and were not received. */
export interface UnexpectedSnapshot {
  /** Tagged messages, and their stored bytes. */
  readonly messages: number;
  /** Stored bytes of tagged messages. */
  readonly messageBytes: number;
  /** Bytes of streams. */
  readonly streamBytes: number;
  /** Bytes of active messages. */
  readonly amBytes: number;
  /** Limit of all of them (UCX_UNEXP_MAX_BYTES). */
  readonly bytesMax: number;
  /** The first tagged messages, at most {@link SNAPSHOT_MESSAGES_MAX}. */
  readonly first: readonly MessageSnapshot[];
}

/** A worker. */
export interface WorkerSnapshot {
  /** Globally unique id of the worker: hexadecimal digits, or the number within the process if the engine has none. */
  readonly id: string;
  /** Client id, as 0x and hexadecimal digits. */
  readonly clientId: string;
  /** Interfaces, such as `posix/memory`; over libucp, the ones of the native engine. */
  readonly transports: readonly string[];
  /** Number of endpoints; {@link endpoints} has at most {@link SNAPSHOT_ENDPOINTS_MAX} of them. */
  readonly endpointCount: number;
  /** Number of endpoints by {@link EndpointSnapshot.state}. */
  readonly endpointStates: Readonly<Record<string, number>>;
  /** The endpoints. */
  readonly endpoints: readonly EndpointSnapshot[];
  /** Its pending requests. */
  readonly requests: RequestsSnapshot;
  /** Undefined if the engine does not know it. */
  readonly unexpected: UnexpectedSnapshot | undefined;
}

/** Mapped memory of one type. */
export interface MemorySnapshot {
  /** Such as `host` or `gaudi`. */
  readonly memoryType: string;
  /** Card; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Number of mappings. */
  readonly mappings: number;
  /** Sum of their bytes. */
  readonly byteLength: number;
}

/** A registration cache. */
export interface CacheSnapshot {
  /** Name, such as `gaudi_copy`. */
  readonly name: string;
  /** Registrations in it. */
  readonly regions: number;
  /** Sum of their bytes. */
  readonly byteLength: number;
}

/** The dma-bufs of one owner: a card, the RDMA devices, or host memory. */
export interface DmabufSnapshot {
  /** Such as `gaudi0`, `ib` or `host`. */
  readonly owner: string;
  /** Descriptors created for programs, peers and other drivers. */
  readonly exports: number;
  /** Total bytes of the exports. */
  readonly exportBytes: number;
  /** Dma-bufs that were mapped or registered. */
  readonly imports: number;
  /** Total mapped bytes of the imports. */
  readonly importBytes: number;
  /** Imports that are mapped now. */
  readonly mappings: number;
  /** Bytes of the current mappings. */
  readonly mappedBytes: number;
  /** Descriptors that the library keeps open: one for each exported arena, and one for each mapped dma-buf. */
  readonly descriptors: number;
}

/** Transfers of a card in one direction. */
export interface CardTransfersSnapshot {
  /** Such as `host_to_device`. */
  readonly direction: string;
  /** Transfers that have not ended. */
  readonly inFlight: number;
  /** Transfers that have ended. */
  readonly operations: number;
  /** Bytes of the completed transfers. */
  readonly byteLength: number;
  /** Transfers that failed. */
  readonly errors: number;
}

/** An open card of a context. */
export interface CardSnapshot {
  /** Such as `gaudi0`. */
  readonly name: string;
  /** Such as `card 0 (accel2, 0000:33:00.0)`. */
  readonly label: string;
  /** Its module on the base board, if known. */
  readonly moduleId?: number | undefined;
  /** Command submissions that have not ended. */
  readonly submissionsInFlight: number;
  /** Its arenas of device memory, the first 128: their maps have at most 128 cells together. */
  readonly arenas: readonly DeviceMemoryMap[];
  /** By direction; unused directions are omitted. */
  readonly transfers: readonly CardTransfersSnapshot[];
}

/** The node with the cards of a context. */
export interface CardNode {
  /** The kernel driver, a node server (`gaudi-ucx node up`), or an emulated node in this process only. */
  readonly kind: 'kernel' | 'server' | 'private';
  /** The process of the node server, also after its end; undefined for other kinds. */
  readonly pid: number | undefined;
  /** The socket of the node server; undefined for other kinds. */
  readonly socket: string | undefined;
}

/** A context. */
export interface ContextSnapshot {
  /** The engine, and why it was selected. */
  readonly engine: Engine;
  /** Whether the cards are emulated. */
  readonly emulated: boolean;
  /** The node of the cards. */
  readonly node: CardNode;
  /** Devices of the used transports, such as `gaudi_cpy/gaudi0`. */
  readonly resources: readonly string[];
  /** Unusable transports, memory domains and devices, and why. */
  readonly unavailable: readonly UnavailableResource[];
  /** Its open cards. */
  readonly cards: readonly CardSnapshot[];
  /** Memory that the program has mapped. */
  readonly memory: readonly MemorySnapshot[];
  /** Its dma-bufs, by owner. */
  readonly dmabufs: readonly DmabufSnapshot[];
  /** The channels between its cards and the cards whose memory it accessed. */
  readonly channels: readonly ChannelTraffic[];
  /** Its registration caches. */
  readonly caches: readonly CacheSnapshot[];
  /** Its open workers. */
  readonly workers: readonly WorkerSnapshot[];
  /** All counters: cards, interfaces, workers. */
  readonly stats: StatsNode;
}

/** Number of occurrences of each name. */
export function countBy<T>(items: readonly T[], nameOf: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const item of items) counts[nameOf(item)] = (counts[nameOf(item)] ?? 0) + 1;
  return counts;
}
