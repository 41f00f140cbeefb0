/**
 * Sections of snapshots that both engines share: cards, dma-bufs, mapped memory and registration caches, from the trees of counters; pending requests, in
 * groups and the oldest ones, bounded regardless of their number; and the start time of requests, which is coarse: workers read the clock only every few
 * hundred calls of progress and at the first request after a sleep.
 */

import { type MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { DMABUF_CLASS } from '../../ucs/stats/dmabuf-counts.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { DeviceMemoryMaps, MemoryDomain, RegistrationCache } from '../../uct/api/memory-domain.ts';
import {
  type CacheSnapshot,
  type CardSnapshot,
  type DmabufSnapshot,
  type MemorySnapshot,
  type RequestGroup,
  type RequestSnapshot,
  type RequestsSnapshot,
  SNAPSHOT_REQUESTS_MAX,
  type WaitReason,
} from '../contract/snapshot.ts';

const CARD = 'gaudi_card';

/** The cards, in the order of the tree. @param mds memory domains with the maps of their arenas */
export function cardSummary(root: StatsNode, mds: readonly { readonly md: MemoryDomain }[]): CardSnapshot[] {
  const arenas = new Map(mds.flatMap(({ md }) => [...(md.deviceMemoryMaps?.() ?? [])]));
  return cardsIn(root).map((node) => cardOf(node, arenas.get(node.name)));
}

function cardsIn(root: StatsNode): StatsNode[] {
  return [...(root.className === CARD ? [root] : []), ...root.children.flatMap(cardsIn)];
}

function cardOf({ name, counters, children }: StatsNode, memory: DeviceMemoryMaps | undefined): CardSnapshot {
  return {
    name,
    label: memory?.label ?? name,
    moduleId: memory?.moduleId,
    arenas: memory?.arenas ?? [],
    submissionsInFlight: counters['cs_in_flight'] ?? 0,
    transfers: children.map((direction) => ({
      direction: direction.name,
      inFlight: direction.counters['in_flight'] ?? 0,
      operations: direction.counters['operations'] ?? 0,
      byteLength: direction.counters['bytes'] ?? 0,
      errors: direction.counters['errors'] ?? 0,
    })),
  };
}

const NS_PER_MS = 1e6;

/** The time of one worker. */
export class CoarseClock {
  readonly #clock: Clock;
  readonly #originMs: number;
  #nowMs = 0;
  #isStale = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#originMs = Math.floor(clock.nowNs() / NS_PER_MS);
  }

  /** Whole milliseconds since the worker was created. */
  get nowMs(): number {
    if (this.#isStale) this.look();
    return this.#nowMs;
  }

  /** Reads the clock of the context. */
  look(): void {
    this.#nowMs = Math.floor(this.#clock.nowNs() / NS_PER_MS) - this.#originMs;
    this.#isStale = false;
  }

  /** Called when the worker sleeps: the next access reads the clock of the context. */
  expire(): void {
    this.#isStale = true;
  }
}

/** The owners, in the order of the tree. */
export function dmabufSummary(root: StatsNode): DmabufSnapshot[] {
  const { className, name: owner, counters, children } = root;
  const below = children.flatMap(dmabufSummary);
  if (className !== DMABUF_CLASS) return below;
  const count = (counter: string): number => counters[`dmabuf_${counter}`] ?? 0;
  const own = {
    owner,
    exports: count('exports'),
    exportBytes: count('export_bytes'),
    imports: count('imports'),
    importBytes: count('import_bytes'),
    mappings: count('mappings'),
    mappedBytes: count('mapped_bytes'),
    descriptors: count('descriptors'),
  };
  return [own, ...below];
}

/** The properties of mapped memory in a summary. */
export interface MappedMemory {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
}

/** The sums. */
export function memorySummary(mapped: Iterable<MappedMemory>): MemorySnapshot[] {
  const sums = new Map<string, { -readonly [K in keyof MemorySnapshot]: MemorySnapshot[K] }>();
  for (const { memoryType, sysDevice, byteLength } of mapped) {
    const key = `${memoryType}/${sysDevice}`;
    const sum = sums.get(key) ?? { memoryType: memoryTypeName(memoryType), sysDevice, mappings: 0, byteLength: 0 };
    sum.mappings += 1;
    sum.byteLength += byteLength;
    sums.set(key, sum);
  }
  return [...sums.values()];
}

/** The caches. */
export function cacheSummary(caches: readonly RegistrationCache[]): CacheSnapshot[] {
  return caches.map(({ name, numRegions, totalSize }) => ({ name, regions: numRegions, byteLength: totalSize }));
}

/** Limit of groups in a snapshot; further requests are in one group per reason. */
const GROUPS_MAX = 64;
const OTHERS = 'others';

/** A request for the count. */
export interface PendingRequest<R> {
  readonly request: R;
  readonly protocol: string;
  readonly reason: WaitReason;
  readonly byteLength: number;
  readonly ageMs: number;
}

/** Collects the requests of one worker. */
export class PendingRequests<R> {
  readonly #describe: (pending: PendingRequest<R>) => RequestSnapshot;
  readonly #groups: Map<string, { -readonly [K in keyof RequestGroup]: RequestGroup[K] }> = new Map();
  #oldest: PendingRequest<R>[] = [];
  #pending = 0;
  #ended = 0;

  /** @param describe called only for listed requests */
  constructor(describe: (pending: PendingRequest<R>) => RequestSnapshot) {
    this.#describe = describe;
  }

  /** Counts a request that has ended and was not freed. */
  addEnded(): void {
    this.#ended += 1;
  }

  /** Adds a pending request. */
  add(pending: PendingRequest<R>): void {
    this.#pending += 1;
    this.#count(pending);
    this.#oldest.push(pending);
    if (this.#oldest.length >= 2 * SNAPSHOT_REQUESTS_MAX) this.#trim();
  }

  /** The summary. @param max maximum number of requests in use */
  summary(max: number): RequestsSnapshot {
    this.#trim();
    return {
      pending: this.#pending,
      ended: this.#ended,
      max,
      groups: [...this.#groups.values()].sort((left, right) => right.count - left.count),
      oldest: this.#oldest.map((pending) => this.#describe(pending)),
    };
  }

  #count({ protocol, reason, byteLength, ageMs }: PendingRequest<R>): void {
    const key = `${protocol} ${reason}`;
    let group = this.#groups.get(key);
    if (group === undefined) {
      const isFull = this.#groups.size >= GROUPS_MAX;
      const others = `${OTHERS} ${reason}`;
      group = (isFull ? this.#groups.get(others) : undefined) ?? {
        protocol: isFull ? OTHERS : protocol,
        reason,
        count: 0,
        byteLength: 0,
        oldestMs: 0,
      };
      this.#groups.set(isFull ? others : key, group);
    }
    group.count += 1;
    group.byteLength += byteLength;
    group.oldestMs = Math.max(group.oldestMs, ageMs);
  }

  /** Keeps only the oldest. */
  #trim(): void {
    this.#oldest.sort((left, right) => right.ageMs - left.ageMs);
    this.#oldest.length = Math.min(this.#oldest.length, SNAPSHOT_REQUESTS_MAX);
  }
}
