/** Transfers of PDMA channels that end early: after a fault, although the program only polls them, and when the device is closed. */

import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { PdmaChannelA } from '../../uapi/index.ts';
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

describe('a device that is closed', () => {
  const fixture = useEmulatedDevice();

  it('stops its channels before callbacks, which may unmap memory', () => {
    const device = fixture.setUp({ asic: 'gaudi3' });
    const { file } = device.card;
    const events: string[] = [];
    const mapRegisters = file.mapRegisters.bind(file);
    file.mapRegisters = (byteLength, handle) => {
      const registers = mapRegisters(byteLength, handle);
      const write = registers.write.bind(registers);
      registers.write = (at, value) => {
        if (at === PdmaChannelA.DESC_SUBMIT_FIFO_CFG && value === 0) events.push('stop');
        write(at, value);
      };
      return registers;
    };
    const block = device.memory.allocate(BYTES);
    const { mapping } = fixture.pin(device, BYTES);
    const requests = [
      device.dma.dmaHostToDeviceAsync(mapping, 0, block, 0, BYTES),
      device.dma.dmaDeviceToHostAsync(block, 0, mapping, 0, BYTES),
    ];
    for (const request of requests) request!.onComplete = () => events.push('callback');
    events.length = 0;
    device.close();
    expect(events).toEqual(['stop', 'stop', 'callback', 'callback']);
  });
});
