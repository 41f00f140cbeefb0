/**
 * Simulated memory domains: host memory that a network card reaches, and memory of a card that no processor reaches. Memory and keys as data, with
 * counts of registered and used memory; the operations are in endpoint.ts.
 */

import { MemoryType, memoryTypeBit } from '../../src/ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../src/ucs/stats/stats-node.ts';
import { invalidParam, isUcxError, statusError } from '../../src/ucs/type/error.ts';
import { Status } from '../../src/ucs/type/status.ts';
import type { Iface, IfaceResource } from '../../src/uct/api/iface.ts';
import type { MdMemory } from '../../src/uct/api/memory.ts';
import type {
  AllocateOptions,
  Component,
  DmabufExport,
  MdAttributes,
  MemoryAttributes,
  MemoryDomain,
  RegistrationSource,
} from '../../src/uct/api/memory-domain.ts';
import { isInside } from '../../src/uct/base/checks.ts';
import { hostBytesOf } from '../../src/uct/base/host/memory.ts';
import { KeyTable, unpackKey } from '../../src/uct/base/key/keys.ts';
import { mdAttributes } from '../fixtures/lanes/fake-md.ts';
import { SimulatedIface } from './iface.ts';
import { type LaneOptions, resourceOf } from './lane.ts';
import { type MemoryOwner, SimulatedKey, SimulatedMemory } from './memory.ts';
import type { Network } from './network.ts';

/** The host in which simulated memory domains are opened. */
export interface HostPlace {
  readonly network: Network;
  readonly host: number;
  /** All memory domains of the host, for inspection. */
  readonly mds: SimulatedMd[];
}

/** The component of one memory domain with its lanes. */
export function simulatedComponent(place: HostPlace, lanes: readonly LaneOptions[]): Component {
  return {
    name: lanes[0]!.md,
    transports: lanes.map(({ transport }) => ({ name: transport, aliases: [] })),
    configTable: undefined,
    openMd: () => new SimulatedMd(place, lanes),
  };
}

/** A simulated memory domain. */
export class SimulatedMd implements MemoryDomain, MemoryOwner {
  readonly name: string;
  readonly attributes: MdAttributes;
  readonly resources: readonly IfaceResource[];
  readonly isCard: boolean;
  /** Allocated or registered memory. */
  readonly live: Set<SimulatedMemory> = new Set();
  readonly #place: HostPlace;
  readonly #lanes: readonly LaneOptions[];
  readonly #keys: KeyTable<SimulatedMemory>;
  #generation = 0;

  constructor(place: HostPlace, lanes: readonly LaneOptions[]) {
    const { md: name, kind } = lanes[0]!;
    this.name = name;
    this.#place = place;
    this.#lanes = lanes;
    this.#keys = new KeyTable(name);
    this.isCard = kind === 'card';
    this.resources = lanes.map(resourceOf);
    this.attributes = mdAttributes(name, this.isCard);
    place.mds.push(this);
  }

  memAlloc(byteLength: number, { memoryType }: AllocateOptions): SimulatedMemory {
    if ((memoryTypeBit(memoryType) & this.attributes.allocateMemoryTypes) === 0) {
      throw invalidParam('memoryType', 'must be one that this memory domain allocates', memoryType);
    }
    return this.#add(new Uint8Array(byteLength), memoryType, true);
  }

  memFree(memory: MdMemory): void {
    this.#remove(memory, true, false);
  }

  memReg(source: RegistrationSource): SimulatedMemory {
    return this.#add(hostBytesOf(source), MemoryType.HOST, false);
  }

  memDereg(memory: MdMemory, options: { readonly force?: boolean } = {}): void {
    this.#remove(memory, false, options.force === true);
  }

  memAdvise(): void {}

  memQuery(address: bigint): MemoryAttributes {
    throw statusError(Status.INVALID_ADDR, `query 0x${address.toString(16)}`);
  }

  memExportDmabuf(): DmabufExport {
    throw statusError(Status.UNSUPPORTED, 'export');
  }

  detectMemoryType(): undefined {
    return undefined;
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    this.#keys.pack(this.#own(memory), target, offset);
  }

  rkeyUnpack(packed: Uint8Array): SimulatedKey {
    const fields = unpackKey(packed);
    if (fields === undefined) throw invalidParam('packed', 'must be a remote key', packed);
    return new SimulatedKey(this.attributes.name, this.isCard, packed.slice(), fields.byteLength);
  }

  /** The memory behind a key that a peer has used; a status for an invalid one. */
  find(packed: Uint8Array, offset: number, byteLength: number): SimulatedMemory | Status {
    try {
      const memory = this.#keys.find(packed);
      return isInside(offset, byteLength, memory.byteLength) ? memory : Status.INVALID_ADDR;
    } catch (error) {
      if (isUcxError(error)) return error.status;
      throw error;
    }
  }

  openIface(resource: IfaceResource): Iface {
    const lane = this.#lanes[this.resources.indexOf(resource)]!;
    return new SimulatedIface(this.#place.network, this.#place.host, this, lane);
  }

  stats(): StatsNode {
    return statsNode('uct_md', this.attributes.name, { memory_handles: this.live.size });
  }

  close(): void {
    for (const memory of this.live) {
      memory.live = false;
      this.#keys.revoke(memory);
    }
    this.live.clear();
  }

  #add(storage: Uint8Array, memoryType: MemoryType, isAllocated: boolean): SimulatedMemory {
    this.#generation += 1;
    const memory = new SimulatedMemory(this, storage, memoryType, isAllocated, this.#generation);
    this.live.add(memory);
    return memory;
  }

  #remove(memory: MdMemory, isAllocated: boolean, force: boolean): void {
    const own = this.#own(memory);
    if (own.isAllocated !== isAllocated) throw invalidParam('memory', 'must be given back as it was got', own.address);
    if (own.inFlight > 0 && !force) throw statusError(Status.BUSY, 'give back memory in use');
    if (own.inFlight > 0) this.#place.network.complaints.push('memory was given back while a transport uses it');
    own.live = false;
    this.live.delete(own);
    this.#keys.revoke(own);
  }

  #own(memory: MdMemory): SimulatedMemory {
    if (!(memory instanceof SimulatedMemory)) throw invalidParam('memory', 'must be simulated', memory);
    if (!memory.live) throw invalidParam('memory', 'must not be given back before', memory.address);
    return memory;
  }
}
