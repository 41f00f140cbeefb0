/**
 * Resolves the remote memory of a memory domain: looks it up in the cache, requests it from the owner at the first use, and maps the reply. A request does not
 * block: the operation is tried again after progress.
 */

import { close as closeFd } from '../../../sys/index.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { Sleeper } from '../../../ucs/sys/sleeper.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { GaudiCard } from '../base/cards.ts';
import type { SharedArena } from './channel-service.ts';
import { channelFailed, type GaudiIpcConfig, ownerSilent } from './config.ts';
import { ImportCache, type ImportPlace } from './import-cache.ts';
import { ImportEntry, type IpcKey } from './key.ts';
import { type LinkListener, OwnerLink } from './owner-link.ts';
import { LOCAL_OWNERS, type OwnedKeys } from './shared-memory.ts';

/** Number of progress calls between two checks of connections without pending requests. */
const CALLS_PER_CHECK = 256;
/** Maximum number of pending requests to owners; beyond it NO_RESOURCE. */
const REQUESTS_MAX = 1024;

/** A request to which the owner has not replied. */
interface Request {
  readonly id: number;
  /** The key that caused the request; a NACK is reported to it. */
  readonly requester: IpcKey;
  readonly place: ImportPlace;
  readonly link: OwnerLink;
  readonly deadlineNs: number;
  sent: boolean;
  /** True if the card has rejected the memory in the owner's reply and the request was repeated. It is repeated only once. */
  isRepeated: boolean;
}

/** Dependencies of the imports. */
export interface ImportsOptions {
  readonly cards: readonly GaudiCard[];
  readonly config: GaudiIpcConfig;
  readonly log: Log;
  readonly clock: Clock;
}

/** The remote memory of one memory domain. */
export class Imports implements LinkListener {
  readonly cache: ImportCache;
  readonly #options: ImportsOptions;
  readonly #links: Map<string, OwnerLink> = new Map();
  readonly #requests: Map<number, Request> = new Map();
  /** The pending requests by the name of the import. */
  readonly #pending: Map<string, Request> = new Map();
  /** Names of owners that have not replied to requests in time, by the ids of these requests, until they reply or their link ends. */
  readonly #withoutReply: Map<number, string> = new Map();
  readonly #localOwners: Set<OwnedKeys> = new Set();
  readonly #sleeper: Sleeper;
  #nextId = 1;
  #calls = 0;

  constructor(options: ImportsOptions) {
    const { CACHE_MAX_REGIONS, CACHE_MAX_SIZE } = options.config;
    this.#options = options;
    this.#sleeper = new Sleeper(options.clock);
    this.cache = new ImportCache({ maxRegions: CACHE_MAX_REGIONS, maxSize: CACHE_MAX_SIZE, log: options.log });
  }

  /** Number of requests without a reply. */
  get pending(): number {
    return this.#requests.size;
  }

  /** Number of owners in other processes to which there is a link. */
  get links(): number {
    return this.#links.size;
  }

