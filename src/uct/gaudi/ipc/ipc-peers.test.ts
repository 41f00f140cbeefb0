/** gaudi_ipc between two contexts of one process on one node: transfers, keys that are good and bad, the cache, owners that go. */

import { afterEach, describe, expect, it } from 'vitest';
import { finish, ownBytes } from '../../../../test/contract/uct-fixture.ts';
import { fillPattern } from '../../../../test/fixtures/emulated-device.ts';
import { type IpcBlock, IpcPeer, type IpcPeerOptions } from '../../../../test/fixtures/ipc-peer.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { SEGMENT_PROBES } from '../../../../test/fixtures/own-segments.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode, type EmulatedNode, type EmulatedNodeOptions } from '../../../emulator/index.ts';
import { connectUnix, SocketType } from '../../../sys/index.ts';
import { systemClock } from '../../../ucs/clock.ts';
import { loadConfig } from '../../../ucs/config.ts';
import { Status } from '../../../ucs/status.ts';
import { ownIdentity } from '../../base/process-identity.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/config.ts';
import { GaudiResources } from '../base/gaudi-resources.ts';
import { servicePath } from './channel-service.ts';
import { GAUDI_IPC_CONFIG_TABLE } from './config.ts';
import type { IpcKey } from './ipc-key.ts';
import { IpcMd } from './ipc-md.ts';
import { LOCAL_OWNERS } from './local-owners.ts';

expectNoLeaks(SEGMENT_PROBES);

const MIB = 2 ** 20;
/** Bytes that no granule divides, and odd places on both sides. */
const SIZES = [1, 7, 64, 1023, 4097, MIB + 3];
const [LOCAL, REMOTE] = [13, 7];

let log = createTestLog();
let node: EmulatedNode | undefined;
const peers: IpcPeer[] = [];
afterEach(() => {
  for (const peer of peers.splice(0)) {
    const { cards } = peer.shared;
    peer.close();
    for (const { device } of cards) {
      expect(device.pinnedBytes).toBe(0);
      expect(device.memory.statistics.usedBytes).toBe(0);
    }
  }
  node?.close();
  node = undefined;
  const used = log;
  log = createTestLog();
  used.expectQuiet();
});

function open(options: Partial<IpcPeerOptions> = {}): IpcPeer {
  node ??= createEmulatedNode({ cards: 4, dmaThreads: 0, log: log.log });
  const peer = new IpcPeer({ node, card: peers.length, log: log.log, ...options });
  peers.push(peer);
  return peer;
}

function pair(options: Partial<IpcPeerOptions> = {}, nodeOptions?: EmulatedNodeOptions): [IpcPeer, IpcPeer] {
  if (nodeOptions !== undefined) node = createEmulatedNode({ cards: 2, dmaThreads: 0, log: log.log, ...nodeOptions });
  return [open(options), open(options)];
}

function pattern(byteLength: number, seed: number): Uint8Array {
  const bytes = ownBytes(byteLength);
  fillPattern(bytes, seed);
  return bytes;
}

/** Has contexts of this process use sockets, as if they were processes. */
function asProcesses(): void {
  LOCAL_OWNERS.clear();
}

/** Starts until there are resources; both sides make progress. */
async function driveBoth(here: IpcPeer, there: IpcPeer, start: () => Status): Promise<Status> {
  let status = start();
  while (status === Status.NO_RESOURCE) {
    there.iface.progress();
    here.iface.progress();
    status = start();
  }
  return status;
}

