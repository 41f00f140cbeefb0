/** Memory of every kind for the cases of the endpoint contract: written, read and compared through the endpoint itself. */

import { afterEach, beforeEach, expect } from 'vitest';
import { hasMemoryType, MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import type { Iface, UctEndpoint } from '../../../src/uct/api/iface.ts';
import type { MdMemory } from '../../../src/uct/api/memory.ts';
import type { MemoryDomain } from '../../../src/uct/api/memory-domain.ts';
import { fillPattern } from '../../fixtures/pattern.ts';
import {
  CountingCompletion,
  driveUntil,
  finish,
  flush,
  keyOf,
  type MdSetup,
  ownBytes,
  UctFixture,
} from './uct-fixture.ts';

/** The interface of the first device, for every case, with an endpoint to another device if there is one. */
export class RmaFixture extends UctFixture {
  #iface: Iface | undefined;
  #target: Iface | undefined;
  #endpoint: UctEndpoint | undefined;
  #seed = 1;

  constructor(setup: MdSetup) {
    super(setup);
    beforeEach(() => {
      this.#iface = this.md.openIface(this.md.resources[0]!);
      const { peer } = this.under;
      this.#target = peer === undefined ? this.#iface : this.md.openIface(peer);
      this.#endpoint = this.#iface.connect(this.#target.address);
    });
    afterEach(() => {
      this.#endpoint?.close();
      this.#iface?.close();
      this.#target?.close();
      expect(this.#iface?.outstanding).toBe(0);
      // Vitest keeps this fixture until the end of the run.
      this.#endpoint = undefined;
      this.#iface = undefined;
      this.#target = undefined;
    });
  }

  get iface(): Iface {
    return this.#iface!;
  }

  get endpoint(): UctEndpoint {
    return this.#endpoint!;
  }

  /** Whether the interface supports transfers between these kinds of memory. */
  serves(local: MemoryType, remote: MemoryType): boolean {
    const { localMemoryTypes, remoteMemoryTypes, requiredMemoryTypes } = this.iface.attributes;
    const reached = hasMemoryType(localMemoryTypes, local) && hasMemoryType(remoteMemoryTypes, remote);
    const required =
      requiredMemoryTypes === 0 ||
      hasMemoryType(requiredMemoryTypes, local) ||
      hasMemoryType(requiredMemoryTypes, remote);
    return reached && required;
  }

  /** Registered host memory, or memory of the interface's device; undefined if the memory domain has no such memory. */
  memory(type: MemoryType, byteLength: number): MdMemory | undefined {
    return this.#memoryOf(type, byteLength, this.iface.attributes.resource.sysDevice);
  }

  /** Like {@link memory}, for the remote side: of another device if the interface reaches one, undefined if it has no keys. */
  remoteMemory(type: MemoryType, byteLength: number): MdMemory | undefined {
    const { resource, reachesOtherDevices } = this.iface.attributes;
    const other = this.md.resources.find(({ sysDevice }) => sysDevice !== resource.sysDevice) ?? resource;
    const memory = this.#memoryOf(type, byteLength, (reachesOtherDevices ? other : resource).sysDevice);
    if (memory?.packable !== false) return memory;
    this.md.memDereg(memory);
    // Not all memory domains have keys of registered memory, but all have keys of allocated memory.
    const allocates = hasMemoryType(this.md.attributes.allocateMemoryTypes, type);
    return allocates ? this.md.memAlloc(byteLength, { memoryType: type }) : undefined;
  }

  /** Releases the result of {@link remoteMemory}. */
  end(memory: MdMemory): void {
    try {
      this.md.memFree(memory);
    } catch {
      this.md.memDereg(memory); // Was registered.
    }
  }

  /** Memory for the remote side: of a device if there is one. */
  remote(byteLength: number): MdMemory {
    return this.remoteMemory(MemoryType.GAUDI, byteLength) ?? this.remoteMemory(MemoryType.HOST, byteLength)!;
  }

  /** Bytes that differ from call to call. */
  pattern(byteLength: number): Uint8Array {
    const bytes = ownBytes(byteLength);
    this.#seed += 1;
    fillPattern(bytes, this.#seed);
    return bytes;
  }

  completion(order?: unknown[], name?: unknown): CountingCompletion {
    return new CountingCompletion(order, name);
  }

  drive(isDone: () => boolean): Promise<void> {
    return driveUntil(this.iface, isDone);
  }

  #memoryOf(type: MemoryType, byteLength: number, sysDevice: number | undefined): MdMemory | undefined {
    if (type === MemoryType.HOST) return this.md.memReg(ownBytes(byteLength));
    if (!hasMemoryType(this.md.attributes.allocateMemoryTypes, type)) return undefined;
    return this.md.memAlloc(byteLength, { memoryType: type, ...(sysDevice === undefined ? {} : { sysDevice }) });
  }

  /** Writes `bytes` into memory. */
  async write(memory: MdMemory, bytes: Uint8Array): Promise<void> {
    if (memory.bytes !== undefined) {
      memory.bytes.set(bytes);
      return;
    }
    const { iface, endpoint, md } = this;
    await withStaging(md, bytes, async (staging) => {
      const iov = [{ memory: staging, offset: 0, byteLength: bytes.byteLength }];
      const rkey = keyOf(md, memory);
      expect(await finish(iface, (completion) => endpoint.putZcopy(iov, 0, rkey, completion))).toBe(Status.OK);
      expect(await flush(iface, endpoint)).toBe(Status.OK);
    });
  }

  /** A copy of the contents of memory. */
  async read(memory: MdMemory): Promise<Uint8Array> {
    if (memory.bytes !== undefined) return memory.bytes.slice();
    const { iface, endpoint, md } = this;
    const bytes = ownBytes(memory.byteLength);
    await withStaging(md, bytes, async (staging) => {
      const iov = [{ memory: staging, offset: 0, byteLength: bytes.byteLength }];
      const rkey = keyOf(md, memory);
      expect(await finish(iface, (completion) => endpoint.getZcopy(iov, 0, rkey, completion))).toBe(Status.OK);
    });
    return bytes;
  }

  async expectBytes(memory: MdMemory, expected: Uint8Array): Promise<void> {
    expect(Buffer.compare(await this.read(memory), expected)).toBe(0);
  }
}

async function withStaging(
  md: MemoryDomain,
  bytes: Uint8Array,
  use: (staging: MdMemory) => Promise<void>,
): Promise<void> {
  const staging = md.memReg(bytes);
  try {
    await use(staging);
  } finally {
    md.memDereg(staging);
  }
}
