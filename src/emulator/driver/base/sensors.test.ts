/** The hwmon files of an emulated card: names, numbers that they take, and states of the card. */

import { afterEach, describe, expect, it } from 'vitest';
import { EmulatedCard } from '../../../../test/contract/driver/emulated-card.ts';
import { getPower, openControl } from '../../../hlthunk/index.ts';
import { Errno } from '../../../sys/index.ts';
import { HL_DEVICE_STATUS } from '../../../uapi/index.ts';
import type { SensorFile } from './firmware.ts';

describe.each(['gaudi', 'gaudi2'] as const)('the sensors of %s', (asic) => {
  let emulated: EmulatedCard;
  afterEach(() => emulated.close());

  function open(): (name: string) => SensorFile {
    emulated = new EmulatedCard({ asic });
    const files = emulated.node.card(0).sensors;
    return (name) => files.find((file) => file.name === name)!;
  }

  it('are named after the card (hl_hwmon_init, Linux 6.12)', () => {
    expect(open()('name').read?.()).toBe(asic === 'gaudi' ? 'HL205' : 'HL225');
  });

  it('take decimal numbers of 64 bits', () => {
    const file = open();
    const [input, offset] = [file('temp1_input'), file('temp1_offset')];
    const before = Number(input.read?.());
    expect([offset.write?.('-1000\n'), Number(input.read?.())]).toEqual([0, before - 1000]);
    expect([offset.write?.('+9223372036854775807'), offset.read?.()]).toEqual([0, '9223372036854775807']);
    for (const text of ['9223372036854775808', '-9223372036854775809'])
      expect(offset.write?.(text)).toBe(-Errno.ERANGE);
    for (const text of ['', '0x10', '1 2']) expect(offset.write?.(text)).toBe(-Errno.EINVAL);
  });

  it('are the source of all other values', () => {
    const file = open();
    using control = openControl(emulated.node, 0);
    expect(Number(getPower(control)) * 1000).toBe(Number(file('power1_input').read?.()));
    expect(emulated.node.temperature(0)! * 1000).toBe(Number(file('temp1_input').read?.()));
    emulated.node
      .card(0)
      .sensors.find(({ name }) => name === 'temp1_offset')
      ?.write?.('7000');
    expect(emulated.node.temperature(0)).toBe(Number(file('temp1_input').read?.()) / 1000);
    expect(emulated.node.temperature(0)).toBe(asic === 'gaudi' ? 45 : 43);
    emulated.node.inject(0, { kind: 'unplug' });
    expect(emulated.node.temperature(0)).toBeUndefined();
  });

  it('do not answer while the card does not work, but check the number first', () => {
    const file = open();
    emulated.node.inject(0, { kind: 'status', status: HL_DEVICE_STATUS.IN_RESET });
    expect([file('temp1_input').read?.(), file('power1_input').read?.()]).toEqual([undefined, undefined]);
    const history = file('power1_reset_history');
    expect([history.write?.('1'), history.write?.('x')]).toEqual([-Errno.ENODEV, -Errno.EINVAL]);
    expect(file('name').read?.()).toMatch(/^HL/);
  });
});
