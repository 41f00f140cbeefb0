/** Names of gaudi_copy, and its remote keys: references to the memory, since both sides are this process. */

import type { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { RemoteKey, RemoteKeySource } from '../../api/memory.ts';
import { BlockMemory, type CardMemory, GaudiMemory } from '../base/memory/gaudi-memory.ts';

/** Name of component and memory domain. */
export const GAUDI_COPY_NAME = 'gaudi_copy';
/**
 * Name of the transport, and the other names that UCX_TLS accepts for it. `gaudi_gdr` is what UCX 1.20 and later call memory of cards that RDMA devices
 * register by its dma-buf: here the memory domain of this transport does that.
 */
export const GAUDI_COPY_TRANSPORT = 'gaudi_cpy';
export const GAUDI_COPY_ALIASES: readonly string[] = ['gaudi_copy', 'gaudi_gdr', 'gaudi'];

/** A remote key of the gaudi_copy domain. */
export class CopyKey implements RemoteKey {
  readonly mdName: string = GAUDI_COPY_NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  readonly memory: CardMemory;

  constructor(memory: CardMemory) {
    this.memory = memory;
    this.memoryType = memory.memoryType;
    this.sysDevice = memory.sysDevice;
    this.byteLength = memory.byteLength;
  }

  /** False once the memory was freed or deregistered. */
  get live(): boolean {
    return this.memory.live;
  }

  describe(): RemoteKeySource | undefined {
    const { memory } = this;
    if (!GaudiMemory.isGenuine(memory)) return undefined;
    const { busId } = memory.card.device;
    const { generation, byteLength } = memory;
    const own = { busId, pid: process.pid, channels: [] };
    if (!(memory instanceof BlockMemory)) return { ...own, offset: 0, generation, arenaBytes: byteLength };
    const { block, part } = memory;
    const { generation: ofArena, byteLength: arenaBytes } = block.arena;
    return { ...own, offset: block.offset + (part?.offset ?? 0), generation: ofArena, arenaBytes };
  }

  release(): void {}
}
