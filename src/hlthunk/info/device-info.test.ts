/** INFO functions on primary and control files, of every generation and of an older kernel. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { scriptedCard } from '../../../test/fixtures/driver/scripted-file.ts';
import {
  type AsicName,
  HL_DEVICE_STATUS,
  HL_INFO_HW_IP_INFO,
  HL_INFO_HW_IP_INFO_6_1,
  HL_INFO_OP,
  HL_INFO_RAZWI_EVENT_6_1,
} from '../../uapi/index.ts';
import * as hlthunk from '../index.ts';

const fixture = useEmulatedDevice();
const ASICS: readonly AsicName[] = ['gaudi', 'gaudi2', 'gaudi3'];

describe.each(ASICS)('info of %s', (asic) => {
  it('returns the results of raw ops', () => {
    const device = fixture.setUp({ asic });
    using control = hlthunk.openControl(fixture.node, 0);
    for (const target of [device, control]) {
      expect(hlthunk.getDeviceIdFromFd(target)).toBe(device.info.profile.pciDeviceId);
      const usage = new Uint8Array(16).fill(0xaa);
      expect(hlthunk.getInfo(target, HL_INFO_OP.DRAM_USAGE, usage)).toBe(0);
      const free = new DataView(usage.buffer).getBigUint64(0, true);
      expect(free).toBe(hlthunk.getDramUsage(target).dramFreeMem);
      const short = new Uint8Array(6).fill(0xaa).subarray(1, 5);
      hlthunk.getInfo(target, HL_INFO_OP.DRAM_USAGE, short);
      expect(Buffer.from(short.buffer).toString('hex')).toBe(
        `aa${Buffer.from(usage.subarray(0, 4)).toString('hex')}aa`,
      );
      const text = new Uint8Array(1024);
      const length = hlthunk.getInfo(target, HL_INFO_OP.ENGINE_STATUS, text);
      expect(new TextDecoder().decode(text.subarray(0, length))).toBe(hlthunk.getEngineStatus(target));
    }
  });

  it('rejects invalid ops, results and arguments, with their names', () => {
    const device = fixture.setUp({ asic });
    const answer = new Uint8Array(16);
    const refusal = (argument: string): unknown =>
      expect.objectContaining({
        code: 'ERR_GAUDI_INVALID_PARAMS',
        details: expect.objectContaining({ argument, rule: expect.any(String) }),
      });
    const { REGISTER_EVENTFD, UNREGISTER_EVENTFD, GET_EVENTS, SYNC_MANAGER } = HL_INFO_OP;
    for (const op of [-1, 0.5, REGISTER_EVENTFD, UNREGISTER_EVENTFD, GET_EVENTS]) {
      expect(() => hlthunk.getInfo(device, op, answer)).toThrow(refusal('op'));
    }
    expect(() => hlthunk.getInfo(device, 4711, answer)).toThrow(/EINVAL/);
    expect(() => hlthunk.getInfo(device, SYNC_MANAGER, answer, 8)).toThrow(/EINVAL/);
    expect(() => hlthunk.getInfo(device, SYNC_MANAGER, answer, -1)).toThrow(refusal('argument'));
    for (const bad of [new Uint8Array(0), new Uint8Array(2 ** 20 + 1)]) {
      expect(() => hlthunk.getInfo(device, SYNC_MANAGER, bad)).toThrow(refusal('answer'));
    }
    device.close();
    expect(() => hlthunk.getInfo(device, SYNC_MANAGER, answer)).toThrow(
      expect.objectContaining({ code: 'ERR_CLOSED' }),
    );
  });

  it('describes the card on both nodes', () => {
    const device = fixture.setUp({ asic });
    const control = hlthunk.openControl(fixture.node, 0);
    for (const target of [device, control]) {
      const info = hlthunk.getHwIpInfo(target);
      expect(info.cardName).toBe(device.info.profile.cardName);
      expect(info.deviceId).toBe(device.info.profile.pciDeviceId);
      expect(info.dramPageSize).toBe(device.info.profile.dram.pageSize);
      expect(hlthunk.getDeviceName(target)).toBe(asic);
      expect(hlthunk.getDramUsage(target).dramFreeMem).toBeGreaterThan(0n);
      expect(hlthunk.getDeviceStatus(target)).toBe(HL_DEVICE_STATUS.OPERATIONAL);
      expect(hlthunk.isIdle(target)).toBe(true);
      expect(hlthunk.getHwIdle(target).busyEnginesMaskExt).toEqual([0n, 0n, 0n, 0n]);
      expect(hlthunk.getClkRate(target).maxClkRateMhz).toBeGreaterThan(0);
      expect(hlthunk.getResetCount(target)).toEqual({ hardResetCnt: 0, softResetCnt: 0 });
      expect(hlthunk.getTimeSync(target).hostTime).toBeGreaterThan(0n);
      expect(hlthunk.getOpenStats(target)).toMatchObject({ openCounter: 1n, isComputeCtxActive: 1 });
      expect(hlthunk.getCsCounters(target).totalQueueFullDropCnt).toBe(0n);
      expect(hlthunk.getPciCounters(target)).toHaveProperty('replayCnt');
      expect(hlthunk.getClkThrottleInfo(target).clkThrottlingReason).toBe(0);
      expect(hlthunk.getSyncManagerInfo(target, 0)).toHaveProperty('firstAvailableSyncObject');
      expect(hlthunk.getDeviceUtilization(target)).toBeLessThanOrEqual(100);
      expect(hlthunk.getTotalEnergyConsumption(target)).toBeGreaterThanOrEqual(0n);
      expect(hlthunk.getPllFrequency(target, 0)).toHaveLength(4);
      expect(hlthunk.getPower(target)).toBeGreaterThanOrEqual(0n);
      expect(hlthunk.getDevMemAllocPageOrders(target)).toBeGreaterThanOrEqual(0n);
      expect(hlthunk.getHwEvents(target)).toHaveLength(info.numOfEvents);
      expect(hlthunk.getHwEvents(target, true)).toHaveLength(info.numOfEvents);
      expect(hlthunk.getDramReplacedRows(target)).toEqual([]);
      expect(hlthunk.getDramPendingRows(target)).toBe(0);
      expect(typeof hlthunk.getEngineStatus(target)).toBe('string');
    }
    control.close();
  });

  it('has no fault records at first', () => {
    const device = fixture.setUp({ asic });
    expect(hlthunk.getPageFaultInfo(device)).toBeUndefined();
    expect(hlthunk.getRazwiInfo(device)).toBeUndefined();
    expect(hlthunk.getUndefinedOpcodeInfo(device)).toBeUndefined();
    expect(hlthunk.getCsTimeoutInfo(device)).toBeUndefined();
    expect(hlthunk.getHwErrInfo(device)).toBeUndefined();
    expect(hlthunk.getFwErrInfo(device)).toBeUndefined();
    expect(hlthunk.getEngineErrInfo(device)).toBeUndefined();
    expect(hlthunk.getUserMappings(device)).toEqual([]);
  });
});

describe('info', () => {
  it('rejects invalid arguments', () => {
    const device = fixture.setUp();
    expect(() => hlthunk.getSyncManagerInfo(device, 8)).toThrow(/EINVAL/);
    expect(() => hlthunk.getSyncManagerInfo(device, -1)).toThrow(/dcoreId/);
    expect(() => hlthunk.getEngineStatus(device, 1023)).toThrow(/bufferBytes/);
    expect(() => hlthunk.getPllFrequency(device, 0.5)).toThrow(/pllIndex/);
  });

  it('reports the time of the last successful open', () => {
    const device = fixture.setUp();
    const openedAt = hlthunk.getLastErrOpenDevTime(device);
    expect(openedAt).toBeGreaterThan(0n);
    expect(() => hlthunk.open(fixture.node, { minor: 0 })).toThrow();
    expect(hlthunk.getLastErrOpenDevTime(device)).toBe(openedAt);
  });

  it('returns no ports if the driver reports none', () => {
    const device = fixture.setUp();
    const info = { ...device.info, reserved4: 0n, reserved5: 0n };
    expect(hlthunk.getNicPortsMasks(device, info)).toBeUndefined();
    expect(hlthunk.getNicPorts(device, info)).toBeUndefined();
    const known = { ...info, reserved4: 0b1011n, reserved5: 0b1000n };
    expect(hlthunk.getNicPorts(device, known)).toEqual([
      { port: 0, external: false, linkUp: undefined, connected: undefined },
      { port: 1, external: false, linkUp: undefined, connected: undefined },
      { port: 3, external: true, linkUp: undefined, connected: true },
    ]);
  });
});

describe('an older kernel', () => {
  it('leaves newer fields of HW_IP_INFO at zero', () => {
    const { card, close } = scriptedCard((view) => {
      HL_INFO_HW_IP_INFO_6_1.encode({ device_id: 0x1020, dram_page_size: 4096n }, view);
      return HL_INFO_HW_IP_INFO_6_1.size;
    });
    const info = hlthunk.getHwIpInfo({ card });
    expect(info).toMatchObject({ deviceId: 0x1020, dramPageSize: 4096n, revisionId: 0, reservedDramSize: 0n });
    close();
  });

  it('has a different razwi record', () => {
    const { card, close } = scriptedCard((view) => {
      const values = { timestamp: 5n, addr: 0x1234n, engine_id_1: 3, engine_id_2: 0xffff };
      HL_INFO_RAZWI_EVENT_6_1.encode(values, view);
      return HL_INFO_RAZWI_EVENT_6_1.size;
    });
    expect(hlthunk.getRazwiInfo({ card })).toEqual({ timestamp: 5n, addr: 0x1234n, engineIds: [3], flags: 0 });
    close();
  });

  it('returns no record for ops that it does not have', () => {
    const { card, close } = scriptedCard(() => -22);
    expect(hlthunk.getPageFaultInfo({ card })).toBeUndefined();
    expect(hlthunk.getUserMappings({ card })).toEqual([]);
    expect(() => hlthunk.getPower({ card })).toThrow(/EINVAL/);
    close();
  });

  it('rejects an unknown generation with a typed error', () => {
    const { card, close } = scriptedCard((view) => {
      HL_INFO_HW_IP_INFO_6_1.encode({ device_id: 0x9999 }, view);
      return HL_INFO_HW_IP_INFO_6_1.size;
    });
    const refusal = expect.objectContaining({
      code: 'ERR_GAUDI_DEVICE_NOT_FOUND',
      message: expect.stringContaining('0x9999'),
    });
    expect(() => hlthunk.getDeviceName({ card })).toThrow(refusal);
    close();
  });
});

it('counters of hardware events stay as they were read', () => {
  let count = 0;
  const { card, close } = scriptedCard((view) => {
    count += 1;
    HL_INFO_HW_IP_INFO.encode({ num_of_events: 2 }, view);
    if (count % 2 === 1) return HL_INFO_HW_IP_INFO.size;
    for (const index of [0, 1]) view.setUint32(index * 4, count + index, true);
    return 8;
  });
  const first = hlthunk.getHwEvents({ card });
  expect([...first]).toEqual([2, 3]);
  expect([...hlthunk.getHwEvents({ card })]).toEqual([4, 5]);
  expect([...first]).toEqual([2, 3]);
  close();
});
