/** The component self and its memory domain: host memory of this process, accessed by plain copies. Available on every machine. */

import { addressOf, mapAnonymous } from '../../sys/index.ts';
import { MemoryType, memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { closedError, invalidParam } from '../../ucs/type/error.ts';
import type { Iface, IfaceResource } from '../api/iface.ts';
import type { MdMemory } from '../api/memory.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type DmabufExport,
  type MdAttributes,
  MdFlag,
  type MemoryAdvice,
  type MemoryAttributes,
  type MemoryDomain,
  type RegisterOptions,
  type RegistrationSource,
} from '../api/memory-domain.ts';
import { checkKeyTarget, checkServices } from '../base/checks.ts';
import { notDetected } from '../base/host/domain.ts';
import {
  allocatedAccess,
  checkAdvice,
  checkDeregister,
  type DeregisterOptions,
  hostBytesOf,
  prefault,
  registeredAccess,
} from '../base/host/memory.ts';
import { KEY_BYTES, KeyTable } from '../base/key/keys.ts';
import { SelfIface } from './iface.ts';
import { SELF_MD_NAME, SELF_RESOURCE, SelfKey, SelfMemory } from './memory.ts';

/** Maximum length of the views through which JavaScript accesses the memory. */
const ALLOCATE_BYTES_MAX = 2 ** 32;

class SelfMd implements MemoryDomain {
  readonly resources: readonly IfaceResource[] = [SELF_RESOURCE];
  readonly attributes: MdAttributes = {
    name: SELF_MD_NAME,
    component: SELF_MD_NAME,
    flags: MdFlag.ALLOC | MdFlag.REG | MdFlag.NEED_RKEY | MdFlag.INVALIDATE | MdFlag.ADVISE,
    registerMemoryTypes: memoryTypeBit(MemoryType.HOST),
    allocateMemoryTypes: memoryTypeBit(MemoryType.HOST),
    accessMemoryTypes: memoryTypeBit(MemoryType.HOST),
    detectMemoryTypes: 0,
    dmabufMemoryTypes: 0,
    cacheMemoryTypes: 0,
    registerCost: { overheadNs: 0, perByteNs: 0 },
    rkeyPackedBytes: KEY_BYTES,
    allocateBytesMax: ALLOCATE_BYTES_MAX,
    registerBytesMax: Number.MAX_SAFE_INTEGER,
  };
  readonly #clock: Clock;
  readonly #keys: KeyTable<SelfMemory> = new KeyTable(SELF_MD_NAME);
  /** All memory that is not freed or deregistered. */
  readonly #live: Set<SelfMemory> = new Set();
  #generation = 0;
  #closed = false;

  constructor({ clock }: Pick<ComponentServices, 'clock'>) {
    this.#clock = clock;
  }

  memAlloc(byteLength: number, options: AllocateOptions): SelfMemory {
    this.#checkOpen();
    allocatedAccess(options, MemoryType.HOST, SELF_MD_NAME);
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0 || byteLength > ALLOCATE_BYTES_MAX) {
      throw invalidParam('byteLength', `must be an integer from 1 to ${ALLOCATE_BYTES_MAX}`, byteLength);
    }
    const mapping = mapAnonymous(byteLength);
    const bytes = new Uint8Array(mapping.buffer, 0, byteLength);
    return this.#add(new SelfMemory(bytes, BigInt(mapping.address), ++this.#generation, mapping));
  }

  memFree(memory: MdMemory): void {
    const own = this.#own(memory);
    if (own.mapping === undefined) throw invalidParam('memory', 'must come from memAlloc', own.address);
    this.#retire(own);
    own.mapping.close();
  }

  memReg(source: RegistrationSource, options?: RegisterOptions): SelfMemory {
    this.#checkOpen();
    registeredAccess(options);
    const buffer = hostBytesOf(source);
    return this.#add(new SelfMemory(buffer, BigInt(addressOf(buffer)), ++this.#generation, undefined));
  }

  memDereg(memory: MdMemory, options: DeregisterOptions = {}): void {
    const own = this.#own(memory);
    checkDeregister(options);
    if (own.mapping !== undefined) throw invalidParam('memory', 'must come from memReg', own.address);
    this.#retire(own);
  }

  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    const own = this.#own(memory);
    checkAdvice(own, advice, offset, byteLength);
    if (advice === 'will-need') prefault(Number(own.address) + offset, byteLength);
  }

  memQuery(address: bigint): MemoryAttributes {
    throw notDetected(SELF_MD_NAME, 'memQuery', address);
  }

  memExportDmabuf(address: bigint): DmabufExport {
    throw notDetected(SELF_MD_NAME, 'memExportDmabuf', address);
  }

  detectMemoryType(): undefined {
    return undefined;
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    const own = this.#own(memory);
    checkKeyTarget(target, offset, KEY_BYTES);
    this.#keys.pack(own, target, offset);
  }

  rkeyUnpack(packed: Uint8Array): SelfKey {
    return new SelfKey(this.#keys.find(packed));
  }

  openIface(resource: IfaceResource): Iface {
    this.#checkOpen();
    if (resource !== SELF_RESOURCE)
      throw invalidParam('resource', 'must be an entry of `resources` of this memory domain', resource);
    return new SelfIface(this.#clock);
  }

  stats(): StatsNode {
    return statsNode('uct_md', SELF_MD_NAME, { memory_handles: this.#live.size });
  }

  close(): void {
    this.#closed = true;
    for (const memory of this.#live) {
      this.#retire(memory);
      memory.mapping?.close();
    }
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('memory domain self');
  }

  #own(memory: MdMemory): SelfMemory {
    if (!(memory instanceof SelfMemory)) throw invalidParam('memory', 'must be of memory domain self', memory);
    if (!memory.live) throw invalidParam('memory', 'has been freed or deregistered', memory.address);
    return memory;
  }

  #add(memory: SelfMemory): SelfMemory {
    this.#live.add(memory);
    return memory;
  }

  #retire(memory: SelfMemory): void {
    memory.live = false;
    this.#keys.revoke(memory);
    this.#live.delete(memory);
  }
}

/** The component `self`. */
export function selfComponent(): Component {
  return {
    name: SELF_MD_NAME,
    transports: [{ name: SELF_RESOURCE.transport, aliases: SELF_RESOURCE.aliases }],
    configTable: undefined,
    openMd: (services) => {
      checkServices(services);
      return new SelfMd(services);
    },
  };
}
