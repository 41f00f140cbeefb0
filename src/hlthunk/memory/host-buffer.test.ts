/** Host buffers: memory with an address, which is not freed while a card can write to it. */

import { expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { Status } from '../../ucs/type/status.ts';
import { free, GaudiErrorCode, hostMemoryMap, malloc } from '../index.ts';

const BYTES = 5000;
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });
const fixture = useEmulatedDevice();

it('is written by a card at its address', async () => {
  const device = fixture.setUp();
  using buffer = malloc(BYTES);
  expect(buffer.address % 4096).toBe(0);
  expect(buffer.bytes).toEqual(new Uint8Array(BYTES));
  const block = device.memory.allocate(BYTES);
  const put = device.dma.putShort(new Uint8Array([1, 2, 3]), 0, block, 0, 3);
  expect(await settle(device, put)).toBe(Status.OK);
  const mapping = hostMemoryMap(device, buffer.address + 1000, 3);
  expect(await settle(device, device.dma.dmaDeviceToHostAsync(block, 0, mapping, 0, 3))).toBe(Status.OK);
  expect([...buffer.bytes.subarray(999, 1004)]).toEqual([0, 1, 2, 3, 0]);
  expect(() => free(buffer)).toThrow(BUSY);
  mapping.unmap();
});

it('is freed once no part of it is mapped, or its card is closed', () => {
  const device = fixture.setUp();
  const [mapped, beside] = [malloc(BYTES), malloc(BYTES)];
  hostMemoryMap(device, mapped.address, BYTES);
  free(beside);
  expect(beside.freed).toBe(true);
  expect(() => mapped.free()).toThrow(BUSY);
  device.close();
  mapped.free();
  mapped.free();
  expect([mapped.freed, mapped.bytes.some((byte) => byte !== 0)]).toEqual([true, false]);
});

it('rejects invalid lengths', () => {
  for (const length of [0, -1, 1.5, Number.NaN, 2 ** 32 + 1, 2 ** 53]) expect(() => malloc(length)).toThrow(INVALID);
});
