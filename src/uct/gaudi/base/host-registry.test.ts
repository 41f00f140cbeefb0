/** Registrations of host memory of one memory domain over a fake cache, and the users of the cards of a context. */

import { closeSync, openSync, readSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { FakeMemory } from '../../../../test/fixtures/driver/fake-card.ts';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode } from '../../../emulator/index.ts';
import { GaudiErrorCode, open as openDevice } from '../../../hlthunk/index.ts';
import { mapAnonymous, PAGE_SIZE } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import type { RcacheRegion } from '../../../ucs/rcache/region.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LostDevice } from '../../api/memory-domain.ts';
import { RawRange } from '../../base/host/memory.ts';
import { GAUDI_COPY_CONFIG_TABLE } from './config.ts';
import type { HostPages, RegisteredMemory } from './memory.ts';
import { GaudiResources, HostRegistry, type OpenGaudi } from './resources.ts';

expectNoLeaks();

const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });

/** A cache with one region, which records the reports that it receives. */
function cacheOf(caching = true, isBuffer = true) {
  const calls: string[] = [];
  const mapping = new FakeMemory(1, 65_536);
  const pages = {
    address: 0x10_0000,
    isFixed: false,
    mappingIn: (position: number) => {
      calls.push(`map ${position}`);
      return mapping;
    },
    get inFlight() {
      return mapping.inFlight;
    },
  };
  const region = {
    references: 0,
    valid: true,
    start: 0x10_0000,
    byteLength: 8192,
    generation: 3,
    registration: pages as unknown as HostPages,
    buffer: isBuffer ? { start: 0x10_0000 } : undefined,
  };
  const acquire = () => {
    region.references += 1;
    return region as unknown as RcacheRegion<HostPages>;
  };
  const rcache = {
    acquire,
    acquireRange: acquire,
    release: () => {
      calls.push('release');
      region.references -= 1;
    },
    invalidate: () => calls.push('invalidate'),
    unmapped: (start: number, byteLength: number) => calls.push(`unmapped ${start} ${byteLength}`),
    progress: () => calls.push('progress'),
  };
  const cards = [0, 1].map((index) => ({ index, device: {} }));
  const gaudi = { cards, rcache, registries: [], caching } as unknown as OpenGaudi;
  return { calls, mapping, region, gaudi, registry: new HostRegistry('gaudi_copy', true, gaudi) };
}

/** Whether a page of this process has memory, by its number. */
function isPresent(page: number): boolean {
  const fd = openSync('/proc/self/pagemap', 'r');
  const entry = new BigUint64Array(1);
  expect(readSync(fd, entry, 0, 8, page * 8)).toBe(8);
  closeSync(fd);
  return entry[0]! >> 63n === 1n;
}

