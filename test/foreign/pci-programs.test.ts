/** lspci, lshw, lstopo and udevadm print the PCI devices that the description of a node has. */

import { describe, expect, it } from 'vitest';
import { resolveNodeOptions } from '../../src/emulator/config/node-config.ts';
import { pciDevicesOf } from '../../src/emulator/device-nodes/sysfs/pci-devices.ts';
import { placesOf } from '../../src/emulator/index.ts';
import { ASIC_PROFILES } from '../../src/uapi/index.ts';
import { distanceBetween } from '../../src/ucs/sys/topology.ts';
import { run } from '../fixtures/tools/run-command.ts';
import { errorsOutside, outputOf, programSkipReason } from './programs.ts';

const CARDS = 8;
const PLACES = placesOf(CARDS, []);
/** Sizes of BARs 0, 2 and 4, and the speed of the link, as lspci prints them. */
const FACTS = {
  gaudi: { sizes: ['64M', '128M', '32G'], speed: '16GT/s', messages: /MSI: Enable\+ Count=1\/32 Maskable- 64bit\+/ },
  gaudi2: { sizes: ['256M', '16K', '128G'], speed: '16GT/s', messages: /MSI-X: Enable\+ Count=512 Masked-/ },
  gaudi3: { sizes: ['256M', '32K', '256G'], speed: '32GT/s', messages: /MSI-X: Enable\+ Count=1024 Masked-/ },
} as const;
const GENERATIONS = Object.keys(FACTS) as (keyof typeof FACTS)[];

const nodeOf = (asic: string): readonly string[] => ['--asic', asic, '--cards', String(CARDS)];
const bridgesOf = (pciPath: string): string[] => pciPath.split('/').slice(1, -1);

/** The records of `lspci -vmm`: one for each device, with the fields by name. */
function recordsOf(text: string): Map<string, string>[] {
  const fieldsOf = (record: string): [string, string][] =>
    record.split('\n').map((line) => {
      const [name = '', value = ''] = line.split(':\t');
      return [name, value];
    });
  return text
    .trim()
    .split('\n\n')
    .map((record) => new Map(fieldsOf(record)));
}

describe.each(GENERATIONS)('lspci on %s', (asic) => {
  const reason = programSkipReason('lspci', 'pciutils');
  const { pciDeviceId } = ASIC_PROFILES[asic];

  it.skipIf(reason !== undefined)(
    'lists the cards with their ids, drivers and NUMA nodes (needs root and lspci)',
    () => {
      const text = outputOf(nodeOf(asic), ['lspci', '-D', '-n', '-k', '-vmm', '-d', '1da3:']);
      const id = pciDeviceId.toString(16);
      const expected = PLACES.map(({ busId, numaNode }) => ({
        Slot: busId,
        Class: '1200',
        Vendor: '1da3',
        Device: id,
        SVendor: '1da3',
        SDevice: id,
        Rev: '01',
        ProgIf: '00',
        Driver: 'habanalabs',
        NUMANode: String(numaNode),
      }));
      expect(recordsOf(text).map((record) => Object.fromEntries(record))).toEqual(expected);
    },
  );

  it.skipIf(reason !== undefined)('decodes every device without errors (needs root and lspci)', () => {
    const [status, out, errors] = run([...nodeOf(asic), '--', 'lspci', '-D', '-vv']);
    expect([status, errors]).toEqual([0, errorsOutside('lspci', ['-D', '-vv'])]);
    const devices = new Map(out.split('\n\n').map((text) => [text.slice(0, text.indexOf(' ')).trim(), text]));
    const { sizes, speed, messages } = FACTS[asic];
    for (const { busId, pciPath } of PLACES) {
      const card = devices.get(busId)!;
      expect([...card.matchAll(/Region \d: Memory at .*\[size=(\w+)\]/g)].map(([, size]) => size)).toEqual(sizes);
      expect(card).toMatch(messages);
      for (const device of [busId, ...bridgesOf(pciPath)])
        expect(devices.get(device)).toMatch(new RegExp(`LnkSta:\\s+Speed ${speed}, Width x16`));
    }
  });

  it.skipIf(reason !== undefined)('finds the path to each card through its bridges (needs root and lspci)', () => {
    const lines = outputOf(nodeOf(asic), ['lspci', '-D', '-PP', '-d', '1da3:']).trim().split('\n');
    const paths = PLACES.map(({ pciPath }) =>
      pciPath
        .split('/')
        .slice(1)
        .map((name, index) => (index === 0 ? name : name.slice(5))),
    );
    expect(lines.map((line) => line.slice(0, line.indexOf(' ')))).toEqual(paths.map((path) => path.join('/')));
  });
});

