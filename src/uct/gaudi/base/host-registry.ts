/**
 * The host memory that one Gaudi memory domain has registered. Domains that share cards share the mappings: the same buffer is mapped into a
 * card once.
 */

import { GaudiErrorCode, gaudiError } from '../../../hlthunk/index.ts';
import { invalidParam, statusError } from '../../../ucs/error.ts';
import { MemoryType } from '../../../ucs/memory-type.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { HostBuffer } from '../../api/memory-domain.ts';
import { checkHostBuffer } from '../../base/host-buffer.ts';
import { HostMemory } from './gaudi-memory.ts';
import type { OpenGaudi } from './gaudi-resources.ts';

/** The registrations of one memory domain. */
export class HostRegistry {
  readonly #mdName: string;
  readonly #packable: boolean;
  readonly #gaudi: OpenGaudi;
  readonly #registered: Set<HostMemory> = new Set();

  /** @param packable whether the memory domain hands out keys of host memory */
  constructor(mdName: string, packable: boolean, gaudi: OpenGaudi) {
    this.#mdName = mdName;
    this.#packable = packable;
    this.#gaudi = gaudi;
  }

  /** Whether the memory was registered here and is still. */
  has(memory: MdMemory): memory is HostMemory {
    return this.#registered.has(memory as HostMemory);
  }

  /** See MemoryDomain.memReg, for host memory. */
  register(source: HostBuffer | MdMemory): HostMemory {
    const buffer = bytesOf(source);
    checkHostBuffer('buffer', buffer);
    const { rcache } = this.#gaudi;
    const region = rcache.acquire(buffer.buffer);
    if (typeof region === 'number') throw statusError(region, 'register host memory');
    const memory = new HostMemory(this.#mdName, this.#packable, buffer, region);
    this.#registered.add(memory);
    return memory;
  }

  /**
   * See MemoryDomain.memDereg, for memory that {@link has} knows.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY
   */
  deregister(memory: HostMemory, options: { readonly invalidate?: boolean; readonly force?: boolean } = {}): void {
    const invalidate = options.invalidate === true;
    // Without a registration nothing keeps the memory alive under a transfer; when it goes away, not even one does.
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
    rcache.release(memory.region);
    if (invalidate || !caching) rcache.invalidate(memory.bytes.buffer);
  }

  /** Deregisters what is left. Transfers on their way end by themselves: they hold their mappings. */
  close(): void {
    for (const memory of this.#registered) this.deregister(memory, { force: true });
  }
}

/** The bytes of memory that another memory domain allocated, or the buffer itself. */
function bytesOf(source: HostBuffer | MdMemory): HostBuffer {
  if (source instanceof Uint8Array) return source;
  const memory = source as MdMemory | undefined;
  if (memory?.memoryType !== MemoryType.HOST || memory.bytes === undefined) return source as unknown as HostBuffer;
  if (!memory.live) throw invalidParam('memory', 'must be live', memory.address);
  return memory.bytes;
}
