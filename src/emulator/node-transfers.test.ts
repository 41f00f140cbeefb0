/** Counters of the transfers of the cards of an emulated node. */

import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../test/fixtures/driver/emulated-device.ts';
import type { CardTransfers } from '../driver/port.ts';
import type { Device } from '../hlthunk/index.ts';
import { Status } from '../ucs/type/status.ts';

const fixture = useEmulatedDevice();
const NONE = { bytes: 0, operations: 0 };

function counted(minor = 0): CardTransfers {
  return fixture.node.transfers()!.cards[minor]!;
}

async function put(device: Device, byteLength: number): Promise<void> {
  const block = device.memory.allocate(byteLength);
  expect(await settle(device, device.dma.putShort(new Uint8Array(byteLength), 0, block, 0, byteLength))).toBe(
    Status.OK,
  );
  device.memory.free(block);
}

describe.each([0, 1])('transfers of a node with %i engine threads', (dmaThreads) => {
  it('are counted by direction', async () => {
    const device = fixture.setUp({ cards: 2, dmaThreads, inlineBytesMax: 0 });
    expect(counted()).toEqual({
      minor: 0,
      hostToDevice: NONE,
      deviceToHost: NONE,
      deviceToDevice: NONE,
      fills: NONE,
      busyNs: 0,
    });
    await put(device, 512);
    expect(counted()).toMatchObject({ hostToDevice: { bytes: 512, operations: 1 }, deviceToHost: NONE });
    const block = device.memory.allocate(256);
    const target = new Uint8Array(256);
    expect(await settle(device, device.dma.getShort(target, 0, block, 0, 256))).toBe(Status.OK);
    expect(counted().deviceToHost).toEqual({ bytes: 256, operations: 1 });
    expect(counted(1)).toMatchObject({ hostToDevice: NONE, deviceToHost: NONE, busyNs: 0 });
    const { linkBytes, engineThreads } = fixture.node.transfers()!;
    expect(linkBytes).toEqual([
      [0, 0],
      [0, 0],
    ]);
    expect(engineThreads).toBe(1);
  });
});

describe.each([
  [0, 0],
  [1, 0],
  [0, 2 ** 30],
])('the time of transfers with %i engine threads, inline up to %i bytes', (dmaThreads, inlineBytesMax) => {
  it('is counted by the card that moves the bytes', async () => {
    const bytes = 2 ** 24;
    const device = fixture.setUp({ cards: 2, dmaThreads, inlineBytesMax });
    const { memory, mapping } = fixture.pin(device, bytes);
    const block = device.memory.allocate(bytes);
    memory.words.fill(7);
    const request = device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, bytes);
    expect(await settle(device, request)).toBe(Status.OK);
    expect(counted().hostToDevice).toEqual({ bytes, operations: 1 });
    expect(counted().busyNs).toBeGreaterThan(0);
    expect(counted(1).busyNs).toBe(0);
  });
});

describe('transfers', () => {
  it('are counted if they run inline', async () => {
    const device = fixture.setUp({ cards: 1, dmaThreads: 0, inlineBytesMax: 4096 });
    await put(device, 1024);
    expect(counted().hostToDevice).toEqual({ bytes: 1024, operations: 1 });
  });

  it('of a closed node are not reported', () => {
    fixture.setUp({ cards: 1, dmaThreads: 0 });
    fixture.node.close();
    expect(fixture.node.transfers()).toBeUndefined();
  });
});