interface LshwDevice {
  readonly businfo?: string;
  readonly class: string;
  readonly description?: string;
  readonly claimed?: boolean;
  readonly version?: string;
  readonly configuration?: { readonly driver?: string };
  readonly children?: readonly LshwDevice[];
}

/** The devices on PCI by bus id, each with those above it. */
function lshwDevices(
  device: LshwDevice,
  above: readonly string[] = [],
): Map<string, { device: LshwDevice; above: readonly string[] }> {
  const busId = /^pci@(.*)$/.exec(device.businfo ?? '')?.[1];
  const found = new Map(busId === undefined ? [] : [[busId, { device, above }]]);
  for (const child of device.children ?? [])
    for (const [name, value] of lshwDevices(child, busId === undefined ? above : [...above, busId]))
      found.set(name, value);
  return found;
}

describe.each(GENERATIONS)('lshw on %s', (asic) => {
  const reason = programSkipReason('lshw', 'lshw');

  it.skipIf(reason !== undefined)('shows each card behind its bridges (needs root and lshw)', () => {
    const text = outputOf(nodeOf(asic), ['lshw', '-quiet', '-json']);
    const read = JSON.parse(text) as LshwDevice | readonly LshwDevice[];
    const devices = lshwDevices({ class: 'root', children: [read].flat() as readonly LshwDevice[] });
    for (const { busId, pciPath } of PLACES) {
      const { device, above } = devices.get(busId)!;
      expect(device).toMatchObject({ claimed: true, version: '01', configuration: { driver: 'habanalabs' } });
      expect(device.description).toBe('Processing accelerators');
      expect(above).toEqual(bridgesOf(pciPath));
    }
  });

  it.skipIf(reason !== undefined)('prints the BARs (needs root and lshw)', () => {
    const text = outputOf(nodeOf(asic), ['lshw', '-quiet']);
    for (const device of pciDevicesOf(resolveNodeOptions({ asic }), PLACES)) {
      if (device.kind !== 'card') continue;
      const block = text.slice(text.indexOf(`bus info: pci@${device.busId}`));
      const [, resources] = /resources: (.*)/.exec(block)!;
      const bars = device.bars.map(({ start, end }) => `memory:${start.toString(16)}-${(end - 1n).toString(16)}`);
      expect(resources!.split(' ').filter((each) => each.startsWith('memory:'))).toEqual(bars);
    }
  });
});

interface HwlocObject {
  readonly attributes: ReadonlyMap<string, string>;
  readonly above: readonly HwlocObject[];
}