describe.each([['by look-up'], ['by socket']])('memory of another card, shared %s', (way) => {
  const shareAs = way === 'by socket' ? asProcesses : () => {};

  it.each(SIZES)('is put to and got from device and host memory: %s bytes', async (byteLength) => {
    const [here, there] = pair();
    const [near, far] = [here.allocate(byteLength + 40), there.allocate(byteLength + 40)];
    there.allocate(100);
    shareAs();
    const bytes = byteLength + 40;
    const [a, b, c] = [pattern(bytes, 1), pattern(bytes, 2), pattern(bytes, 3)];
    await here.write(near, a);
    await there.write(far, b);
    const key = here.unpack(far);
    // HBM to HBM, both ways.
    expect(await here.put(near.memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    b.set(a.subarray(LOCAL, LOCAL + byteLength), REMOTE);
    expect(Buffer.compare(await there.read(far), b)).toBe(0);
    await there.write(far, c);
    expect(await here.get(near.memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    a.set(c.subarray(REMOTE, REMOTE + byteLength), LOCAL);
    expect(Buffer.compare(await here.read(near), a)).toBe(0);
    // Host memory and remote HBM, both ways.
    const host = pattern(bytes, 4);
    const memory = here.host(host);
    expect(await here.put(memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    c.set(host.subarray(LOCAL, LOCAL + byteLength), REMOTE);
    expect(Buffer.compare(await there.read(far), c)).toBe(0);
    await there.write(far, b);
    const expected = host.slice();
    expected.set(b.subarray(REMOTE, REMOTE + byteLength), LOCAL);
    expect(await here.get(memory, LOCAL, byteLength, key, REMOTE)).toBe(Status.OK);
    expect(Buffer.compare(host, expected)).toBe(0);
    key.release();
    // The first use asked the owner once; everything after it found the import. By socket, own memory is asked for as well.
    expect(here.ipc.imports.cache.counters).toMatchObject(
      way === 'by socket' ? { imports: 2, misses: 2 } : { imports: 1, misses: 1 },
    );
  });

  it('is written and read by short operations', async () => {
    const [here, there] = pair();
    const far = there.allocate(4096);
    shareAs();
    const key = here.unpack(far);
    const bytes = pattern(1024, 9);
    expect(await here.putShort(bytes, key, 1001)).toBe(Status.OK);
    const back = ownBytes(1024);
    expect(await here.getShort(back, key, 1001)).toBe(Status.OK);
    expect(back).toEqual(bytes);
    expect((await there.read(far)).subarray(1001, 2025)).toEqual(bytes);
    expect(here.iface.channels).toEqual([
      { local: 'gaudi0', remote: '0000:1a:00.0', puts: 1, gets: 1, bytesPut: 1024, bytesGot: 1024 },
    ]);
  });

  it('is shared both ways at the same time', async () => {
    const [one, two] = pair();
    const blocks = [one.allocate(65536), two.allocate(65536)] as const;
    shareAs();
    const [first, second] = [pattern(65536, 1), pattern(65536, 2)];
    const results = await Promise.all([
      one.put(one.host(first), 0, 65536, one.unpack(blocks[1]), 0),
      two.put(two.host(second), 0, 65536, two.unpack(blocks[0]), 0),
    ]);
    expect(results).toEqual([Status.OK, Status.OK]);
    expect(Buffer.compare(await one.read(blocks[0]), second)).toBe(0);
    expect(Buffer.compare(await two.read(blocks[1]), first)).toBe(0);
  });

  it('is gone for keys of freed memory, of memory at the same address, and nothing moves', async () => {
    const [here, there] = pair();
    const old = there.allocate(4096);
    shareAs();
    const key = here.unpack(old);
    expect(await here.putShort(new Uint8Array(8).fill(1), key)).toBe(Status.OK);
    there.free(old);
    const again = there.allocate(4096);
    expect(again.memory.address).toBe(old.memory.address);
    await there.write(again, new Uint8Array(4096));
    expect(await here.putShort(new Uint8Array(8).fill(2), key)).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    expect(() => here.unpack(old)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    expect(await there.read(again)).toEqual(new Uint8Array(4096));
  });

  it('is let go when its owner frees it, so that the card gets it back', async () => {
    const [here, there] = pair();
    const { device } = there.shared.cards[0]!;
    const far = there.allocate(4096, { shared: true });
    shareAs();
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    expect(device.memory.statistics.arenas).toBe(1);
    there.free(far);
    await here.iface.wait(0);
    for (let turn = 0; turn < 600; turn++) here.iface.progress();
    expect(here.ipc.imports.cache.count).toBe(0);
    device.memory.reclaim();
    expect(device.memory.statistics.arenas).toBe(0);
  });

  it('is let go when its owner closes, whose card is not reset', async () => {
    const [here, there] = pair();
    const far = there.allocate(4096);
    shareAs();
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    if (way === 'by socket') {
      // Its program would let go by itself: here it has the same thread as the owner, so its connection is ended for it.
      here.ipc.imports.close();
    }
    there.close();
    expect(node!.card(1).hardResets).toBe(0);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    expect(() => here.unpack(far)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_STALE' }));
    node!.open(1).close();
  });
});

describe('a request to an owner', () => {
  it('is NO_RESOURCE until it is answered, is counted, and wakes who sleeps', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    expect([here.iface.outstanding, here.ipc.imports.pending]).toEqual([1, 1]);
    // Nobody makes progress: the owner is served by the event loop, which wakes the sleeper.
    await here.iface.wait(60e9);
    expect(here.iface.outstanding).toBe(0);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.INPROGRESS);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    expect(here.ipc.imports.cache.counters.imports).toBe(1);
  });

  it('is answered by progress of a program that never gets to the event loop', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    let turns = 0;
    const status = await driveBoth(here, there, () => {
      turns += 1;
      return here.tryPutShort(new Uint8Array(8).fill(3), key);
    });
    expect([status, turns > 1]).toEqual([Status.INPROGRESS, true]);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    expect((await there.read(far)).subarray(0, 8)).toEqual(new Uint8Array(8).fill(3));
  });

  it('that is refused fails the operation by name, and the next one asks again', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    const busId = node!.cards()[1]!.minor;
    node!.inject(busId, { kind: 'exhausted', resource: 'fd', nth: 1 });
    const failed = await driveBoth(here, there, () => here.tryPutShort(new Uint8Array(8), key));
    expect(failed).toBe(Status.NO_MEMORY);
    expect(here.iface.errorOf(Status.NO_MEMORY)).toMatchObject({ code: 'ERR_GAUDI_OUT_OF_MEMORY' });
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
  });

  it('that nobody answers ends in time', async () => {
    const [here, there] = pair({ config: { GAUDI_IPC_TIMEOUT: '20ms' } });
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    let status: Status = Status.NO_RESOURCE;
    // The owner is neither served by progress nor by the event loop.
    while (status === Status.NO_RESOURCE) {
      status = here.tryPutShort(new Uint8Array(8), key);
      here.iface.progress();
    }
    expect(status).toBe(Status.TIMED_OUT);
    expect(here.iface.errorOf(status)).toMatchObject({ code: 'ERR_GAUDI_TIMEOUT' });
    expect(here.iface.errorOf(status)?.message).toMatch(/UCX_GAUDI_IPC_TIMEOUT/);
    expect(here.iface.outstanding).toBe(0);
  });

  it('of a key that was revoked meanwhile is refused', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.NO_RESOURCE);
    there.free(far);
    expect(await driveBoth(here, there, () => here.tryPutShort(new Uint8Array(8), key))).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    while (here.iface.outstanding > 0) {
      there.iface.progress();
      here.iface.progress();
    }
    expect(here.ipc.imports.cache.counters.imports).toBe(0);
  });

  it('is forgotten when its memory domain closes', () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    asProcesses();
    expect(here.tryPutShort(new Uint8Array(8), here.unpack(far))).toBe(Status.NO_RESOURCE);
    here.close();
    expect(here.iface.outstanding).toBe(0);
  });
});

describe('the channel service', () => {
  it('drops who says anything else', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    asProcesses();
    const tag = here.unpack(far).place.serviceTag;
    for (const bytes of [new Uint8Array(1), new Uint8Array(80), pattern(500, 5)]) {
      const socket = connectUnix(servicePath(ownIdentity(), tag), SocketType.SEQPACKET);
      expect(socket.sendmsg(bytes)).toBe(bytes.byteLength);
      for (let turn = 0; turn < 256; turn++) there.iface.progress();
      expect(socket.recvmsg(new Uint8Array(64), [])).toBe(0);
      socket.close();
    }
    expect(await here.putShort(new Uint8Array(8), here.unpack(far))).toBe(Status.OK);
  });
});

