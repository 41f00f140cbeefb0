/**
 * The owner's side of a memory domain: its registered device memory, the keys of it, and the channel service that exports it to other processes and notifies
 * them of its release.
 */

import type { Log } from '../../../ucs/debug/log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { GaudiCard } from '../base/cards.ts';
import { GaudiMemory, RegisteredMemory } from '../base/memory.ts';
import { ChannelService } from './channel-service.ts';
import { GAUDI_IPC_NAME } from './config.ts';
import { IpcMemory, LOCAL_OWNERS, OwnedKeys, ownerKeyOf } from './shared-memory.ts';

/** Number of progress calls between two checks for requests of peers. */
const CALLS_PER_SERVICE = 64;
/** Number of progress calls between two checks for resets of the cards, which make a system call for each card. */
const CALLS_PER_EVENTS: number = 64 * CALLS_PER_SERVICE;

/** The registered memory. */
export class Registrations {
  readonly #cards: readonly GaudiCard[];
  readonly #services: { readonly log: Log; readonly clock: Clock };
  readonly #registered: Set<IpcMemory> = new Set();
  /** Memory of the application that was freed before its registration ended. */
  readonly #freed: WeakSet<MdMemory> = new WeakSet();
  /** Number of registrations in each arena, by its generation. */
  readonly #inArena: Map<number, number> = new Map();
  readonly #keys: OwnedKeys = new OwnedKeys();
  #service: ChannelService | undefined = undefined;
  #calls = 0;

  constructor(cards: readonly GaudiCard[], services: { readonly log: Log; readonly clock: Clock }) {
    this.#cards = cards;
    this.#services = services;
  }

  /** Number of registrations. */
  get size(): number {
    return this.#registered.size;
  }

  add(memory: IpcMemory): IpcMemory {
    this.#registered.add(memory);
    const { generation } = memory.source;
    this.#inArena.set(generation, (this.#inArena.get(generation) ?? 0) + 1);
    return memory;
  }

  /** Called before the memory is freed. The application must still deregister memory that it owns. */
  onFree(memory: IpcMemory): void {
    this.#end(memory, true);
    if (memory.isOfApplication) this.#freed.add(memory);
  }

  /** Ends a registration. @throws UcxError ERR_GAUDI_DEVICE_BUSY, without any change, unless forced */
  end(memory: MdMemory, isForced: boolean): void {
    if (!this.#freed.delete(memory)) this.#end(this.own(memory), isForced);
  }

  /** Writes the key of memory. */
  pack(own: IpcMemory, target: Uint8Array, offset: number): void {
    this.#keys.pack(own, this.#openService().tag, target, offset);
  }

  /** Checks that memory is registered here. */
  own(memory: MdMemory): IpcMemory {
    if (!(GaudiMemory.isGenuine(memory) && memory instanceof IpcMemory)) {
      if (memory instanceof RegisteredMemory) throw invalidParam('memory', 'has been deregistered', memory.address);
      throw invalidParam('memory', `must be of memory domain ${GAUDI_IPC_NAME}`, memory);
    }
    if (this.#registered.has(memory)) return memory;
    throw invalidParam('memory', 'has been freed or deregistered, or belongs to another context', memory.address);
  }

  /** Handles the loss of a card's memory: revokes its keys, and notifies the processes that have imported it. */
  loseCard(card: GaudiCard): void {
    for (const memory of this.#registered) {
      if (memory.card !== card) continue;
      this.#keys.revoke(memory);
      this.#retire(memory.source.generation);
    }
  }

  /** Handles requests of peers in some of the calls, for programs that call progress in a loop without returning to the event loop. */
  progress(): void {
    this.#calls = (this.#calls + 1) | 0;
    if (this.#service === undefined || this.#calls % CALLS_PER_SERVICE !== 0) return;
    this.#service.progress();
    if (this.#calls % CALLS_PER_EVENTS === 0) this.#readEvents();
  }

  close(): void {
    for (const memory of this.#registered) this.#end(memory, true);
    this.#keys.close();
    this.#closeService();
  }

  #openService(): ChannelService {
    if (this.#service === undefined) {
      const { log, clock } = this.#services;
      this.#service = new ChannelService({ share: (key) => this.#keys.share(key), log, clock });
      LOCAL_OWNERS.set(ownerKeyOf(this.#service.tag), this.#keys);
    }
    return this.#service;
  }

  #closeService(): void {
    if (this.#service === undefined) return;
    const ownerKey = ownerKeyOf(this.#service.tag);
    LOCAL_OWNERS.delete(ownerKey);
    for (const importer of this.#keys.importers) importer.invalidateOwner(ownerKey);
    this.#keys.importers.clear();
    this.#service.close();
    this.#service = undefined;
  }

  /** Revokes the keys of device memory, and notifies peers if it was the last in its arena. */
  #end(memory: IpcMemory, isForced: boolean): void {
    memory.end(isForced);
    this.#keys.revoke(memory);
    this.#registered.delete(memory);
    const { generation } = memory.source;
    const left = (this.#inArena.get(generation) ?? 1) - 1;
    if (left > 0) this.#inArena.set(generation, left);
    else this.#retire(generation);
  }

  /** Memory of an arena is no longer registered: peers must end imports, which would prevent the arena from being freed. */
  #retire(generation: number): void {
    this.#inArena.delete(generation);
    if (this.#service === undefined) return;
    const ownerKey = ownerKeyOf(this.#service.tag);
    for (const importer of this.#keys.importers) importer.invalidateOwner(ownerKey, generation);
    this.#service.retire(generation);
  }

  #readEvents(): void {
    for (const card of this.#cards) {
      const { device } = card;
      if (!device.closed && device.events.poll() && device.card.lostReason !== undefined) this.loseCard(card);
    }
  }
}
