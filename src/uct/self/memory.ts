/** Memory and remote keys of the loopback memory domain, and the resource of its transport. */

import type { MappedMemory } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { DeviceType, type IfaceResource } from '../api/iface.ts';
import type { MdMemory, RemoteKey } from '../api/memory.ts';
import { AtomicWords } from '../base/atomic-word.ts';

/** Name of component, memory domain and transport. */
export const SELF_MD_NAME = 'self';

/** Host memory of the loopback domain. */
export class SelfMemory implements MdMemory {
  readonly mdName: string = SELF_MD_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly address: bigint;
  readonly generation: number;
  readonly bytes: Uint8Array;
  /** Present if the memory was allocated here. */
  readonly mapping: MappedMemory | undefined;
  readonly atomics: AtomicWords;
  live = true;

  constructor(bytes: Uint8Array, address: bigint, generation: number, mapping: MappedMemory | undefined) {
    this.bytes = bytes;
    this.address = address;
    this.generation = generation;
    this.mapping = mapping;
    this.atomics = new AtomicWords(bytes);
  }

  get byteLength(): number {
    return this.bytes.byteLength;
  }
}

/** A remote key of the loopback domain. */
export class SelfKey implements RemoteKey {
  readonly mdName: string = SELF_MD_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly memory: SelfMemory;

  constructor(memory: SelfMemory) {
    this.memory = memory;
  }

  get byteLength(): number {
    return this.memory.byteLength;
  }

  /** False once the memory was freed or deregistered. */
  get live(): boolean {
    return this.memory.live;
  }

  release(): void {}
}

export const SELF_RESOURCE: IfaceResource = {
  transport: 'self',
  aliases: [],
  device: 'memory',
  deviceType: DeviceType.SELF,
  sysDevice: undefined,
};