  /**
   * Makes the memory of a key available to the card at `position`.
   * @returns OK with `key.entries[position]` set; NO_RESOURCE until the owner has replied
   * @throws UcxError with the reason why the memory is unavailable
   */
  resolve(key: IpcKey, position: number): Status {
    const { card, ownerKey, arenaGeneration } = { card: this.#options.cards[position]!, ...key.place };
    const local = LOCAL_OWNERS.get(ownerKey);
    if (local !== undefined && this.#isOwnCard(key, position, local)) return Status.OK;
    const name = `${ownerKey}:${arenaGeneration}:${position}`;
    const found = this.cache.find(name);
    if (found !== undefined) {
      key.use(position, found, key.place.arenaOffset);
      return Status.OK;
    }
    const place = { card, key: name, ownerKey, arenaGeneration };
    if (local !== undefined) {
      const entry = this.#importLocal(key, place, local);
      key.use(position, entry, key.place.arenaOffset);
      return Status.OK;
    }
    if (this.#pending.has(name) || this.#requests.size >= REQUESTS_MAX) return Status.NO_RESOURCE;
    this.#requireReply(key, ownerKey);
    this.#request(key, place);
    return Status.NO_RESOURCE;
  }

  /**
   * Processes replies. Without pending requests, sometimes checks whether owners still run.
   * @returns number of requests that have ended
   */
  progress(): number {
    this.#calls = (this.#calls + 1) | 0;
    const isIdle = this.#requests.size === 0;
    if (isIdle && this.#calls % CALLS_PER_CHECK !== 0) return 0;
    const before = this.#requests.size;
    this.poll();
    if (!isIdle) this.#drive();
    this.cache.sweep();
    return Math.max(0, before - this.#requests.size);
  }

  /** Reads all messages of owners now, and detects owners that have ended. */
  poll(): void {
    for (const link of this.#links.values()) link.progress();
  }

  /** Sleeps until a message may have arrived, a request times out, or `timeoutNs` has passed. */
  sleep(timeoutNs: number): Promise<void> {
    const { clock } = this.#options;
    let sleepNs = timeoutNs;
    const now = clock.nowNs();
    for (const { deadlineNs } of this.#requests.values()) sleepNs = Math.min(sleepNs, Math.max(0, deadlineNs - now));
    return this.#sleeper.sleep(sleepNs);
  }

  /** Releases all remote memory that transfers do not use. */
  close(): void {
    for (const request of [...this.#requests.values()]) this.#end(request);
    for (const owner of this.#localOwners) owner.importers.delete(this.cache);
    this.#localOwners.clear();
    this.cache.close();
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
    this.#withoutReply.clear();
    this.onEvent();
  }

  onHandle(id: number, fd: number, handle: Uint8Array): void {
    const request = this.#requests.get(id);
    this.#withoutReply.delete(id);
    try {
      if (request !== undefined) this.#take(request, { fd, handle });
    } finally {
      closeFd(fd);
    }
  }

  onNack(id: number, error: UcxError): void {
    this.#withoutReply.delete(id);
    const request = this.#requests.get(id);
    if (request !== undefined) this.#fail(request, error);
  }

  onRetired(owner: OwnerLink, arenaGeneration: number): void {
    this.cache.invalidateOwner(owner.key, arenaGeneration);
  }

  onEnded(link: OwnerLink, error: UcxError | undefined): void {
    this.cache.invalidateOwner(link.key);
    for (const [id, ownerKey] of this.#withoutReply) if (ownerKey === link.key) this.#withoutReply.delete(id);
    for (const request of [...this.#requests.values()]) {
      if (request.link !== link) continue;
      if (error === undefined) request.sent = false;
      else this.#fail(request, error);
    }
    link.close();
    this.#forgetUnused(link);
  }

  onEvent(): void {
    this.#sleeper.wake();
  }

  /** Memory of the same card needs no import. */
  #isOwnCard(key: IpcKey, position: number, owner: OwnedKeys): boolean {
    const memory = owner.find(key.packed);
    if (memory.card.device !== this.#options.cards[position]!.device) return false;
    const { ownerKey, arenaGeneration } = key.place;
    key.use(position, new ImportEntry(memory.dmaIn(), undefined, { key: '', ownerKey, arenaGeneration }), 0);
    return true;
  }

  #importLocal(key: IpcKey, place: ImportPlace, owner: OwnedKeys): ImportEntry {
    this.cache.missed();
    const shared = owner.share(key.packed);
    try {
      const entry = this.#add(key, place, shared);
      owner.importers.add(this.cache);
      this.#localOwners.add(owner);
      return entry;
    } finally {
      closeFd(shared.fd);
    }
  }

  /**
   * Maps the reply of an owner. A dma-buf is invalid after its owner has ended or the memory was freed. A card that rejects the dma-buf may be the first sign
   * of that, so the request is repeated, and its result is the reason.
   */
  #take(request: Request, shared: SharedArena): void {
    try {
      this.#add(request.requester, request.place, shared);
      this.#end(request);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      if (error.status !== Status.INVALID_PARAM || request.isRepeated) {
        this.#fail(request, error);
        return;
      }
      request.isRepeated = true;
      request.sent = false;
    }
  }

  /** Maps the arena that an owner has shared for a key. */
  #add(key: IpcKey, place: ImportPlace, shared: SharedArena): ImportEntry {
    const entry = this.cache.add(place, shared);
    if (entry.target.byteLength === key.place.arenaBytes) return entry;
    this.cache.invalidate((other) => other === entry);
    const named = key.place.arenaBytes;
    const reason = `the owner shared ${entry.target.byteLength} bytes, but the key names an arena of ${named} bytes`;
    throw channelFailed(key.owner, reason);
  }

  #request(key: IpcKey, place: ImportPlace): void {
    const { clock, config } = this.#options;
    this.cache.missed();
    const id = this.#nextId;
    this.#nextId = (id % 0xffff_fffe) + 1;
    const link = this.#linkTo(key, place.ownerKey);
    const request: Request = {
      id,
      requester: key,
      place,
      link,
      deadlineNs: clock.nowNs() + config.TIMEOUT,
      sent: false,
      isRepeated: false,
    };
    this.#requests.set(id, request);
    this.#pending.set(place.key, request);
    try {
      request.sent = link.request(id, key.packed);
    } catch (error) {
      this.#end(request);
      throw error;
    }
  }

  /**
   * Fails at once if an earlier request to the same owner has timed out, so that operations do not wait for that owner again.
   * @throws UcxError ERR_GAUDI_TIMEOUT if a request to the owner has timed out and still has no reply
   */
  #requireReply(key: IpcKey, ownerKey: string): void {
    if (this.#withoutReply.size === 0) return;
    this.#links.get(ownerKey)?.progress();
    for (const other of this.#withoutReply.values()) {
      if (other === ownerKey) throw ownerSilent(key.owner, this.#options.config.TIMEOUT);
    }
  }

  #linkTo(key: IpcKey, ownerKey: string): OwnerLink {
    let link = this.#links.get(ownerKey);
    if (link === undefined) {
      link = new OwnerLink(key.owner, key.place.serviceTag, ownerKey, this);
      this.#links.set(ownerKey, link);
    }
    return link;
  }

  /** Sends queued requests, and ends those that have timed out. */
  #drive(): void {
    const { clock, config } = this.#options;
    const now = clock.nowNs();
    for (const request of [...this.#requests.values()]) {
      if (now > request.deadlineNs) {
        // An owner that runs again replies to it.
        if (request.sent) this.#withoutReply.set(request.id, request.link.key);
        this.#fail(request, ownerSilent(request.requester.owner, config.TIMEOUT));
      } else if (!request.sent) this.#sendAgain(request);
    }
  }

  #sendAgain(request: Request): void {
    try {
      request.sent = request.link.request(request.id, request.requester.packed);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#fail(request, error);
    }
  }

  #fail(request: Request, error: UcxError): void {
    this.#end(request);
    request.requester.fail(error);
  }

  #end(request: Request): void {
    this.#requests.delete(request.id);
    this.#pending.delete(request.place.key);
    this.#forgetUnused(request.link);
  }

  /** Closes a link without a connection, unless requests wait for it. */
  #forgetUnused(link: OwnerLink): void {
    const isWanted = [...this.#requests.values()].some((request) => request.link === link);
    if (!link.connected && !isWanted) this.#links.delete(link.key);
  }
}