describe('registered host memory', () => {
  it('is not deregistered while exactly one transfer uses it, and no other registration keeps it', () => {
    const { registry, mapping, calls } = cacheOf();
    const memory = registry.register(new Uint8Array(64));
    mapping.retain();
    expect(() => registry.deregister(memory)).toThrow(BUSY);
    expect([memory.live, registry.has(memory), calls]).toEqual([true, true, []]);
    const second = registry.register(new Uint8Array(64));
    registry.deregister(second);
    expect([second.live, registry.has(second)]).toEqual([false, false]);
    expect(() => registry.deregister(memory)).toThrow(BUSY);
    registry.deregister(memory, { force: true });
    expect([memory.live, registry.has(memory)]).toEqual([false, false]);
  });

  it('is not invalidated while a transfer uses it, even if another registration keeps it', () => {
    const { registry, mapping, calls } = cacheOf();
    const [first, second] = [new Uint8Array(64), new Uint8Array(64)].map((bytes) => registry.register(bytes));
    mapping.retain();
    expect(() => registry.deregister(first!, { invalidate: true })).toThrow(BUSY);
    mapping.release();
    registry.deregister(first!, { invalidate: true });
    expect(calls).toEqual(['release', 'invalidate']);
    registry.deregister(second!);
    expect(calls.slice(2)).toEqual(['release']);
  });

  it('ends with its use if nothing is cached', () => {
    const { registry, calls } = cacheOf(false);
    registry.deregister(registry.register(new Uint8Array(64)));
    expect(calls).toEqual(['release', 'invalidate']);
  });

  it('that is known by its address is unpinned at once by its last user', () => {
    const { registry, calls, region } = cacheOf(true, false);
    const memory = mapAnonymous(8192);
    Object.assign(region, { start: memory.address });
    const range = new RawRange(memory.address + 64, 64);
    const [first, second] = [registry.register(range), registry.register(range)];
    registry.deregister(first);
    expect(calls).toEqual(['release']);
    registry.deregister(second);
    expect(calls).toEqual(['release', 'release', `unmapped ${memory.address} 8192`, 'progress']);
    const third = registry.register(range);
    region.valid = false;
    registry.deregister(third);
    expect(calls.slice(4)).toEqual(['release']);
    memory.close();
  });

  it('ends with its registry, also while transfers use it', () => {
    const { registry, mapping, gaudi } = cacheOf();
    const memories: RegisteredMemory[] = [0, 1].map(() => registry.register(new Uint8Array(64)));
    mapping.retain();
    const other = new HostRegistry('gaudi_ipc', false, gaudi);
    registry.close();
    expect([memories.map(({ live }) => live), gaudi.registries]).toEqual([[false, false], [other]]);
  });

  it('that is unmapped is reported to the shared cache once', () => {
    const { registry, calls, gaudi } = cacheOf();
    const other = new HostRegistry('gaudi_ipc', false, gaudi);
    for (const each of [registry, other]) each.unmapped(4096, 8192);
    expect(calls).toEqual(['unmapped 4096 8192']);
    registry.close();
    other.unmapped(8192, 1);
    expect(calls).toEqual(['unmapped 4096 8192', 'unmapped 8192 1']);
    expect(() => other.unmapped(-1, 8)).toThrow(/address/);
    expect(() => other.unmapped(8, 0)).toThrow(/byteLength/);
  });

  it('is mapped into every card when it is prepared', () => {
    const { registry, calls, region } = cacheOf();
    const memory = mapAnonymous(16_384);
    Object.assign(region.registration, { address: memory.address });
    const bytes = new Uint8Array(64);
    const registered = registry.register(bytes);
    expect(registered.dmaOffset).toBe(bytes.byteOffset);
    registry.prepare(registered, 4096, 4096);
    expect(calls).toEqual(['map 0', 'map 1']);
    memory.close();
  });

  it('has pages in the advised range, and in no other, when it is prepared', () => {
    const { registry, region } = cacheOf();
    const memory = mapAnonymous(8 * PAGE_SIZE);
    Object.assign(region.registration, { address: memory.address });
    // The buffer begins at the third page of the memory.
    const bytes = new Uint8Array(new ArrayBuffer(8 * PAGE_SIZE), 2 * PAGE_SIZE, 4 * PAGE_SIZE);
    registry.prepare(registry.register(bytes), PAGE_SIZE, 2 * PAGE_SIZE);
    const first = memory.address / PAGE_SIZE;
    const pages = Array.from({ length: 8 }, (_, page) => (isPresent(first + page) ? [page] : [])).flat();
    expect(pages).toEqual([3, 4]);
    memory.close();
  });

  it('of another memory domain that was freed is refused', () => {
    const { registry } = cacheOf();
    const memory = { memoryType: 0, bytes: new Uint8Array(8), live: false, address: 7n };
    expect(() => registry.register(memory as never)).toThrow(/has been freed/);
    memory.live = true;
    expect(registry.register(memory as never).byteLength).toBe(8);
  });
});

