import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { attributeFolder, FakeMachine, type Layout } from '../../../test/fixtures/driver/fake-machine.ts';
import { Errno, openFileDescriptors, SyscallError } from '../../sys/index.ts';
import {
  canonicalBusId,
  discoverCards,
  explainNoCards,
  findAbsentCards,
  findOwner,
  MINOR_MAX,
  readCardAttribute,
  readTemperature,
} from './discovery.ts';
import { linuxSystemCalls } from './system-calls.ts';

describe.each<Layout>(['legacy', 'accel', 'accel-parent'])('discoverCards in the %s layout', (layout) => {
  it('reports minor, bus id, module id, NUMA node and path', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout, busId: '0000:3b:00.0', moduleId: 5, numaNode: 1 });
    expect(discoverCards(linuxSystemCalls, machine)).toEqual({
      cards: [
        {
          minor: 0,
          busId: '0000:3b:00.0',
          moduleId: 5,
          numaNode: 1,
          path: join(machine.devRoot, layout === 'legacy' ? 'hl0' : 'accel/accel0'),
        },
      ],
      skipped: [],
    });
  });

  it('orders by minor, across gaps, up to the last minor', () => {
    using machine = new FakeMachine();
    for (const minor of [MINOR_MAX, 10, 2, 0]) {
      machine.addCard({ minor, layout, busId: `0000:${minor.toString(16).padStart(2, '0')}:00.0` });
    }
    machine.addCard({ minor: MINOR_MAX + 1, layout, busId: '0001:00:00.0' });
    const { cards } = discoverCards(linuxSystemCalls, machine);
    expect(cards.map((card) => card.minor)).toEqual([0, 2, 10, MINOR_MAX]);
    expect(cards.map((card) => card.moduleId)).toEqual([undefined, undefined, undefined, undefined]);
    expect(cards.map((card) => card.numaNode)).toEqual([-1, -1, -1, -1]);
  });

  it('leaves no descriptor open', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 1, layout, busId: '0000:3b:00.0', moduleId: 1, numaNode: 0 });
    const before = openFileDescriptors();
    discoverCards(linuxSystemCalls, machine);
    expect(openFileDescriptors()).toBe(before);
  });

  it('skips a node whose bus id is unreadable or invalid, and reports why', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout, busId: 'nonsense' });
    machine.write(layout === 'legacy' ? 'dev/hl1' : 'dev/accel/accel1', '');
    mkdirSync(join(machine.root, attributeFolder({ minor: 1, layout }), 'pci_addr'), { recursive: true });
    machine.write(layout === 'legacy' ? 'dev/hl2' : 'dev/accel/accel2', '');
    const { cards, skipped } = discoverCards(linuxSystemCalls, machine);
    expect(cards).toEqual([]);
    expect(skipped.map((node) => node.reason)).toEqual([
      'pci_addr is "nonsense", not a PCI address',
      'cannot read pci_addr: is a directory',
      'no pci_addr in sysfs: not a habanalabs card',
    ]);
  });

  it('skips a node whose attributes are not readable', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout, busId: '0000:3b:00.0' });
    const calls = {
      ...linuxSystemCalls,
      open: (path: string, flags: number): number => {
        if (path.endsWith('pci_addr')) throw new SyscallError('open', Errno.EACCES, path);
        return linuxSystemCalls.open(path, flags);
      },
    };
    expect(discoverCards(calls, machine)).toMatchObject({
      cards: [],
      skipped: [{ reason: 'cannot read pci_addr: permission denied' }],
    });
  });
});

describe('discoverCards', () => {
  it('finds both layouts on one machine and prefers accel for a minor that is in both', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout: 'legacy', busId: '0000:01:00.0' });
    machine.addCard({ minor: 1, layout: 'legacy', busId: '0000:02:00.0' });
    machine.addCard({ minor: 1, layout: 'accel-parent', busId: '0000:03:00.0' });
    const { cards } = discoverCards(linuxSystemCalls, machine);
    expect(cards.map((card) => card.busId)).toEqual(['0000:01:00.0', '0000:03:00.0']);
  });

  it('ignores control nodes and other names', () => {
    using machine = new FakeMachine();
    for (const name of ['accel_controlD0', 'accel', 'accel1x', 'accel01', 'xaccel1', 'accel-1', 'accel1000']) {
      machine.write(`dev/accel/${name}`, '');
    }
    machine.write('dev/hl_controlD0', '');
    machine.write('dev/hlx', '');
    expect(discoverCards(linuxSystemCalls, machine)).toEqual({ cards: [], skipped: [] });
  });

  it('finds nothing without the trees', () => {
    const roots = { devRoot: '/nonexistent/dev', sysRoot: '/nonexistent/sys' };
    expect(discoverCards(linuxSystemCalls, roots)).toEqual({ cards: [], skipped: [] });
  });

  it('reads the NUMA node beside the card if the PCI tree is hidden, and -1 on a platform without', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout: 'accel-parent', busId: '0000:3b:00.0' });
    machine.addCard({ minor: 1, layout: 'accel-parent', busId: '0000:3c:00.0', numaNode: -1 });
    machine.write('sys/class/accel/accel0/device/numa_node', '3\n');
    expect(discoverCards(linuxSystemCalls, machine).cards.map((card) => card.numaNode)).toEqual([3, -1]);
  });
});

describe('canonicalBusId', () => {
  it.each([
    ['0000:3b:00.0', '0000:3b:00.0'],
    ['3B:00.0', '0000:3b:00.0'],
    ['10000:e1:00.7\n', '10000:e1:00.7'],
    ['', undefined],
    ['3b:00', undefined],
    ['0000:3b:00.8', undefined],
    ['../../etc', undefined],
  ])('of %j is %j', (text, id) => {
    expect(canonicalBusId(text)).toBe(id);
  });
});

