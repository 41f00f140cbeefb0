/** Commands to engines and cores, and the flush, on the emulated cards. */

import { expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { engineIdOf, Gaudi2QueueBase, HL_ENGINE_COMMAND } from '../../uapi/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { csFlushPciHbwWrites, engineCoresSetMode, enginesCommand, GaudiErrorCode, openControl } from '../index.ts';

const fixture = useEmulatedDevice();
const { CORE_HALT, CORE_RUN, STALL, RESUME } = HL_ENGINE_COMMAND;
const BYTES = 4096;
const refusal = (argument: string): unknown =>
  expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS, details: expect.objectContaining({ argument }) });

it('delays the transfers of a stalled engine of gaudi2, and loses none', async () => {
  const device = fixture.setUp();
  const { profile } = device.info;
  const edma = engineIdOf(profile.name, profile.queues[Gaudi2QueueBase.DCORE0_EDMA_0]!);
  const [source, target] = [device.memory.allocate(BYTES), device.memory.allocate(BYTES)];
  expect(await settle(device, device.dma.putShort(new Uint8Array([9]), 0, source, 0, 1))).toBe(Status.OK);
  enginesCommand(device, [edma], STALL);
  const request = device.dma.dmaDeviceToDeviceAsync(source, 0, target, 0, BYTES);
  for (let round = 0; round < 100; round++) expect(device.dma.dmaPoll(request!)).toBe(Status.INPROGRESS);
  enginesCommand(device, [edma], RESUME);
  expect(await settle(device, request)).toBe(Status.OK);
  const got = new Uint8Array(1);
  expect(await settle(device, device.dma.getShort(got, 0, target, 0, 1))).toBe(Status.OK);
  expect(got[0]).toBe(9);
});

it('halts and runs cores, and flushes', () => {
  const device = fixture.setUp();
  expect(() => {
    engineCoresSetMode(device, [0, 68], CORE_HALT);
    enginesCommand(device, [0, 68], CORE_RUN);
    csFlushPciHbwWrites(device);
  }).not.toThrow();
});

it('flushes on gaudi, which supports no commands', () => {
  const device = fixture.setUp({ asic: 'gaudi' });
  const denied = expect.objectContaining({ code: GaudiErrorCode.PERMISSION_DENIED });
  csFlushPciHbwWrites(device);
  expect(() => engineCoresSetMode(device, [0], CORE_RUN)).toThrow(denied);
  expect(() => enginesCommand(device, [0], RESUME)).toThrow(denied);
});

it('rejects invalid lists and commands, with their names', () => {
  const device = fixture.setUp();
  const invalid = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
  for (const mode of [STALL, RESUME]) expect(() => engineCoresSetMode(device, [0], mode)).toThrow(refusal('mode'));
  expect(() => enginesCommand(device, [0], 5 as typeof STALL)).toThrow(refusal('command'));
  const lists = [[], [-1], [0.5], new Array<number>(1025).fill(0)];
  for (const list of lists) {
    expect(() => engineCoresSetMode(device, list, CORE_RUN)).toThrow(refusal('coreIds'));
    expect(() => enginesCommand(device, list, STALL)).toThrow(refusal('engineIds'));
  }
  expect(() => enginesCommand(device, [45], STALL)).toThrow(invalid);
  expect(() => engineCoresSetMode(device, new Array<number>(70).fill(0), CORE_RUN)).toThrow(invalid);
  using control = openControl(fixture.node, 0);
  expect(() => csFlushPciHbwWrites(control)).toThrow(invalid);
  device.close();
  for (const call of [() => csFlushPciHbwWrites(device), () => enginesCommand(device, [0], RESUME)]) {
    expect(call).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  }
});