describe('the cards of a context', () => {
  const services = () => ({
    log: createTestLog().log,
    clock: systemClock,
    config: loadConfig([GAUDI_COPY_CONFIG_TABLE], {}),
  });

  it('are closed by their last user: transfers first, then registrations', () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const resources = new GaudiResources({ node, mappingTable: undefined });
    const gaudi = resources.acquire(services());
    expect(resources.acquire(services())).toBe(gaudi);
    const [card] = gaudi.cards;
    const { device } = card!;
    // What is in flight on such a card ends with it: nobody waits.
    card!.inFlight = 1;
    let polls = 0;
    const { progress } = device.dma;
    device.dma.progress = () => {
      polls += 1;
      card!.inFlight = 0;
      return 1;
    };
    void resources.drain();
    expect(polls).toBe(0);
    device.dma.progress = progress;
    card!.inFlight = 0;
    resources.release();
    expect([device.closed, resources.cards.length]).toEqual([false, 1]);
    const order: string[] = [];
    const { abort } = device.dma;
    device.dma.abort = (status) => {
      order.push(`abort ${status}`);
      abort.call(device.dma, status);
    };
    const { close } = gaudi.rcache;
    gaudi.rcache.close = () => {
      order.push('cache');
      close.call(gaudi.rcache);
    };
    resources.release();
    // Closing the card aborts once more.
    expect(order.slice(0, 2)).toEqual([`abort ${Status.CANCELED}`, 'cache']);
    expect([device.closed, resources.cards]).toEqual([true, []]);
    const again = resources.acquire(services());
    expect(again).not.toBe(gaudi);
    resources.release();
    node.close();
  });

  it('of the application stay open, keep their transfers, and are drained before the end', async () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const testLog = createTestLog();
    testLog.allow(/reports device_reset/);
    const device = openDevice(node, { minor: 0 }, { log: testLog.log });
    const resources = new GaudiResources({ node, devices: [device], mappingTable: undefined });
    const lost: unknown[] = [];
    const onDeviceLost = (each: unknown): void => void lost.push(each);
    const [card] = resources.acquire({ ...services(), onDeviceLost }).cards;
    let aborts = 0;
    const { abort } = device.dma;
    device.dma.abort = () => {
      aborts += 1;
    };
    card!.inFlight = 2;
    let waits = 0;
    device.dma.progress = () => {
      card!.inFlight -= 1;
      return waits === 0 ? 0 : 1;
    };
    device.dma.wait = () => {
      waits += 1;
      return Promise.resolve();
    };
    await resources.drain();
    expect([card!.inFlight, waits]).toEqual([0, 1]);
    resources.release();
    // Nothing of the context hears of a reset from now on.
    node.inject(0, { kind: 'hard-reset' });
    device.events.receive();
    expect(lost).toEqual([]);
    expect([aborts, device.closed]).toEqual([0, false]);
    device.dma.abort = abort;
    device.close();
    node.close();
  });

  it('that are reset are reported, and left out once', () => {
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
    const testLog = createTestLog();
    testLog.allow(/reports device_reset/);
    const resources = new GaudiResources({ node, mappingTable: undefined });
    const lost: LostDevice[] = [];
    const onDeviceLost = (each: LostDevice): void => void lost.push(each);
    const gaudi = resources.acquire({ ...services(), log: testLog.log, onDeviceLost });
    expect(gaudi.leftOut).toEqual([]);
    node.inject(1, { kind: 'hard-reset' });
    gaudi.cards[1]!.device.events.receive();
    expect(lost.map(({ name, sysDevice }) => [name, sysDevice])).toEqual([['gaudi1', 1]]);
    expect(gaudi.leftOut).toEqual([{ name: 'gaudi1', reason: lost[0]!.error.message }]);
    resources.release();
    node.close();
    testLog.expectQuiet();
  });

  it('that a program passes are open devices of one node, each once', () => {
    const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
    const other = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const [first, closed] = [openDevice(node, { minor: 0 }), openDevice(node, { minor: 1 })];
    const foreign = openDevice(other, { minor: 0 });
    closed.close();
    const make =
      (...devices: unknown[]) =>
      () =>
        new GaudiResources({ node, devices: devices as never, mappingTable: undefined });
    expect(make(first, closed)).toThrow(/devices\[1\] must be open/);
    expect(make(first, foreign)).toThrow(/same node/);
    expect(make(first, first)).toThrow(/must not be passed twice/);
    expect(make({})).toThrow(/open device of/);
    expect(make()).toThrow(/at least one/);
    for (const device of [first, foreign]) device.close();
    for (const each of [node, other]) each.close();
  });
});
