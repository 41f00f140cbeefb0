/**
 * Every function and method of `gaudi-ucx/hlthunk` with bad values in the place of each argument: errors are typed, nothing leaks, cards stay usable.
 */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as hlthunk from '../../../src/hlthunk.ts';
import { close as closeFd } from '../../../src/sys/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { callsByCapability } from '../../fixtures/calls/capability-calls.ts';
import { EXEMPT, functionCalls, type HlthunkParts, objectCalls } from '../../fixtures/calls/hlthunk-calls.ts';
import { Misuse, uncovered } from '../../fixtures/calls/misuse.ts';
import { publicCalls } from '../../fixtures/calls/public-calls.ts';
import { type PinnedMemory, settle, useEmulatedDevice } from '../../fixtures/driver/emulated-device.ts';
import { fillPattern } from '../../fixtures/pattern.ts';

const PAGE = 4096;
const DECLARED = publicCalls('src/hlthunk.ts');

/** A small node without threads, for calls that open one by the environment. */
const ENVIRONMENT = {
  UCX_GAUDI_DRIVER: 'emulator',
  UCX_GAUDI_EMULATOR_CARDS: '1',
  UCX_GAUDI_EMULATOR_DMA_THREADS: '0',
} as const;

beforeEach(() => {
  for (const [name, value] of Object.entries(ENVIRONMENT)) vi.stubEnv(name, value);
});
afterEach(() => {
  vi.unstubAllEnvs();
});

describe.each(['gaudi', 'gaudi2', 'gaudi3'] as const)('on %s', { timeout: 60_000 }, (asic) => {
  const fixture = useEmulatedDevice();

  function setUp(): HlthunkParts & { readonly misuse: Misuse; readonly end: () => void } {
    const device = fixture.setUp({ asic, cards: 2 });
    const { node } = fixture;
    const pinned = fixture.pin(device, PAGE);
    const block = device.memory.allocate(PAGE);
    const request = device.dma.putShort(new Uint8Array(8), 0, block, 0, 8)!;
    const exported = hlthunk.ipcWrapHandle(device, block);
    const imported = device.canImportDmabuf ? hlthunk.ipcOpenHandle(device, exported.fd, exported.handle) : undefined;
    const misuse = new Misuse(device, pinned.mapping, block, request);
    addUnauthenticated(misuse, node);
    addGone(misuse, device, pinned);
    const end = (): void => {
      while (device.dma.dmaPoll(request) === Status.INPROGRESS);
      device.dma.dmaRequestFree(request);
      closeFd(exported.fd);
      if (imported?.live) imported.unmap();
    };
    return { node, device, pinned, block, exported, imported, asic, misuse, end };
  }

  /** Objects of another card, which is closed. */
  function addUnauthenticated(misuse: Misuse, node: hlthunk.DriverNode): void {
    const other = hlthunk.open(node, { minor: 1 }, { log: fixture.log.log });
    const block = other.memory.allocate(PAGE);
    const { mapping } = fixture.pin(other, PAGE);
    const request = other.dma.putShort(new Uint8Array(8), 0, block, 0, 8)!;
    other.close();
    misuse
      .add('a closed device', other)
      .add('a block of another card', block)
      .add('a mapping of another card', mapping);
    misuse.add('a request of another card', request);
  }

  /** Released objects of the card. */
  function addGone(misuse: Misuse, device: hlthunk.Device, { memory }: PinnedMemory): void {
    const block = device.memory.allocate(PAGE);
    block.free();
    const mapping = device.hostMemoryMap(memory.address, PAGE);
    mapping.unmap();
    const buffer = hlthunk.requestCommandBuffer(device, PAGE);
    buffer.destroy();
    if (device.info.profile.capabilities.syncStream) {
      const signals = hlthunk.reserveEncapsSignals(device, 0, 1)!;
      hlthunk.unreserveEncapsSignals(device, signals);
      misuse.add('signals that were given back', signals);
    }
    const timestamps = hlthunk.allocateTimestampElements(device, 1);
    timestamps.close();
    misuse.add('closed timestamps', timestamps);
    const request = device.dma.putShort(new Uint8Array(8), 0, device.memory.allocate(PAGE), 0, 8)!;
    while (device.dma.dmaPoll(request) === Status.INPROGRESS);
    device.dma.dmaRequestFree(request);
    misuse.add('a freed block', block).add('an ended mapping', mapping).add('a destroyed buffer', buffer);
    misuse.add('a freed request', request);
  }

  /** Copies to the card and back, by every call. */
  async function expectWorks({ device, pinned }: HlthunkParts): Promise<void> {
    const { memory, mapping } = pinned;
    const block = device.memory.allocate(2 * PAGE);
    fillPattern(memory.u8, 5);
    const sent = memory.u8.slice();
    expect(await settle(device, device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, PAGE))).toBe(Status.OK);
    expect(await settle(device, device.dma.dmaDeviceToDeviceAsync(block, 0, block, PAGE, PAGE))).toBe(Status.OK);
    memory.u8.fill(0);
    expect(await settle(device, device.dma.dmaDeviceToHostAsync(block, PAGE, mapping, 0, PAGE))).toBe(Status.OK);
    expect(Buffer.compare(memory.u8, sent)).toBe(0);
    block.free();
  }

  it('every argument of every function is checked', async () => {
    const parts = setUp();
    const calls = functionCalls(parts);
    await expectWorks(parts);
    const { pinnedBytes, memory } = parts.device;
    const used = memory.statistics;
    await parts.misuse.tryMethods('hlthunk', hlthunk, calls, DECLARED.get(''));
    await parts.misuse.settled();
    expect(parts.misuse.surprises).toEqual([]);
    expect(parts.misuse.accepted).toEqual([]);
    expect(parts.misuse.refused).toEqual([]);
    expect(parts.device.pinnedBytes).toBe(pinnedBytes);
    expect(parts.device.memory.statistics).toEqual(used);
    await expectWorks(parts);
    parts.end();
  });

  it('every argument of every method is checked', async () => {
    const parts = setUp();
    const objects = objectCalls(parts);
    const walked = Object.fromEntries(Object.entries(objects).map(([type, { calls }]) => [type, calls]));
    expect(uncovered(DECLARED, { ...walked, '': functionCalls(parts) }, EXEMPT)).toEqual([]);
    for (const [type, { object, calls }] of Object.entries(objects)) {
      await parts.misuse.tryMethods(type, object, calls, DECLARED.get(type));
    }
    await parts.misuse.settled();
    expect(parts.misuse.surprises).toEqual([]);
    expect(parts.misuse.accepted).toEqual([]);
    expect(parts.misuse.refused).toEqual([]);
    await expectWorks(parts);
    parts.end();
  });

  it('valid calls are rejected exactly where the driver does not have their capability', async () => {
    const parts = setUp();
    for (const [name, { has, code, calls }] of Object.entries(callsByCapability(parts))) {
      for (const call of calls) {
        if (has) expect(call, name).not.toThrow();
        else expect(call, name).toThrow(expect.objectContaining({ code }));
      }
    }
    await expectWorks(parts);
    parts.end();
  });
});
