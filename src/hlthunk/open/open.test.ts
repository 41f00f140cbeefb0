/** Finding and opening cards by the rules of hl-thunk. */

import { describe, expect, it } from 'vitest';
import { useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import { HL_DEVICE_STATUS } from '../../uapi/index.ts';
import {
  type ControlDevice,
  type DriverNode,
  GaudiErrorCode,
  getDeviceCount,
  getDeviceIndexFromModuleId,
  getDeviceIndexFromPciBusId,
  getDeviceName,
  getDeviceStatus,
  getPciBusId,
  open,
  openByModuleId,
  openControl,
  openControlByBusId,
  openControlByModuleId,
  openControlByName,
} from '../index.ts';

const fixture = useEmulatedDevice();
const NOT_FOUND = expect.objectContaining({ code: GaudiErrorCode.DEVICE_NOT_FOUND });
const BUSY = expect.objectContaining({ code: GaudiErrorCode.DEVICE_BUSY });

describe('open', () => {
  it('takes the first card that opens', () => {
    const first = fixture.setUp({ cards: 3 });
    const log = fixture.log.log;
    expect(first.minor).toBe(0);
    const second = open(fixture.node, { name: 'gaudi2' }, { log });
    expect(second.minor).toBe(1);
    const third = open(fixture.node, {}, { log });
    expect(() => open(fixture.node, {}, { log })).toThrow(BUSY);
    second.close();
    const again = open(fixture.node, { name: 'gaudi2' }, { log });
    expect(again.minor).toBe(1);
    again.close();
    third.close();
  });

  it('finds a card by bus id, with and without its domain', () => {
    const { busId } = fixture.setUp({ cards: 2 });
    const wanted = fixture.node.cards()[1]!.busId;
    const device = open(fixture.node, { busId: wanted.slice(5) }, { log: fixture.log.log });
    expect([device.minor, getPciBusId(device), getDeviceName(device)]).toEqual([1, wanted, 'gaudi2']);
    expect(() => open(fixture.node, { busId })).toThrow(BUSY);
    expect(() => open(fixture.node, { busId: '0000:ff:00.0' })).toThrow(NOT_FOUND);
    expect(() => open(fixture.node, { busId: '' })).toThrow(/busId/);
    expect(getDeviceIndexFromPciBusId(fixture.node, wanted)).toBe(1);
    expect(() => getDeviceIndexFromPciBusId(fixture.node, 'x')).toThrow(NOT_FOUND);
    device.close();
  });

  it('finds a card by module id and by minor', () => {
    fixture.setUp({ cards: 4 });
    const entry = fixture.node.cards()[2]!;
    const device = openByModuleId(fixture.node, entry.moduleId!, { log: fixture.log.log });
    expect([device.minor, device.moduleId, device.numaNode]).toEqual([2, entry.moduleId, entry.numaNode]);
    expect(() => openByModuleId(fixture.node, entry.moduleId!)).toThrow(BUSY);
    expect(() => openByModuleId(fixture.node, 99)).toThrow(NOT_FOUND);
    expect(() => openByModuleId(fixture.node, -1)).toThrow(/moduleId/);
    expect(() => open(fixture.node, { minor: 7 })).toThrow(NOT_FOUND);
    device.close();
  });

  it('rejects another generation', () => {
    fixture.setUp();
    expect(() => open(fixture.node, { name: 'gaudi' })).toThrow(NOT_FOUND);
    expect(getDeviceCount(fixture.node)).toBe(1);
    expect(getDeviceCount(fixture.node, 'gaudi2')).toBe(1);
    expect(getDeviceCount(fixture.node, 'gaudi')).toBe(0);
  });

  it('keeps the error of the driver as the cause', () => {
    fixture.setUp({ cards: 2 });
    fixture.node.inject(1, { kind: 'open', errno: 13 });
    const refusal = expect.objectContaining({
      code: GaudiErrorCode.PERMISSION_DENIED,
      message: expect.stringMatching(/card 1 .*EACCES/),
      cause: expect.objectContaining({ errno: 13 }),
    });
    expect(() => open(fixture.node, { minor: 1 })).toThrow(refusal);
  });

  it('closes the file if the card does not respond', () => {
    fixture.setUp({ cards: 2 });
    fixture.node.inject(1, { kind: 'ioctl', ioctl: 'INFO', errno: 5 });
    expect(() => open(fixture.node, { minor: 1 })).toThrow(/getHwIpInfo of card 1/);
    open(fixture.node, { minor: 1 }, { log: fixture.log.log }).close();
  });

  it('opens control nodes by name, bus id and module id', () => {
    const device = fixture.setUp({ cards: 3 });
    const { node } = fixture;
    const [, second, third] = node.cards();
    const minorOf = (control: ControlDevice): number => {
      control.close();
      return control.minor;
    };
    expect(minorOf(openControlByName(node))).toBe(0);
    expect(minorOf(openControlByName(node, 'gaudi2'))).toBe(0);
    expect(minorOf(openControlByBusId(node, second!.busId))).toBe(1);
    expect(minorOf(openControlByBusId(node, second!.busId.slice(5)))).toBe(1);
    expect(minorOf(openControlByModuleId(node, third!.moduleId!))).toBe(2);
    // If sysfs does not publish it, it is read from the card.
    const silent: DriverNode = {
      kind: node.kind,
      emulated: true,
      cards: () => node.cards().map((entry) => ({ ...entry, moduleId: undefined })),
      open: (minor) => node.open(minor),
      openControl: (minor) => node.openControl(minor),
      attribute: () => undefined,
      close: () => undefined,
    };
    expect(minorOf(openControlByModuleId(silent, third!.moduleId!))).toBe(2);
    expect(getDeviceIndexFromModuleId(node, third!.moduleId!)).toBe(2);
    for (const call of [
      () => getDeviceIndexFromModuleId(node, 77),
      () => openControlByName(node, 'gaudi'),
      () => openControlByBusId(node, '0000:ff:00.0'),
      () => openControlByModuleId(node, 77),
      () => openControlByModuleId(silent, 77),
    ]) {
      expect(call).toThrow(NOT_FOUND);
    }
    // A card that rejects the open is skipped if another one matches.
    node.inject(0, { kind: 'ioctl', ioctl: 'INFO', errno: 5 });
    expect(minorOf(openControlByName(node, 'gaudi2'))).toBe(1);
    expect(device.closed).toBe(false);
  });

  it('opens control nodes while the card is in use', () => {
    fixture.setUp();
    const controls = [0, 1, 2].map(() => openControl(fixture.node, 0));
    for (const control of controls) {
      expect(getDeviceStatus(control)).toBe(HL_DEVICE_STATUS.OPERATIONAL);
      control.close();
      control.close();
    }
    expect(() => openControl(fixture.node, 5)).toThrow(NOT_FOUND);
    expect(() => getDeviceStatus(controls[0]!)).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
  });
});
