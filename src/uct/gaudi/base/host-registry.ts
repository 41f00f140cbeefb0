/** The host memory that one Gaudi memory domain has registered. Domains with the same cards share the mappings: a buffer is mapped into each card once. */

import { GaudiErrorCode, gaudiError } from '../../../hlthunk/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { RegistrationSource } from '../../api/memory-domain.ts';
import { checkByteLength } from '../../base/checks.ts';
import { checkHostBuffer, prefault, RawRange } from '../../base/host/memory.ts';
import type { OpenGaudi } from './gaudi-resources.ts';
import { RegisteredMemory } from './memory/gaudi-memory.ts';

/** The registrations of one memory domain. */
export class HostRegistry {
  readonly #mdName: string;
  readonly #packable: boolean;
  readonly #gaudi: OpenGaudi;
  readonly #registered: Set<RegisteredMemory> = new Set();

  /** @param packable whether the memory domain creates keys of host memory */
  constructor(mdName: string, packable: boolean, gaudi: OpenGaudi) {
    this.#mdName = mdName;
    this.#packable = packable;
    this.#gaudi = gaudi;
    gaudi.registries.push(this);
  }

  /** Whether the memory is registered here. */
  has(memory: MdMemory): memory is RegisteredMemory {
    return memory instanceof RegisteredMemory && this.#registered.has(memory);
  }

  /** See MemoryDomain.memReg, for host memory. */
  register(source: RegistrationSource): RegisteredMemory {
    const memory = source instanceof RawRange ? this.#registerRange(source) : this.#registerBuffer(bytesOf(source));
    this.#registered.add(memory);
    return memory;
  }

  /**
   * See MemoryDomain.memDereg, for memory of this registry.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY
   */
  deregister(
    memory: RegisteredMemory,
    options: { readonly invalidate?: boolean; readonly force?: boolean } = {},
  ): void {
    const invalidate = options.invalidate === true;
    // Without another registration, the memory is not kept alive during a transfer. If it is invalidated, no registration keeps it alive.
    const mayRefuse = options.force !== true && (invalidate || memory.region.references === 1);
    if (mayRefuse && memory.pages.inFlight > 0) {
      throw gaudiError(
        GaudiErrorCode.DEVICE_BUSY,
        `host memory at 0x${memory.address.toString(16)} has transfers on their way`,
      );
    }
    memory.live = false;
    this.#registered.delete(memory);
    const { rcache, caching } = this.#gaudi;
    const { region } = memory;
    rcache.release(region);
    // V8 reports the end of a buffer. Of memory that is known by its address only the last user does: kept, it would stay pinned when its owner frees it.
    const isKept = region.buffer === undefined ? region.references > 0 : caching;
    if (!invalidate && isKept) return;
    if (region.buffer !== undefined) rcache.invalidate(memory.bytes.buffer);
    else if (region.valid) {
      rcache.unmapped(region.start, region.byteLength);
      rcache.progress();
    }
  }

  /** Backs pages and maps them into all cards, so that the next transfer needs no preparation. */
  prepare(memory: RegisteredMemory, offset: number, byteLength: number): void {
    prefault(memory.pages.address + memory.dmaOffset + offset, byteLength);
    for (const [position, { device }] of this.#gaudi.cards.entries()) memory.dmaIn(position, device);
  }

  /** See MemoryDomain.hostUnmapped. Every memory domain on the cards is notified; one of them notifies their shared cache. */
  unmapped(address: number, byteLength: number): void {
    if (!Number.isSafeInteger(address) || address < 0) {
      throw invalidParam('address', 'must be an integer of at least 0', address);
    }
    checkByteLength(byteLength);
    const { rcache, registries } = this.#gaudi;
    if (registries[0] === this) rcache.unmapped(address, byteLength);
  }

  /** Deregisters all remaining memory. Transfers in flight hold their mappings until their end. */
  close(): void {
    for (const memory of this.#registered) this.deregister(memory, { force: true });
    const { registries } = this.#gaudi;
    registries.splice(registries.indexOf(this), 1);
  }

  #registerBuffer(bytes: unknown): RegisteredMemory {
    checkHostBuffer('buffer', bytes);
    const region = this.#gaudi.rcache.acquire(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (typeof region === 'number') throw statusError(region, 'register host memory');
    return new RegisteredMemory(this.#mdName, this.#packable, bytes, region.buffer!.start + bytes.byteOffset, region);
  }

  #registerRange({ address, byteLength, bytes }: RawRange): RegisteredMemory {
    const region = this.#gaudi.rcache.acquireRange(address, byteLength);
    if (typeof region === 'number') throw statusError(region, 'register host memory');
    return new RegisteredMemory(this.#mdName, this.#packable, bytes, address, region);
  }
}

/** The bytes of memory that another memory domain allocated; anything else as it is. */
function bytesOf(source: RegistrationSource): unknown {
  if (source instanceof Uint8Array) return source;
  const memory = source as MdMemory | undefined;
  if (memory?.memoryType !== MemoryType.HOST || memory.bytes === undefined) return source;
  if (!memory.live) throw invalidParam('memory', 'must be live', memory.address);
  return memory.bytes;
}
