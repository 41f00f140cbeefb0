/** gaudi_ipc combined with the allocations of gaudi_copy as one memory domain, as in a context. */

import type { StatsNode } from '../../../src/ucs/stats/stats-node.ts';
import { closedError } from '../../../src/ucs/type/error.ts';
import type { Iface, IfaceResource } from '../../../src/uct/api/iface.ts';
import type { MdMemory, RemoteKey } from '../../../src/uct/api/memory.ts';
import {
  type AllocateOptions,
  type DmabufExport,
  type DmabufRegion,
  type MdAttributes,
  MdFlag,
  type MemoryAdvice,
  type MemoryAttributes,
  type MemoryDomain,
  type RegisterOptions,
  type RegistrationSource,
} from '../../../src/uct/api/memory-domain.ts';
import type { CopyMd } from '../../../src/uct/gaudi/copy/md.ts';
import type { IpcMd } from '../../../src/uct/gaudi/ipc/md.ts';

/** The combined memory domain. */
export class AllocatingIpcMd implements MemoryDomain {
  readonly attributes: MdAttributes;
  readonly memRegDmabuf?: (region: DmabufRegion) => MdMemory;
  readonly copy: CopyMd;
  readonly ipc: IpcMd;
  readonly #allocated: Map<MdMemory, MdMemory> = new Map();
  #closed = false;

  constructor(copy: CopyMd, ipc: IpcMd) {
    this.copy = copy;
    this.ipc = ipc;
    if (ipc.memRegDmabuf !== undefined) this.memRegDmabuf = ipc.memRegDmabuf;
    const { allocateMemoryTypes, allocateBytesMax } = copy.attributes;
    const flags = ipc.attributes.flags | MdFlag.ALLOC;
    this.attributes = { ...ipc.attributes, flags, allocateMemoryTypes, allocateBytesMax };
  }

  get resources(): readonly IfaceResource[] {
    return this.ipc.resources;
  }

  memAlloc(byteLength: number, options: AllocateOptions): MdMemory {
    if (this.#closed) throw closedError('memory domain');
    const allocated = this.copy.memAlloc(byteLength, options);
    const memory = this.ipc.memReg(allocated);
    this.#allocated.set(memory, allocated);
    return memory;
  }

  memFree(memory: MdMemory): void {
    const allocated = this.#allocated.get(memory);
    if (allocated === undefined) {
      this.ipc.memFree(memory);
      return;
    }
    this.#allocated.delete(memory);
    this.ipc.memDereg(memory);
    this.copy.memFree(allocated);
  }

  memReg(source: RegistrationSource, options?: RegisterOptions): MdMemory {
    return this.ipc.memReg(source, options);
  }

  memDereg(memory: MdMemory, options?: { readonly invalidate?: boolean; readonly force?: boolean }): void {
    const allocated = this.#allocated.get(memory);
    // For the caller it is the memory that memAlloc returned.
    if (allocated === undefined) this.ipc.memDereg(memory, options);
    else this.copy.memDereg(allocated, options);
  }

  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    this.ipc.memAdvise(memory, advice, offset, byteLength);
  }

  hostUnmapped(address: number, byteLength: number): void {
    this.ipc.hostUnmapped(address, byteLength);
  }

  memQuery(address: bigint): MemoryAttributes {
    return this.ipc.memQuery(address);
  }

  memExportDmabuf(): DmabufExport {
    return this.ipc.memExportDmabuf();
  }

  detectMemoryType(): undefined {
    return this.ipc.detectMemoryType();
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    this.ipc.mkeyPack(memory, target, offset);
  }

  rkeyUnpack(packed: Uint8Array): RemoteKey {
    return this.ipc.rkeyUnpack(packed);
  }

  openIface(resource: IfaceResource): Iface {
    return this.ipc.openIface(resource);
  }

  stats(): StatsNode {
    return this.ipc.stats();
  }

  close(): void {
    this.#closed = true;
    this.ipc.close();
    this.copy.close();
  }
}
