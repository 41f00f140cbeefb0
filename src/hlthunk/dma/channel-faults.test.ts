/** Transfers of a PDMA channel that a fault stops end although the program only polls them. */

import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { Status } from '../../ucs/type/status.ts';
import { HostMapping } from '../memory/host-memory.ts';

const BYTES = 8192;

describe('a channel that a fault stops', () => {
  const fixture = useEmulatedDevice();

  it.each([0, 1])('ends its transfers without a reader of events (%s engine threads)', async (dmaThreads) => {
    const device = fixture.setUp({ asic: 'gaudi3', dmaThreads });
    fixture.log.allow(/reports/);
    fixture.log.allow(/left out/);
    fixture.log.allow(/reset/);
    const block = device.memory.allocate(BYTES);
    const place = { card: device.card, address: 0xff70700000000000n, byteLength: BYTES };
    const stray = new HostMapping(device.hostMemory, place, 0x1000);
    const request = device.dma.dmaHostToDeviceAsync(stray, 0, block, 0, BYTES);
    expect(await settle(device, request)).toBe(Status.IO_ERROR);
  });
});
