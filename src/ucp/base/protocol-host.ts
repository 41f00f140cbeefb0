/**
 * The interface that protocols use of their worker. Types only: the worker implements it and passes itself.
 */

import type { RequestParams } from '../../api/contract/request.ts';
import type { Call } from '../../api/operation/call.ts';
import type { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import type { DistanceOf } from '../lane/lanes.ts';
import type { RailLimits } from '../lane/rails.ts';
import type {
  ExportedMemory,
  LocalMemory,
  LocalPiece,
  MemoryHandle,
  OperationRegistrar,
} from '../mem/memory-handle.ts';
import type { MessageKey } from '../mem/message-keys.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { RendezvousScheme } from '../resources/config.ts';
import type { OpenMd } from '../resources/resources.ts';
import type { Connection } from './connection.ts';
import type { WorkerCounters } from './observation.ts';
import type { Request, RequestOwner } from './request/request.ts';
import type { RequestPool } from './request/request-pool.ts';

/** The arguments of one operation. */
export type UcpCall = Call<Connection, LocalMemory, RemoteKey, LocalPiece>;

/** Options of unpacking a key. */
export interface UnpackOptions {
  /** False for a key that is used by transports only: the peer is not asked to move the bytes. */
  readonly messages?: boolean;
}

/** The context behind a worker, as protocols see it. */
export interface ProtocolContext {
  readonly mds: readonly OpenMd[];
  /** How far cards are from network devices. */
  readonly distanceOf: DistanceOf;
  readonly exported: ExportedMemory;
  /** See UCX_RNDV_SCHEME. */
  readonly scheme: RendezvousScheme;
  /** See UCX_RNDV_FRAG_SIZE and UCX_RNDV_FRAG_ALLOC_COUNT. */
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  /** Limits for dividing a long rendezvous between devices. */
  readonly rails: RailLimits;
  /** Limits for dividing a long put or get between devices. */
  readonly rmaRails: RailLimits;
  /** Allocates host memory that every transport reaches. */
  allocateHost(byteLength: number): MemoryHandle;
  memUnmap(handle: MemoryHandle): void;
  /** The mapped memory that contains host bytes; undefined for bytes that are not mapped. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
  /** False if the ArrayBuffer of host bytes contains mapped memory that denies this access to peers. */
  permits(bytes: Uint8Array, access: number): boolean;
  /** Registrars of host bytes that are not mapped, for one operation; by the index of the memory domain. */
  readonly registrars: readonly OperationRegistrar[];
  /** Makes a key of memory for the messages of one connection. */
  makeMessageKey(handle: MemoryHandle): MessageKey;
  /** The packed key of memory that peers may access. The same bytes for every call: not to be changed. */
  packedRkeyOf(handle: MemoryHandle): Uint8Array;
  /** Packs a key of any memory, for endpoints of this process to itself: it permits everything. */
  packOwnRkey(handle: MemoryHandle): Uint8Array;
  /** Unpacks a key for the lanes of a connection. */
  unpackRkey(packed: Uint8Array, connection: Connection, options?: UnpackOptions): RemoteKey;
}

/** A worker, as protocols see it. */
export interface ProtocolHost extends RequestOwner {
  readonly context: ProtocolContext;
  readonly counters: WorkerCounters;
  /** Warnings about what peers send, of which few are written. */
  readonly warnings: Pick<LimitedLog, 'warn'>;
  /** Puts and gets of the protocol itself that have not ended: closing waits for them. */
  internalTransfers: number;
  /** Bytes of the longest message that any transport delivers. */
  readonly frameBytesMax: number;
  /** The connection of this worker to itself: it reaches all local memory. */
  readonly loopback: Connection;
  readonly requests: RequestPool;
  /** The arguments of the operation that is being started: see Call. */
  readonly call: UcpCall;
  /** Starts an initialized request: OK or a failure if it has ended, else the request. @param isRefused it waits for resources at once */
  start(request: Request, params: RequestParams | undefined, isRefused?: boolean): Status | Request;
  /** The connection that a message names in its first word; undefined also if the message came from another peer. */
  connectionOf(frame: AmFrame): Connection | undefined;
  /** Ends transfers that are complete. Called in progress, behind a message that has started a copy, so that its peer is told before the next copy begins. */
  endTransfers(): void;
  /** Called when a peer violates the protocol: its connection ends with EXCEEDS_LIMIT. */
  breaksProtocol(connection: Connection, what: string): void;
}
