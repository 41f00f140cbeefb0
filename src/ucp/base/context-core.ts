/** The core of a context, below its API: settings, open memory domains, mapped memory and the unpacking of remote keys. */

import { ClosableContext } from '../../api/awaited/context.ts';
import type { Engine } from '../../api/contract/explanation.ts';
import type { Worker } from '../../api/contract/worker.ts';
import { MemoryCopier } from '../../api/memory/copier.ts';
import type { SignalFd } from '../../api/progress/worker-event.ts';
import type { Config } from '../../ucs/config/config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { HostDmabufs } from '../../uct/api/host-dmabufs.ts';
import type { RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type { Component, HostRange, LostDevice, MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { DistanceOf } from '../lane/lanes.ts';
import { type RailLimits, railsOfConfig, schemeOf, type Thresholds, thresholdsOf } from '../lane/rails.ts';
import { MEMORY_KEY_NAME, type MemoryHandle } from '../mem/memory-handle.ts';
import { MemoryMap } from '../mem/memory-map.ts';
import { MemoryTypes } from '../mem/memory-types.ts';
import { RemoteKey, unpackRkey } from '../mem/remote-key.ts';
import type { ProtocolInfoMode } from '../proto/protocol-info.ts';
import { type RendezvousScheme, UCP_CONFIG_TABLE } from '../resources/config.ts';
import { type OpenMd, Resources } from '../resources/resources.ts';
import type { PeerLanes } from './peer-lanes.ts';

export interface CoreParams {
  readonly components: readonly Component[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** The engine, as the context reports it. */
  readonly engine: Engine;
  /** Creates an eventfd, for workers. */
  readonly newSignal: () => SignalFd;
  /** Looks up host memory of other libraries by its address. Throws UcxError for a range that is not mapped. */
  readonly hostRange: (address: number | bigint, byteLength: number) => HostRange;
  /** Host memory that is a dma-buf or can be exported as one; closed with the context. */
  readonly hostDmabufs: HostDmabufs;
  /** Distance between cards and network devices: see {@link DistanceOf}. */
  readonly distanceOf: DistanceOf;
}

/** Options of unpackRkey. */
export interface UnpackOptions {
  /** False for a key that only transports use: the worker of the peer is not requested to move the bytes. */
  readonly messages?: boolean;
}

/** A context, as seen by its workers and their protocols. */
export abstract class ContextCore<W extends Worker = Worker> extends ClosableContext<W> {
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly engine: Engine;
  readonly resources: Resources;
  /** Mapped and exported memory. */
  readonly memory: MemoryMap;
  protected readonly memoryTypes: MemoryTypes;
  /** Copies to and from memory of this context, for its handles. */
  readonly copier: MemoryCopier = new MemoryCopier(this, (memory) => this.packOwnRkey(memory as MemoryHandle));
  /** Creates an eventfd, for workers. */
  readonly newSignal: () => SignalFd;
  /** Distance between cards and network devices. */
  readonly distanceOf: DistanceOf;
  /** See UCX_PROGRESS_SPIN, UCX_REQUESTS_MAX, UCX_KEEPALIVE_INTERVAL, UCX_UNEXP_MAX_BYTES and UCX_PROTO_INFO. */
  readonly progressSpinNs: number;
  readonly requestsMax: number;
  readonly keepaliveNs: number;
  readonly unexpectedBytesMax: number;
  readonly protocolInfoMode: ProtocolInfoMode;
  /** See UCX_ADDRESS_DEBUG_INFO: worker addresses contain a name. */
  readonly addsNames: boolean;
  /** See UCX_RNDV_THRESH, UCX_BCOPY_THRESH and UCX_ZCOPY_THRESH. */
  readonly thresholds: Thresholds;
  /** See UCX_RNDV_SCHEME. */
  readonly scheme: RendezvousScheme;
  /** See UCX_RNDV_FRAG_SIZE and UCX_RNDV_FRAG_ALLOC_COUNT. */
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  /** Limits for dividing long transfers between network devices. */
  readonly rails: RailLimits;
  readonly rmaRails: RailLimits;

  /**
   * Opens all memory domains that UCX_TLS allows.
   * @throws UcxError: see Resources
   */
  constructor(params: CoreParams) {
    super();
    const { log, clock, hostRange, hostDmabufs } = params;
    this.config = params.config;
    this.log = log;
    this.clock = clock;
    this.engine = params.engine;
    const config = params.config.get(UCP_CONFIG_TABLE);
    this.progressSpinNs = config.PROGRESS_SPIN;
    this.requestsMax = config.REQUESTS_MAX;
    this.addsNames = config.ADDRESS_DEBUG_INFO;
    this.keepaliveNs = config.KEEPALIVE_INTERVAL;
    this.thresholds = thresholdsOf(config);
    this.distanceOf = params.distanceOf;
    this.scheme = schemeOf(config);
    this.fragmentBytes = config.RNDV_FRAG_SIZE;
    this.fragmentCount = config.RNDV_FRAG_ALLOC_COUNT;
    const rails = railsOfConfig(config);
    this.rails = rails.rendezvous;
    this.rmaRails = rails.rma;
    this.unexpectedBytesMax = config.UNEXP_MAX_BYTES;
    this.protocolInfoMode = config.PROTO_INFO;
    this.newSignal = params.newSignal;
    this.memoryTypes = new MemoryTypes(config.MEMTYPE_CACHE !== 'no', () => this.mds.map(({ md }) => md), hostDmabufs);
    const onDeviceLost = (device: LostDevice): void => this.memory.loseDevice(device);
    this.resources = new Resources({ ...params, memoryTypes: this.memoryTypes.cache, onDeviceLost });
    this.memory = new MemoryMap({
      owner: this,
      resources: this.resources,
      types: this.memoryTypes,
      clock,
      log,
      keepsRegistrations: config.RCACHE_ENABLE !== 'no',
      hostRange,
      hostDmabufs,
    });
  }

  get mds(): readonly OpenMd[] {
    return this.resources.mds;
  }

  /** Unpacks a remote key for the lanes of a connection. */
  unpackRkey(packed: Uint8Array, connection: PeerLanes, options: UnpackOptions = {}): RemoteKey {
    this.checkOpen();
    const fields = unpackRkey(packed);
    const used = new Set(connection.lanes.map(({ md }) => md.index));
    const parts: (UctRemoteKey | undefined)[] = [];
    try {
      for (const { md, index } of this.mds) {
        const part = used.has(index) ? fields.parts.find(({ name }) => name === md.attributes.name) : undefined;
        parts.push(part === undefined ? undefined : unpackPart(md, part.key));
      }
    } catch (error) {
      for (const part of parts) part?.release();
      throw error;
    }
    const memoryKey =
      options.messages === false ? undefined : fields.parts.find(({ name }) => name === MEMORY_KEY_NAME)?.key;
    return new RemoteKey(connection, fields, parts, memoryKey);
  }

  /** Packs a key for endpoints to workers of this context. It permits all accesses, whatever peers are allowed. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    return this.memory.packOwnRkey(handle);
  }

  /** Allocates host memory that every transport can use; for staging. */
  allocateHost(byteLength: number): MemoryHandle {
    this.checkOpen();
    return this.memory.map({ allocate: byteLength });
  }
}

/** Unpacks one part of a remote key; undefined for memory that its memory domain cannot reach from this process. */
function unpackPart(md: MemoryDomain, key: Uint8Array): UctRemoteKey | undefined {
  try {
    return md.rkeyUnpack(key);
  } catch (error) {
    if (isUcxError(error) && error.status === Status.UNREACHABLE) return undefined;
    throw error;
  }
}
