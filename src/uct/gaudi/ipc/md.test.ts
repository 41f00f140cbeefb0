/** The memory domain gaudi_ipc: valid and invalid keys, reachability, addresses, and its lifetime beside gaudi_copy. */

import { describe, expect, it } from 'vitest';
import { finish, keyOf, ownBytes } from '../../../../test/contract/uct/uct-fixture.ts';
import { IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { createEmulatedNode } from '../../../emulator/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { MdMemory } from '../../api/memory.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/config.ts';
import { GaudiResources } from '../base/resources.ts';
import { CopyMd } from '../copy/md.ts';
import { GAUDI_IPC_CONFIG_TABLE } from './config.ts';
import { IpcMd } from './md.ts';

const fixture = useIpcPeers();

describe('keys', () => {
  it('that are forged or of another memory domain are rejected with their codes', () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    const codes = new Set<string>();
    for (let bit = 0; bit < far.key.byteLength * 8; bit++) {
      const forged = far.key.slice();
      forged[bit >> 3]! ^= 1 << (bit & 7);
      try {
        here.ipc.rkeyUnpack(forged);
        codes.add(`bit ${bit} was not noticed`);
      } catch (error) {
        codes.add((error as { code: string }).code);
      }
    }
    expect([...codes].sort()).toEqual(['ERR_RKEY_FORGED', 'ERR_RKEY_MALFORMED', 'ERR_RKEY_STALE']);
    expect(() => there.copy.rkeyUnpack(far.key)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_MALFORMED' }));
  });

  it('work for every block, at its place in the arena', async () => {
    const [here, there] = fixture.pair();
    const blocks = Array.from({ length: 20 }, (_, i) => there.allocate(300 + i));
    const keys = blocks.map((block) => here.unpack(block));
    for (const [i, key] of keys.entries())
      expect(await here.putShort(new Uint8Array(300).fill(i), key)).toBe(Status.OK);
    for (const [i, block] of blocks.entries()) {
      expect((await there.read(block)).subarray(0, 300)).toEqual(new Uint8Array(300).fill(i));
    }
    expect(here.ipc.imports.cache.counters).toMatchObject({ mem_regs: 1, hits_fast: 19, misses: 1 });
    // Freeing a block does not affect its neighbours.
    there.free(blocks[3]!);
    expect(await here.putShort(new Uint8Array(8), keys[3]!)).toBe(Status.INVALID_ADDR);
    expect(await here.putShort(new Uint8Array(8), keys[4]!)).toBe(Status.OK);
  });

  it('are stale when the allocator frees the memory without notifying gaudi_ipc', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    there.copy.memFree(far.allocated);
    expect(far.memory.live).toBe(false);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.INVALID_ADDR);
  });

  it('are invalid after their release', async () => {
    const [here, there] = fixture.pair();
    const key = here.unpack(there.allocate(64));
    key.release();
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.INVALID_ADDR);
  });

  it('are not created for host memory or memory of another context', () => {
    const [here, there] = fixture.pair();
    const host = here.host(ownBytes(64));
    expect(host.packable).toBe(false);
    const packed = new Uint8Array(here.ipc.attributes.rkeyPackedBytes);
    const refused = expect.objectContaining({ status: Status.INVALID_PARAM });
    expect(() => here.ipc.mkeyPack(host, packed, 0)).toThrow(refused);
    const far = there.allocate(64);
    expect(() => here.ipc.mkeyPack(far.memory, packed, 0)).toThrow(refused);
    expect(() => here.ipc.memReg(far.allocated)).toThrow(refused);
    expect(() => there.ipc.memReg(far.memory)).toThrow(refused);
  });
});