describe('keys', () => {
  it('that are forged or of another memory domain are refused by name', () => {
    const [here, there] = pair();
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
    const [here, there] = pair();
    const blocks = Array.from({ length: 20 }, (_, i) => there.allocate(300 + i));
    const keys = blocks.map((block) => here.unpack(block));
    for (const [i, key] of keys.entries())
      expect(await here.putShort(new Uint8Array(300).fill(i), key)).toBe(Status.OK);
    for (const [i, block] of blocks.entries()) {
      expect((await there.read(block)).subarray(0, 300)).toEqual(new Uint8Array(300).fill(i));
    }
    expect(here.ipc.imports.cache.counters).toMatchObject({ imports: 1, hits: 19, misses: 1 });
    // A freed neighbour is nobody else's concern.
    there.free(blocks[3]!);
    expect(await here.putShort(new Uint8Array(8), keys[3]!)).toBe(Status.INVALID_ADDR);
    expect(await here.putShort(new Uint8Array(8), keys[4]!)).toBe(Status.OK);
  });

  it('are stale when the allocator frees without a word to gaudi_ipc', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    there.copy.memFree(far.allocated);
    expect(far.memory.live).toBe(false);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.INVALID_ADDR);
  });

  it('do not outlive their release', async () => {
    const [here, there] = pair();
    const key = here.unpack(there.allocate(64));
    key.release();
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.INVALID_ADDR);
  });

  it('are not made of host memory or of what another context has', () => {
    const [here, there] = pair();
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

describe('what a card does not reach', () => {
  it('is local memory of another card', async () => {
    node = createEmulatedNode({ cards: 2, dmaThreads: 0, log: log.log });
    const [here, there] = pair();
    const key = here.unpack(there.allocate(64));
    const foreign = there.allocate(64).memory;
    // Its own index is the same: what counts is the card.
    expect(await here.put(foreign, 0, 8, key, 0).catch((error: { status: Status }) => error.status)).toBeLessThan(0);
  });

  it('is everything where the driver does not import: no operation is advertised, and the reason is', () => {
    const [here] = pair({}, { importDmabuf: false });
    const { flags, put, get, limitation } = here.iface.attributes;
    expect(flags & 0xf).toBe(0);
    expect([put.shortBytesMax, put.iovMax, get.shortBytesMax, get.iovMax]).toEqual([0, 0, 0, 0]);
    expect(limitation).toMatch(/cannot import dma-bufs/);
  });
});

describe('the import cache', () => {
  /** Blocks of arenas of their own. */
  function arenas(there: IpcPeer, count: number): IpcBlock[] {
    return Array.from({ length: count }, () => there.allocate(64, { shared: true }));
  }

  async function use(here: IpcPeer, key: IpcKey): Promise<void> {
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
  }

  it('gives up what was used longest ago at its bound of regions', async () => {
    const [here, there] = pair({ config: { GAUDI_IPC_CACHE_MAX_REGIONS: '2' } });
    const [a, b, c] = arenas(there, 3).map((block) => here.unpack(block)) as [IpcKey, IpcKey, IpcKey];
    const { cache } = here.ipc.imports;
    for (const key of [a, b, a, c]) await use(here, key);
    expect(cache.counters).toMatchObject({ imports: 3, evictions: 1 });
    expect([a, b, c].map((key) => key.isReady(0))).toEqual([true, false, true]);
    await use(here, b);
    expect(cache.counters).toMatchObject({ imports: 4, evictions: 2 });
    expect([a, b, c].map((key) => key.isReady(0))).toEqual([false, true, true]);
    expect(here.shared.cards[0]!.device.imports.count).toBe(2);
  });

  it('gives up at its bound of bytes', async () => {
    const [here, there] = pair({ config: { GAUDI_IPC_CACHE_MAX_SIZE: '1600m' } });
    const keys = arenas(there, 3).map((block) => here.unpack(block));
    for (const key of keys) await use(here, key);
    expect(here.ipc.imports.cache).toMatchObject({ count: 2, byteLength: 2 * 768 * MIB });
  });

  it('never gives up what a transfer uses', async () => {
    const [here, there] = pair({ config: { GAUDI_IPC_CACHE_MAX_REGIONS: '1' } });
    const [a, b] = arenas(there, 2).map((block) => here.unpack(block)) as [IpcKey, IpcKey];
    const { cache } = here.ipc.imports;
    expect(here.tryPutShort(new Uint8Array(8), a)).toBe(Status.INPROGRESS);
    expect(here.tryPutShort(new Uint8Array(8), b)).toBe(Status.INPROGRESS);
    expect([cache.count, cache.counters.evictions]).toEqual([2, 0]);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    for (let turn = 0; turn < 256; turn++) here.iface.progress();
    expect([cache.count, cache.counters.evictions]).toEqual([1, 1]);
    expect([a.isReady(0), b.isReady(0)]).toEqual([false, true]);
  });

  it('ends with its transfers what is invalidated under them', async () => {
    const [here, there] = pair();
    const far = there.allocate(64, { shared: true });
    const key = here.unpack(far);
    const { cache } = here.ipc.imports;
    expect(here.tryPutShort(new Uint8Array(8), key)).toBe(Status.INPROGRESS);
    there.ipc.memDereg(far.memory);
    expect([cache.count, cache.leaving]).toEqual([0, 1]);
    await finish(here.iface, (completion) => here.endpoint.flush(completion));
    here.iface.progress();
    expect(cache.leaving).toBe(0);
    there.copy.memFree(far.allocated);
  });

  it('makes room in the card when its addresses are used up', async () => {
    const [here, there] = pair();
    const [a, b] = arenas(there, 2).map((block) => here.unpack(block)) as [IpcKey, IpcKey];
    await use(here, a);
    node!.inject(0, { kind: 'exhausted', resource: 'va', nth: 1 });
    await use(here, b);
    expect(here.ipc.imports.cache.counters).toMatchObject({ imports: 2, evictions: 1 });
  });
});

describe('addresses', () => {
  it('tell whom an interface reaches, and why not', () => {
    const [here, there] = pair();
    const reason = (change: (bytes: Uint8Array) => void): string | undefined => {
      const address = there.iface.address.slice();
      change(address);
      return here.iface.unreachableReason(address);
    };
    expect(reason(() => {})).toBeUndefined();
    expect(here.iface.unreachableReason(new Uint8Array(3))).toMatch(/version/);
    expect(reason((bytes) => bytes.fill(9, 0, 4))).toMatch(/version/);
    expect(reason((bytes) => bytes.fill(9, 8, 16))).toMatch(/another machine/);
    expect(reason((bytes) => bytes.fill(9, 16, 24))).toMatch(/another node/);
    expect(reason((bytes) => bytes.fill(9, 32, 36))).toMatch(/pid namespace/);
    expect(reason((bytes) => bytes.fill(9, 40, 48))).toMatch(/has ended/);
    const foreign = there.iface.address.slice().fill(9, 8, 16);
    expect(() => here.iface.connect(foreign)).toThrow(expect.objectContaining({ code: 'ERR_UNREACHABLE' }));
    const other = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const stranger = new IpcPeer({ node: other, card: 0, log: log.log });
    expect(stranger.iface.unreachableReason(here.iface.address)).toMatch(/another node/);
    stranger.close();
    other.close();
  });

  it('lead to endpoints that check for the process', () => {
    const [here, there] = pair();
    expect(here.iface.connect(there.iface.address).check()).toBe(Status.OK);
    const dead = there.iface.address.slice().fill(9, 40, 44);
    expect(here.iface.unreachableReason(dead)).toMatch(/has ended/);
  });
});

describe('each Gaudi memory domain', () => {
  it('opens the cards by itself', async () => {
    node = createEmulatedNode({ cards: 2, dmaThreads: 0, log: log.log });
    const shared = new GaudiResources({ node, mappingTable: undefined });
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE, GAUDI_IPC_CONFIG_TABLE]);
    const alone = new IpcMd(shared, { log: log.log, clock: systemClock, config });
    expect(shared.cards).toHaveLength(2);
    const iface = alone.openIface(alone.resources[1]!);
    expect(iface.unreachableReason(iface.address)).toBeUndefined();
    alone.close();
    expect(shared.cards).toEqual([]);
  });

  it('says where the driver takes no transfers', () => {
    const [here] = pair({}, { asic: 'gaudi3' });
    expect(here.iface.attributes.limitation).toMatch(/gaudi3 takes no transfers/);
    expect(here.iface.attributes.flags & 0xf).toBe(0);
  });

  it('works without the other, and with it in either order of closing', async () => {
    const [here, there] = pair();
    const far = there.allocate(64);
    const key = here.unpack(far);
    expect(await here.putShort(new Uint8Array(8), key)).toBe(Status.OK);
    here.copy.close();
    here.ipc.close();
    there.ipc.close();
    expect(there.shared.cards).toHaveLength(1);
    there.copy.close();
    expect(there.shared.cards).toEqual([]);
    node!.open(0).close();
    node!.open(1).close();
  });
});
