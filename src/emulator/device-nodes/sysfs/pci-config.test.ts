/** The bytes of the configuration space, read by the offsets of pci_regs.h (Linux 6.12), which this test repeats. */

import { describe, expect, it } from 'vitest';
import { placesOf } from '../../config/card-places.ts';
import { resolveNodeOptions } from '../../config/node-config.ts';
import { configSpace, resourceLines } from './pci-config.ts';
import { type PciCard, type PciDevice, pciDevicesOf } from './pci-devices.ts';

const ASIC = { gaudi: 4, gaudi2: 4, gaudi3: 5 } as const;

function devicesOf(asic: keyof typeof ASIC): readonly PciDevice[] {
  const config = resolveNodeOptions({ asic, cards: 1 });
  return pciDevicesOf(config, placesOf(1, []));
}

const viewOf = (device: PciDevice): DataView => new DataView(configSpace(device).buffer as ArrayBuffer);

/** Offsets of the capabilities by their id, in the order of the list. */
function capabilities(view: DataView): Map<number, number> {
  const found = new Map<number, number>();
  for (let at = view.getUint8(0x34); at !== 0; at = view.getUint8(at + 1)) {
    expect(at >= 0x40 && at % 4 === 0 && !found.has(view.getUint8(at))).toBe(true);
    found.set(view.getUint8(at), at);
  }
  return found;
}

const word = (view: DataView, at: number): number => view.getUint16(at, true);
const long = (view: DataView, at: number): number => view.getUint32(at, true);

describe.each(Object.entries(ASIC))('the configuration space of %s', (asic, speed) => {
  const devices = devicesOf(asic as keyof typeof ASIC);
  const [card] = devices.filter((device) => device.kind === 'card') as [PciCard];

  it('begins with the header of a device: ids, class, BARs of 64 bits', () => {
    const view = viewOf(card);
    expect(view.byteLength).toBe(256);
    expect([word(view, 0), word(view, 2)]).toEqual([0x1da3, card.device]);
    expect([word(view, 0x2c), word(view, 0x2e)]).toEqual([0x1da3, card.device]);
    expect(long(view, 0x08)).toBe(0x1200_0001);
    // Memory and bus mastering without INTx; a list of capabilities; header type 0.
    expect([word(view, 4), word(view, 6), view.getUint8(0x0e)]).toEqual([0x406, 0x10, 0]);
    const bars = [0x10, 0x18, 0x20].map((at) => view.getBigUint64(at, true));
    expect(bars.map((bar) => bar & 0xfn)).toEqual([0xcn, 0xcn, 0xcn]);
    expect(card.bars.map(({ start }) => start)).toEqual(bars.map((bar) => bar & ~0xfn));
  });

  it('has the speed and width of the link in each device', () => {
    const ports = devices.map((device) => {
      const view = viewOf(device);
      const at = capabilities(view).get(0x10)!;
      expect(word(view, at + 2) & 0xf).toBe(2);
      expect([long(view, at + 0x0c) & 0x3ff, word(view, at + 0x12) & 0x3ff]).toEqual(Array(2).fill(speed | (16 << 4)));
      expect(long(view, at + 0x2c)).toBe({ 4: 0b1_1110, 5: 0b11_1110 }[speed]);
      const isActive = (word(view, at + 0x12) & 0x2000) !== 0;
      expect(isActive).toBe((long(view, at + 0x0c) & (1 << 20)) !== 0);
      return [(word(view, at + 2) >> 4) & 0xf, isActive];
    });
    // Root port, upstream port and downstream port of the switch, endpoint; those above a link report its state.
    expect(ports).toEqual([
      [4, true],
      [5, false],
      [6, true],
      [0, false],
    ]);
  });

  it('has MSI on gaudi, and MSI-X with its table in BAR 2 on the others', () => {
    const view = viewOf(card);
    const list = capabilities(view);
    expect([...list.keys()]).toEqual(asic === 'gaudi' ? [0x01, 0x05, 0x10] : [0x01, 0x10, 0x11]);
    if (asic === 'gaudi') {
      const at = list.get(0x05)!;
      // Enabled, 32 messages of which one is enabled, 64 bits of address.
      expect([word(view, at + 2), long(view, at + 4)]).toEqual([0x81 | (5 << 1), 0xfee0_0000]);
      return;
    }
    const at = list.get(0x11)!;
    const count = (word(view, at + 2) & 0x7ff) + 1;
    expect([count, word(view, at + 2) & 0xc000]).toEqual([asic === 'gaudi2' ? 512 : 1024, 0x8000]);
    expect([long(view, at + 4), long(view, at + 8)]).toEqual([2, count * 16 + 2]);
  });

  it('of a bridge has its buses and one window', () => {
    const bridges = devices.filter((device) => device.kind === 'bridge');
    for (const bridge of bridges) {
      const view = viewOf(bridge);
      expect([long(view, 0x08), view.getUint8(0x0e)]).toEqual([0x0604_0000, 1]);
      const buses = [0x18, 0x19, 0x1a].map((at) => view.getUint8(at));
      expect(buses).toEqual([bridge.primary, bridge.secondary, bridge.subordinate]);
      // Bases above limits close the windows for ports and for memory below 4 GiB.
      expect(view.getUint8(0x1c) >> 4 > view.getUint8(0x1d) >> 4).toBe(true);
      expect(word(view, 0x20) > word(view, 0x22)).toBe(true);
      const address = (low: number, high: number): bigint =>
        (BigInt(long(view, high)) << 32n) | (BigInt(word(view, low) & 0xfff0) << 16n);
      expect([word(view, 0x24) & 0xf, word(view, 0x26) & 0xf]).toEqual([1, 1]);
      expect(address(0x24, 0x28)).toBe(bridge.window.start);
      expect(address(0x26, 0x2c) + 2n ** 20n).toBe(bridge.window.end);
    }
    expect(bridges).toHaveLength(3);
  });

  it('agrees with the lines of resource', () => {
    const view = viewOf(card);
    const lines = resourceLines(card).map((line) => line.split(' ').map(BigInt));
    expect(lines).toHaveLength(7);
    for (const pair of [0, 1, 2]) {
      const [start, last, flags] = lines[2 * pair]!;
      expect([start, flags]).toEqual([view.getBigUint64(0x10 + 8 * pair, true) & ~0xfn, 0x14220cn]);
      expect(card.bars[pair]!.end).toBe(last! + 1n);
      expect(lines[2 * pair + 1]).toEqual([0n, 0n, 0n]);
    }
    const [root] = devices;
    const windows = resourceLines(root!).filter((line) => !/^0x0+ 0x0+ 0x0+$/.test(line));
    const { start, end } = root!.kind === 'bridge' ? root!.window : card.bars[0];
    expect(windows.map((line) => line.split(' ').map(BigInt))).toEqual([[start, end - 1n, 0x102201n]]);
    expect(resourceLines(root!).indexOf(windows[0]!)).toBe(9);
  });
});
