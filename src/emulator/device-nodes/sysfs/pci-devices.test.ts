/** The PCI devices of a node: bridges between root and cards, bus numbers, and bus addresses that do not overlap. */

import { describe, expect, it } from 'vitest';
import type { CardIdentity } from '../../config/card-places.ts';
import { placesOf } from '../../config/card-places.ts';
import { resolveNodeOptions } from '../../config/node-config.ts';
import { type BusRange, type PciBridge, type PciCard, type PciDevice, pciDevicesOf } from './pci-devices.ts';

const GENERATIONS = ['gaudi', 'gaudi2', 'gaudi3'] as const;

interface Options {
  readonly asic?: (typeof GENERATIONS)[number];
  readonly cards?: number;
  readonly hbmBytes?: number;
  readonly identities?: readonly CardIdentity[];
}

function devicesOf(options: Options): readonly PciDevice[] {
  const config = resolveNodeOptions(options);
  return pciDevicesOf(config, placesOf(config.cards, config.identities));
}

const bridgesIn = (devices: readonly PciDevice[]): PciBridge[] => devices.filter((device) => device.kind === 'bridge');
const cardsIn = (devices: readonly PciDevice[]): PciCard[] => devices.filter((device) => device.kind === 'card');
const sizeOf = ({ start, end }: BusRange): bigint => end - start;

describe('the PCI devices of a node', () => {
  it('are a root port, a switch and its ports for each two cards', () => {
    const devices = devicesOf({ cards: 3 });
    expect(devices.map(({ busId, path }) => [busId, path.split('/').length - 1])).toEqual([
      ['0000:16:01.0', 1],
      ['0000:17:00.0', 2],
      ['0000:18:00.0', 3],
      ['0000:18:01.0', 3],
      ['0000:30:01.0', 1],
      ['0000:31:00.0', 2],
      ['0000:32:00.0', 3],
      ['0000:19:00.0', 4],
      ['0000:1a:00.0', 4],
      ['0000:33:00.0', 4],
    ]);
    const buses = bridgesIn(devices).map(({ primary, secondary, subordinate }) => [primary, secondary, subordinate]);
    expect(buses).toEqual([
      [0x16, 0x17, 0x1a],
      [0x17, 0x18, 0x1a],
      [0x18, 0x19, 0x19],
      [0x18, 0x1a, 0x1a],
      [0x30, 0x31, 0x33],
      [0x31, 0x32, 0x33],
      [0x32, 0x33, 0x33],
    ]);
  });

  it('have the NUMA node of their cards, and no bridge for a card on a separate root', () => {
    const devices = devicesOf({ cards: 2, identities: [{ busId: '0000:1a:00.0', numaNode: 7 }, { busId: '4d:00.0' }] });
    expect(bridgesIn(devices).map(({ busId, numaNode }) => [busId, numaNode])).toEqual([
      ['0000:16:01.0', 7],
      ['0000:17:00.0', 7],
      ['0000:18:01.0', 7],
    ]);
    expect(cardsIn(devices).map(({ busId, minor }) => [busId, minor])).toEqual([
      ['0000:1a:00.0', 1],
      ['0000:4d:00.0', 0],
    ]);
  });

  it.each([
    ['gaudi', 0x1000, [2n ** 26n, 2n ** 27n, 2n ** 35n]],
    ['gaudi2', 0x1020, [2n ** 28n, 2n ** 14n, 2n ** 37n]],
    // 256 MiB of SRAM come before 128 GiB of HBM.
    ['gaudi3', 0x1060, [2n ** 28n, 2n ** 15n, 2n ** 38n]],
  ] as const)('of %s have the BARs of its driver', (asic, id, sizes) => {
    const [card] = cardsIn(devicesOf({ asic, cards: 1 }));
    expect(card).toMatchObject({ vendor: 0x1da3, device: id, subsystemVendor: 0x1da3, subsystemDevice: id });
    expect(card!.bars.map(sizeOf)).toEqual(sizes);
  });

  it.each(GENERATIONS)('of %s have aligned BARs in the windows of their bridges and of no other', (asic) => {
    const hbmBytes = asic === 'gaudi2' ? 1024 * 0x3000_0000 : 2 ** 40;
    const devices = devicesOf({ asic, hbmBytes, identities: [{ busId: '0000:b3:00.0' }, { busId: '0000:1b:00.0' }] });
    const bars = cardsIn(devices).flatMap((card) => card.bars.map((bar) => ({ ...bar, path: card.path })));
    const sorted = [...bars].sort((one, other) => (one.start < other.start ? -1 : 1));
    for (const [index, bar] of sorted.entries()) {
      expect(bar.start % sizeOf(bar)).toBe(0n);
      expect(bar.start >= (sorted[index - 1]?.end ?? 0n)).toBe(true);
      for (const { path, window } of bridgesIn(devices)) {
        const isInside = bar.start >= window.start && bar.end <= window.end;
        const isOutside = bar.end <= window.start || bar.start >= window.end;
        expect([isInside, isOutside]).toEqual(bar.path.startsWith(`${path}/`) ? [true, false] : [false, true]);
      }
    }
  });
});
