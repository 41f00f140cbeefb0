/** Topology: PCI addresses, distances, siblings, the choice of network devices. Derived from UCX's test_topo. */

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addressOfPath,
  busIdOf,
  busNumberOf,
  byDistance,
  chooseNetworkDevices,
  distanceBetween,
  parsePciAddress,
  pciPathOf,
  printPciAddress,
  type SystemDevice,
  siblingsOf,
} from './topology.ts';

const ROOT = 'pci0000:17';
const device = (name: string, pciPath: string | undefined, numaNode = 0): SystemDevice => ({ name, pciPath, numaNode });
const CARD = device('gaudi0', `${ROOT}/0000:17:01.0/0000:18:00.0/0000:19:00.0`);
const BESIDE = device('mlx5_0', `${ROOT}/0000:17:01.0/0000:18:00.0/0000:1b:00.0`);
const SAME_PORT = device('mlx5_1', `${ROOT}/0000:17:01.0/0000:1c:00.0`);
const SAME_ROOT = device('mlx5_2', `${ROOT}/0000:17:02.0/0000:1d:00.0`);
const SAME_NUMA = device('mlx5_3', 'pci0000:30/0000:30:01.0/0000:31:00.0');
const OTHER_SOCKET = device('mlx5_4', 'pci0000:97/0000:97:01.0/0000:98:00.0', 1);
const VIRTUAL = device('lo', undefined, -1);
const ALL = [CARD, BESIDE, SAME_PORT, SAME_ROOT, SAME_NUMA, OTHER_SOCKET, VIRTUAL];

describe('PCI addresses', () => {
  it.each([
    ['0000:3b:00.0', { domain: 0, bus: 0x3b, device: 0, fn: 0 }],
    ['3b:1f.7', { domain: 0, bus: 0x3b, device: 0x1f, fn: 7 }],
    ['3b:00', { domain: 0, bus: 0x3b, device: 0, fn: 0 }],
    ['0:3:2.1', { domain: 0, bus: 3, device: 2, fn: 1 }],
    [' 10000:E1:00.0\n', { domain: 0x10000, bus: 0xe1, device: 0, fn: 0 }],
    ['ffffffff:ff:1f.7', { domain: 0xffffffff, bus: 0xff, device: 31, fn: 7 }],
  ])('reads %j', (text, address) => {
    expect(parsePciAddress(text)).toEqual(address);
  });

  it.each([
    '',
    '3b',
    '0000:3b',
    '0000:3b:00.8',
    '0000:3b:20.0',
    '3b:00.0.1',
    '0000:3bb:00.0',
    '123456789:3b:00.0',
    'gaudi0',
    'g:h:i.j',
  ])('refuses %j', (text) => {
    expect(() => parsePciAddress(text)).toThrow(/argument address must be a PCI address/);
  });

  it.each(['0000:3b:00.0', '0001:ff:1f.7', '0000:19:00.0'])('are numbers of 32 bits in keys: %s', (busId) => {
    expect(busIdOf(busNumberOf(busId))).toBe(busId);
  });

  it('are parsed as they are printed', async () => {
    const address = fc.record({
      domain: fc.nat(0xffffffff),
      bus: fc.nat(255),
      device: fc.nat(31),
      fn: fc.nat(7),
    });
    await fc.assert(
      fc.property(address, (value) => {
        const text = printPciAddress(value);
        expect(parsePciAddress(text)).toEqual(value);
        expect(parsePciAddress(text.toUpperCase())).toEqual(value);
        expect(text).toMatch(/^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/);
      }),
    );
  });
});

describe('paths in sysfs', () => {
  it.each([
    ['/sys/devices/pci0000:17/0000:17:01.0/0000:19:00.0', 'pci0000:17/0000:17:01.0/0000:19:00.0'],
    ['/sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0', 'pci0000:00/0000:00:03.0'],
    ['/tmp/tree/sys/devices/pci10000:e0/10000:e0:01.0/infiniband/mlx5_0', 'pci10000:e0/10000:e0:01.0'],
    ['/sys/devices/virtual/net/lo', undefined],
    ['/sys/devices/pci0000:00', undefined],
    ['', undefined],
  ])('%s', (path, pciPath) => {
    expect(pciPathOf(path)).toBe(pciPath);
  });

  it('end in the address of the device', () => {
    expect(printPciAddress(addressOfPath(CARD.pciPath!))).toBe('0000:19:00.0');
  });
});

