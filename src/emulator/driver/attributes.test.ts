/** The sysfs attributes of an emulated card: what they say in its states, and what writing does. */

import { afterEach, describe, expect, it } from 'vitest';
import { EmulatedCard } from '../../../test/contract/driver/emulated-card.ts';
import { Errno, EventFd } from '../../sys/index.ts';
import { HL_DEVICE_STATUS, HL_INFO_CLK_RATE, HL_INFO_OP } from '../../uapi/index.ts';
import { cardAttributes, readCardAttribute, writeCardAttribute } from './attributes.ts';

const MIB = 2 ** 20;

describe.each(['gaudi', 'gaudi2'] as const)('the attributes of %s', (asic) => {
  let emulated: EmulatedCard;
  afterEach(() => emulated.close());

  function open() {
    emulated = new EmulatedCard({ asic });
    const card = emulated.node.card(0);
    return {
      card,
      read: (name: string) => readCardAttribute(card, name),
      write: (name: string, text: string) => writeCardAttribute(card, name, text),
    };
  }

  it('are those of a card for training: no inference soft reset', () => {
    const { read } = open();
    const named = ({ writable }: { readonly writable: boolean }): boolean => writable;
    const attributes = cardAttributes(asic);
    expect(attributes.filter(named).map(({ name }) => name)).toEqual(['clk_max_freq_mhz', 'hard_reset', 'max_power']);
    expect(attributes.filter(({ readable }) => !readable).map(({ name }) => name)).toEqual(['hard_reset']);
    // The version of the voltage regulators has two names (gaudi_add_device_attr, hl_sysfs_add_dev_vrm_attr, Linux 6.12).
    const [own, other] = asic === 'gaudi' ? ['infineon_ver', 'vrm_ver'] : ['vrm_ver', 'infineon_ver'];
    expect([read(own), read(other)]).toEqual(['0x01', undefined]);
    expect(attributes.filter(({ name }) => name === own || name === other)).toMatchObject([{ name: own }]);
    expect([read('soft_reset_cnt'), read('hard_reset'), read('toString')]).toEqual([undefined, undefined, undefined]);
  });

  it('name the state with an upper-case letter; limits and clocks cannot be accessed while the card does not work', () => {
    const { card, read, write } = open();
    const limits = ['clk_cur_freq_mhz', 'clk_max_freq_mhz', 'max_power'];
    const states = [
      [HL_DEVICE_STATUS.OPERATIONAL, 'Operational', true],
      [HL_DEVICE_STATUS.IN_DEVICE_CREATION, 'In device creation', true],
      [HL_DEVICE_STATUS.IN_RESET, 'In reset', false],
      [HL_DEVICE_STATUS.MALFUNCTION, 'Disabled', false],
      [HL_DEVICE_STATUS.NEEDS_RESET, 'Needs reset', false],
      [HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE, 'In reset after device release', false],
    ] as const;
    for (const [status, text, works] of states) {
      emulated.node.inject(0, { kind: 'status', status });
      expect(read('status')).toBe(text);
      for (const name of limits) expect(read(name) !== undefined).toBe(works);
      expect(write('max_power', '100000000')).toBe(works ? 0 : -Errno.ENODEV);
    }
    emulated.node.inject(0, { kind: 'unplug' });
    expect([read('status'), read('pci_addr'), write('hard_reset', '1')]).toEqual([undefined, undefined, -Errno.ENODEV]);
    expect(card.hardResets).toBe(0);
  });

  it('take lower limits, as decimal, octal or hexadecimal numbers', () => {
    const { read, write } = open();
    const [power, clock] = [Number(read('max_power')), Number(read('clk_max_freq_mhz'))];
    expect(write('max_power', '0x5f5e100\n')).toBe(0);
    expect(read('max_power')).toBe('100000000');
    expect(write('clk_max_freq_mhz', '01750')).toBe(0);
    expect([read('clk_max_freq_mhz'), read('clk_cur_freq_mhz')]).toEqual(['1000', '1000']);
    expect(emulated.client.info(HL_INFO_OP.CLK_RATE, HL_INFO_CLK_RATE).out).toEqual({
      cur_clk_rate_mhz: 1000,
      max_clk_rate_mhz: 1000,
    });
    for (const text of ['0', String(power + 1), '0xffffffffffffffff']) expect(write('max_power', text)).toBe(0);
    expect(write('clk_max_freq_mhz', String(clock + 1))).toBe(0);
    expect([read('max_power'), read('clk_max_freq_mhz')]).toEqual(['100000000', '1000']);
    for (const name of ['max_power', 'clk_max_freq_mhz', 'hard_reset']) {
      for (const text of ['', 'x', '-1', '1 2', '0x1ffffffffffffffff']) expect(write(name, text)).toBe(-Errno.EINVAL);
    }
  });

  it('reset the card at once, also one whose user waits for events', () => {
    const { card, write, read } = open();
    const seq = emulated.block(MIB);
    using event = new EventFd();
    expect(emulated.client.infoRaw({ op: HL_INFO_OP.REGISTER_EVENTFD, eventfd: event.fd })).toBe(0);
    expect(write('hard_reset', '0')).toBe(0);
    expect([card.hardResets, card.releasePending, read('status')]).toEqual([1, false, 'In reset']);
    expect(emulated.client.wait(seq).result).toBe(-Errno.EBUSY);
    expect(write('hard_reset', '1')).toBe(0);
    expect(read('hard_reset_cnt')).toBe('1');
    emulated.client.close();
    expect(read('status')).toBe('Operational');
  });
});

describe('the device type', () => {
  it.each([
    ['gaudi', undefined, 'GAUDI'],
    ['gaudi2', undefined, 'GAUDI2'],
    ['gaudi3', undefined, 'GAUDI3'],
    ['gaudi3', 0x1063, 'GAUDI3 HL-338'],
  ] as const)('of %s with PCI device id %s is %s', (asic, pciDeviceId, name) => {
    const emulated = new EmulatedCard({ asic });
    const card = emulated.node.card(0);
    const { profile } = card;
    const changed = { ...profile, pciDeviceId: pciDeviceId ?? profile.pciDeviceId };
    Object.defineProperty(card, 'profile', { value: changed });
    expect(readCardAttribute(card, 'device_type')).toBe(name);
    emulated.close();
  });
});