describe('unreachable memory of a card', () => {
  it('is local memory of another card', async () => {
    const [here, there] = fixture.pair();
    const key = here.unpack(there.allocate(64));
    const foreign = there.allocate(64).memory;
    // The index is the same in both contexts: the card decides.
    expect(await here.put(foreign, 0, 8, key, 0).catch((error: { status: Status }) => error.status)).toBeLessThan(0);
    expect(await there.read(there.allocate(64))).toHaveLength(64);
  });

  it('is local memory of another card of its context', async () => {
    const shared = new GaudiResources({ node: fixture.makeNode({}), mappingTable: undefined });
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE, GAUDI_IPC_CONFIG_TABLE]);
    const services = { log: fixture.log.log, clock: systemClock, config };
    const [copy, ipc] = [new CopyMd(shared, services), new IpcMd(shared, services)];
    const options = { memoryType: MemoryType.GAUDI };
    const [first, second] = [0, 1].map((sysDevice) => ipc.memReg(copy.memAlloc(64, { ...options, sysDevice })));
    const iface = ipc.openIface(ipc.resources[0]!);
    const endpoint = iface.connect(iface.address);
    const put = (memory: MdMemory, remote: MdMemory): Promise<Status> =>
      finish(iface, (completion) =>
        endpoint.putZcopy([{ memory, offset: 0, byteLength: 64 }], 0, keyOf(ipc, remote), completion),
      );
    expect(await put(second!, first!)).toBe(Status.UNREACHABLE);
    expect(await put(first!, second!)).toBe(Status.OK);
    ipc.close();
    copy.close();
  });

  it('is all memory if the driver cannot import: no operation is advertised, with the reason', () => {
    fixture.makeNode({ importDmabuf: false });
    const here = fixture.open();
    const { flags, put, get, limitation } = here.iface.attributes;
    expect(flags & 0xf).toBe(0);
    expect([put.shortBytesMax, put.iovMax, get.shortBytesMax, get.iovMax]).toEqual([0, 0, 0, 0]);
    expect(limitation).toMatch(/cannot import dma-bufs/);
  });
});

describe('addresses', () => {
  it('determine whether an interface reaches another, or why not', () => {
    const [here, there] = fixture.pair();
    const reason = (change: (bytes: Uint8Array) => void): string | undefined => {
      const address = there.iface.address.slice();
      change(address);
      return here.iface.unreachableReason(address);
    };
    expect(reason(() => {})).toBeUndefined();
    expect(here.iface.unreachableReason(new Uint8Array(3))).toMatch(/version/);
    expect(reason((bytes) => bytes.fill(9, 0, 4))).toMatch(/version/);
    expect(reason((bytes) => bytes.fill(9, 8, 16))).toMatch(/another machine/);
    expect(reason((bytes) => bytes.fill(9, 16, 24))).toMatch(/another emulated node/);
    expect(reason((bytes) => bytes.fill(9, 32, 36))).toMatch(/pid namespace/);
    expect(reason((bytes) => bytes.fill(9, 40, 48))).toMatch(/has ended/);
    const foreign = there.iface.address.slice().fill(9, 8, 16);
    expect(() => here.iface.connect(foreign)).toThrow(expect.objectContaining({ code: 'ERR_UNREACHABLE' }));
    const other = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const unauthenticatedPeer = new IpcPeer({ node: other, card: 0, log: fixture.log.log });
    expect(unauthenticatedPeer.iface.unreachableReason(here.iface.address)).toMatch(/another emulated node/);
    unauthenticatedPeer.close();
    other.close();
  });

  it('give endpoints that check whether the process runs', () => {
    const [here, there] = fixture.pair();
    expect(here.iface.connect(there.iface.address).check()).toBe(Status.OK);
    const dead = there.iface.address.slice().fill(9, 40, 44);
    expect(here.iface.unreachableReason(dead)).toMatch(/has ended/);
  });
});

describe('each Gaudi memory domain', () => {
  it('opens the cards on its own', async () => {
    const shared = new GaudiResources({ node: fixture.makeNode({}), mappingTable: undefined });
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE, GAUDI_IPC_CONFIG_TABLE]);
    const alone = new IpcMd(shared, { log: fixture.log.log, clock: systemClock, config });
    expect(shared.cards).toHaveLength(2);
    const iface = alone.openIface(alone.resources[1]!);
    expect(iface.unreachableReason(iface.address)).toBeUndefined();
    alone.close();
    expect(shared.cards).toEqual([]);
  });

  it('reports a driver that accepts no transfers', () => {
    fixture.makeNode({ asic: 'gaudi3', channelMask: 0 });
    const here = fixture.open();
    expect(here.iface.attributes.limitation).toMatch(/gaudi3 reports no DMA channel for users/);
    expect(here.iface.attributes.flags & 0xf).toBe(0);
  });

  it('works without the other, and with it in either order of closing', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    here.copy.close();
    here.ipc.close();
    there.ipc.close();
    expect(there.shared.cards).toHaveLength(1);
    there.copy.close();
    expect(there.shared.cards).toEqual([]);
    fixture.node.open(0).close();
    fixture.node.open(1).close();
  });
});