describe('readCardAttribute', () => {
  it('keeps all but one trailing newline and reads at most a page', () => {
    using machine = new FakeMachine();
    machine.write('sys/class/accel/accel0/two', 'a\nb\n\n');
    machine.write('sys/class/accel/accel0/long', 'x'.repeat(5000));
    machine.write('sys/class/accel/accel0/none', '');
    expect(readCardAttribute(linuxSystemCalls, machine, 0, 'two')).toEqual({ text: 'a\nb\n' });
    expect(readCardAttribute(linuxSystemCalls, machine, 0, 'long')).toEqual({ text: 'x'.repeat(4096) });
    expect(readCardAttribute(linuxSystemCalls, machine, 0, 'none')).toEqual({ text: '' });
    expect(readCardAttribute(linuxSystemCalls, machine, 0, 'absent')).toEqual({ errno: 0 });
  });

  it.each(['../status', 'a/b', '', 'a b', '.'])('rejects the name %j', (name) => {
    using machine = new FakeMachine();
    expect(() => readCardAttribute(linuxSystemCalls, machine, 0, name)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM', details: expect.objectContaining({ argument: 'name' }) }),
    );
  });
});

describe('findAbsentCards', () => {
  it('finds accelerators of the vendor that have no device node, and why', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout: 'accel-parent', busId: '0000:3b:00.0' });
    const add = (busId: string, vendor: string, pciClass: string): void => {
      machine.write(`sys/bus/pci/devices/${busId}/vendor`, `${vendor}\n`);
      machine.write(`sys/bus/pci/devices/${busId}/class`, `${pciClass}\n`);
    };
    add('0000:3b:00.0', '0x1da3', '0x120000');
    add('0000:4c:00.0', '0x1da3', '0x120000');
    add('0000:5d:00.0', '0x1da3', '0x120000');
    add('0000:6e:00.0', '0x1da3', '0x020000');
    add('0000:7f:00.0', '0x10de', '0x120000');
    machine.write('sys/bus/pci/drivers/habanalabs/bind', '');
    symlinkSync(
      join(machine.sysRoot, 'bus/pci/drivers/habanalabs'),
      join(machine.sysRoot, 'bus/pci/devices/0000:5d:00.0/driver'),
    );
    const { cards } = discoverCards(linuxSystemCalls, machine);
    expect(findAbsentCards(linuxSystemCalls, machine, cards)).toEqual([
      { minor: undefined, busId: '0000:4c:00.0', state: 'no driver' },
      { minor: undefined, busId: '0000:5d:00.0', state: 'no device node' },
    ]);
  });
});

describe('explainNoCards', () => {
  it('reports whether the driver is loaded, which nodes exist, and the accelerators on the PCI bus', () => {
    using machine = new FakeMachine();
    const { devRoot, sysRoot } = machine;
    expect(explainNoCards(linuxSystemCalls, machine)).toBe(
      `the habanalabs driver is not loaded (no ${sysRoot}/module/habanalabs); ${devRoot}/accel does not exist; no Gaudi card is on the PCI bus`,
    );
    machine.write('sys/module/habanalabs/version', '1.22.0\n');
    machine.write('dev/accel/accel0', '');
    machine.write('sys/bus/pci/devices/0000:4c:00.0/vendor', '0x1da3\n');
    machine.write('sys/bus/pci/devices/0000:4c:00.0/class', '0x120000\n');
    expect(explainNoCards(linuxSystemCalls, machine)).toBe(
      [
        'the habanalabs driver is loaded',
        `${devRoot}/accel has accel0`,
        `${devRoot}/accel/accel0: no pci_addr in sysfs: not a habanalabs card`,
        'on the PCI bus: 0000:4c:00.0 (no driver)',
      ].join('; '),
    );
  });
});

describe('findOwner', () => {
  it('is the process that has the primary node open', () => {
    using machine = new FakeMachine();
    machine.addCard({ minor: 0, layout: 'accel', busId: '0000:3b:00.0' });
    machine.addCard({ minor: 1, layout: 'legacy', busId: '0000:4c:00.0' });
    const roots = { ...machine, procRoot: join(machine.root, 'proc') };
    const openIn = (pid: string, fd: number, path: string): void => {
      mkdirSync(join(roots.procRoot, pid, 'fd'), { recursive: true });
      symlinkSync(path, join(roots.procRoot, pid, 'fd', String(fd)));
    };
    openIn('17', 3, join(machine.devRoot, 'accel/accel_controlD0'));
    openIn('17', 4, '/nonexistent');
    openIn('self', 4, join(machine.devRoot, 'accel/accel0'));
    expect(findOwner(linuxSystemCalls, roots, 0)).toBeUndefined();
    openIn('4711', 9, join(machine.devRoot, 'accel/accel0'));
    openIn('4712', 5, join(machine.devRoot, 'hl1'));
    expect([0, 1, 2].map((minor) => findOwner(linuxSystemCalls, roots, minor))).toEqual([4711, 4712, undefined]);
  });
});

describe('readTemperature', () => {
  it('reads the first sensor, in degrees', () => {
    using machine = new FakeMachine();
    expect(readTemperature(linuxSystemCalls, machine, '0000:3b:00.0')).toBeUndefined();
    machine.write('sys/bus/pci/devices/0000:3b:00.0/hwmon/hwmon4/temp1_input', '47500\n');
    expect(readTemperature(linuxSystemCalls, machine, '0000:3b:00.0')).toBe(47.5);
  });
});
