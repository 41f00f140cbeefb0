/** The function forms of the device calls are equivalent to the methods. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { addressOf } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DmaRequest } from '../dma/request.ts';
import {
  close,
  dmaDeviceToDeviceAsync,
  dmaDeviceToHostAsync,
  dmaHostToDeviceAsync,
  dmaPoll,
  dmaRequestFree,
  hostMemoryMap,
} from './device-calls.ts';

describe('the calls with the device first', () => {
  const fixture = useEmulatedDevice();

  it('move bytes host to device, within the device and back', () => {
    const device = fixture.setUp();
    const bytes = new Uint8Array(8192).map((_, i) => (i < 4096 ? i * 7 : 0));
    const mapping = hostMemoryMap(device, addressOf(bytes), bytes.byteLength);
    const [first, second] = [device.memory.allocate(4096), device.memory.allocate(4096)];
    const finish = (request: DmaRequest | undefined): void => {
      while (dmaPoll(device, request!) === Status.INPROGRESS) {}
      expect(request!.status).toBe(Status.OK);
      dmaRequestFree(device, request!);
    };
    finish(dmaHostToDeviceAsync(device, mapping, 0, first, 0, 4096));
    finish(dmaDeviceToDeviceAsync(device, first, 0, second, 0, 4096));
    finish(dmaDeviceToHostAsync(device, second, 0, mapping, 4096, 4096));
    expect(bytes.subarray(4096)).toEqual(bytes.subarray(0, 4096));
    close(device);
    expect(device.closed).toBe(true);
  });
});