/** The objects of the XML of lstopo. */
function hwlocObjects(xml: string): HwlocObject[] {
  const objects: HwlocObject[] = [];
  const open: HwlocObject[] = [];
  for (const [, end, attributes = '', isEmpty] of xml.matchAll(/<(\/?)object\b((?:\s+\w+="[^"]*")*)\s*(\/?)>/g)) {
    if (end === '/') {
      open.pop();
      continue;
    }
    const pairs = [...attributes.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name!, value!] as const);
    const object = { attributes: new Map(pairs), above: [...open] };
    objects.push(object);
    if (isEmpty !== '/') open.push(object);
  }
  return objects;
}

/** The nearest common object above two: a bridge between buses, a bridge of the host, or a part of the machine. */
function commonOf(one: HwlocObject, other: HwlocObject): string {
  const common = one.above.filter((object) => other.above.includes(object)).at(-1)!;
  const type = common.attributes.get('bridge_type');
  if (type === undefined) return 'machine';
  return type === '1-1' ? 'PCI switch' : 'PCI root';
}

describe.each(GENERATIONS)('lstopo on %s', (asic) => {
  const reason = programSkipReason('lstopo-no-graphics', 'hwloc-nox');

  it.skipIf(reason !== undefined)(
    'has the distances of this package between cards (needs root and lstopo-no-graphics)',
    () => {
      const objects = hwlocObjects(outputOf(nodeOf(asic), ['lstopo-no-graphics', '--of', 'xml']));
      const cards = PLACES.map((place) => ({
        place: { ...place, name: `card ${place.minor}` },
        object: objects.find(({ attributes }) => attributes.get('pci_busid') === place.busId)!,
      }));
      for (const { place, object } of cards) {
        const above = object.above.flatMap(({ attributes }) => attributes.get('pci_busid') ?? []);
        expect(above).toEqual(bridgesOf(place.pciPath));
        for (const other of cards) {
          if (other.place === place) continue;
          const { kind } = distanceBetween(place, other.place);
          expect(commonOf(object, other.object)).toBe(kind === 'NUMA node' ? 'machine' : kind);
        }
      }
      const gigabytes = cards.map(({ object }) => Math.round(Number(object.attributes.get('pci_link_speed'))));
      expect(new Set(gigabytes)).toEqual(new Set([asic === 'gaudi3' ? 63 : 32]));
    },
  );

  it.skipIf(reason !== undefined)('has the CPUs of each card next to it (needs root and lstopo-no-graphics)', () => {
    const objects = hwlocObjects(outputOf(nodeOf(asic), ['lstopo-no-graphics', '--of', 'xml']));
    const files = PLACES.map(({ busId }) => `/sys/bus/pci/devices/${busId}/local_cpus`);
    const masks = outputOf(nodeOf(asic), ['cat', ...files])
      .trim()
      .split('\n');
    const near = PLACES.map(({ busId }) => {
      const card = objects.find(({ attributes }) => attributes.get('pci_busid') === busId)!;
      return card.above.flatMap(({ attributes }) => attributes.get('cpuset') ?? []).at(-1)!;
    });
    const number = (mask: string): bigint => BigInt(`0x${mask.replaceAll(/0x|,/g, '')}`);
    expect(near.map(number)).toEqual(masks.map(number));
  });
});

/** Properties that `udevadm info` prints for a device: `E: NAME=value`. */
function propertiesOf(text: string): Record<string, string> {
  return Object.fromEntries([...text.matchAll(/^E: (\w+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]));
}

describe('libudev', () => {
  const reason = programSkipReason('udevadm', 'udev');
  const [{ pciPath }] = PLACES as [(typeof PLACES)[number]];
  const inSysfs = `/devices/${pciPath}/accel/accel0`;

  it.skipIf(reason !== undefined)('finds a card by class, device number and parent (needs root and udevadm)', () => {
    const command = 'udevadm info -q all -p /sys/class/accel/accel0 && udevadm info -q path -p /sys/dev/char/261:0';
    const out = outputOf(['--cards', '1'], ['sh', '-c', command]);
    expect(propertiesOf(out)).toMatchObject({
      DEVPATH: inSysfs,
      DEVNAME: '/dev/accel/accel0',
      DEVTYPE: 'accel_minor',
      MAJOR: '261',
      MINOR: '0',
      SUBSYSTEM: 'accel',
    });
    expect(out.trim().split('\n').at(-1)).toBe(inSysfs);
    const walk = outputOf(['--cards', '1'], ['udevadm', 'info', '-a', '-p', inSysfs]);
    const names = [...walk.matchAll(/^ +KERNELS?=="(.*)"$/gm)].map(([, name]) => name);
    expect(names).toEqual(['accel0', ...pciPath.split('/').reverse()]);
  });

  it.skipIf(reason !== undefined)('lists the cards on the bus (needs root and udevadm)', () => {
    const all = outputOf(['--cards', '2'], ['udevadm', 'info', '--export-db']);
    const cards = all
      .split('\n\n')
      .map(propertiesOf)
      .filter(({ DRIVER }) => DRIVER === 'habanalabs');
    expect(cards.map(({ PCI_SLOT_NAME, PCI_ID, SUBSYSTEM }) => [PCI_SLOT_NAME, PCI_ID, SUBSYSTEM])).toEqual([
      ['0000:19:00.0', '1DA3:1020', 'pci'],
      ['0000:1a:00.0', '1DA3:1020', 'pci'],
    ]);
  });
});