describe('distance', () => {
  it.each([
    [CARD, 'same device', 0],
    [BESIDE, 'PCI switch', 0],
    [SAME_PORT, 'PCI switch', 0],
    [SAME_ROOT, 'PCI root', 300],
    [SAME_NUMA, 'NUMA node', 400],
    [OTHER_SOCKET, 'machine', 500],
    [VIRTUAL, 'unknown', 0],
  ])('to $name', (other, kind, latencyNs) => {
    expect(distanceBetween(CARD, other)).toMatchObject({ kind, latencyNs });
  });

  it('has less bandwidth the longer the path to the root is', () => {
    const near = device('a', `${ROOT}/0000:17:03.0`);
    const deep = device('b', `${ROOT}/0000:17:04.0/0000:20:00.0/0000:21:00.0/0000:22:00.0/0000:23:00.0/0000:24:00.0`);
    expect(distanceBetween(near, SAME_ROOT).bandwidth).toBe(3500e6);
    expect(distanceBetween(near, deep).bandwidth).toBe(17_500e6 / 7);
    expect(distanceBetween(CARD, BESIDE).bandwidth).toBe(Number.POSITIVE_INFINITY);
  });

  it('is symmetric, and smallest to the device itself', () => {
    for (const left of ALL) {
      expect(distanceBetween(left, left).kind).toBe('same device');
      for (const right of ALL) expect(distanceBetween(left, right)).toEqual(distanceBetween(right, left));
    }
  });

  it('between sockets is not that of one NUMA node if the platform does not report nodes', () => {
    const [left, right] = [device('a', 'pci0000:17/0000:17:01.0', -1), device('b', 'pci0000:30/0000:30:01.0', -1)];
    expect(distanceBetween(left, right).kind).toBe('machine');
  });

  it('orders devices, nearest first, equally distant ones stably', () => {
    const order = byDistance(CARD, [OTHER_SOCKET, VIRTUAL, SAME_ROOT, SAME_PORT, BESIDE, SAME_NUMA]);
    expect(order.map(({ device: { name } }) => name)).toEqual(['mlx5_1', 'mlx5_0', 'mlx5_2', 'mlx5_3', 'mlx5_4', 'lo']);
  });
});

it('the device with the wider path is nearer among those at one root', () => {
  const narrow = device('narrow', `${ROOT}/0000:17:04.0/0000:20:00.0/0000:21:00.0/0000:22:00.0/0000:23:00.0`);
  const order = byDistance(CARD, [narrow, SAME_ROOT]);
  expect(order.map(({ device: { name }, distance: { kind } }) => [name, kind])).toEqual([
    ['mlx5_2', 'PCI root'],
    ['narrow', 'PCI root'],
  ]);
});

describe('siblings', () => {
  it('share a switch, or are functions of the same card', () => {
    const second = device('mlx5_5', `${ROOT}/0000:17:01.0/0000:18:00.0/0000:1b:00.1`);
    expect(siblingsOf(CARD, [...ALL, second]).map(({ name }) => name)).toEqual(['mlx5_0', 'mlx5_5']);
    const onRoot = device('a', `${ROOT}/0000:17:05.0`);
    const function1 = device('b', `${ROOT}/0000:17:05.1`);
    expect(siblingsOf(onRoot, [function1, device('c', `${ROOT}/0000:17:06.0`)])).toEqual([function1]);
    expect(distanceBetween(onRoot, function1).kind).toBe('PCI switch');
  });

  it('have a downstream port of the switch each', () => {
    const behind = (name: string, switchPath: string, port: number): SystemDevice =>
      device(name, `${ROOT}/${switchPath}/0000:19:0${port}.0/0000:2${port}:00.0`);
    const [one, other] = ['0000:17:01.0/0000:18:00.0', '0000:17:02.0/0000:18:00.0'];
    const all = [behind('a', one, 0), behind('b', one, 1), behind('c', other, 2)];
    expect(siblingsOf(all[0]!, all)).toEqual([all[1]]);
    // Ports of the root are not those of a switch.
    expect(siblingsOf(SAME_ROOT, [SAME_PORT])).toEqual([]);
  });

  it('do not exist for a device without a place', () => {
    expect(siblingsOf(VIRTUAL, ALL)).toEqual([]);
  });
});

describe('the choice of network devices', () => {
  const far = device('gaudi4', 'pci0000:97/0000:97:01.0/0000:99:00.0', 1);
  const names = (cards: readonly SystemDevice[], networks: readonly SystemDevice[]): unknown[] =>
    chooseNetworkDevices(cards, networks).map((choice) => choice?.device.name);

  it('takes the nearest for each card', () => {
    expect(names([CARD, far], [SAME_NUMA, OTHER_SOCKET, BESIDE])).toEqual(['mlx5_0', 'mlx5_4']);
  });

  it('takes the first if no place is known', () => {
    const card = device('gaudi0', undefined, -1);
    expect(names([card], [SAME_ROOT, BESIDE])).toEqual(['mlx5_2']);
  });

  it('is undefined without candidates', () => {
    expect(names([CARD], [])).toEqual([undefined]);
  });
});
