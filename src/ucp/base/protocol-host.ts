/**
 * What protocols need of the worker they run in. Types only: the worker implements it and hands itself in.
 */

import type { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import type { RequestParams } from '../api/request.ts';
import type { DistanceOf } from '../lane/lane-distance.ts';
import type { RailLimits } from '../lane/rails.ts';
import type { ExportedMemory } from '../mem/exported-memory.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import type { OperationRegistrar } from '../mem/memory-map.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { RendezvousScheme } from '../resources/config.ts';
import type { OpenMd } from '../resources/resources.ts';
import type { PeerConnection } from './peer-connection.ts';
import type { Connection, Request, RequestOwner } from './request/request.ts';
import type { RequestPool } from './request/request-pool.ts';
import type { WorkerCounters } from './worker-counters.ts';

/** How a key is unpacked. */
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
  /** How long transfers are divided between devices. */
  readonly rails: RailLimits;
  /** How puts and gets are. */
  readonly rmaRails: RailLimits;
  /** Allocates host memory that every transport reaches. */
  allocateHost(byteLength: number): MemoryHandle;
  memUnmap(handle: MemoryHandle): void;
  /** The mapped memory that host bytes are of; undefined for bytes that are not mapped. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
  /** Whether peers may have a key of the ArrayBuffer of host bytes for an access, as far as memory of it is mapped. */
  permits(bytes: Uint8Array, access: number): boolean;
  /** What registers host bytes that are not mapped for one operation, by the index of the memory domain. */
  readonly registrars: readonly OperationRegistrar[];
  /** The packed key of memory that peers may access, as it is kept: not to be changed. */
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
  /** Puts and gets of the protocol itself that have not ended: closing waits for them. */
  internalTransfers: number;
  /** Bytes of the longest message that any transport hands out. */
  readonly frameBytesMax: number;
  /** The connection of this worker to itself: it reaches all local memory. */
  readonly loopback: Connection;
  readonly requests: RequestPool;
  /** Starts an initialized request: OK or a failure if it has ended, else the request. @param isRefused it waits for resources at once */
  start(request: Request, params: RequestParams | undefined, isRefused?: boolean): Status | Request;
  /** The connection that a message names in its first word; undefined also where the message came from another peer than that of the connection. */
  connectionOf(frame: AmFrame): PeerConnection | undefined;
  /** A peer has done what the protocol forbids: its connection ends with EXCEEDS_LIMIT. */
  breaksProtocol(connection: PeerConnection, what: string): void;
}
