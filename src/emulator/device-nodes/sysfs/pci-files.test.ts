/** The files of cards and bridges in /sys. */

import { expect, it } from 'vitest';
import { placesOf } from '../../config/card-places.ts';
import { resolveNodeOptions } from '../../config/node-config.ts';
import { pciDevicesOf } from './pci-devices.ts';
import { pciFiles } from './pci-files.ts';

const config = resolveNodeOptions({ asic: 'gaudi3', cards: 1 });
const devices = pciDevicesOf(config, placesOf(1, []));

function read(index: number, name: string, driver?: string): string {
  const found = pciFiles(devices.at(index)!, () => driver)
    .find((file) => file.name === name)!
    .read();
  expect(typeof found).toBe('string');
  return found as string;
}

it('describe a card, as the kernel prints it', () => {
  const modalias = 'pci:v00001DA3d00001060sv00001DA3sd00001060bc12sc00i00';
  expect(read(-1, 'modalias')).toBe(`${modalias}\n`);
  const variables = [
    'PCI_CLASS=120000',
    'PCI_ID=1DA3:1060',
    'PCI_SUBSYS_ID=1DA3:1060',
    'PCI_SLOT_NAME=0000:19:00.0',
    `MODALIAS=${modalias}`,
  ];
  expect(read(-1, 'uevent').split('\n')).toEqual([...variables, '']);
  expect(read(-1, 'uevent', 'habanalabs').split('\n')).toEqual(['DRIVER=habanalabs', ...variables, '']);
  const texts = ['vendor', 'device', 'subsystem_vendor', 'class', 'revision', 'max_link_speed', 'current_link_width'];
  expect(texts.map((name) => read(-1, name))).toEqual([
    '0x1da3\n',
    '0x1060\n',
    '0x1da3\n',
    '0x120000\n',
    '0x01\n',
    '32.0 GT/s PCIe\n',
    '16\n',
  ]);
});

it('describe a bridge', () => {
  expect(read(0, 'uevent', 'pcieport')).toContain('DRIVER=pcieport\nPCI_CLASS=60400\nPCI_ID=8086:352A\n');
  expect([read(0, 'secondary_bus_number'), read(0, 'subordinate_bus_number')]).toEqual(['23\n', '25\n']);
  expect(read(0, 'class')).toBe('0x060400\n');
});
